// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/ffi/handle.rs`.

use super::*;

#[test]
fn c_has_one_share_until_it_is_taken() {
    let value = Arc::new(7);
    let mut raw = Handle::into_raw(value.clone());
    for _ in 0..2 {
        // SAFETY: the share is taken below.
        assert_eq!(unsafe { Handle::<i32>::borrow(raw) }.map(|handle| **handle), Some(7));
        assert_eq!(Arc::strong_count(&value), 2);
    }
    for is_some in [true, false] {
        // SAFETY: the pointer has no copy; after the first time it is null.
        assert_eq!(unsafe { Handle::<i32>::take(&mut raw) }.is_some(), is_some);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}

#[test]
fn what_c_is_given_is_borrowed() {
    let (value, mut raw) = (Arc::new(7), null_mut());
    assert_eq!(**Handle::give(value.clone(), &mut raw), 7);
    assert_eq!(Arc::strong_count(&value), 2);
    // SAFETY: the pointer has no copy.
    drop(unsafe { Handle::<i32>::take(&mut raw) });
    assert_eq!(Arc::strong_count(&value), 1);
}
