// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The receiver token: its owner receives. While the owner is in a long action, the watching thread may take the token.
//! The new owner offers the token while it waits, so that the former owner can take it back. If no offer comes in time,
//! the former owner claims the token, and the new owner passes it on.
//!
//! `test/rust/models.rs` checks this.

use crate::base::sync::{AtomicBool, AtomicU64, Mutex, Ordering, Thread, current, park, park_timeout};
use std::time::Duration;

/// A thread that claims the token looks for an offer this often.
const LOOK: Duration = Duration::from_micros(200);

/// What the owner does, in the lowest bits of the state. The bits above count long actions and changes of owner.
const DOES: u64 = 3;
const LONG: u64 = 1;
const OFFERED: u64 = 2;

/// The state of a new owner, or of one that has ended a long action.
fn next(state: u64) -> u64 {
    (state | DOES) + 1
}

/// Decides which thread receives. Only the owner begins a long action, offers the token or passes it on; the thread
/// that ends an action or an offer is the owner.
#[derive(Debug, Default)]
pub struct ReceiverToken {
    state: AtomicU64,
    watcher_rests: AtomicBool,
    watcher: Mutex<Option<Thread>>,
    is_claimed: AtomicBool,
    /// The thread that claims the token.
    heir: Mutex<Option<Thread>>,
}

impl ReceiverToken {
    /// The receiver starts a long action; pass the result to [`ReceiverToken::end_long`].
    #[inline]
    pub fn begin_long(&self) -> u64 {
        let state = self.state.load(Ordering::Relaxed) | LONG;
        // SeqCst pairs with `rest`: either the watching thread sees the state, or this thread sees that it rests.
        self.state.store(state, Ordering::SeqCst);
        if self.watcher_rests.load(Ordering::SeqCst)
            && let Some(watcher) = &*self.watcher.lock()
        {
            watcher.unpark();
        }
        state
    }

    /// Ends a long action; true if the calling thread still owns the token.
    #[inline]
    pub fn end_long(&self, state: u64) -> bool {
        self.change(state, next(state))
    }

    /// The receiver offers the token; pass the result to [`ReceiverToken::retract`].
    pub fn offer(&self) -> u64 {
        let state = self.state.load(Ordering::Relaxed);
        self.state.store(state | OFFERED, Ordering::Release);
        state
    }

    /// Ends an offer; true if the calling thread still owns the token.
    pub fn retract(&self, state: u64) -> bool {
        self.change(state | OFFERED, state)
    }

    /// Takes the token if it is offered; true on success.
    pub fn take_offered(&self) -> bool {
        let state = self.state.load(Ordering::Relaxed);
        state & OFFERED != 0 && self.change(state, next(state))
    }

    /// Claims the token for the calling thread, which must call [`ReceiverToken::end_claim`] afterwards; false if
    /// another thread claims it.
    pub fn claim(&self) -> bool {
        let mut heir = self.heir.lock();
        if heir.is_some() {
            return false;
        }
        *heir = Some(current());
        self.is_claimed.store(true, Ordering::Relaxed);
        true
    }

    /// Waits for the token that the calling thread has claimed, as long as `waits` returns true for the number of looks
    /// for an offer so far. True if the thread owns the token then; otherwise calls `give_up` before the claim ends.
    pub fn end_claim(&self, waits: impl Fn(u32) -> bool, give_up: impl FnOnce()) -> bool {
        for _ in (0..).take_while(|&looks| waits(looks)) {
            if self.take_offered() {
                self.withdraw();
                return true;
            }
            if !self.is_heir() {
                return true;
            }
            park_timeout(LOOK);
        }
        give_up();
        !self.withdraw()
    }

    /// True while the calling thread's claim stands. (Once the token has been passed on, another thread may claim it.)
    fn is_heir(&self) -> bool {
        self.heir.lock().as_ref().is_some_and(|heir| heir.id() == current().id())
    }

    /// Ends the calling thread's claim; false if the owner has passed the token on.
    fn withdraw(&self) -> bool {
        let mut heir = self.heir.lock();
        let mine = heir.take_if(|heir| heir.id() == current().id()).is_some();
        // SeqCst pairs with `rest`: the watching thread leaves work to the thread that claims the token.
        self.is_claimed.store(heir.is_some(), Ordering::SeqCst);
        mine
    }

    /// True if a thread claims the token.
    #[inline]
    pub fn is_claimed(&self) -> bool {
        self.is_claimed.load(Ordering::SeqCst)
    }

    /// The owner passes the token on to the thread that claims it; true on success.
    pub fn pass_on(&self) -> bool {
        let mut heir = self.heir.lock();
        let Some(next_owner) = heir.take() else { return false };
        self.is_claimed.store(false, Ordering::Relaxed);
        self.state.store(next(self.state.load(Ordering::Relaxed)), Ordering::Relaxed);
        // The next owner takes the lock, and so sees these changes.
        drop(heir);
        next_owner.unpark();
        true
    }

    #[inline]
    fn change(&self, from: u64, to: u64) -> bool {
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    pub fn begin_watch(&self) {
        *self.watcher.lock() = Some(current());
    }

    /// The state, without offers.
    pub fn look(&self) -> u64 {
        self.state.load(Ordering::SeqCst) & !OFFERED
    }

    /// True if the receiver was in a long action.
    pub fn is_long(state: u64) -> bool {
        state & LONG != 0
    }

    /// Takes the token if the receiver is still in the same long action; true on success.
    pub fn take_over(&self, state: u64) -> bool {
        Self::is_long(state) && self.change(state, next(state))
    }

    /// The watching thread sleeps until a long action begins or [`ReceiverToken::wake_watcher`] is
    /// called. Returns at once if either already happened.
    pub fn rest(&self, state: u64, no_work: impl Fn() -> bool) {
        self.watcher_rests.store(true, Ordering::SeqCst);
        if self.look() == state && no_work() {
            park();
        }
        self.watcher_rests.store(false, Ordering::SeqCst);
    }

    /// Keeps other threads from beginning to watch, and from ending a claim.
    pub fn lock(&self) -> impl Sized {
        (self.watcher.lock(), self.heir.lock())
    }

    /// For the only thread of a forked process, which becomes the receiver.
    pub fn reset(&self) {
        *self.watcher.lock() = None;
        *self.heir.lock() = None;
        self.is_claimed.store(false, Ordering::Relaxed);
        self.watcher_rests.store(false, Ordering::Relaxed);
        self.state.store(0, Ordering::Relaxed);
    }

    pub fn wake_watcher(&self) {
        if let Some(watcher) = self.watcher.lock().as_ref().filter(|_| self.watcher_rests.load(Ordering::SeqCst)) {
            watcher.unpark();
        }
    }
}
