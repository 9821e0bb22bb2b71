// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The device executable: one rank of it is one OpenMP device, or several.

#[cfg(all(target_arch = "x86_64", not(sanitized)))]
mod calls;

use omptarget_mpi::device_main::backend::cpu;
use omptarget_mpi::workers;
use std::ffi::{c_char, c_int, c_void};

fn main() -> std::process::ExitCode {
    omptarget_mpi::device_main::main(&workers::entry::WORKERS)
}

ctor::declarative::ctor! {
    /// Runs before any library's constructor.
    // SAFETY: it needs nothing that constructors prepare, or that the standard library prepares for `main`.
    #[ctor(unsafe, link_section = ".preinit_array")]
    fn prepare() {
        #[cfg(all(target_arch = "x86_64", not(sanitized)))]
        calls::find();
        omptarget_mpi::device_main::settle();
    }
}

// The dynamic loader prefers these to the system's functions for all libraries of this process, including
// images. They are not in this project's library, because programs load that too.

/// See [`cpu::threads`]. A sanitizer has its own function.
#[cfg(not(sanitized))]
#[unsafe(no_mangle)]
unsafe extern "C" fn pthread_create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: cpu::threads::Start,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { cpu::threads::create(thread, attributes, start, argument) }
}

/// See [`cpu::registration`].
#[unsafe(no_mangle)]
unsafe extern "C" fn shm_open(name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { cpu::registration::open(name, flags, mode) }
}

/// See [`cpu::registration`].
#[unsafe(no_mangle)]
unsafe extern "C" fn shm_unlink(name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { cpu::registration::unlink(name) }
}

/// See [`cpu::number`].
#[unsafe(no_mangle)]
extern "C" fn omp_get_device_num() -> c_int {
    cpu::number::get()
}

/// [`omp_get_device_num`] for Fortran.
#[unsafe(no_mangle)]
extern "C" fn omp_get_device_num_() -> c_int {
    cpu::number::get()
}

/// No region runs in the program's own process. (From OpenMP 5.0 on the compiler knows that; libomp would return 1.)
#[unsafe(no_mangle)]
extern "C" fn omp_is_initial_device() -> c_int {
    0
}

/// [`omp_is_initial_device`] for Fortran.
#[unsafe(no_mangle)]
extern "C" fn omp_is_initial_device_() -> c_int {
    0
}
