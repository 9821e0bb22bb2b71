// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/crash/stack.rs`.

use super::*;

#[test]
fn an_overflow_differs_from_other_accesses() {
    let start = 1 << 40;
    assert!(is_overflow(start, start - 8, start + 100) && is_overflow(start, 12, start - 4096));
    assert!(!is_overflow(start, 0, start + 100) && !is_overflow(start, start + 8, start + 100));
    assert!(!is_overflow(0, 0, 0), "an unknown thread");
}

#[test]
fn the_stack_of_a_thread_is_known() {
    note_stack();
    let local = 0u8;
    let (start, size) = STACK.get();
    assert!((start..start + size).contains(&(&raw const local as usize)));
    assert_eq!(overflowed(start - 16, &raw const local as usize), size);
}

#[test]
fn a_thread_gets_a_stack_for_handlers_once() {
    // A thread of the system's, since Rust gives its own threads such a stack.
    extern "C" fn thread(_: *mut std::ffi::c_void) -> *mut std::ffi::c_void {
        let first = Alternate::new();
        let second = Alternate::new();
        ptr::without_provenance_mut(usize::from(first.is_some() && second.is_none()))
    }
    let mut id = 0;
    let mut result = ptr::null_mut();
    // SAFETY: the thread is joined before what it uses is dropped.
    unsafe {
        assert_eq!(libc::pthread_create(&mut id, ptr::null(), thread, ptr::null_mut()), 0);
        assert_eq!(libc::pthread_join(id, &mut result), 0);
    }
    assert_eq!(result as usize, 1);
}
