// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Faults of kernels at addresses of the program: a signal handler passes them to the pager and waits.
//!
//! Everything that the handler does is async-signal-safe. The code that faulted may hold locks, but never malloc's:
//! malloc does not access memory of the program.

use crate::base::Result;
use crate::sys::layout::WINDOW;
use rustix::thread::futex;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// The lowest address that Linux maps by default (`vm.mmap_min_addr`), and the first address above all programs.
const LOWEST: u64 = 0x1_0000;
const HIGHEST: u64 = 1 << 47;

/// States of a fault.
const OPEN: u32 = 0;
const RESOLVED: u32 = 1;
const REFUSED: u32 = 2;

/// How an instruction used an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code))]
pub(crate) enum Access {
    Unknown,
    Read,
    Write,
    Call,
}

/// A fault. It lies on the stack of its thread, which stays while the fault is open.
pub(super) struct Fault {
    pub address: u64,
    pub access: Access,
    /// The slot of the thread's kernel.
    pub slot: usize,
    pub kernel: u64,
    result: AtomicU64,
    state: AtomicU32,
    next: AtomicPtr<Fault>,
}

/// The pager runs.
static ARMED: AtomicBool = AtomicBool::new(false);
/// Faults that the pager has not taken yet, the most recent first.
static LAST: AtomicPtr<Fault> = AtomicPtr::new(ptr::null_mut());
/// Counts faults; the pager sleeps on it.
static COUNT: AtomicU32 = AtomicU32::new(0);

pub(super) fn arm() {
    ARMED.store(true, Ordering::Release);
}

/// True if an address may be the program's, and faults are served.
#[inline]
pub(crate) fn is_of_program(address: u64) -> bool {
    (LOWEST..HIGHEST).contains(&address) && !WINDOW.contains(&address) && ARMED.load(Ordering::Acquire)
}

/// Resolves a fault of the calling thread, if possible, and returns the address for the access or the call.
/// Async-signal-safe.
pub(crate) fn resolve(address: u64, access: Access, (slot, kernel): (usize, u64)) -> Option<u64> {
    if !is_of_program(address) {
        return None;
    }
    let (result, state) = (AtomicU64::new(0), AtomicU32::new(OPEN));
    let fault = Fault { address, access, slot, kernel, result, state, next: AtomicPtr::default() };
    let this = ptr::from_ref(&fault).cast_mut();
    let mut last = LAST.load(Ordering::Relaxed);
    loop {
        fault.next.store(last, Ordering::Relaxed);
        match LAST.compare_exchange_weak(last, this, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => break,
            Err(now) => last = now,
        }
    }
    COUNT.fetch_add(1, Ordering::Release);
    let _ = futex::wake(&COUNT, futex::Flags::PRIVATE, 1);
    loop {
        match fault.state.load(Ordering::Acquire) {
            OPEN => drop(futex::wait(&fault.state, futex::Flags::PRIVATE, OPEN, None)),
            RESOLVED => return Some(fault.result.load(Ordering::Relaxed)),
            _ => return None,
        }
    }
}

/// Ends the process if the pager panics: kernels would wait forever.
struct Guard;

impl Drop for Guard {
    fn drop(&mut self) {
        std::process::abort();
    }
}

/// Serves faults forever. The calling thread is the pager.
pub(super) fn serve(handle: impl Fn(&Fault) -> Result<Option<u64>>) {
    let _guard = Guard;
    loop {
        let count = COUNT.load(Ordering::Acquire);
        let mut fault = LAST.swap(ptr::null_mut(), Ordering::AcqRel);
        if fault.is_null() {
            let _ = futex::wait(&COUNT, futex::Flags::PRIVATE, count, None);
        }
        // SAFETY: a fault lives until its state changes, which happens last.
        while let Some(this) = unsafe { fault.as_ref() } {
            fault = this.next.load(Ordering::Relaxed);
            let state = match handle(this) {
                Ok(Some(result)) => {
                    this.result.store(result, Ordering::Relaxed);
                    RESOLVED
                }
                refused => {
                    super::note_refusal(refused.err());
                    REFUSED
                }
            };
            let word = &raw const this.state;
            this.state.store(state, Ordering::Release);
            // SAFETY: the call uses only the address: the thread may have left, and a spurious wake-up does no harm.
            unsafe { libc::syscall(libc::SYS_futex, word, libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG, 1) };
        }
    }
}
