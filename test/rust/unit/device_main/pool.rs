// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Which idle thread takes what: libomp gets no more roots than there are kernels at once.

use super::{Me, Pool, REST, Work};
use crate::wire::command::Head;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

/// A thread that has run a kernel if `is_root`, and is idle.
fn idle(pool: &Pool, slot: usize, is_root: bool) -> Me {
    let mut me = Me::new(slot, false);
    if is_root {
        pool.settle(&mut me);
    }
    pool.begin_idle(&me);
    me
}

#[test]
fn a_thread_that_has_run_no_kernel_leaves_work_to_an_idle_one_that_has() {
    let pool = Pool::new();
    let (root, other) = (idle(&pool, 1, true), idle(&pool, 2, false));
    assert!(pool.leaves_to_root(&other));
    assert!(!pool.leaves_to_root(&root));
    pool.end_idle(&root);
    assert!(!pool.leaves_to_root(&other), "nothing may be left to a thread that is busy");
}

#[test]
fn the_thread_that_is_woken_is_a_root_if_one_sleeps() {
    let (pool, this) = (Pool::new(), thread::current());
    pool.resting.lock().extend([(this.clone(), false), (this.clone(), true), (this, false)]);
    let roots = || pool.resting.lock().iter().map(|&(_, is_root)| is_root).collect::<Vec<_>>();
    assert!(pool.wake_one());
    assert_eq!(roots(), [false, false]);
    assert!(pool.wake_one() && pool.wake_one() && !pool.wake_one());
}

#[test]
fn a_root_that_gets_busy_wakes_the_thread_that_had_left_it_the_watch() {
    let pool = Pool::new();
    let root = idle(&pool, 1, true);
    pool.resting.lock().push((thread::current(), false));
    pool.watched.store(true, Ordering::Release);
    pool.end_idle(&root);
    assert_eq!(pool.resting.lock().len(), 1, "somebody else watches");
    pool.begin_idle(&root);
    pool.watched.store(false, Ordering::Release);
    pool.end_idle(&root);
    assert!(pool.resting.lock().is_empty());
}

/// The thread that is woken is no root, and leaves it to the watching one, which sleeps.
#[test]
fn work_that_is_handed_over_reaches_a_root_that_watches() {
    let pool = Pool::new();
    pool.idle_threads.store(2, Ordering::Relaxed);
    let head = Head { seq: 1, queue: 1, fresh: true, core: 0 };
    let (message, reply) = Default::default();
    let work = Work {
        head,
        message,
        position: 0,
        reply,
        copies: None,
        early: None,
        is_passed: false,
        failure: None,
        trace: None,
    };
    thread::scope(|scope| {
        let watcher = scope.spawn(|| pool.watch(&idle(&pool, 1, true)));
        thread::sleep(4 * REST); // it sleeps by now; if not, the test shows nothing
        pool.resting.lock().push((thread::current(), false));
        assert!(pool.hand_over(Box::new(work)).is_none());
        let begin = Instant::now();
        while !watcher.is_finished() && begin.elapsed() < Duration::from_secs(10) {
            thread::yield_now();
        }
        let is_woken = watcher.is_finished();
        pool.token.wake_watcher();
        assert!(is_woken, "the watching thread was not woken");
    });
}
