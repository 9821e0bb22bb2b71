// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What protocols between threads are made of, where they stand in files of their own:
//! `tests/models.rs` includes those files over a model checker's versions of these.

pub use parking_lot::Mutex;
pub use std::hint::spin_loop;
pub use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
pub use std::thread::{Thread, current, park, park_timeout};

/// In a process made by `fork`, by its only thread, which has not locked this: frees a lock
/// that another thread has waited for, was given when it was unlocked here, and will not
/// unlock, as it is not here.
pub fn disown<T>(lock: &Mutex<T>) {
    while lock.is_locked() {
        // SAFETY: no thread of this process has a guard of it.
        unsafe { lock.force_unlock() };
    }
}
