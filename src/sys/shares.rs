// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Threads that share the work on much memory.

use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread::{self, Builder};

/// Bytes for which another thread is worth its start.
const SHARE: u64 = 2 << 20;
/// The length of a part, but the last one's, is a multiple of it.
const PIECE: u64 = 256 << 10;
/// How many threads share at most. With more, memory itself is what takes the time.
static THREADS: LazyLock<u64> = LazyLock::new(|| thread::available_parallelism().map_or(1, |n| n.get().min(4) as u64));

/// Has several threads, of which the calling one is the first, handle parts of a range at once. Returns the parts, in
/// order, with what came of each.
pub(crate) fn divide<T: Send>(range: Range<u64>, handle: &(dyn Fn(Range<u64>) -> T + Sync)) -> Vec<(Range<u64>, T)> {
    let len = range.end - range.start;
    if len < 2 * SHARE {
        return vec![(range.clone(), handle(range))];
    }
    let share = (len / (len / SHARE).min(*THREADS)).next_multiple_of(PIECE);
    let parts = || (range.start..range.end).step_by(share as usize).map(|at| at..range.end.min(at + share));
    thread::scope(|scope| {
        let others: Vec<_> = without_signals(|| {
            let start = |part| Builder::new().spawn_scoped(scope, move || handle(part));
            parts().skip(1).map(|part| (part.clone(), start(part))).collect()
        });
        let mut results = vec![handle(range.start..range.end.min(range.start + share))];
        results.extend(others.into_iter().map(|(part, thread)| match thread {
            Ok(thread) => thread.join().unwrap_or_else(|panic| resume_unwind(panic)),
            // The system gives no more threads.
            Err(_) => handle(part),
        }));
        parts().zip(results).collect()
    })
}

/// Threads that `start` starts get no signal: handlers of the program would run in them.
fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: zero is a valid value of both sets, and they outlive the calls.
    unsafe {
        let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, &mut before);
        let started = start();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        started
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/shares.rs"]
mod tests;
