// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Threads that kernels start: libomp's teams and the program's own. Each gets a stack for signal
//! handlers, to report its own stack overflow, and knows which kernel started it.
//!
//! The executable defines `pthread_create`, which libraries find before the system's. Threads that
//! start before there can be kernels are not changed.

use super::registration::next;
use crate::device_main::crash::{monitor, stack};
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

/// The main function of a thread.
pub type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

struct Begin {
    start: Start,
    argument: *mut c_void,
    origin: usize,
}

/// # Safety
/// As for the system's `pthread_create`, which this replaces in this process.
pub unsafe fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    static SYSTEMS: OnceLock<Option<Create>> = OnceLock::new();
    // SAFETY: the system's function has this type.
    let systems = SYSTEMS.get_or_init(|| unsafe { next(c"pthread_create") });
    let Some(systems) = systems else { return libc::ENOSYS };
    if !monitor::is_installed() {
        // This is MPI's own thread, while MPI starts: a stack for signal handlers would be mapped while UCX
        // patches the code of `mmap`.
        // SAFETY: the caller's promise.
        return unsafe { systems(thread, attributes, start, argument) };
    }
    let begin = Box::into_raw(Box::new(Begin { start, argument, origin: monitor::origin() }));
    // SAFETY: the caller's promise; `first` takes its argument.
    let code = unsafe { systems(thread, attributes, first, begin.cast()) };
    if code != 0 {
        // SAFETY: no thread has taken it.
        drop(unsafe { Box::from_raw(begin) });
    }
    code
}

/// The main function of every thread. A thread that exits by `pthread_exit` unwinds through it.
unsafe extern "C-unwind" fn first(begin: *mut c_void) -> *mut c_void {
    // SAFETY: `create` made it for this thread alone.
    let Begin { start, argument, origin } = *unsafe { Box::from_raw(begin.cast::<Begin>()) };
    stack::begin_thread(origin);
    // SAFETY: the creator's promise.
    unsafe { start(argument) }
}
