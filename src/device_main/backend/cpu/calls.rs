// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The handling of program memory in the executable's replacements of C library functions.

use super::unified;
use crate::base::log;
use crate::device_main::crash::monitor;
use crate::sys::node;
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const PAGE: usize = 4096;

/// The program's standard streams: input, output, errors. 0 before they are known.
pub static STREAMS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];
/// This process's own standard streams.
pub static OWN_STREAMS: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

/// From now on treats the program's standard streams as this process's own.
pub(crate) fn set_streams(streams: [u64; 3]) {
    node::streams().into_iter().zip(&OWN_STREAMS).for_each(|(stream, own)| own.store(stream, Ordering::Relaxed));
    streams.into_iter().zip(&STREAMS).for_each(|(stream, theirs)| theirs.store(stream, Ordering::Release));
}

/// The given stream, or this process's counterpart if it is one of the program's.
#[inline]
pub fn own(stream: *mut c_void) -> *mut c_void {
    let theirs = |at: &AtomicU64| at.load(Ordering::Acquire) == stream as u64 && !stream.is_null();
    match STREAMS.iter().position(theirs) {
        Some(n) => OWN_STREAMS[n].load(Ordering::Relaxed) as *mut c_void,
        None => stream,
    }
}

/// Fetches memory that the system will read or write, if it is the program's. (Linux copies pages to which the system
/// writes.)
///
/// # Safety
/// The memory can be read, unless it is the program's.
#[inline]
pub unsafe fn fetch(at: *const c_void, n: usize) {
    if n > 0 && is_of_program(at) {
        // SAFETY: the caller's promise. A fault fetches the page, or ends the kernel.
        pages(at as usize, n).for_each(|at| unsafe {
            (at as *const u8).read_volatile();
        });
    }
}

/// An address in each page of a range.
fn pages(at: usize, n: usize) -> impl Iterator<Item = usize> {
    let end = at.saturating_add(n);
    std::iter::successors(Some(at), |at| Some((at & !(PAGE - 1)) + PAGE)).take_while(move |at| *at < end)
}

/// True if memory may be the program's.
#[inline]
pub fn is_of_program(at: *const c_void) -> bool {
    unified::is_of_program(at as u64)
}

/// Why a kernel can't free the program's memory.
pub const FREED: &str = "memory of the program that only the program can free";
/// Why a kernel can't give a stream a buffer.
pub const KEPT: &str =
    "memory of the program, which the stream would use after the region: allocate a buffer in the region";
/// Why a kernel can't use the program's locks: they are numbers in tables of the program's libomp.
pub const LOCKED: &str = "a lock of the program, which only the program can use: use `critical`, or a lock that the region \
    declares itself";

/// Ends the kernel with this reason if `function` is called with memory of the program.
#[inline]
pub fn refuse(at: *const c_void, function: &'static str, why: &'static str) {
    if is_of_program(at) {
        monitor::note_call(function, at as u64, why);
    }
}

/// The library function that the executable's own function of this name replaces; `cache` keeps it. Ends the process if
/// no library has it.
#[inline]
pub fn next(cache: &AtomicUsize, name: &CStr) -> usize {
    match cache.load(Ordering::Relaxed) {
        0 => require_next(cache, name),
        found => found,
    }
}

#[cold]
fn require_next(cache: &AtomicUsize, name: &CStr) -> usize {
    match find_next(cache, name) {
        0 => {
            log::error(format_args!("no library of the device has {}, which a region calls", name.to_string_lossy()));
            std::process::abort()
        }
        found => found,
    }
}

/// [`next`], or 0 if no loaded library has the function.
pub fn find_next(cache: &AtomicUsize, name: &CStr) -> usize {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
    cache.store(found, Ordering::Relaxed);
    found
}
