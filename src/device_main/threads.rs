// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Threads that kernels start: libomp's teams and the program's own. Each gets a stack for
//! signal handlers, so that an overflow of its own can be told, and knows from whose kernel
//! it comes.
//!
//! They are met where all threads begin: the executable has a `pthread_create` of its own,
//! which libraries find before the system's. It leaves threads as they are that start before
//! there can be kernels.

use super::fault;
use std::cell::{Cell, RefCell};
use std::ffi::{c_int, c_void};
use std::mem;
use std::ops::Range;
use std::ptr;
use std::sync::OnceLock;

/// What a thread begins with.
pub type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;
type Create = unsafe extern "C" fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;

/// Room for a handler, besides what the system saves of the processor.
const HANDLER: usize = 32 << 10;
/// How far beyond a stack's end an overflow may reach: by one large frame.
const REACH: usize = 64 << 20;
/// An address so little below a stack's end is not met by chance.
const NEAR: usize = 1 << 20;

thread_local! {
    static STACK: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
    static ORIGIN: Cell<usize> = const { Cell::new(usize::MAX) };
    static ALTERNATE: RefCell<Option<Alternate>> = const { RefCell::new(None) };
}

/// What a new thread is told by its creator.
struct Begin {
    start: Start,
    argument: *mut c_void,
    origin: usize,
}

/// `pthread_create` for all of this process.
///
/// # Safety
/// As the system's.
pub unsafe fn create(
    thread: *mut libc::pthread_t,
    attributes: *const libc::pthread_attr_t,
    start: Start,
    argument: *mut c_void,
) -> c_int {
    static SYSTEMS: OnceLock<Option<Create>> = OnceLock::new();
    // SAFETY: the name is a C string; what it is the name of has this type.
    let systems = SYSTEMS.get_or_init(|| unsafe {
        mem::transmute::<*mut c_void, Option<Create>>(libc::dlsym(libc::RTLD_NEXT, c"pthread_create".as_ptr()))
    });
    let Some(systems) = systems else { return libc::ENOSYS };
    if !fault::is_watched() {
        // A thread of MPI's own, while MPI starts: a stack for signal handlers would be mapped while
        // UCX replaces the code of `mmap`.
        // SAFETY: the caller's promise.
        return unsafe { systems(thread, attributes, start, argument) };
    }
    let begin = Box::into_raw(Box::new(Begin { start, argument, origin: fault::origin() }));
    // SAFETY: the caller's promise; `first` takes what it is passed.
    let code = unsafe { systems(thread, attributes, first, begin.cast()) };
    if code != 0 {
        // SAFETY: no thread has got it.
        drop(unsafe { Box::from_raw(begin) });
    }
    code
}

/// What every thread begins with. A thread that ends by `pthread_exit` unwinds through it.
unsafe extern "C-unwind" fn first(begin: *mut c_void) -> *mut c_void {
    // SAFETY: made by `create` for this thread alone.
    let Begin { start, argument, origin } = *unsafe { Box::from_raw(begin.cast::<Begin>()) };
    ORIGIN.set(origin);
    note_stack();
    ALTERNATE.with_borrow_mut(|stack| *stack = Alternate::new());
    // SAFETY: what the creator asked for.
    unsafe { start(argument) }
}

/// The slot of the thread whose kernel this thread comes from.
pub fn origin() -> usize {
    ORIGIN.get()
}

/// Learns where the calling thread's stack is.
pub fn note_stack() {
    // SAFETY: the record is initialised by the first call and outlives the others.
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

/// Bytes of the calling thread's stack if an access at `address`, with the stack pointer at
/// `top`, overflowed it; 0 otherwise. Safe in a signal handler.
pub fn overflowed(address: usize, top: usize) -> usize {
    let (start, size) = STACK.get();
    if is_overflow(start, address, top) { size } else { 0 }
}

fn is_overflow(start: usize, address: usize, top: usize) -> bool {
    let below = |reach: usize| -> Range<usize> { start.saturating_sub(reach)..start };
    below(NEAR).contains(&address) || below(REACH).contains(&top)
}

/// A stack for signal handlers.
struct Alternate {
    at: *mut c_void,
    len: usize,
}

impl Alternate {
    /// Gives the calling thread one; none if it has one, or there is no memory for it.
    fn new() -> Option<Alternate> {
        // SAFETY: plain numbers; the mapping is new and of the system's choice, and a part of
        // it becomes usable; the records outlive the calls.
        unsafe {
            let mut old: libc::stack_t = mem::zeroed();
            if libc::sigaltstack(ptr::null(), &mut old) != 0 || old.ss_flags & libc::SS_DISABLE == 0 {
                return None;
            }
            let page = libc::sysconf(libc::_SC_PAGESIZE) as usize;
            let usable = (libc::getauxval(libc::AT_MINSIGSTKSZ) as usize + HANDLER).next_multiple_of(page);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // A page in front of it that can't be used: an overflow of this one ends the process.
            let len = usable + page;
            let at = libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0);
            if at == libc::MAP_FAILED {
                return None;
            }
            let stack = Alternate { at, len };
            let start = at.byte_add(page);
            let new = libc::stack_t { ss_sp: start, ss_flags: 0, ss_size: usable };
            let set = libc::mprotect(start, usable, libc::PROT_READ | libc::PROT_WRITE) == 0
                && libc::sigaltstack(&new, ptr::null_mut()) == 0;
            set.then_some(stack)
        }
    }
}

impl Drop for Alternate {
    fn drop(&mut self) {
        // SAFETY: the thread that was given the stack gives it back, and does not run on it:
        // this is no handler.
        unsafe {
            let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
            libc::sigaltstack(&none, ptr::null_mut());
            libc::munmap(self.at, self.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overflow_is_told_from_other_addresses() {
        let start = 1 << 40;
        assert!(is_overflow(start, start - 8, start + 100) && is_overflow(start, 12, start - 4096));
        assert!(!is_overflow(start, 0, start + 100) && !is_overflow(start, start + 8, start + 100));
        assert!(!is_overflow(0, 0, 0), "a thread that nothing is known of");
    }

    #[test]
    fn the_stack_of_a_thread_is_known() {
        note_stack();
        let local = 0u8;
        let (start, size) = STACK.get();
        assert!((start..start + size).contains(&(&raw const local as usize)));
        assert_eq!(overflowed(start - 16, &raw const local as usize), size);
    }

    #[test]
    fn a_thread_gets_a_stack_for_handlers_once() {
        // One of the system's own, which Rust gives none.
        extern "C" fn thread(_: *mut c_void) -> *mut c_void {
            let first = Alternate::new();
            let second = Alternate::new();
            ptr::without_provenance_mut(usize::from(first.is_some() && second.is_none()))
        }
        let mut id = 0;
        let mut result = ptr::null_mut();
        // SAFETY: the thread is joined before anything that it uses goes.
        unsafe {
            assert_eq!(libc::pthread_create(&mut id, ptr::null(), thread, ptr::null_mut()), 0);
            assert_eq!(libc::pthread_join(id, &mut result), 0);
        }
        assert_eq!(result as usize, 1);
    }
}
