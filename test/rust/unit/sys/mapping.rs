// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/mapping.rs`.

use super::*;
use crate::sys::{node, process};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes of a range that this process can read, from its start on.
fn readable(at: usize, len: usize) -> isize {
    let mut bytes = vec![0; len];
    // SAFETY: the buffer is that long.
    unsafe { process::read_memory(std::process::id() as i32, at as u64, bytes.as_mut_ptr(), len) }
}

#[test]
fn reading_on_stops_before_and_behind_a_guarded_mapping() {
    let page = page_size() as usize;
    let file = node::memfd(c"guarded", 0).unwrap();
    file.set_len(3 * page as u64).unwrap();
    let guarded = Guarded::new(&file, 2 * page).unwrap();
    let at = guarded.as_mut_ptr() as usize;
    assert_eq!(guarded.len(), 2 * page);
    assert_eq!(readable(at, 4 * page), 2 * page as isize);
    assert_eq!(readable(at - page, page), -1);
    assert_eq!(readable(at + 2 * page, page), -1);
    drop(guarded);
    assert!(!is_mapped(&((at - page) as u64..at as u64)));
    assert!(!is_mapped(&((at + 2 * page) as u64..(at + 3 * page) as u64)));
}

#[test]
fn memory_is_moved_where_nothing_is_and_back() {
    // Where nothing of a process gets by itself, and no large page begins.
    const AT: u64 = 0x3a00_0000_0000;
    let page = u64::from(page_size());
    let free = AT + page..AT + (5 << 20);
    let mut memory = Movable::new(free.end - free.start).unwrap();
    memory.as_mut_slice(&free).fill(7);
    let less = free.start..free.end - page;
    memory.move_to(&less).unwrap();
    assert!(memory.moved() == Some(less.clone()) && is_mapped(&less) && !is_mapped(&(less.end..free.end)));
    // SAFETY: it is mapped, and nothing else uses it.
    let moved = || unsafe { std::slice::from_raw_parts(less.start as *const u8, (less.end - less.start) as usize) };
    assert!(moved().iter().all(|byte| *byte == 7));
    let error = Movable::new(page).unwrap().move_to(&(free.start..free.start + page)).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EEXIST));
    // It can be moved again, also to where large pages begin elsewhere.
    for lead in [0, page, 7 * page] {
        // SAFETY: all of it is there, and nothing uses it.
        unsafe { memory.move_back() }.unwrap();
        assert!(!is_mapped(&less) && memory.moved().is_none());
        let elsewhere = free.start + lead..free.start + lead + (3 << 20);
        memory.as_mut_slice(&elsewhere).fill(8);
        memory.move_to(&elsewhere).unwrap();
        assert_eq!(readable(elsewhere.start as usize, 4 << 20), 3 << 20);
    }
    // SAFETY: as above.
    unsafe { memory.move_back() }.unwrap();
}

/// Faults at memory that was mapped, but could not be read.
static FORBIDDEN: AtomicUsize = AtomicUsize::new(0);

/// Tries again, as a device does whose memory is on its way.
extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    const SEGV_MAPERR: libc::c_int = 1;
    // SAFETY: the kernel passes a valid record.
    let (code, at) = unsafe { ((*info).si_code, (*info).si_addr() as u64) };
    if !PIECES.contains(&at) {
        // SAFETY: it has no preconditions; the fault comes again.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
    } else if code != SEGV_MAPERR {
        FORBIDDEN.fetch_add(1, Ordering::Relaxed);
    }
}

/// Where nothing of a process gets by itself.
const PIECES: Range<u64> = 0x3b00_0000_0000..0x3b00_0000_0000 + 100 * LARGE_PAGE;

#[test]
fn moved_memory_can_be_used_as_soon_as_something_is_mapped() {
    let pieces = || PIECES.step_by(LARGE_PAGE as usize);
    // SAFETY: the handler is async-signal-safe, and the memory is there in the end.
    unsafe {
        let (mut action, mut before): (libc::sigaction, libc::sigaction) = std::mem::zeroed();
        action.sa_sigaction = on_fault as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, &action, &mut before);
        let reader =
            std::thread::spawn(move || pieces().for_each(|at| assert_eq!((at as *const u8).read_volatile(), 1)));
        for at in pieces() {
            let piece = at..at + LARGE_PAGE;
            let mut memory = Movable::new(LARGE_PAGE).unwrap();
            memory.as_mut_slice(&piece)[0] = 1;
            memory.move_to(&piece).unwrap();
        }
        reader.join().unwrap();
        libc::sigaction(libc::SIGSEGV, &before, std::ptr::null_mut());
        unmap(PIECES.start, PIECES.end - PIECES.start);
    }
    assert_eq!(FORBIDDEN.load(Ordering::Relaxed), 0);
}
