// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Shares work in pieces among several threads: long copies, for which one core is too slow.

use super::node;
use crate::base::sync::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The maximum number of threads that help at a time. Only one helper was measured (on two cores); a few cores can use
/// all of a node's memory bandwidth.
const HELPERS: usize = 3;
/// The minimum of pieces for each thread: starting a thread takes some tens of microseconds.
const LEAST: usize = 8;
const STACK: usize = 256 << 10;

/// Threads that are helping or starting.
static HELPING: AtomicUsize = AtomicUsize::new(0);
static IS_DISMISSED: AtomicBool = AtomicBool::new(false);

struct Crew<W, T> {
    work: W,
    next: AtomicUsize,
    done: AtomicUsize,
    results: Mutex<Vec<Option<T>>>,
    count: usize,
}

/// Adds 1 on drop, including during unwinding.
struct Piece<'a>(&'a AtomicUsize);

impl Drop for Piece<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Subtracts 1 from [`HELPING`] on drop.
struct Helper;

impl Drop for Helper {
    fn drop(&mut self) {
        HELPING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T, W: Fn(&mut Vec<u8>, usize) -> T> Crew<W, T> {
    /// Does pieces until none is left, or `is_enough`.
    fn help(&self, is_enough: impl Fn() -> bool) {
        let mut buffer = Vec::new();
        while !is_enough() {
            let i = self.next.fetch_add(1, Ordering::Relaxed);
            if i >= self.count {
                return;
            }
            let _piece = Piece(&self.done);
            let result = (self.work)(&mut buffer, i);
            self.results.lock()[i] = Some(result);
        }
    }
}

/// On drop, including during unwinding, waits for the pieces that have begun, and lets no other begin.
struct Finish<'a, W, T>(&'a Crew<W, T>);

impl<W, T> Drop for Finish<'_, W, T> {
    fn drop(&mut self) {
        let begun = self.0.next.swap(self.0.count, Ordering::Relaxed).min(self.0.count);
        while self.0.done.load(Ordering::Acquire) < begun {
            std::thread::yield_now();
        }
    }
}

/// Calls `work` for each of `0..count`, on the calling thread and on short-lived helpers. Returns the results in order.
/// Each thread passes its own buffer.
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
    if most > 0 {
        let helpers = most.min(node::cores().len().saturating_sub(1));
        without_signals(|| (0..helpers).for_each(|_| start(crew.clone())));
    }
    let finish = Finish(&crew);
    crew.help(|| false);
    drop(finish);
    let results = std::mem::take(&mut *crew.results.lock());
    results.into_iter().map(|result| result.expect("no thread has panicked")).collect()
}

/// Starts a helper, unless there are enough. If no thread can be started, the others do all pieces.
fn start<T: Send + 'static>(crew: Arc<Crew<impl Fn(&mut Vec<u8>, usize) -> T + Send + Sync + 'static, T>>) {
    if HELPING.fetch_add(1, Ordering::Relaxed) >= HELPERS {
        return drop(Helper);
    }
    let helper = Helper;
    let _ = std::thread::Builder::new().stack_size(STACK).spawn(move || {
        let _helper = helper;
        crew.help(|| IS_DISMISSED.load(Ordering::Relaxed));
    });
}

/// Stops all helpers, because the process ends. The threads that they help, one of which may be the exiting thread, do
/// the remaining pieces.
pub(crate) fn dismiss() {
    IS_DISMISSED.store(true, Ordering::Relaxed);
}

/// Starts threads that get no signals sent to the process: a handler of the program runs on them only for their own
/// faults.
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
