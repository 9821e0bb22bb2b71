// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Locks, and the order in which a thread may take them.
//!
//! A thread takes a lock only while every lock that it holds comes before it in [`order`]; so no
//! two threads can wait for each other. Debug builds check that at every lock. An attempt that
//! does not wait (`try_lock`) may be made at any time.
//!
//! Nothing that can take for ever runs under a lock that another thread's progress needs: no
//! stdio, no code of the user's, no blocking call of MPI's. The exceptions are named in
//! [`order`].
//!
//! Not listed, because they are taken last and for a moment: read-write locks, and the locks of
//! files that `tests/models.rs` checks.

use std::ops::{Deref, DerefMut};

/// The locks in their order, of each side. Those with one number are never held together.
pub mod order {
    // ---- the program's side --------------------------------------------------------

    /// Statistics and trace of the whole program (`Plugin`). Held while devices are asked for
    /// theirs: only unloading an image and the end of the program wait for that.
    pub const WATCH: u8 = 1;
    /// The same of one device.
    pub const SEEN: u8 = 2;
    /// Which device has which image (`Plugin`). Held until all devices were told of a new one.
    pub const SENT_IMAGES: u8 = 3;
    /// The loaded images of a device.
    pub const LOADED_IMAGES: u8 = 4;
    /// The device memory that is handed out. Held until freed memory is on its way to be
    /// discarded.
    pub const ARENA: u8 = 5;
    /// What is known of the devices' liveness.
    pub const LIVENESS: u8 = 6;
    /// The message that a queue collects.
    pub const OPEN: u8 = 7;
    /// The same at the receiving end of a copy between devices, behind the sending one.
    pub const OTHER_END: u8 = 8;

    // ---- a device's side -----------------------------------------------------------

    /// Held while libraries are loaded; only the end of the device waits for that.
    pub const LOADING: u8 = 9;
    /// What regions have printed. Held while a reply waits for the program to take it: the
    /// thread receives meanwhile.
    pub const OUTPUT: u8 = 10;

    // ---- both ----------------------------------------------------------------------

    /// The transport. Whoever holds it drives MPI; others that would use it leave their
    /// messages in the outbox instead of waiting.
    pub const LINK: u8 = 20;

    // ---- what the driving thread takes ---------------------------------------------

    /// The messages that a device has not answered (the program's side).
    pub const FLIGHT: u8 = 21;
    /// The order of messages, and parts of an image that are still to come (a device's side).
    pub const SCHEDULE: u8 = 21;
    /// Anything that is held for a moment, while nothing else is locked.
    pub const LEAF: u8 = 30;
}

/// A mutex whose place in the [`order`] is a part of its type.
#[derive(Debug, Default)]
pub struct Mutex<T, const ORDER: u8>(parking_lot::Mutex<T>);

/// What a [`Mutex`] protects, as long as it is locked.
pub struct Guard<'a, T, const ORDER: u8> {
    value: parking_lot::MutexGuard<'a, T>,
    _held: Held<ORDER>,
}

impl<T, const ORDER: u8> Mutex<T, ORDER> {
    /// An unlocked mutex.
    pub const fn new(value: T) -> Mutex<T, ORDER> {
        Mutex(parking_lot::Mutex::new(value))
    }

    /// Waits until no other thread has the lock, and takes it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> Guard<'_, T, ORDER> {
        Held::<ORDER>::check();
        Guard { value: self.0.lock(), _held: Held::new() }
    }

    /// The same at another place in the order, for the second of two locks that belong together.
    pub fn lock_as<const PLACE: u8>(&self) -> Guard<'_, T, PLACE> {
        Held::<PLACE>::check();
        Guard { value: self.0.lock(), _held: Held::new() }
    }

    /// Takes the lock unless another thread has it.
    #[inline]
    pub fn try_lock(&self) -> Option<Guard<'_, T, ORDER>> {
        Some(Guard { value: self.0.try_lock()?, _held: Held::new() })
    }

    /// Takes the lock unless another thread has it for so long.
    pub fn try_lock_for(&self, patience: std::time::Duration) -> Option<Guard<'_, T, ORDER>> {
        Some(Guard { value: self.0.try_lock_for(patience)?, _held: Held::new() })
    }

    /// See [`super::sync::disown`].
    pub fn disown(&self) {
        super::sync::disown(&self.0);
    }
}

impl<T, const ORDER: u8> Deref for Guard<'_, T, ORDER> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T, const ORDER: u8> DerefMut for Guard<'_, T, ORDER> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

/// Notes that this thread has a lock; in a release build nothing at all.
struct Held<const ORDER: u8>;

#[cfg(debug_assertions)]
thread_local! {
    /// How many locks this thread holds at each place in the order.
    static HELD: [std::cell::Cell<u8>; 32] = const { [const { std::cell::Cell::new(0) }; 32] };
}

#[cfg(debug_assertions)]
impl<const ORDER: u8> Held<ORDER> {
    #[track_caller]
    fn check() {
        let last = HELD.with(|held| held.iter().rposition(|count| count.get() > 0));
        assert!(
            last.is_none_or(|last| last < usize::from(ORDER)),
            "lock {ORDER} is taken behind lock {}",
            last.unwrap_or(0)
        );
    }

    fn new() -> Held<ORDER> {
        HELD.with(|held| held[usize::from(ORDER)].update(|count| count + 1));
        Held
    }
}

#[cfg(debug_assertions)]
impl<const ORDER: u8> Drop for Held<ORDER> {
    fn drop(&mut self) {
        HELD.with(|held| held[usize::from(ORDER)].update(|count| count - 1));
    }
}

#[cfg(not(debug_assertions))]
impl<const ORDER: u8> Held<ORDER> {
    #[inline]
    fn check() {}

    #[inline]
    fn new() -> Held<ORDER> {
        Held
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use super::*;

    #[test]
    fn locks_are_taken_in_their_order() {
        let (first, second) = (Mutex::<_, 1>::new(1), Mutex::<_, 2>::new(2));
        let (one, two) = (first.lock(), second.lock());
        drop(one);
        // An attempt may be made out of order, and guards may be dropped in any.
        let (one, another) = (first.try_lock(), Mutex::<_, 2>::new(2));
        let second_two = another.try_lock();
        drop((two, second_two, one));
        assert_eq!((*first.lock(), *second.lock()), (1, 2));
    }

    #[test]
    #[should_panic(expected = "lock 1 is taken behind lock 2")]
    fn another_order_is_found() {
        let (first, second) = (Mutex::<_, 1>::new(1), Mutex::<_, 2>::new(2));
        let _two = second.lock();
        let _one = first.lock();
    }
}
