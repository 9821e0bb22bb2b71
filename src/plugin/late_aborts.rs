// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Threads that abort because the process exits.
//!
//! When one thread calls `exit`, another may be in libomptarget or on its way there, but not in a call of the
//! plugin, which could hold it. libomptarget 16 aborts when such a thread starts a region of a program that it has
//! already forgotten. The process would then die of the signal instead of exiting with its status. Hence such a
//! thread stops where it is.

use super::ending;
use std::ffi::c_int;
use std::mem::zeroed;
use std::ptr;
use std::sync::OnceLock;

/// The program's own action for SIGABRT.
static PROGRAMS: OnceLock<libc::sigaction> = OnceLock::new();

/// From now on a thread that has called the plugin stops when it aborts, unless it ends the process.
pub(super) fn stop_others() {
    // SAFETY: plain records, for which zero is a valid value. The handler may run on any thread at any moment; it
    // uses what was written before.
    unsafe {
        let (mut programs, mut ours): (libc::sigaction, libc::sigaction) = (zeroed(), zeroed());
        ours.sa_sigaction = on_abort as *const () as usize;
        ours.sa_flags = libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGABRT, ptr::null(), &mut programs) == 0 && PROGRAMS.set(programs).is_ok() {
            libc::sigaction(libc::SIGABRT, &ours, ptr::null_mut());
        }
    }
}

extern "C" fn on_abort(signal: c_int) {
    if ending::is_user() {
        match ending::is_inside() {
            // MPI has called abort, and this thread may hold any lock of it and of the plugin.
            true => ending::with_locks(ending::hold),
            false => ending::hold(),
        }
    }
    // The program's own handler, or the system, gets the signal if the thread must not be held, or if its hold has
    // timed out.
    // SAFETY: both calls are safe in a signal handler, and the record is whole.
    unsafe {
        libc::sigaction(signal, PROGRAMS.get().map_or(ptr::null(), ptr::from_ref), ptr::null_mut());
        libc::raise(signal);
    }
}
