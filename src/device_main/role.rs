// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Who receives: the thread that has the role, until it is in something long and the watching
//! thread takes the role over.
//!
//! The role is even while its thread receives and odd while that thread is in something
//! long; only the receiver makes it odd, and whoever makes it even again receives.
//! `tests/models.rs` checks it.

use crate::base::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Thread, current, disown, park};

/// See the module.
#[derive(Debug, Default)]
pub struct Role {
    state: AtomicU64,
    watcher_rests: AtomicBool,
    watcher: Mutex<Option<Thread>>,
}

impl Role {
    /// The receiver starts something that may take long; what to end it with.
    #[inline]
    pub fn begin_long(&self) -> u64 {
        let role = self.state.load(Ordering::Relaxed) + 1;
        // SeqCst against `rest`: either it sees the role or we see that it rests.
        self.state.store(role, Ordering::SeqCst);
        if self.watcher_rests.load(Ordering::SeqCst)
            && let Some(watcher) = &*self.watcher.lock()
        {
            watcher.unpark();
        }
        role
    }

    /// It is over; true if its thread still has the role.
    #[inline]
    pub fn end_long(&self, role: u64) -> bool {
        self.state.compare_exchange(role, role + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The calling thread watches from now on.
    pub fn begin_watch(&self) {
        *self.watcher.lock() = Some(current());
    }

    /// The role now, to be compared with an earlier one.
    pub fn look(&self) -> u64 {
        self.state.load(Ordering::SeqCst)
    }

    /// True if the calling thread has taken the role over, as the receiver is still in the
    /// same long thing.
    pub fn take_over(&self, role: u64) -> bool {
        role % 2 == 1 && self.state.compare_exchange(role, role + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The watching thread sleeps until something long begins, or until it is woken because
    /// there is other work; not at all if that is so already.
    pub fn rest(&self, role: u64, no_work: impl Fn() -> bool) {
        self.watcher_rests.store(true, Ordering::SeqCst);
        if self.look() == role && no_work() {
            park();
        }
        self.watcher_rests.store(false, Ordering::SeqCst);
    }

    /// Keeps other threads from changing who watches.
    pub fn lock(&self) -> impl Drop {
        self.watcher.lock()
    }

    /// Only the calling thread is left, and receives.
    pub fn reset(&self) {
        disown(&self.watcher);
        *self.watcher.lock() = None;
        self.watcher_rests.store(false, Ordering::Relaxed);
        self.state.store(0, Ordering::Relaxed);
    }

    /// Wakes the watching thread if it rests: there is work.
    pub fn wake_watcher(&self) {
        if let Some(watcher) = self.watcher.lock().as_ref().filter(|_| self.watcher_rests.load(Ordering::SeqCst)) {
            watcher.unpark();
        }
    }
}
