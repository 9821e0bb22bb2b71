// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/crew.rs`.

use super::*;
use std::collections::BTreeSet;
use std::thread;
use std::time::{Duration, Instant};

/// Tests that use helpers, of which a process has few.
static ALONE: Mutex<()> = Mutex::new(());

#[test]
fn each_piece_is_done_once_and_results_are_in_order() {
    let _alone = ALONE.lock();
    for count in [0, 1, LEAST, 10 * LEAST] {
        let done = Arc::new((0..count).map(|_| AtomicUsize::new(0)).collect::<Vec<_>>());
        let theirs = done.clone();
        let results = share(count, move |buffer, i| {
            buffer.resize(i, 1);
            theirs[i].fetch_add(1, Ordering::Relaxed);
            i * i
        });
        assert_eq!(results, (0..count).map(|i| i * i).collect::<Vec<_>>());
        assert!(done.iter().all(|times| times.load(Ordering::Relaxed) == 1));
    }
}

#[test]
fn few_pieces_are_done_by_the_calling_thread() {
    let threads: BTreeSet<_> = share(LEAST, |_, _| format!("{:?}", thread::current().id())).into_iter().collect();
    assert_eq!(threads, [format!("{:?}", thread::current().id())].into());
}

#[test]
fn helpers_get_no_signals_but_those_of_instructions() {
    let blocked = |signal| {
        // SAFETY: the set is filled before it is read.
        unsafe {
            let mut set = std::mem::zeroed();
            libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
            libc::sigismember(&set, signal) == 1
        }
    };
    let _alone = ALONE.lock();
    while HELPING.load(Ordering::Relaxed) > 0 {
        thread::yield_now(); // helpers of other tests end soon
    }
    let mine = thread::current().id();
    let before = blocked(libc::SIGINT);
    let (begin, has_help) = (Instant::now(), AtomicBool::new(node::cores().len() < 2));
    let seen = share(2 * LEAST, move |_, _| {
        let is_mine = thread::current().id() == mine;
        has_help.fetch_or(!is_mine, Ordering::Relaxed);
        while !has_help.load(Ordering::Relaxed) && begin.elapsed() < Duration::from_secs(30) {
            thread::yield_now();
        }
        assert!(has_help.load(Ordering::Relaxed), "nobody helps");
        (is_mine, blocked(libc::SIGINT), blocked(libc::SIGSEGV))
    });
    assert!(seen.iter().all(|&(is_mine, int, segv)| is_mine && int == before || !is_mine && int && !segv));
    assert_eq!(blocked(libc::SIGINT), before);
}

#[test]
fn a_panic_leaves_no_piece_behind() {
    let _alone = ALONE.lock();
    let running = Arc::new(AtomicUsize::new(0));
    let theirs = running.clone();
    let mine = thread::current().id();
    let shared = std::panic::catch_unwind(move || {
        let panics = AtomicBool::new(false);
        share(100 * LEAST, move |_, i| {
            theirs.fetch_add(1, Ordering::Relaxed);
            if i >= LEAST && thread::current().id() == mine {
                panics.store(true, Ordering::Relaxed);
                panic!("on purpose");
            }
            // Helpers leave pieces to this thread.
            while i >= LEAST && !panics.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            thread::yield_now();
            theirs.fetch_sub(1, Ordering::Relaxed);
        })
    });
    assert!(shared.is_err());
    // The one that has panicked.
    assert_eq!(running.load(Ordering::Relaxed), 1);
}
