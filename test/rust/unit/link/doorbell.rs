// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/link/doorbell.rs`.

use super::*;
use std::sync::atomic::AtomicUsize;
use std::time::Instant;

const LONG: Duration = Duration::from_secs(60);

fn both_ends() -> (Doorbell, Doorbell) {
    let mine = Doorbell::new().unwrap();
    let (descriptor, nonce) = mine.name();
    let theirs = Doorbell::of(std::process::id(), descriptor, nonce).unwrap();
    (mine, theirs)
}

#[test]
fn only_the_right_file_is_a_bell() {
    let (mine, _theirs) = both_ends();
    assert_eq!(mine.ringers(), 1);
    let (descriptor, nonce) = mine.name();
    assert!(Doorbell::of(std::process::id(), descriptor, nonce ^ 1).is_err());
    assert_eq!(mine.ringers(), 1);
}

#[test]
fn a_ring_after_the_announcement_is_not_slept_through() {
    let (mine, theirs) = both_ends();
    let announced = mine.announce();
    theirs.ring();
    mine.sleep(announced, LONG);
    assert!(mine.shared().sleepers.is_empty());
}

#[test]
fn every_message_is_seen_without_waiting_for_the_limit() {
    const MESSAGES: usize = 20_000;
    let (mine, theirs) = both_ends();
    let (sent, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let begin = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 1..=MESSAGES {
                sent.store(n, Ordering::Release);
                theirs.ring();
                while seen.load(Ordering::Acquire) < n {
                    std::thread::yield_now();
                }
            }
        });
        while seen.load(Ordering::Relaxed) < MESSAGES {
            let announced = mine.announce();
            let n = sent.load(Ordering::Acquire);
            if n > seen.load(Ordering::Relaxed) {
                mine.retract();
                seen.store(n, Ordering::Release);
            } else {
                mine.sleep(announced, LONG);
            }
        }
    });
    assert!(begin.elapsed() < LONG, "a ring was lost");
}
