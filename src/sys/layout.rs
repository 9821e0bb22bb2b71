// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The address space of a device: all that it maps lies in one window that programs do not use. So an address of the
//! program is free here, and a region that uses one faults (see `device_main::backend::cpu::unified`).
//!
//! Linux maps from a third of the address space upwards in its legacy layout. Only the stack of the main thread stays
//! outside.

use super::mapping;
use super::process::Mappings;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::ops::Range;
use std::path::PathBuf;

/// From the lowest address of the legacy layout (x86-64: a third of 47 bits) to the first one that its randomization
/// and a large device leave free.
pub(crate) const WINDOW: Range<u64> = 0x2aaa_aaaa_a000..0x4000_0000_0000;

const PAGE: u64 = 4096;

/// True if this process runs under valgrind, which needs memory for every page of a reservation, and has a layout of its
/// own.
pub(crate) fn is_valgrind() -> bool {
    std::env::var("LD_PRELOAD").is_ok_and(|preload| preload.contains("/vgpreload"))
}

/// True if the launcher lets all processes of the job share memory at one address, which it finds in the middle of its
/// largest gap: in the window. Open MPI 5's does, with PMIx 5 (gds/shmem2). A process that can't map it does not start.
fn has_launchers_memory() -> bool {
    std::env::var("PMIX_GDS_MODULE").is_ok_and(|modules| modules.contains("shmem"))
}

/// True if this process's code, and so all that it maps, is in the window.
pub(crate) fn is_in_window() -> bool {
    WINDOW.contains(&(is_in_window as *const () as u64))
}

/// Lets the next program that this process executes have its mappings in the window. Returns what to execute, with the
/// program as its first argument: the dynamic loader, which the kernel maps with everything else, and a program that it
/// executes itself it does not. `None` if that can't be done here.
pub(crate) fn choose_window() -> Option<PathBuf> {
    if !cfg!(all(target_arch = "x86_64", not(sanitized))) || is_valgrind() || has_launchers_memory() {
        return None;
    }
    // SAFETY: getauxval has no preconditions.
    let loader = Mappings::now().file_at(unsafe { libc::getauxval(libc::AT_BASE) } as usize)?;
    if !set_personality(true) {
        return None;
    }
    set_heap(true);
    Some(loader)
}

/// Undoes [`choose_window`], here or in the program that was executed. There the heap can't grow outside of the window.
pub(crate) fn settle() {
    let _ = set_personality(false);
    set_heap(false);
    if is_in_window() {
        // SAFETY: sbrk(0) changes nothing.
        let end = (unsafe { libc::sbrk(0) } as u64).next_multiple_of(PAGE);
        // Otherwise `outside` shows the heap.
        let _ = mapping::map_at(end, PAGE, libc::PROT_NONE, None);
    }
}

/// False if the system does not allow it.
fn set_personality(legacy: bool) -> bool {
    const ADDR_COMPAT_LAYOUT: libc::c_ulong = 0x020_0000;
    const GET: libc::c_ulong = 0xffff_ffff;
    // SAFETY: it changes only where later programs of this process have their mappings.
    unsafe {
        let now = libc::personality(GET) as libc::c_ulong;
        let new = if legacy { now | ADDR_COMPAT_LAYOUT } else { now & !ADDR_COMPAT_LAYOUT };
        libc::personality(new) != -1
    }
}

/// With a limit of 0 Linux lets `brk` fail, so that malloc maps its memory; mappings are limited by the hard limit then.
fn set_heap(mapped: bool) {
    let Rlimit { current, maximum } = getrlimit(Resource::Data);
    let (from, to) = if mapped { (maximum, Some(0)) } else { (Some(0), maximum) };
    if current == from {
        let _ = setrlimit(Resource::Data, Rlimit { current: to, maximum });
    }
}

/// What this process uses outside of the window, if all else is in it.
pub(crate) fn outside() -> Option<Range<u64>> {
    /// Above it is a page that all processes have.
    const USER: u64 = 1 << 47;
    let is_outside = |r: &Range<u64>| r.end <= WINDOW.start || (WINDOW.end..USER).contains(&r.start);
    let all = Mappings::now().accessible().into_iter().filter(is_outside);
    is_in_window().then(|| all.reduce(|all, one| all.start.min(one.start)..all.end.max(one.end)).unwrap_or_default())
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/layout.rs"]
mod tests;
