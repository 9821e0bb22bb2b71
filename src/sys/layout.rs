// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The address space of a device: all of its mappings lie in one window that programs do not use. So a program's
//! address is free here, and a region that uses it faults (see `device_main::backend::cpu::unified`).
//!
//! Linux maps downwards from an address that it derives from the limit of the stack: the larger the limit, the lower
//! the address. So a process raises its limit for one `exec`. Only the stack of the main thread stays outside of the
//! window, and the memory that MPI launchers share with all processes of a job, at addresses of their choice.

use super::mapping;
use super::process::Mappings;
use crate::base::limits::PAGE;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

/// Below its end there is room for Linux's randomization (16 TiB at most) and a large device. It lies between the
/// places where PMIx 5 shares memory: a quarter and a half of the way to where Linux loads executables,
/// 0x5555_5555_4000 and up to 16 TiB more.
pub(crate) const WINDOW: Range<u64> = 0x1980_0000_0000..0x2a80_0000_0000;

/// The end of user addresses. Above it is only the vsyscall page, which all processes have.
const USER: u64 = 1 << 47;

/// How much the first stack of a process in the window can grow. The main thread starts MPI and then waits, which takes
/// 16 KiB more than the initial 132 KiB (MPICH 4.0), or nothing (Open MPI 4.1). The larger this room, the likelier it
/// is that the program has something there.
const STACK_ROOM: u64 = 512 << 10;
/// The lowest address of that room, after [`settle`]; 0 if the stack can grow without end.
static STACK_END: AtomicU64 = AtomicU64::new(0);

/// The stack limit that makes Linux map from the window's end downwards.
const STACK_LIMIT: u64 = USER - PAGE - WINDOW.end;

/// True if this process runs under valgrind, which needs memory for every page of a reservation, and has its own
/// layout.
pub(crate) fn is_valgrind() -> bool {
    std::env::var("LD_PRELOAD").is_ok_and(|preload| preload.contains("/vgpreload"))
}

/// True if this process's code, and hence every mapping, is in the window.
pub(crate) fn is_in_window() -> bool {
    WINDOW.contains(&(is_in_window as *const () as u64))
}

/// What the next `exec` needs so that the program's mappings are in the window.
pub(crate) struct Move {
    /// What to execute, with the program as its first argument: the dynamic loader, which the kernel maps in the
    /// window. A program that the kernel executes directly is mapped elsewhere.
    pub loader: PathBuf,
    /// The soft stack limit before the change, in bytes, for [`settle`] to restore; `RLIM_INFINITY` if unlimited.
    pub stack_limit: u64,
}

/// Makes the next program that this process executes have its mappings in the window. `None` if that is impossible
/// here.
pub(crate) fn choose_window() -> Option<Move> {
    if !cfg!(all(target_arch = "x86_64", not(sanitized))) || is_valgrind() {
        return None;
    }
    // SAFETY: getauxval has no preconditions.
    let loader = Mappings::now().file_at(unsafe { libc::getauxval(libc::AT_BASE) } as usize)?;
    let Rlimit { current, maximum } = getrlimit(Resource::Stack);
    setrlimit(Resource::Stack, Rlimit { current: Some(STACK_LIMIT), maximum }).ok()?;
    randomize();
    set_heap(true);
    Some(Move { loader, stack_limit: current.unwrap_or(libc::RLIM_INFINITY) })
}

/// Undoes [`choose_window`], here or in the executed program, where it also keeps the heap from growing outside of the
/// window. No other thread may run yet.
pub(crate) fn settle(stack_limit: u64) {
    let maximum = getrlimit(Resource::Stack).maximum;
    let stack_limit = Some(stack_limit).filter(|limit| *limit != libc::RLIM_INFINITY);
    let _ = setrlimit(Resource::Stack, Rlimit { current: stack_limit, maximum });
    set_thread_stacks(stack_limit);
    set_heap(false);
    if is_in_window() {
        // SAFETY: sbrk(0) changes nothing.
        let end = (unsafe { libc::sbrk(0) } as u64).next_multiple_of(PAGE);
        // If this fails, `outside` includes the heap.
        let _ = mapping::map_at(end, PAGE, libc::PROT_NONE, None);
        // Without this page Linux would let the stack grow down to the next mapping, over addresses of the program.
        let stack = Mappings::now().first_stack();
        if let Some(end) = stack.and_then(|stack| stack.start.checked_sub(STACK_ROOM))
            && mapping::map_at(end - PAGE, PAGE, libc::PROT_NONE, None).is_ok()
        {
            STACK_END.store(end, Ordering::Relaxed);
        }
    }
}

/// Makes the next program's mappings random even after `setarch -R`: otherwise its first stack would be where that of
/// the job's program is.
fn randomize() {
    const QUERY: libc::c_ulong = 0xffff_ffff;
    // SAFETY: it changes how the next program is loaded, nothing else.
    unsafe {
        let now = libc::personality(QUERY);
        if now > 0 {
            libc::personality((now & !libc::ADDR_NO_RANDOMIZE) as libc::c_ulong);
        }
    }
}

/// Gives later threads the stack size that the C library would have chosen with this limit: it read the limit when it
/// started.
fn set_thread_stacks(limit: Option<u64>) {
    /// glibc's stack size without a limit.
    const UNLIMITED: u64 = 2 << 20;
    unsafe extern "C" {
        fn pthread_setattr_default_np(attributes: *const libc::pthread_attr_t) -> libc::c_int;
    }
    let size = limit.unwrap_or(UNLIMITED).max(libc::PTHREAD_STACK_MIN as u64).next_multiple_of(PAGE);
    // SAFETY: the attributes are initialized before they are used, and outlive the calls.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        libc::pthread_attr_init(&mut attributes);
        libc::pthread_attr_setstacksize(&mut attributes, size as usize);
        pthread_setattr_default_np(&attributes);
        libc::pthread_attr_destroy(&mut attributes);
    }
}

/// Makes malloc map its memory, or undoes that: with a soft limit of 0, Linux lets `brk` fail. Mappings are then
/// subject to the hard limit.
fn set_heap(mapped: bool) {
    let Rlimit { current, maximum } = getrlimit(Resource::Data);
    let (from, to) = if mapped { (maximum, Some(0)) } else { (Some(0), maximum) };
    if current == from {
        let _ = setrlimit(Resource::Data, Rlimit { current: to, maximum });
    }
}

fn is_outside(range: &Range<u64>) -> bool {
    range.end <= WINDOW.start || (WINDOW.end..USER).contains(&range.start)
}

/// The range of this process's own memory outside of the window, including the room of its stack; `None` if the process
/// is not in the window.
pub(crate) fn outside() -> Option<Range<u64>> {
    let all = Mappings::now().private().accessible().into_iter().filter(is_outside);
    let all = all.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)).unwrap_or_default();
    let stack_end = STACK_END.load(Ordering::Relaxed);
    (is_in_window() && stack_end != 0).then(|| all.start.min(stack_end)..all.end)
}

/// The shared files that this process has outside of the window.
pub(crate) fn shared_outside() -> Vec<Range<u64>> {
    Mappings::now().shared().accessible().into_iter().filter(is_outside).collect()
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/layout.rs"]
mod tests;
