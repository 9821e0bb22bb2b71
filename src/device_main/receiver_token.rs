// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The receiver token: its owner receives. While the owner is in a long action, the watching thread
//! may take the token.
//!
//! The state is odd during a long action of the owner and even otherwise. Only the owner makes it
//! odd; the thread that makes it even again is the owner. `test/rust/models.rs` checks this.

use crate::base::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Thread, current, park};

/// Decides which thread receives. The state changes with each step.
#[derive(Debug, Default)]
pub struct ReceiverToken {
    state: AtomicU64,
    watcher_rests: AtomicBool,
    watcher: Mutex<Option<Thread>>,
}

impl ReceiverToken {
    /// The receiver starts a long action; pass the result to [`ReceiverToken::end_long`].
    #[inline]
    pub fn begin_long(&self) -> u64 {
        let state = self.state.load(Ordering::Relaxed) + 1;
        // SeqCst pairs with `rest`: either it sees the state, or this thread sees that it rests.
        self.state.store(state, Ordering::SeqCst);
        if self.watcher_rests.load(Ordering::SeqCst)
            && let Some(watcher) = &*self.watcher.lock()
        {
            watcher.unpark();
        }
        state
    }

    /// Ends a long action; true if its thread still owns the token.
    #[inline]
    pub fn end_long(&self, state: u64) -> bool {
        self.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub fn begin_watch(&self) {
        *self.watcher.lock() = Some(current());
    }

    pub fn look(&self) -> u64 {
        self.state.load(Ordering::SeqCst)
    }

    /// Takes the token if the receiver is still in the same long action; true on success.
    pub fn take_over(&self, state: u64) -> bool {
        state % 2 == 1 && self.state.compare_exchange(state, state + 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The watching thread sleeps until a long action begins or [`ReceiverToken::wake_watcher`] is
    /// called. Returns at once if either has happened already.
    pub fn rest(&self, state: u64, no_work: impl Fn() -> bool) {
        self.watcher_rests.store(true, Ordering::SeqCst);
        if self.look() == state && no_work() {
            park();
        }
        self.watcher_rests.store(false, Ordering::SeqCst);
    }

    /// Keeps other threads from becoming the watching one.
    pub fn lock(&self) -> impl Drop {
        self.watcher.lock()
    }

    /// For the only thread of a forked process, which becomes the receiver.
    pub fn reset(&self) {
        *self.watcher.lock() = None;
        self.watcher_rests.store(false, Ordering::Relaxed);
        self.state.store(0, Ordering::Relaxed);
    }

    pub fn wake_watcher(&self) {
        if let Some(watcher) = self.watcher.lock().as_ref().filter(|_| self.watcher_rests.load(Ordering::SeqCst)) {
            watcher.unpark();
        }
    }
}
