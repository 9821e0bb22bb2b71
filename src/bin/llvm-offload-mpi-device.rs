// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The device executable: one rank of it is one OpenMP device, or several.

use omptarget_mpi::device_main::{registration, threads};
use std::ffi::{c_char, c_int, c_void};

fn main() -> std::process::ExitCode {
    omptarget_mpi::device_main::main()
}

// These come before the system's for all libraries of this process, those of images too. Here and
// not in the library, which is loaded into programs.

/// See [`threads`].
///
/// # Safety
/// As the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: threads::Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { threads::create(thread, attributes, start, argument) }
}

/// See [`registration`].
///
/// # Safety
/// As the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shm_open(name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { registration::open(name, flags, mode) }
}

/// See [`registration`].
///
/// # Safety
/// As the system's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn shm_unlink(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { registration::unlink(name) }
}
