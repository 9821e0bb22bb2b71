// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A share of an `Arc` that crosses to C as `void*`.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::null_mut;
use std::sync::Arc;

/// A `T` of which C has a share, borrowed for a call.
pub(super) struct Handle<T>(ManuallyDrop<Arc<T>>);

impl<T> Handle<T> {
    /// Gives a share to C, as a pointer that is not null.
    #[inline]
    pub(super) fn into_raw(share: Arc<T>) -> *mut c_void {
        Arc::into_raw(share).cast_mut().cast()
    }

    /// Gives a share to C by filling in its pointer, and borrows the share.
    #[inline]
    pub(super) fn give(share: Arc<T>, raw: &mut *mut c_void) -> Handle<T> {
        *raw = Arc::as_ptr(&share).cast_mut().cast();
        Handle(ManuallyDrop::new(share))
    }

    /// Borrows the share behind C's pointer, unless that is null.
    ///
    /// # Safety
    /// `raw` is null, or a pointer that a `Handle` gave to C for the same `T`. C's share is
    /// not taken while the handle is in use, or the `T` stays in memory.
    #[inline]
    pub(super) unsafe fn borrow(raw: *mut c_void) -> Option<Handle<T>> {
        // SAFETY: the caller's promise; `ManuallyDrop` leaves C its share.
        (!raw.is_null()).then(|| Handle(ManuallyDrop::new(unsafe { Arc::from_raw(raw.cast::<T>().cast_const()) })))
    }

    /// Takes C's share back, unless the pointer is null, and sets the pointer to null.
    ///
    /// # Safety
    /// As for [`Handle::borrow`], which alone may use a copy of the pointer again.
    #[inline]
    pub(super) unsafe fn take(raw: &mut *mut c_void) -> Option<Arc<T>> {
        // SAFETY: the caller's promise.
        unsafe { Handle::borrow(std::mem::replace(raw, null_mut())) }.map(|handle| ManuallyDrop::into_inner(handle.0))
    }
}

impl<T> Deref for Handle<T> {
    type Target = Arc<T>;

    #[inline]
    fn deref(&self) -> &Arc<T> {
        &self.0
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/ffi/handle.rs"]
mod tests;
