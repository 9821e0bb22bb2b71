// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The lock of the thread that drives the link. One waiting thread at a time holds it; the others sleep until their
//! wait is over, or until the lock is free.
//!
//! Threads that have waited for longer than short regions take are patient: they do not make others give up the lock,
//! and are not woken to take it. One of them has the watch: it checks at short intervals that the link is driven.

use crate::base::sync::{
    AtomicBool, AtomicU64, AtomicUsize, Mutex, Ordering, Thread, current, park_timeout, spin_loop,
};
use crate::plugin::messages::pending::Pending;
use std::time::Duration;

/// The longest sleep of a thread, unless it is patient and another one has the watch.
const MAX_SLEEP: Duration = Duration::from_millis(1);
/// The longest sleep of a patient thread while another one has the watch.
const MAX_REST: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct ProgressLock {
    taken: AtomicBool,
    /// How often the lock was taken.
    count: AtomicU64,
    /// Threads that want the lock.
    sleepers: Mutex<Vec<Thread>>,
    /// Impatient threads in [`ProgressLock::sleep`].
    hurried: AtomicUsize,
    spins: u32,
    patient: Mutex<Patient>,
}

#[derive(Debug, Default)]
struct Patient {
    /// A patient thread has the watch.
    is_watched: bool,
    /// The others that sleep meanwhile.
    resting: Vec<Thread>,
}

/// The watch of a patient thread. Dropping it passes it on.
#[derive(Debug)]
pub(crate) struct Watch<'a>(&'a ProgressLock);

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let next = {
            let mut patient = self.0.patient.lock();
            let next = patient.resting.pop();
            patient.is_watched = next.is_some();
            next
        };
        if let Some(next) = next {
            next.unpark();
        }
    }
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
            patient: Mutex::default(),
        }
    }

    /// Takes the lock and returns how often it has been taken; `None` if another thread holds it.
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

    /// Sleeps briefly while another thread drives. `done` returns whether the caller's wait is over; `pending` wakes
    /// the caller when it becomes idle.
    #[cold]
    pub(crate) fn sleep(&self, pending: Option<&Pending>, done: &dyn Fn() -> bool) {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        for _ in 0..self.spins {
            if done() || !self.taken.load(Ordering::Acquire) {
                self.hurried.fetch_sub(1, Ordering::Relaxed);
                return;
            }
            spin_loop();
        }
        let me = current();
        self.sleepers.lock().push(me.clone());
        // A change between the check above and this point costs one sleep at most.
        park(pending, &me, MAX_SLEEP, &|| done() || !self.taken.load(Ordering::Acquire));
        let mut sleepers = self.sleepers.lock();
        let all = sleepers.len();
        sleepers.retain(|t| t.id() != me.id());
        let is_next = sleepers.len() == all;
        drop(sleepers);
        self.hurried.fetch_sub(1, Ordering::Relaxed);
        // A thread whose wait is over does not take the lock for which it was woken.
        if is_next && done() {
            self.wake_next();
        }
    }

    /// Gives a patient thread the watch, if no other one has it.
    pub(crate) fn watch(&self) -> Option<Watch<'_>> {
        let mut patient = self.patient.lock();
        (!std::mem::replace(&mut patient.is_watched, true)).then(|| Watch(self))
    }

    /// Lets a patient thread sleep, briefly if it has the watch or if nothing else would wake it. Meanwhile another
    /// thread may pass the watch to it.
    #[cold]
    pub(crate) fn rest<'a>(
        &'a self,
        watch: &mut Option<Watch<'a>>,
        pending: Option<&Pending>,
        done: &dyn Fn() -> bool,
    ) {
        let me = current();
        if watch.is_some() || pending.is_none() {
            return park(pending, &me, MAX_SLEEP, done);
        }
        {
            let mut patient = self.patient.lock();
            if !patient.is_watched {
                return;
            }
            patient.resting.push(me.clone());
        }
        park(pending, &me, MAX_REST, done);
        let mut patient = self.patient.lock();
        let all = patient.resting.len();
        patient.resting.retain(|t| t.id() != me.id());
        *watch = (patient.resting.len() == all).then(|| Watch(self));
    }
}

/// Parks the calling thread, unless its wait `is_over`. `pending` unparks it when it becomes idle.
fn park(pending: Option<&Pending>, me: &Thread, limit: Duration, is_over: &dyn Fn() -> bool) {
    if let Some(pending) = pending {
        pending.set_waiter(Some(me.clone()));
    }
    if !is_over() {
        park_timeout(limit);
    }
    if let Some(pending) = pending {
        pending.set_waiter(None);
    }
}
