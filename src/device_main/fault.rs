// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Kernels that crash: the thread that faulted is stopped where it is, and another
//! thread of the device tells the host.
//!
//! Which kernel runs on which thread is written down in a table of atomics that a signal
//! handler may read. A handler only notes the fault and parks its thread for ever; all
//! else happens on a healthy thread.

use crate::wire::reply::Failure;
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Most threads that run kernels at the same time.
pub const SLOTS: usize = 32;

/// Seconds after which a device ends itself if the fault could not be told: the
/// faulting thread may hold a lock that telling needs.
const LAST_RESORT: u32 = 10;

/// What one thread executes.
struct Slot {
    /// The kernel's address, 0 if none runs.
    kernel: AtomicU64,
    /// The message that it belongs to; whoever swaps it out owns it.
    work: AtomicPtr<c_void>,
}

static RUNNING: [Slot; SLOTS] =
    [const { Slot { kernel: AtomicU64::new(0), work: AtomicPtr::new(ptr::null_mut()) } }; SLOTS];

/// The first fault: set last, when the rest is written.
static FAULTED: AtomicBool = AtomicBool::new(false);
static CLAIMED: AtomicBool = AtomicBool::new(false);
static SIGNAL: AtomicU32 = AtomicU32::new(0);
static ADDRESS: AtomicU64 = AtomicU64::new(0);
static KERNEL: AtomicU64 = AtomicU64::new(0);
static SLOT: AtomicU32 = AtomicU32::new(u32::MAX);
static STDERR: AtomicI32 = AtomicI32::new(2);
/// The device ends by itself.
static ENDING: AtomicBool = AtomicBool::new(false);

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
}

/// Claims a slot for the calling thread.
pub fn use_slot(slot: usize) {
    MINE.set(slot);
}

/// A kernel starts on the thread of this slot, as a part of `work`.
#[inline]
pub fn enter<T>(slot: usize, kernel: u64, work: Box<T>) {
    RUNNING[slot].work.store(Box::into_raw(work).cast(), Ordering::Relaxed);
    RUNNING[slot].kernel.store(kernel, Ordering::Release);
}

/// The kernel has returned; none if the device was given up meanwhile.
///
/// # Safety
/// `T` is what [`enter`] was called with on this slot.
#[inline]
pub unsafe fn leave<T>(slot: usize) -> Option<Box<T>> {
    RUNNING[slot].kernel.store(0, Ordering::Relaxed);
    let work = RUNNING[slot].work.swap(ptr::null_mut(), Ordering::AcqRel);
    // SAFETY: made by `enter` from a box of this type; the swap makes it ours alone.
    (!work.is_null()).then(|| unsafe { Box::from_raw(work.cast()) })
}

/// Takes what all threads are executing away from them, with their kernels' addresses
/// and whether it is where the fault was.
///
/// # Safety
/// `T` is what every [`enter`] was called with.
pub unsafe fn take_all<T>() -> Vec<(Box<T>, bool)> {
    let at = SLOT.load(Ordering::Relaxed);
    let slots = RUNNING.iter().enumerate();
    slots
        .filter_map(|(i, slot)| {
            let work = slot.work.swap(ptr::null_mut(), Ordering::AcqRel);
            // SAFETY: as in `leave`.
            (!work.is_null()).then(|| (unsafe { Box::from_raw(work.cast()) }, i as u32 == at))
        })
        .collect()
}

/// True once a kernel has crashed.
#[inline]
pub fn happened() -> bool {
    FAULTED.load(Ordering::Acquire)
}

/// What the host shall be told of the fault.
pub fn describe() -> Failure {
    let (signal, address) = (SIGNAL.load(Ordering::Relaxed), ADDRESS.load(Ordering::Relaxed));
    let text = match signal as c_int {
        0 => "it called exit".to_string(),
        libc::SIGSEGV => format!("signal SIGSEGV (invalid memory reference) at address {address:#x}"),
        libc::SIGBUS => format!("signal SIGBUS (no memory behind the address) at address {address:#x}"),
        libc::SIGFPE => "signal SIGFPE (arithmetic exception)".to_string(),
        libc::SIGILL => "signal SIGILL (illegal instruction)".to_string(),
        libc::SIGABRT => "signal SIGABRT (abort was called)".to_string(),
        other => format!("signal {other}"),
    };
    let address = if matches!(signal as c_int, libc::SIGSEGV | libc::SIGBUS) { address } else { 0 };
    Failure { lost: true, kernel: KERNEL.load(Ordering::Relaxed), signal, address, text }
}

/// True if no thread is in a kernel that the host waits for.
pub fn none_runs() -> bool {
    RUNNING.iter().all(|slot| slot.work.load(Ordering::Relaxed).is_null())
}

/// The fault was told; the device need not end by itself.
pub fn told() {
    // SAFETY: alarm has no preconditions.
    unsafe { libc::alarm(0) };
}

/// The device ends by itself: an exit from now on is no fault.
pub fn ending() {
    ENDING.store(true, Ordering::Relaxed);
}

/// Notes a fault of the calling thread and stops it for ever; returns if no kernel runs.
fn note(signal: u32, address: u64) {
    let mine = MINE.get();
    let runs = |slot: &Slot| slot.kernel.load(Ordering::Acquire) != 0;
    let slot = if mine < SLOTS {
        if !runs(&RUNNING[mine]) {
            return;
        }
        Some(mine)
    } else {
        // A thread of a kernel's own team: its kernel is known if only one runs.
        let mut running = (0..SLOTS).filter(|&i| runs(&RUNNING[i]));
        let only = running.next();
        if only.is_none() {
            return;
        }
        only.filter(|_| running.next().is_none())
    };
    if !CLAIMED.swap(true, Ordering::AcqRel) {
        SIGNAL.store(signal, Ordering::Relaxed);
        ADDRESS.store(address, Ordering::Relaxed);
        if let Some(slot) = slot {
            SLOT.store(slot as u32, Ordering::Relaxed);
            KERNEL.store(RUNNING[slot].kernel.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        FAULTED.store(true, Ordering::Release);
        // SAFETY: alarm is safe in a signal handler; its signal ends the process.
        unsafe { libc::alarm(LAST_RESORT) };
    }
    loop {
        // SAFETY: pause is safe in a signal handler.
        unsafe { libc::pause() };
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the kernel passes a valid record; the address is a plain number.
    let address = unsafe { (*info).si_addr() } as u64;
    note(signal as u32, address);
    // Not a kernel's fault but the device's own: die of it, with a word.
    let text = b"omptarget-mpi: error: the device process crashed outside of any kernel\n";
    // SAFETY: write and signal are safe in a signal handler; returning repeats the fault.
    unsafe {
        libc::write(STDERR.load(Ordering::Relaxed), text.as_ptr().cast(), text.len());
        libc::signal(signal, libc::SIG_DFL);
        if signal == libc::SIGABRT {
            libc::raise(signal);
        }
    }
}

extern "C" fn on_exit() {
    if !ENDING.load(Ordering::Relaxed) {
        note(0, 0);
    }
}

/// Takes a call of `exit` for a fault, if it comes before the handlers known so far.
pub fn notice_exit() {
    // SAFETY: the handler is a function of this executable.
    unsafe { libc::atexit(on_exit) };
}

/// Installs the handlers; `stderr` is where the process's own last word goes.
pub fn watch(stderr: c_int) {
    STDERR.store(stderr, Ordering::Relaxed);
    // SAFETY: the action is fully initialised and the handler keeps to what is allowed in
    // one. It runs on the alternate stack that Rust gives each of its threads; libomp's
    // threads have none, so that an overflow of their stacks ends the process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT] {
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
    notice_exit();
}
