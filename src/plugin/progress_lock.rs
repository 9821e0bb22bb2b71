// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The lock of the thread that drives the link. One waiting thread at a time holds it; the others
//! sleep until their wait is over, or until the lock is free.
//!
//! `test/rust/models.rs` checks it, but for patient threads, which check by themselves.

use super::pending::Pending;
use crate::base::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, Thread, current, park_timeout, spin_loop,
};
use std::time::Duration;

/// A sleeping thread checks by itself this often.
const MAX_SLEEP: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub(crate) struct ProgressLock {
    taken: AtomicBool,
    /// How often it was taken.
    count: AtomicU64,
    /// Threads that want the lock.
    sleepers: Mutex<Vec<Thread>>,
    /// Impatient threads in [`ProgressLock::sleep`].
    hurried: AtomicUsize,
    spins: u32,
}

impl ProgressLock {
    /// A free lock. A thread spins `spins` times before it sleeps while another one holds the lock.
    pub(crate) fn new(spins: u32) -> ProgressLock {
        ProgressLock {
            taken: AtomicBool::new(false),
            count: AtomicU64::new(0),
            sleepers: Mutex::default(),
            hurried: AtomicUsize::new(0),
            spins,
        }
    }

    /// Takes the lock and returns how often it was taken; `None` if another thread holds it.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<u64> {
        let taken = self.taken.swap(true, Ordering::Acquire);
        (!taken).then(|| self.count.fetch_add(1, Ordering::Relaxed) + 1)
    }

    /// Releases the lock and wakes a thread that wants it.
    pub(crate) fn unlock(&self) {
        self.taken.store(false, Ordering::Release);
        self.wake_next();
    }

    fn wake_next(&self) {
        let next = self.sleepers.lock().pop();
        if let Some(next) = next {
            next.unpark();
        }
    }

    /// True if another thread wants the lock soon.
    pub(crate) fn is_wanted(&self) -> bool {
        self.hurried.load(Ordering::Relaxed) > 0
    }

    /// Sleeps briefly while another thread drives. `done` returns whether the caller's wait is over;
    /// the end of everything `pending` wakes the caller.
    ///
    /// A patient thread waits for longer than short regions take: it does not make other threads
    /// give up the lock, and is not woken to take it.
    #[cold]
    pub(crate) fn sleep(&self, pending: Option<&Pending>, done: &dyn Fn() -> bool, patient: bool) {
        if !patient {
            self.hurried.fetch_add(1, Ordering::Relaxed);
            for _ in 0..self.spins {
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
        // What happens between here and the check above costs one sleep at most.
        if !done() && (patient || self.taken.load(Ordering::Acquire)) {
            park_timeout(MAX_SLEEP);
        }
        if !patient {
            let mut sleepers = self.sleepers.lock();
            let all = sleepers.len();
            sleepers.retain(|t| t.id() != me.id());
            let is_next = sleepers.len() == all;
            drop(sleepers);
            self.hurried.fetch_sub(1, Ordering::Relaxed);
            // A thread whose wait is over does not take the lock that it was woken for.
            if is_next && done() {
                self.wake_next();
            }
        }
        if let Some(pending) = pending {
            pending.set_waiter(None);
        }
    }
}
