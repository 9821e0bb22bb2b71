// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Kernels that use the program's memory take turns where that is faster than to overlap.
//!
//! While kernels overlap, nothing that they have used is forgotten: each one that begins fetches all of that again, and each
//! one that ends compares all of it. That is work for each kernel about each other one, so `n` kernels gain by turns if one
//! of them runs for less time than `n` times that work takes. So a kernel that begins while others run waits that long for
//! them to end. It never waits longer: they may run for long, or depend on it.

use crate::base::lock::{Mutex, order};
use rustix::event::Timespec;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The part of the work's average that one observation makes up, and by which it shrinks with each kernel that uses no memory
/// of the program.
const NEW: u64 = 8;

#[derive(Default)]
pub(super) struct Turns {
    /// Nanoseconds of work for each kernel that runs, when one begins and ends: an average.
    work: AtomicU64,
    /// Kernels that wait for their turn.
    waiting: AtomicUsize,
    /// The one whose turn is next has it.
    next: Mutex<(), { order::TURN }>,
    /// The futex: counts how often the last kernel has ended.
    ends: AtomicU32,
}

impl Turns {
    /// A kernel calls `begin`, in its turn if that is faster. `running` counts kernels that run.
    #[inline]
    pub fn begin<R>(&self, running: impl Fn() -> usize, begin: impl FnOnce() -> R) -> R {
        if self.work.load(Ordering::Relaxed) == 0 { begin() } else { self.begin_in_turn(running, begin) }
    }

    #[cold]
    fn begin_in_turn<R>(&self, running: impl Fn() -> usize, begin: impl FnOnce() -> R) -> R {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _next = self.next.lock();
        let since = Instant::now();
        loop {
            let ends = self.ends.load(Ordering::Acquire);
            let running = running();
            let kernels = running + self.waiting.load(Ordering::Relaxed);
            let patience = Duration::from_nanos(self.work.load(Ordering::Relaxed) * kernels as u64);
            let left = patience.saturating_sub(since.elapsed());
            if running == 0 || left.is_zero() {
                break;
            }
            let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
            let _ = futex::wait(&self.ends, futex::Flags::PRIVATE, ends, Some(&left));
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        begin()
    }

    /// Does what takes time because so many kernels run.
    pub fn overlap<R>(&self, running: usize, work: impl FnOnce() -> R) -> R {
        let begin = Instant::now();
        let result = work();
        // When a kernel begins, and once more when it ends.
        let new = 2 * begin.elapsed().as_nanos() as u64 / running.max(1) as u64;
        let old = self.work.load(Ordering::Relaxed);
        self.work.store(if old == 0 { new } else { old - old / NEW + new / NEW }, Ordering::Relaxed);
        result
    }

    /// A kernel has ended without memory of the program.
    #[inline]
    pub fn note_unused(&self) {
        let work = self.work.load(Ordering::Relaxed);
        if work > 0 {
            self.work.store(work - work.div_ceil(NEW), Ordering::Relaxed);
        }
    }

    /// No kernel runs.
    #[inline]
    pub fn end(&self) {
        if self.waiting.load(Ordering::Relaxed) > 0 {
            self.ends.fetch_add(1, Ordering::Release);
            let _ = futex::wake(&self.ends, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/turns.rs"]
mod tests;
