// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Memory mappings at given addresses.
//!
//! Uses the C library's functions, not `rustix`: UCX intercepts them to track mappings.

use super::node::page_size;
use std::fs::File;
use std::io::{Error, Result};
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Reserves addresses that the system chooses.
pub(crate) fn reserve(len: u64) -> Result<u64> {
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping, at any address.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, libc::PROT_NONE, kind, -1, 0) };
    if at == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(at as u64) }
}

/// Maps exactly these addresses, where nothing may be mapped yet: a file from an offset on, shared, or private
/// memory without reserved swap space. If something is mapped there, the error is `EEXIST`.
pub(crate) fn map_at(at: u64, len: u64, protection: i32, file: Option<(&File, u64)>) -> Result<()> {
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let shared = |(file, offset): (&File, u64)| (libc::MAP_SHARED, file.as_raw_fd(), offset);
    map(at, len, protection, file.map_or((private, -1, 0), shared))
}

/// Maps a file's bytes at these offsets to the same addresses, copy-on-write. Nothing may be mapped there yet.
pub(crate) fn map_file_at(range: &Range<u64>, file: &File) -> Result<()> {
    /// Faults the file's pages in as a read would (Linux 5.14).
    const MADV_POPULATE_READ: libc::c_int = 22;
    let (at, len) = (range.start, range.end - range.start);
    let kind = libc::MAP_PRIVATE | libc::MAP_NORESERVE;
    map(at, len, libc::PROT_READ | libc::PROT_WRITE, (kind, file.as_raw_fd(), at))?;
    // SAFETY: the range was mapped just now. If this fails, each page faults on its first use.
    unsafe { libc::madvise(at as *mut _, len as usize, MADV_POPULATE_READ) };
    Ok(())
}

fn map(at: u64, len: u64, protection: i32, (kind, file, offset): (i32, i32, u64)) -> Result<()> {
    let flags = kind | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: with NOREPLACE the call changes no existing mapping.
    let got = unsafe { libc::mmap(at as *mut _, len as usize, protection, flags, file, offset as i64) };
    if got == libc::MAP_FAILED {
        return Err(Error::last_os_error());
    }
    if got as u64 != at {
        // A kernel before 4.17 takes the address for a hint.
        // SAFETY: this range was mapped just now and nothing uses it.
        unsafe { unmap(got as u64, len) };
        return Err(Error::from_raw_os_error(libc::EEXIST));
    }
    Ok(())
}

/// Maps `len` bytes of a file, from an offset on, shared, in place of what is mapped there.
///
/// # Safety
/// The range was mapped as a part of private memory, and nothing uses it.
pub(crate) unsafe fn replace(at: u64, len: u64, (file, offset): (&File, u64)) -> Result<()> {
    let (flags, protection) = (libc::MAP_SHARED | libc::MAP_FIXED, libc::PROT_READ | libc::PROT_WRITE);
    // SAFETY: the caller's promise.
    let got = unsafe { libc::mmap(at as *mut _, len as usize, protection, flags, file.as_raw_fd(), offset as i64) };
    if got == libc::MAP_FAILED { Err(Error::last_os_error()) } else { Ok(()) }
}

/// The size of a large page of x86-64.
const LARGE_PAGE: u64 = 2 << 20;

/// Private memory that is filled, then moved to other addresses, and can be moved back.
pub(crate) struct Movable {
    at: u64,
    len: u64,
    moved: Option<Range<u64>>,
}

impl Movable {
    /// For any range of at most `len` bytes, in large pages where possible.
    pub(crate) fn new(len: u64) -> Result<Movable> {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let (protection, len) = (libc::PROT_READ | libc::PROT_WRITE, len + LARGE_PAGE);
        // SAFETY: a new mapping, at any address.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len as usize, protection, kind, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(Error::last_os_error());
        }
        // SAFETY: all of this was mapped just now. If the advice fails, pages are small.
        unsafe { libc::madvise(at, len as usize, libc::MADV_HUGEPAGE) };
        Ok(Movable { at: at as u64, len, moved: None })
    }

    /// The length of the longest possible range.
    pub(crate) fn room(&self) -> u64 {
        self.len - LARGE_PAGE
    }

    /// The place of the byte that will be at an address. Moving preserves large pages if both places have the same
    /// offset in a large page.
    fn place_of(&self, address: u64) -> u64 {
        self.at + address.wrapping_sub(self.at) % LARGE_PAGE
    }

    /// The bytes that will be in a range of whole pages.
    pub(crate) fn as_mut_slice(&mut self, range: &Range<u64>) -> &mut [u8] {
        let len = range.end - range.start;
        assert!(len <= self.room() && self.moved.is_none());
        // SAFETY: it is a part of this mapping, which nothing else uses.
        unsafe { std::slice::from_raw_parts_mut(self.place_of(range.start) as *mut u8, len as usize) }
    }

    /// Moves the bytes for a range to it, if nothing is mapped there: atomically, so that a thread that uses these
    /// addresses meanwhile never finds anything else there. Needs Linux 5.7.
    pub(crate) fn move_to(&mut self, range: &Range<u64>) -> Result<()> {
        // Without `MREMAP_FIXED`, the kernel takes the new address only if it is free, and replaces nothing. It
        // considers the address at all because of `MREMAP_DONTUNMAP`.
        let len = self.as_mut_slice(range).len() as u64;
        // SAFETY: it is a part of this mapping, which nothing else uses.
        let got = unsafe { remap(self.place_of(range.start), len, libc::MREMAP_DONTUNMAP, range.start)? };
        if got != range.start {
            // SAFETY: the memory was moved there just now, and nothing uses it.
            unsafe { unmap(got, len) };
            return Err(Error::from_raw_os_error(libc::EEXIST));
        }
        self.moved = Some(range.clone());
        Ok(())
    }

    /// The range to which the memory was moved.
    pub(crate) fn moved(&self) -> Option<Range<u64>> {
        self.moved.clone()
    }

    /// Moves the memory back, which unmaps the range.
    ///
    /// # Safety
    /// The whole range is still the moved memory, and nothing uses it.
    pub(crate) unsafe fn move_back(&mut self) -> Result<()> {
        if let Some(range) = self.moved.take() {
            let (len, place) = (range.end - range.start, self.place_of(range.start));
            // SAFETY: the caller's promise; it replaces a part of this mapping.
            unsafe { remap(range.start, len, libc::MREMAP_FIXED, place)? };
            // A region may have protected it.
            // SAFETY: this is a part of this mapping, which nothing else uses.
            if unsafe { libc::mprotect(place as *mut _, len as usize, libc::PROT_READ | libc::PROT_WRITE) } != 0 {
                return Err(Error::last_os_error());
            }
        }
        Ok(())
    }
}

impl Drop for Movable {
    fn drop(&mut self) {
        // SAFETY: `new` mapped it, and nothing uses it without this object. Moved memory is not there.
        unsafe { unmap(self.at, self.len) };
    }
}

/// Moves a mapping; returns its new address. Uses the system call, because older C libraries do not pass all arguments
/// on. UCX learns of the move when the C library later unmaps these addresses.
///
/// # Safety
/// The range was mapped as a whole, and nothing uses it; with `MREMAP_FIXED`, nothing uses the new one either.
unsafe fn remap(at: u64, len: u64, flags: i32, to: u64) -> Result<u64> {
    let flags = libc::c_long::from(libc::MREMAP_MAYMOVE | flags);
    // SAFETY: the caller's promise.
    let got = unsafe { libc::syscall(libc::SYS_mremap, at, len, len, flags, to) };
    if got == -1 { Err(Error::last_os_error()) } else { Ok(got as u64) }
}

/// A shared mapping of a file between two inaccessible pages: a read that runs past the previous mapping stops there.
pub(crate) struct Guarded {
    at: usize,
    len: usize,
}

impl Guarded {
    /// Maps the first `len` bytes of a file, whole pages. A fork of this process does not inherit the mapping.
    pub(crate) fn new(file: &File, len: usize) -> Result<Guarded> {
        let guards = 2 * page_size() as usize;
        let guarded = Guarded { at: reserve((len + guards) as u64)? as usize + guards / 2, len };
        // SAFETY: it is the middle of what was mapped just now.
        unsafe { replace(guarded.at as u64, len as u64, (file, 0))? };
        // SAFETY: the same range; if this fails, a fork inherits it.
        unsafe { libc::madvise(guarded.as_mut_ptr().cast(), len, libc::MADV_DONTFORK) };
        Ok(guarded)
    }

    pub(crate) fn as_mut_ptr(&self) -> *mut u8 {
        self.at as *mut u8
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let guard = page_size() as usize;
        // SAFETY: `new` mapped all of it, and nothing uses it without this object.
        unsafe { unmap((self.at - guard) as u64, (self.len + 2 * guard) as u64) };
    }
}

/// True if something is mapped at each of these pages.
pub(crate) fn is_mapped(pages: &Range<u64>) -> bool {
    // SAFETY: with this flag the call only checks the mappings.
    unsafe { libc::msync(pages.start as *mut _, (pages.end - pages.start) as usize, libc::MS_ASYNC) == 0 }
}

/// # Safety
/// The range was mapped as a whole, and nothing uses it.
pub(crate) unsafe fn unmap(at: u64, len: u64) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(at as *mut _, len as usize) };
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/mapping.rs"]
mod tests;
