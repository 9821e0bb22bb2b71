// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Which idle thread takes what: libomp gets no more roots than there are kernels at once.

use super::{Me, Pool};
use std::sync::atomic::Ordering;

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
    let (pool, this) = (Pool::new(), std::thread::current());
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
    pool.resting.lock().push((std::thread::current(), false));
    pool.watched.store(true, Ordering::Release);
    pool.end_idle(&root);
    assert_eq!(pool.resting.lock().len(), 1, "somebody else watches");
    pool.begin_idle(&root);
    pool.watched.store(false, Ordering::Release);
    pool.end_idle(&root);
    assert!(pool.resting.lock().is_empty());
}
