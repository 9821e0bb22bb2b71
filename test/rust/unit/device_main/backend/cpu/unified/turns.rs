// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/unified/turns.rs`.

use super::*;
use std::thread;

/// Overlapping takes so much work for each kernel.
fn turns(work: Duration) -> Turns {
    Turns { work: AtomicU64::new(work.as_nanos() as u64), ..Turns::default() }
}

/// So long that no test waits for it.
const LONG: Duration = Duration::from_secs(1000);

#[test]
fn kernels_begin_at_once_while_overlapping_takes_no_work() {
    let turns = Turns::default();
    assert!(!turns.are_taken());
    turns.note_unused();
    assert!(!turns.are_taken());
}

#[test]
fn kernels_take_turns() {
    let (turns, running) = (turns(LONG), AtomicUsize::new(0));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                let count = || running.load(Ordering::Acquire);
                let before = turns.begin(count, || running.fetch_add(1, Ordering::AcqRel));
                assert_eq!(before, 0, "another kernel runs");
                thread::yield_now();
                if running.fetch_sub(1, Ordering::AcqRel) == 1 {
                    turns.end();
                }
            });
        }
    });
    assert_eq!(turns.waiting.load(Ordering::Relaxed), 0);
}

#[test]
fn a_kernel_that_waits_begins_although_another_one_does_not_end() {
    let work = Duration::from_millis(2);
    let (turns, since) = (turns(work), Instant::now());
    turns.begin(|| 1, || ());
    // Two kernels: the one that runs, and this one.
    assert!(since.elapsed() >= 2 * work);
}

#[test]
fn the_more_waits_are_in_vain_the_more_kernels_do_not_wait() {
    let turns = turns(Duration::from_nanos(1));
    let waits = (0..100).filter(|_| {
        turns.begin(|| 1, || ());
        let vain = turns.next.lock();
        vain.left == vain.kernels
    });
    // The first kernel, and those after 1, 2, and each 4 further ones.
    assert_eq!(waits.count(), 3 + 18);
    turns.next.lock().left = 0;
    turns.begin(|| 0, || ());
    assert_eq!(turns.next.lock().kernels, 0);
}

#[test]
fn turns_end_if_overlapping_was_not_seen_for_long() {
    let turns = turns(LONG);
    for _ in 0..100_000 {
        turns.begin(|| 0, || ());
    }
    assert!(!turns.are_taken());
}

#[test]
fn work_is_counted_for_each_kernel_that_runs() {
    let (turns, work) = (Turns::default(), || thread::sleep(Duration::from_millis(8)));
    turns.overlap(4, work);
    let first = turns.work.load(Ordering::Relaxed);
    assert!(first >= 4_000_000, "when one of four begins, and again when it ends");
    turns.overlap(1, work);
    assert!(turns.work.load(Ordering::Relaxed) > first);
    let stopped = Turns::default();
    stopped.overlap(1, || thread::sleep(Duration::from_millis(20)));
    assert_eq!(stopped.work.load(Ordering::Relaxed), MOST_WORK);
}

#[test]
fn kernels_without_memory_of_the_program_end_the_turns() {
    let turns = turns(LONG);
    for _ in 0..1000 {
        turns.note_unused();
    }
    assert!(!turns.are_taken());
}
