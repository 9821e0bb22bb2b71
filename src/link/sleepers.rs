// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The protocol of a bell: no sleeper misses what was sent before a ring.
//!
//! `tests/models.rs` checks it.

use crate::base::sync::{AtomicU32, Ordering, fence};

/// Who sleeps. Lies in memory that processes share, which starts as zeros.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Sleepers {
    /// Threads that sleep, or will if nothing rings.
    count: AtomicU32,
    /// Counts the rings that found a sleeper; the futex.
    rings: AtomicU32,
}

impl Sleepers {
    /// Lets `wake` wake all who wait for the futex to change, if there may be any: to be
    /// called after a send.
    #[inline]
    pub fn ring(&self, wake: impl FnOnce(&AtomicU32)) {
        // Against `announce`: either we see the sleeper or it sees what was sent.
        fence(Ordering::SeqCst);
        if self.count.load(Ordering::Relaxed) > 0 {
            self.rings.fetch_add(1, Ordering::SeqCst);
            wake(&self.rings);
        }
    }

    /// A thread will sleep unless its next poll finds something; to be followed by
    /// [`Sleepers::sleep`] or [`Sleepers::retract`].
    pub fn announce(&self) -> u32 {
        let rings = self.rings.load(Ordering::SeqCst);
        self.count.fetch_add(1, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        rings
    }

    /// The poll has found something.
    pub fn retract(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// Lets `wait` sleep until the futex is no more as it was `announced`.
    pub fn sleep(&self, announced: u32, wait: impl FnOnce(&AtomicU32, u32)) {
        wait(&self.rings, announced);
        self.retract();
    }

    /// Nobody sleeps: those who did are gone.
    pub fn start_anew(&self) {
        self.count.store(0, Ordering::SeqCst);
    }

    /// True if nobody sleeps or is about to.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }
}
