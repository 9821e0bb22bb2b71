// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Whose turn it is to drive the link. One waiting thread at a time does; the others sleep
//! until they are served, or until it is their turn.
//!
//! `tests/models.rs` checks it.

use super::pending::Pending;
use crate::base::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, Thread, current, park_timeout, spin_loop,
};
use std::time::Duration;

/// A sleeping waiter looks by itself this often.
const NAP: Duration = Duration::from_millis(1);

/// See the module.
#[derive(Debug)]
pub struct Turn {
    taken: AtomicBool,
    /// How often it was taken.
    count: AtomicU64,
    sleepers: Mutex<Vec<Thread>>,
    /// Threads in [`Turn::nap`] that are not patient.
    hurried: AtomicUsize,
    glances: u32,
}

impl Turn {
    /// A turn that nobody has. A thread looks `glances` times before it sleeps because
    /// another one drives.
    pub fn new(glances: u32) -> Turn {
        Turn {
            taken: AtomicBool::new(false),
            count: AtomicU64::new(0),
            sleepers: Mutex::default(),
            hurried: AtomicUsize::new(0),
            glances,
        }
    }

    /// Takes the turn, and tells the how manieth it is; none if another thread has it.
    #[inline]
    pub fn take(&self) -> Option<u64> {
        let taken = self.taken.swap(true, Ordering::Acquire);
        (!taken).then(|| self.count.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Ends the turn and wakes whoever may take it.
    pub fn pass(&self) {
        self.taken.store(false, Ordering::Release);
        self.wake_next();
    }

    fn wake_next(&self) {
        let next = self.sleepers.lock().pop();
        if let Some(next) = next {
            next.unpark();
        }
    }

    /// True if somebody wants the turn soon.
    #[inline]
    pub fn is_wanted(&self) -> bool {
        self.hurried.load(Ordering::Relaxed) > 0
    }

    /// Sleeps while another thread drives, but not for long. `done` tells whether the caller
    /// is served, which the end of all that is `pending` may bring about.
    ///
    /// Who is patient waits longer than short regions take: he does not make others hand the
    /// driving over, nor is he woken for it.
    #[cold]
    pub fn nap(&self, pending: Option<&Pending>, done: &dyn Fn() -> bool, patient: bool) {
        if !patient {
            self.hurried.fetch_add(1, Ordering::Relaxed);
            for _ in 0..self.glances {
                if done() || !self.taken.load(Ordering::Acquire) {
                    self.hurried.fetch_sub(1, Ordering::Relaxed);
                    return;
                }
                spin_loop();
            }
        }
        let me = current();
        if !patient {
            self.sleepers.lock().push(me.clone());
        }
        if let Some(pending) = pending {
            pending.set_waiter(Some(me.clone()));
        }
        // What happens between here and the look above costs a nap at most.
        if !done() && (patient || self.taken.load(Ordering::Acquire)) {
            park_timeout(NAP);
        }
        if !patient {
            let mut sleepers = self.sleepers.lock();
            let all = sleepers.len();
            sleepers.retain(|t| t.id() != me.id());
            let is_next = sleepers.len() == all;
            drop(sleepers);
            self.hurried.fetch_sub(1, Ordering::Relaxed);
            // Who was just served does not take the turn that it was woken for.
            if is_next && done() {
                self.wake_next();
            }
        }
        if let Some(pending) = pending {
            pending.set_waiter(None);
        }
    }
}
