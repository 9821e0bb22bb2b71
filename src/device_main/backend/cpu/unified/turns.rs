// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Lets kernels that use the program's memory take turns where that is faster than overlapping.
//!
//! While kernels overlap, none of the memory that they have used is forgotten: each kernel that begins fetches all of
//! it again, and each kernel that ends compares all of it. With `n` kernels, turns are faster if one kernel takes less
//! time than `n` times this work. So the next kernel waits that long for the running ones to end. If they run for
//! longer, or depend on the waiting kernel, it begins all the same. The more such waits in vain follow each other, the
//! more kernels begin after each without waiting.

use crate::base::lock::{Mutex, order};
use rustix::event::Timespec;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// The weight of one observation in the work's average (1/8); the average also shrinks by this part with each kernel
/// that uses no memory of the program.
const NEW: u64 = 8;
/// The part by which the average shrinks with each turn, so that kernels overlap from time to time and the cost is
/// measured again.
const OLD: u64 = 4096;
/// The maximum number of nanoseconds of work for one kernel: the program may have been stopped meanwhile.
const MOST_WORK: u64 = 10_000_000;
/// Longest wait for a turn. Tests must not see it end.
const PATIENCE: Duration = Duration::from_millis(if cfg!(test) { 1_000_000 } else { 1000 });
/// The maximum number of kernels that begin without waiting after a kernel that waited in vain.
const MOST_FREE: u32 = 4;

#[derive(Default)]
pub(super) struct Turns {
    /// The average work for each running kernel when one begins and ends, in nanoseconds.
    work: AtomicU64,
    /// Kernels that wait for their turn.
    waiting: AtomicUsize,
    /// The kernel whose turn is next holds this lock.
    next: Mutex<Vain, { order::TURN }>,
    /// The futex: counts how often the last running kernel has ended.
    ends: AtomicU32,
}

/// Consecutive waits in vain.
#[derive(Default)]
struct Vain {
    /// How many kernels may begin without waiting after the last wait in vain.
    kernels: u32,
    /// How many of those have not begun yet.
    left: u32,
}

impl Turns {
    /// True if overlapping costs work.
    #[inline]
    pub fn are_taken(&self) -> bool {
        self.work.load(Ordering::Relaxed) > 0
    }

    /// Waits for the calling kernel's turn, then calls `begin`. `running` counts running kernels.
    pub fn begin<R>(&self, running: impl Fn() -> usize, begin: impl FnOnce() -> R) -> R {
        // SeqCst pairs with `end`: either the kernel that ends sees this one, or this one sees that none runs.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut vain = self.next.lock();
        if vain.left > 0 {
            vain.left -= 1;
        } else if self.wait(running) {
            vain.kernels = 0;
            self.shrink(OLD);
        } else {
            vain.kernels = (2 * vain.kernels).clamp(1, MOST_FREE);
            vain.left = vain.kernels;
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        begin()
    }

    /// Waits until no kernel runs; false if that takes too long.
    fn wait(&self, running: impl Fn() -> usize) -> bool {
        let since = Instant::now();
        loop {
            let ends = self.ends.load(Ordering::Acquire);
            let running = running();
            if running == 0 {
                return true;
            }
            let kernels = running + self.waiting.load(Ordering::Relaxed);
            let gain = Duration::from_nanos(self.work.load(Ordering::Relaxed) * kernels as u64);
            let left = gain.min(PATIENCE).saturating_sub(since.elapsed());
            if left.is_zero() {
                return false;
            }
            let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos() as _ };
            let _ = futex::wait(&self.ends, futex::Flags::PRIVATE, ends, Some(&left));
        }
    }

    /// Runs `work`, which takes time because `running` kernels overlap, and measures it.
    pub fn overlap<R>(&self, running: usize, work: impl FnOnce() -> R) -> R {
        let begin = Instant::now();
        let result = work();
        // Twice: when a kernel begins and when it ends.
        let new = (2 * begin.elapsed().as_nanos() as u64 / running.max(1) as u64).clamp(1, MOST_WORK);
        let old = self.work.load(Ordering::Relaxed);
        self.work.store(if old == 0 { new } else { old - old / NEW + new / NEW }, Ordering::Relaxed);
        result
    }

    /// Notes that a kernel has ended without using memory of the program.
    #[inline]
    pub fn note_unused(&self) {
        if self.are_taken() {
            self.shrink(NEW);
        }
    }

    fn shrink(&self, part: u64) {
        let work = self.work.load(Ordering::Relaxed);
        self.work.store(work - work.div_ceil(part), Ordering::Relaxed);
    }

    /// Notes that no kernel runs.
    #[inline]
    pub fn end(&self) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.ends.fetch_add(1, Ordering::Release);
            let _ = futex::wake(&self.ends, futex::Flags::PRIVATE, 1);
        }
    }
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/turns.rs"]
mod tests;
