// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Handles aborts of MPI that happen because the host exits.
//!
//! To receive large data, UCX copies from the host's memory (CMA), and calls `abort` if that fails. The host may exit
//! during the copy: a signal handler of the program called `exit`, or something killed the program. Then the device
//! exits as it does whenever its host exits, without an error.

use crate::mpi::pmi;
use crate::sys::process::Handle;
use std::ffi::c_int;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::sync::atomic::{AtomicI32, Ordering};

/// How long the host may take, in milliseconds, from the loss of its memory to its end: the kernel frees the memory in
/// between.
const PATIENCE: c_int = 10_000;

/// This process.
static DEVICE: AtomicI32 = AtomicI32::new(0);
/// The host's process.
static HOST: AtomicI32 = AtomicI32::new(0);
/// The host's pidfd.
static HOST_FD: AtomicI32 = AtomicI32::new(-1);

/// From now on, an abort of this process while `host` exits is no error. The handle must stay open.
pub(crate) fn expect(host: &Handle) {
    HOST.store(host.pid, Ordering::Relaxed);
    HOST_FD.store(host.as_fd().as_raw_fd(), Ordering::Relaxed);
    DEVICE.store(std::process::id() as i32, Ordering::Relaxed);
    // SAFETY: the action is fully initialized, and the handler is async-signal-safe.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_abort as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK;
        libc::sigaction(libc::SIGABRT, &action, ptr::null_mut());
    }
}

/// If the host is exiting, waits for its end and returns true. Safe in a signal handler.
pub(crate) fn await_end() -> bool {
    // SAFETY: getpid has no preconditions. A child of this process, by `fork`, is no device.
    let is_device = DEVICE.load(Ordering::Relaxed) == unsafe { libc::getpid() };
    is_device && (has_ended(0) || (has_no_memory() && has_ended(PATIENCE)))
}

/// Waits up to `patience` milliseconds for the host to end; true if it has ended.
fn has_ended(patience: c_int) -> bool {
    let mut end = libc::pollfd { fd: HOST_FD.load(Ordering::Relaxed), events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: the record outlives the call.
        match unsafe { libc::poll(&mut end, 1, patience) } {
            -1 if errno() == libc::EINTR => {}
            ready => return ready == 1 && end.revents & libc::POLLIN != 0,
        }
    }
}

/// True once the host's memory is gone.
fn has_no_memory() -> bool {
    let mut byte = 0u8;
    let ours = libc::iovec { iov_base: ptr::from_mut(&mut byte).cast(), iov_len: 1 };
    let theirs = libc::iovec { iov_base: ptr::without_provenance_mut(1), iov_len: 1 };
    // SAFETY: the call writes only to the byte. A host with memory gives another error, for this address.
    unsafe {
        libc::process_vm_readv(HOST.load(Ordering::Relaxed), &ours, 1, &theirs, 1, 0) == -1 && errno() == libc::ESRCH
    }
}

fn errno() -> c_int {
    // SAFETY: the address is always valid.
    unsafe { *libc::__errno_location() }
}

/// Exits with the host. Safe in a signal handler.
pub(crate) fn follow() -> ! {
    pmi::follow();
    // SAFETY: no preconditions.
    unsafe { libc::_exit(0) }
}

extern "C" fn on_abort(signal: c_int) {
    if await_end() {
        follow();
    }
    // SAFETY: both are safe in a signal handler.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}
