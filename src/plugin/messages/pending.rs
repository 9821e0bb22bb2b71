// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Counts what is under way of one queue, and wakes the thread that waits for the end of it.
//!
//! `test/rust/models.rs` checks it.

use crate::base::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, Thread};

/// Counts messages and transfers that are not complete.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    count: AtomicUsize,
    has_waiter: AtomicBool,
    waiter: Mutex<Option<Thread>>,
}

impl Pending {
    pub(crate) fn begin(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends one operation, whether or not it succeeded; the last one wakes the waiter.
    #[inline]
    pub(crate) fn end(&self) {
        // Also Release: the waiter sees what was copied into the program's memory. SeqCst pairs with `set_waiter`: either
        // the waiter sees that it is idle, or this thread sees the waiter.
        if self.count.fetch_sub(1, Ordering::SeqCst) == 1
            && self.has_waiter.load(Ordering::SeqCst)
            && let Some(waiter) = &*self.waiter.lock()
        {
            waiter.unpark();
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.count.load(Ordering::SeqCst) == 0
    }

    /// Sets the thread to wake when the queue becomes idle. The thread then looks once more whether it is.
    pub(crate) fn set_waiter(&self, thread: Option<Thread>) {
        self.has_waiter.store(thread.is_some(), Ordering::SeqCst);
        *self.waiter.lock() = thread;
    }
}
