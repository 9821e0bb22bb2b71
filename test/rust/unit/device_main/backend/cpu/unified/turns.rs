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
    assert_eq!(turns.begin(|| unreachable!("nobody has to count kernels"), || 1), 1);
    turns.note_unused();
    assert_eq!(turns.work.load(Ordering::Relaxed), 0);
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
fn work_is_counted_for_each_kernel_that_runs() {
    let (turns, work) = (Turns::default(), || thread::sleep(Duration::from_millis(8)));
    turns.overlap(4, work);
    let first = turns.work.load(Ordering::Relaxed);
    assert!(first >= 4_000_000, "when one of four begins, and again when it ends");
    turns.overlap(1, work);
    assert!(turns.work.load(Ordering::Relaxed) > first);
}

#[test]
fn kernels_without_memory_of_the_program_end_the_turns() {
    let turns = turns(LONG);
    for _ in 0..1000 {
        turns.note_unused();
    }
    assert_eq!(turns.begin(|| 1, || 1), 1);
}
