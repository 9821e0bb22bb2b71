// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Stacks of threads, for crash reports: where a stack is, whether it overflowed, and which kernel started its
//! thread. Also stacks for signal handlers.

use memmap2::{MmapOptions, MmapRaw};
use std::cell::{Cell, RefCell};
use std::mem;
use std::ops::Range;
use std::ptr;

/// Room for a handler, in addition to the processor state that the kernel saves.
const HANDLER: usize = 32 << 10;
/// How far an overflow may reach beyond a stack's end: one large frame.
const REACH: usize = 64 << 20;
/// An address this close to a stack's end is no coincidence.
const NEAR: usize = 1 << 20;

thread_local! {
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static ORIGIN: Cell<usize> = const { Cell::new(usize::MAX) };
    static ALTERNATE: RefCell<Option<Alternate>> = const { RefCell::new(None) };
}

/// Prepares a thread that the kernel in slot `origin` started, with a stack for signal handlers.
pub(crate) fn begin_thread(origin: usize) {
    ORIGIN.set(origin);
    note_stack();
    ALTERNATE.with_borrow_mut(|stack| *stack = Alternate::new());
}

/// The slot of the thread whose kernel started this thread.
pub(crate) fn origin() -> usize {
    ORIGIN.get()
}

pub(super) fn note_stack() {
    // SAFETY: the first call initializes the record, which outlives all calls.
    unsafe {
        let mut attributes = mem::zeroed();
        if libc::pthread_getattr_np(libc::pthread_self(), &mut attributes) == 0 {
            let (mut start, mut size) = (ptr::null_mut(), 0);
            if libc::pthread_attr_getstack(&attributes, &mut start, &mut size) == 0 {
                STACK.set((start as usize, size));
            }
            libc::pthread_attr_destroy(&mut attributes);
        }
    }
}

/// The size of this thread's stack if the access to `address` overflowed it, or 0. Async-signal-safe.
pub(super) fn overflowed(address: usize, top: usize) -> usize {
    let (start, size) = STACK.get();
    if is_overflow(start, address, top) { size } else { 0 }
}

fn is_overflow(start: usize, address: usize, top: usize) -> bool {
    let below = |reach: usize| -> Range<usize> { start.saturating_sub(reach)..start };
    below(NEAR).contains(&address) || below(REACH).contains(&top)
}

/// A stack for signal handlers, above an inaccessible page: an overflow ends the process.
struct Alternate(MmapRaw);

impl Alternate {
    /// Gives the calling thread an alternate stack, unless it has one or there is no memory.
    fn new() -> Option<Alternate> {
        let page = rustix::param::page_size();
        // SAFETY: the records outlive the calls, and nothing else uses the new mapping.
        unsafe {
            let mut old: libc::stack_t = mem::zeroed();
            if libc::sigaltstack(ptr::null(), &mut old) != 0 || old.ss_flags & libc::SS_DISABLE == 0 {
                return None;
            }
            let usable = (libc::getauxval(libc::AT_MINSIGSTKSZ) as usize + HANDLER).next_multiple_of(page);
            let stack = Alternate(MmapOptions::new().len(page + usable).map_anon().ok()?.into());
            let start = stack.0.as_mut_ptr();
            let new = libc::stack_t { ss_sp: start.add(page).cast(), ss_flags: 0, ss_size: usable };
            let set = libc::mprotect(start.cast(), page, libc::PROT_NONE) == 0
                && libc::sigaltstack(&new, ptr::null_mut()) == 0;
            set.then_some(stack)
        }
    }
}

impl Drop for Alternate {
    fn drop(&mut self) {
        let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: the stack's own thread removes it, and does not run on it here.
        unsafe { libc::sigaltstack(&none, ptr::null_mut()) };
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/crash/stack.rs"]
mod tests;
