// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Work in pieces that several threads do at once: long copies, for which one core is too slow.

use rustix::thread::sched_getaffinity;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Most threads that help: few cores use all of a node's memory bandwidth.
const HELPERS: usize = 3;
/// Pieces for each thread at least: starting one takes some tens of microseconds.
const LEAST: usize = 8;

struct Crew<W, T> {
    work: W,
    next: AtomicUsize,
    done: AtomicUsize,
    results: Mutex<Vec<Option<T>>>,
    count: usize,
}

/// A piece, from its beginning to its end, also by a panic.
struct Piece<'a>(&'a AtomicUsize);

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl<T, W: Fn(&mut Vec<u8>, usize) -> T> Crew<W, T> {
    /// Does pieces until none is left.
    fn help(&self) {
        let mut buffer = Vec::new();
        loop {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= self.count {
                return;
            }
            let _piece = Piece(&self.done);
            let result = (self.work)(&mut buffer, i);
            self.results.lock().unwrap_or_else(PoisonError::into_inner)[i] = Some(result);
        }
    }
}

/// Calls `work` for each of `0..count`, on the calling thread and on others that end soon. Returns the results in order.
/// Each thread passes a buffer of its own.
///
/// Does not wait for threads to start: a starting thread needs the loader's lock, which the caller holds if it is the
/// constructor of a library.
pub(crate) fn share<T: Send + 'static>(
    count: usize,
    work: impl Fn(&mut Vec<u8>, usize) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let results = Mutex::new((0..count).map(|_| None).collect());
    let crew = Arc::new(Crew { work, next: AtomicUsize::new(0), done: AtomicUsize::new(0), results, count });
    let most = HELPERS.min((count / LEAST).saturating_sub(1));
    let cores = if most > 0 { sched_getaffinity(None).map_or(1, |set| set.count() as usize) } else { 1 };
    without_signals(|| {
        for _ in 0..most.min(cores - 1) {
            let crew = crew.clone();
            // If no thread can be started, this one does all.
            let _ = std::thread::Builder::new().spawn(move || crew.help());
        }
    });
    crew.help();
    while crew.done.load(Ordering::Acquire) < count {
        std::thread::yield_now();
    }
    let results = std::mem::take(&mut *crew.results.lock().unwrap_or_else(PoisonError::into_inner));
    results.into_iter().map(|result| result.expect("no thread has panicked")).collect()
}

/// Starts threads that get no signals of the process: no handler of the program runs on them.
fn without_signals(start: impl FnOnce()) {
    const OF_INSTRUCTIONS: [i32; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];
    // SAFETY: the sets are this function's own, and are filled before they are read.
    unsafe {
        let (mut most, mut mine) = std::mem::zeroed::<(libc::sigset_t, libc::sigset_t)>();
        libc::sigfillset(&mut most);
        for signal in OF_INSTRUCTIONS {
            libc::sigdelset(&mut most, signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, &most, &mut mine);
        start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &mine, std::ptr::null_mut());
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/crew.rs"]
mod tests;
