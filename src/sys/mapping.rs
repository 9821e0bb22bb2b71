// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Memory mappings at given addresses.
//!
//! By the C library's functions, not by `rustix`: UCX intercepts these to follow what is mapped.

use std::fs::File;
use std::io::{Error, Result};
use std::os::fd::AsRawFd;

/// Maps exactly these addresses, where nothing may be mapped yet: a file shared, or private
/// memory without swap space reserved for it. If something is mapped there, the error is `EEXIST`.
pub(crate) fn map_at(at: u64, len: u64, protection: i32, file: Option<&File>) -> Result<()> {
    map_file_at(at, len, protection, file, 0)
}

/// The same from an offset of the file on.
pub(crate) fn map_file_at(at: u64, len: u64, protection: i32, file: Option<&File>, offset: u64) -> Result<()> {
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let (kind, file) = file.map_or((private, -1), |file| (libc::MAP_SHARED, file.as_raw_fd()));
    let flags = kind | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: NOREPLACE: the call changes nothing that is mapped already.
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

/// # Safety
/// The range was mapped as a whole, and nothing uses it any more.
pub(crate) unsafe fn unmap(at: u64, len: u64) {
    // SAFETY: the caller's promise.
    unsafe { libc::munmap(at as *mut _, len as usize) };
}

/// Changes the protection of a range that is mapped.
pub(crate) fn protect(at: u64, len: u64, protection: i32) -> Result<()> {
    // SAFETY: it only makes accesses fail, or no longer fail.
    match unsafe { libc::mprotect(at as *mut _, len as usize, protection) } {
        0 => Ok(()),
        _ => Err(Error::last_os_error()),
    }
}
