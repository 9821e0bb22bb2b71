// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Locks, and the order in which a thread may take them.
//!
//! A thread takes a lock only if every lock that it holds comes before it in [`order`], so no two threads can wait for
//! each other. Debug builds check that at every lock, even at `try_lock`, which does not wait. `try_hold` and
//! `try_lock_for` are the exceptions.
//!
//! Nothing that can block forever runs under a lock that another thread's progress needs: no stdio, no user code, no
//! blocking MPI call. [`order`] names the exceptions.
//!
//! [`order`] lists neither read-write locks nor plain ones of [`sync`]: threads take these last, and briefly.
//! Exceptions: no thread waits for the read-write lock of `plugin::devices::shared_memory`, which is held for longer;
//! the lock of `ffi::images` comes first, and only calls that load or unload images wait for it.

use super::sync;
use std::cell::Cell;
use std::ops::{Deref, DerefMut};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

/// The locks of each side in order. No thread holds two locks with the same number.
pub mod order {
    // ---- the program's side --------------------------------------------------------

    /// Statistics and trace of the whole program (`Plugin`). Held while the plugin collects the records
    /// of the devices: only unloading an image and the end of the program wait for that.
    pub const TRACE: u8 = 1;
    /// Statistics and trace of one device.
    pub const SEEN: u8 = 2;
    /// Which device has which image (`Plugin`). Held until a new image is announced to all devices.
    pub const SENT_IMAGES: u8 = 3;
    /// The loaded images of a device.
    pub const LOADED_IMAGES: u8 = 4;
    /// Allocated device memory. Held until the discard of freed memory is submitted.
    pub const ARENA: u8 = 5;
    pub const LIVENESS: u8 = 6;
    /// The message that a queue collects.
    pub const OPEN: u8 = 7;
    /// The message that a queue collects at the receiving end of a copy between devices, after the sending end's.
    pub const OTHER_END: u8 = 8;

    // ---- a device's side -----------------------------------------------------------

    /// Held while libraries and images are loaded: UCX (libucm) writes to the tables of all libraries
    /// after each `dlopen`, even to those of a library that the dynamic loader is still relocating for another
    /// thread. Only other images and the end of the device wait for that.
    pub const LOADING: u8 = 9;
    /// Which kernel's turn it is to use the program's memory on a device. Held while that kernel waits for others.
    pub const TURN: u8 = 9;
    /// The program's pages on a device. Held while they are fetched and changes are sent back: only kernels wait for
    /// that.
    pub const UNIFIED: u8 = 11;
    /// The output of regions. Held while a reply waits for the program to take that output; the
    /// waiting thread receives messages meanwhile.
    pub const OUTPUT: u8 = 10;

    // ---- both ----------------------------------------------------------------------

    /// The arrivals of a link. A thread holds it while it drives the link and handles the arrivals;
    /// others do not wait for it.
    pub const INBOX: u8 = 19;
    /// The transport. Its holder drives MPI; other threads leave their messages in the outbox instead
    /// of waiting.
    pub const LINK: u8 = 20;

    // ---- what the driving thread takes ---------------------------------------------

    /// Unawaited messages of a device (the program's side).
    pub const UNAWAITED: u8 = 21;
    /// Held while the changes of one device are merged into the program's memory (the program's side).
    pub const MERGE: u8 = 21;
    /// Incomplete messages of a device (the program's side).
    pub const FLIGHT: u8 = 22;
    /// The order of messages (a device's side).
    pub const SCHEDULE: u8 = 21;
    /// Any lock that is held briefly, and under which no other lock is taken.
    pub const LEAF: u8 = 30;
}

/// A mutex with its place in the [`order`].
#[derive(Debug, Default)]
pub struct Mutex<T, const ORDER: u8>(sync::Mutex<T>);

/// The value of a locked [`Mutex`].
pub struct Guard<'a, T, const ORDER: u8>(MutexGuard<'a, T>);

impl<'a, T, const ORDER: u8> Guard<'a, T, ORDER> {
    #[inline]
    fn new(value: MutexGuard<'a, T>) -> Self {
        if cfg!(debug_assertions) {
            HELD.with(|held| held[usize::from(ORDER)].update(|count| count + 1));
        }
        Guard(value)
    }
}

impl<T, const ORDER: u8> Drop for Guard<'_, T, ORDER> {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            HELD.with(|held| held[usize::from(ORDER)].update(|count| count - 1));
        }
    }
}

impl<T, const ORDER: u8> Mutex<T, ORDER> {
    pub const fn new(value: T) -> Mutex<T, ORDER> {
        Mutex(sync::Mutex::new(value))
    }

    #[inline]
    #[track_caller]
    pub fn lock(&self) -> Guard<'_, T, ORDER> {
        self.lock_as()
    }

    /// Takes the lock at another place in the order, for the second of two locks that belong together.
    #[inline]
    #[track_caller]
    pub fn lock_as<const PLACE: u8>(&self) -> Guard<'_, T, PLACE> {
        check(PLACE);
        Guard::new(self.0.lock())
    }

    #[inline]
    #[track_caller]
    pub fn try_lock(&self) -> Option<Guard<'_, T, ORDER>> {
        check(ORDER);
        self.0.try_lock().map(Guard::new)
    }

    /// [`Mutex::try_lock`] in any order, for a thread that is about to fork: it takes several locks that other threads
    /// may need in the child.
    #[inline]
    pub fn try_hold(&self) -> Option<Guard<'_, T, ORDER>> {
        self.0.try_lock().map(Guard::new)
    }

    /// Tries for this long to take the lock, in any order: a bounded wait can't deadlock.
    pub fn try_lock_for(&self, patience: Duration) -> Option<Guard<'_, T, ORDER>> {
        let end = Instant::now() + patience;
        loop {
            let guard = self.try_hold();
            if guard.is_some() || Instant::now() >= end {
                return guard;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl<T, const ORDER: u8> Deref for Guard<'_, T, ORDER> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T, const ORDER: u8> DerefMut for Guard<'_, T, ORDER> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

thread_local! {
    /// How many locks this thread holds at each place in the order. Not used in a release build.
    static HELD: [Cell<u8>; 32] = const { [const { Cell::new(0) }; 32] };
}

/// Panics if this thread must not wait for a lock at this place.
#[inline]
#[track_caller]
fn check(order: u8) {
    if cfg!(debug_assertions)
        && let Some(last) = HELD.with(|held| held.iter().rposition(|count| count.get() > 0))
    {
        assert!(last < usize::from(order), "lock {order} is taken behind lock {last}");
    }
}

#[cfg(all(test, debug_assertions))]
#[path = "../../test/rust/unit/base/lock.rs"]
mod tests;
