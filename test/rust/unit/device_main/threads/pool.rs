// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/threads/pool.rs`.

use super::{Me, Pool, REST, Work};
use crate::wire::command::Head;
use std::thread;
use std::time::{Duration, Instant};

/// The thread that is woken is no root, and leaves it to the watching one, which sleeps.
#[test]
fn work_that_is_handed_over_reaches_a_root_that_watches() {
    let pool = Pool::new();
    let mut root = Me::new(1, false);
    pool.settle(&mut root);
    pool.idle.enter(true);
    pool.idle.enter(false);
    let head = Head { seq: 1, queue: 1, fresh: true, core: 0, merged: 0 };
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
        let watcher = scope.spawn(|| pool.idle.begin_watch(true) && pool.watch(&root));
        let other = scope.spawn(|| pool.idle.rest(false, &pool.token, || false));
        thread::sleep(4 * REST); // both sleep by now; if not, the test shows nothing
        assert!(pool.hand_over(Box::new(work)).is_none());
        let begin = Instant::now();
        while !watcher.is_finished() && begin.elapsed() < Duration::from_secs(10) {
            thread::yield_now();
        }
        let is_woken = watcher.is_finished();
        pool.token.wake_watcher();
        other.join().unwrap();
        assert!(is_woken, "the watching thread was not woken");
    });
}
