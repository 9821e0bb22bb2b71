// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/shares.rs`.

use super::*;
use std::collections::HashSet;

#[test]
fn parts_are_the_whole_range_in_order() {
    let start = 0x7000_0000_1000;
    for len in [0, 1, 4096, 2 * SHARE - 1, 2 * SHARE, 2 * SHARE + 4096, 5 * SHARE + 3, 100 * SHARE + PIECE] {
        let parts = divide(start..start + len, &|part| part.end - part.start);
        assert!(parts.len() as u64 <= *THREADS);
        assert_eq!(parts.len() > 1, len >= 2 * SHARE && *THREADS > 1);
        let mut at = start;
        for (part, handled) in &parts {
            assert!(part.start == at && part.end - part.start == *handled, "{parts:?} of {len}");
            assert!((part.start - start).is_multiple_of(PIECE));
            at = part.end;
        }
        assert_eq!(at, start + len);
    }
}

#[test]
fn each_part_has_a_thread_without_signals() {
    let own = thread::current().id();
    let blocked = |_| {
        // SAFETY: zero is a valid value, and the set outlives the calls.
        let blocks = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
            libc::sigismember(&set, libc::SIGUSR1) == 1
        };
        (thread::current().id(), blocks)
    };
    let parts = divide(0..100 * SHARE, &blocked);
    let threads: HashSet<_> = parts.iter().map(|(_, (thread, _))| *thread).collect();
    assert_eq!(threads.len(), parts.len());
    assert_eq!(parts[0].1, (own, false));
    assert!(parts[1..].iter().all(|(_, (_, blocks))| *blocks));
}

#[test]
#[should_panic(expected = "the last part")]
fn a_panic_goes_on_in_the_calling_thread() {
    let end = 10 * SHARE;
    divide(0..end, &|part| assert!(part.end < end, "the last part"));
}
