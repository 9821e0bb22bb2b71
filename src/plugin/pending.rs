// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What is under way of one queue, and who waits for the end of it.
//!
//! `tests/models.rs` checks it.

use crate::base::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, Thread};

/// Counts messages and transfers that are not done.
#[derive(Debug, Default)]
pub struct Pending {
    count: AtomicUsize,
    has_waiter: AtomicBool,
    waiter: Mutex<Option<Thread>>,
}

impl Pending {
    /// One more thing is under way.
    #[inline]
    pub fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// One thing that was under way is over, well or not; wakes whoever waits for all.
    #[inline]
    pub fn end(&self) {
        // Release: what was copied into the program's memory is there for the waiter.
        if self.count.fetch_sub(1, Ordering::Release) == 1
            && self.has_waiter.load(Ordering::Relaxed)
            && let Some(waiter) = &*self.waiter.lock()
        {
            waiter.unpark();
        }
    }

    /// True if nothing is under way.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.count.load(Ordering::Acquire) == 0
    }

    /// The thread to be woken when nothing is under way any more. It may be told just before
    /// this was heard, and then sleeps in vain: not for long, see [`super::turn`].
    pub fn set_waiter(&self, thread: Option<Thread>) {
        self.has_waiter.store(thread.is_some(), Ordering::Relaxed);
        *self.waiter.lock() = thread;
    }
}
