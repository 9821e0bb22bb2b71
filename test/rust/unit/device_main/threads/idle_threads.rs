// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/threads/idle_threads.rs`.

use super::IdleThreads;
use std::sync::atomic::Ordering;
use std::thread;

#[test]
fn a_thread_that_has_run_no_kernel_leaves_work_to_an_idle_one_that_has() {
    let threads = IdleThreads::default();
    threads.enter(true);
    threads.enter(false);
    assert!(threads.leaves_to_root(false));
    assert!(!threads.leaves_to_root(true));
    threads.has_left(true, || false);
    assert!(!threads.leaves_to_root(false), "nothing may be left to a thread that is busy");
}

#[test]
fn the_thread_that_is_woken_is_a_root_if_one_sleeps() {
    let (threads, this) = (IdleThreads::default(), thread::current());
    threads.resting.lock().extend([(this.clone(), false), (this.clone(), true), (this, false)]);
    let roots = || threads.resting.lock().iter().map(|&(_, is_root)| is_root).collect::<Vec<_>>();
    assert!(threads.wake_one());
    assert_eq!(roots(), [false, false]);
    assert!(threads.wake_one() && threads.wake_one() && !threads.wake_one());
}

#[test]
fn a_thread_that_leaves_wakes_another_one_if_nobody_watches_or_work_is_left() {
    let threads = IdleThreads::default();
    let sleep = || threads.resting.lock().push((thread::current(), false));
    let is_woken = |is_watched, has_work| {
        sleep();
        threads.enter(true);
        threads.is_watched.store(is_watched, Ordering::Release);
        threads.has_left(true, || has_work);
        threads.resting.lock().pop().is_none()
    };
    assert!(!is_woken(true, false));
    assert!(is_woken(false, false) && is_woken(true, true));
}
