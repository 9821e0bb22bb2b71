// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The protocol of a doorbell: no sleeper misses a message that was sent before a ring.
//!
//! `test/rust/models.rs` checks this file.

use crate::base::sync::{AtomicU32, Ordering, fence};

/// The sleepers of a doorbell, in shared memory that starts as zeros.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Sleepers {
    /// Threads that sleep, or will unless the doorbell rings.
    count: AtomicU32,
    /// The futex: counts the rings that found a sleeper.
    rings: AtomicU32,
}

impl Sleepers {
    /// Calls `wake` to wake all waiters of the futex, if there may be any. Call it after a send.
    #[inline]
    pub fn ring(&self, wake: impl FnOnce(&AtomicU32)) {
        // Pairs with `announce`: either this thread sees the sleeper, or the sleeper sees the message.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) > 0 {
            self.rings.fetch_add(1, Ordering::SeqCst);
            wake(&self.rings);
        }
    }

    /// Announces that the calling thread will sleep unless its next poll finds something. Call [`Sleepers::sleep`]
    /// or [`Sleepers::retract`] next.
    pub fn announce(&self) -> u32 {
        let rings = self.rings.load(Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        rings
    }

    /// Withdraws an announcement: the poll has found something.
    pub fn retract(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Calls `wait` to sleep until the futex differs from `announced`.
    pub fn sleep(&self, announced: u32, wait: impl FnOnce(&AtomicU32, u32)) {
        wait(&self.rings, announced);
        self.retract();
    }

    /// Forgets all sleepers: their process is gone.
    pub fn start_anew(&self) {
        self.count.store(0, Ordering::SeqCst);
    }

    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}
