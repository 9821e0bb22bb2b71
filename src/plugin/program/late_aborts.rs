// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Threads that abort or crash because the process exits.
//!
//! When one thread calls `exit`, another may be in libomptarget or on its way there, but not in a call of the
//! plugin, which could hold it. libomptarget aborts when that thread starts a region of a program that is already
//! unregistered, and crashes when it uses freed memory. The process would then die of the signal instead of
//! exiting with its status. Hence the thread is stopped in the signal handler.

use super::ending;
use super::libraries;
use crate::sys::process;
use std::ffi::{c_int, c_void};
use std::mem::zeroed;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

const SIGNALS: [c_int; 3] = [libc::SIGABRT, libc::SIGSEGV, libc::SIGBUS];

/// The program's own actions for [`SIGNALS`].
static PROGRAMS: OnceLock<[libc::sigaction; SIGNALS.len()]> = OnceLock::new();
/// libomptarget's code.
static CODE: OnceLock<Range<usize>> = OnceLock::new();

/// Looks up what [`stop_others`] can't, because it may run while any lock is held.
pub(crate) fn prepare() {
    if let Some(code) = libraries::code_of_libomptarget() {
        let _ = CODE.set(code);
    }
}

/// From now on a thread stops when it aborts or crashes in libomptarget, or when it aborts after having called the
/// plugin, unless it is the thread that ends the process. Takes no lock.
pub(crate) fn stop_others() {
    if PROGRAMS.get().is_some() {
        return;
    }
    // SAFETY: plain records, for which zero is a valid value. The handler may run on any thread at any moment; all
    // that it uses was written before.
    unsafe {
        let (mut programs, mut ours): ([libc::sigaction; _], libc::sigaction) = (zeroed(), zeroed());
        for (signal, program) in SIGNALS.iter().zip(&mut programs) {
            libc::sigaction(*signal, ptr::null(), program);
        }
        if PROGRAMS.set(programs).is_ok() {
            ours.sa_sigaction = on_signal as *const () as usize;
            for (signal, program) in SIGNALS.into_iter().zip(programs) {
                // Without SA_ONSTACK the context lies on the thread's own stack, next to the interrupted calls.
                ours.sa_flags = libc::SA_SIGINFO | program.sa_flags & libc::SA_ONSTACK;
                libc::sigaction(signal, &ours, ptr::null_mut());
            }
        }
    }
}

extern "C" fn on_signal(signal: c_int, info: *const libc::siginfo_t, context: *const c_void) {
    if signal == libc::SIGABRT && ending::is_user() && ending::is_inside() {
        // MPI has called abort. This thread may hold any lock of MPI and of the plugin.
        ending::with_locks(ending::hold);
    } else if is_in_libomptarget(context as usize) {
        ending::hold_crashed();
    } else if signal == libc::SIGABRT && ending::is_user() {
        ending::hold();
    }
    // The thread must not be held, or its hold has timed out: pass the signal on to the program's own action.
    // SAFETY: all calls are safe in a signal handler, and the records are whole.
    unsafe {
        let programs = PROGRAMS.get().into_iter().flatten().zip(SIGNALS).find(|(_, of)| *of == signal);
        libc::sigaction(signal, programs.map_or(ptr::null(), |(action, _)| action), ptr::null_mut());
        // A crashed instruction is repeated, and crashes again.
        if signal == libc::SIGABRT || (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}

/// True if the interrupted thread is in libomptarget, or in a function that libomptarget called: a register or the
/// stack, both of which follow `context`, contains an address of libomptarget's code.
fn is_in_libomptarget(context: usize) -> bool {
    /// Enough for the registers, including those of AVX-512, and the innermost calls: 16 KiB.
    const PARTS: usize = 32;
    let Some(code) = CODE.get() else { return false };
    let mut words = [0usize; 64];
    (0..PARTS).any(|n| {
        let (at, len) = (context + n * size_of_val(&words), size_of_val(&words));
        // SAFETY: the buffer has this length; where nothing is mapped, the call reads nothing.
        let read =
            unsafe { process::read_memory(std::process::id() as i32, at as u64, words.as_mut_ptr().cast(), len) };
        words[..read.max(0) as usize / size_of::<usize>()].iter().any(|word| code.contains(word))
    })
}
