// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Counts the incomplete operations of one queue, and wakes the thread that waits for them.
//!
//! `test/rust/models.rs` checks this file.

use crate::base::sync::{AtomicBool, AtomicUsize, Mutex, Ordering, Thread};

/// Counts incomplete messages and transfers.
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
        // Also Release: the waiter sees the bytes copied into the program's memory. SeqCst pairs with `set_waiter`:
        // either the waiter sees that the queue is idle, or this thread sees the waiter.
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

    /// Sets the thread to wake when the queue becomes idle. That thread must then check once more whether it is idle.
    pub(crate) fn set_waiter(&self, thread: Option<Thread>) {
        self.has_waiter.store(thread.is_some(), Ordering::SeqCst);
        *self.waiter.lock() = thread;
    }
}
