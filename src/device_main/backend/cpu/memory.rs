// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The device's memory: the arena, the writable parts of images, and memory that only this process
//! knows (a kernel's own heap and stack). System calls copy the latter, because they fail instead of
//! crashing.

use crate::base::sync::RwLock;
use crate::base::{Error, Result};
use crate::debug;
use crate::sys::{mapping, node, shared_file};
use crate::wire::command::SharedFile;
use memmap2::MmapOptions;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// All memory that this process can access, and the ranges that never fault. See `Backend` for the methods.
#[derive(Default)]
pub(super) struct Memory {
    /// The arena's addresses, empty before it is mapped.
    start: AtomicU64,
    end: AtomicU64,
    /// Writable memory of images.
    data: RwLock<Vec<Range<u64>>>,
    shared: RwLock<Option<Shared>>,
}

/// The file that the program also maps.
struct Shared {
    file: File,
    /// See [`file_id`].
    id: (u64, u64),
    len: u64,
    /// Bytes of the file that are the arena's beginning.
    beginning: u64,
    /// Other parts of the arena that are in the file.
    windows: Vec<Range<u64>>,
}

impl Memory {
    /// Maps the arena at an address that the host's side chose. Its `beginning` is in the shared file if that is
    /// possible.
    ///
    /// # Safety
    /// Nothing uses the arena of an earlier call, which is unmapped.
    pub unsafe fn start(&self, at: u64, len: u64, (beginning, shared): (u64, SharedFile)) -> Result<()> {
        if len == 0 || at.checked_add(len).is_none() {
            return Err(Error::new("the arena has no size"));
        }
        let old = self.range();
        if !old.is_empty() {
            self.end.store(old.start, Relaxed);
            // SAFETY: an earlier call has mapped it; by the caller's promise nothing uses it.
            unsafe { mapping::unmap(old.start, old.end - old.start) };
        }
        mapping::map_at(at, len, libc::PROT_READ | libc::PROT_WRITE, None)
            .map_err(|e| Error::from(e).context(format_args!("can't map {len} bytes at {at:#x}")))?;
        // Large pages cause fewer TLB misses in kernels, and MPI has fewer pages to look up when it copies
        // between processes. If this fails, pages stay small.
        // SAFETY: the range was just mapped.
        unsafe { libc::madvise(at as *mut _, len as usize, libc::MADV_HUGEPAGE) };
        if (1..=len.min(shared.len)).contains(&beginning) {
            match shared_file::open((shared.pid, shared.descriptor, shared.nonce), shared.len) {
                Ok(file) => {
                    // SAFETY: this is a part of the new mapping.
                    unsafe { mapping::replace(at, beginning, (&file, 0))? };
                    let (id, windows) = (file_id(&file)?, Vec::new());
                    *self.shared.write() = Some(Shared { file, id, len: shared.len, beginning, windows });
                }
                Err(e) => debug!("no part of the arena is shared: {e}"),
            }
        }
        self.start.store(at, Relaxed);
        self.end.store(at + len, Relaxed);
        Ok(())
    }

    #[inline]
    fn range(&self) -> Range<u64> {
        self.start.load(Relaxed)..self.end.load(Relaxed)
    }

    /// Moves whole pages of the arena to the shared file, from `offset` on; false if that is not possible.
    ///
    /// # Safety
    /// Nothing uses these pages meanwhile.
    ///
    /// # Errors
    /// The pages may be lost.
    pub unsafe fn share(&self, at: u64, len: u64, offset: u64) -> Result<bool> {
        let (range, mut shared) = (self.range(), self.shared.write());
        let Some(Shared { file, id, len: file_len, beginning, windows }) = &mut *shared else { return Ok(false) };
        let is_inside = |range: Range<u64>, at, len| range.contains(&at) && len <= range.end - at;
        let is_possible = is_inside(range.start + *beginning..range.end, at, len)
            && is_inside(*beginning..*file_len, offset, len)
            && (at | len | offset).is_multiple_of(node::page_size().into())
            && !windows.iter().any(|other| other.start < at + len && at < other.end);
        // A region may have closed all files.
        if !is_possible || file_id(file).ok() != Some(*id) {
            return Ok(false);
        }
        // SAFETY: both processes rely on the size of the file, which can't shrink.
        let pages = unsafe { MmapOptions::new().offset(offset).len(len as usize).map_mut(&*file) };
        let Ok(mut pages) = pages else { return Ok(false) };
        // Use a system call, because a region may have protected its pages.
        // SAFETY: there is room for them.
        if unsafe { node::read_any(at, pages.as_mut_ptr(), pages.len()) } != len as isize {
            return Ok(false);
        }
        // SAFETY: the caller's promise.
        unsafe { mapping::replace(at, len, (file, offset)) }.map_err(|e| {
            Error::from(e)
                .context(format_args!("{len} bytes at {at:#x} can't be mapped from the file that the program shares"))
        })?;
        windows.push(at..at + len);
        Ok(true)
    }

    pub fn discard(&self, at: u64, len: u64) {
        let (range, page) = (self.range(), u64::from(node::page_size()));
        if !range.contains(&at) || len > range.end - at {
            return;
        }
        // The host's side may use a smaller page size.
        let (start, end) = (at.next_multiple_of(page), (at + len) / page * page);
        // SAFETY: both ends are in the arena. If this fails, the memory stays in use.
        let advise = |start: u64, end: u64, advice| unsafe {
            if start < end {
                libc::madvise(start as *mut _, (end - start) as usize, advice);
            }
        };
        if let Some(Shared { beginning, windows, .. }) = &*self.shared.read() {
            let beginning = range.start..range.start + beginning;
            let shared = windows.iter().chain([&beginning]);
            shared.for_each(|part| advise(start.max(part.start), end.min(part.end), libc::MADV_REMOVE));
        }
        advise(start, end, libc::MADV_DONTNEED);
    }

    pub fn add_data(&self, ranges: impl Iterator<Item = Range<u64>>) {
        self.data.write().extend(ranges);
    }

    /// Removes the memory of an image that covers `span`.
    pub fn remove_data(&self, span: &Range<u64>) {
        self.data.write().retain(|r| !span.contains(&r.start));
    }

    /// True if accesses to the range do not fault.
    #[inline]
    pub fn is_plain(&self, at: u64, len: u64) -> bool {
        let Some(end) = at.checked_add(len) else { return false };
        let within = |r: &Range<u64>| r.start <= at && end <= r.end;
        within(&self.range()) || self.data.read().iter().any(within)
    }

    #[inline]
    pub fn write(&self, to: u64, bytes: &[u8]) -> Result<()> {
        if self.is_plain(to, bytes.len() as u64) {
            // SAFETY: the range was just checked. If kernels access it meanwhile, that is the program's race.
            unsafe { std::ptr::copy(bytes.as_ptr(), to as *mut u8, bytes.len()) };
            return Ok(());
        }
        checked(node::write_any(to, bytes), bytes.len(), to, "written")
    }

    #[inline]
    pub fn read(&self, from: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        out.reserve(len);
        let to = out.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        if self.is_plain(from, len as u64) {
            // SAFETY: the range was just checked, and the capacity is reserved.
            unsafe { std::ptr::copy(from as *const u8, to, len) };
        } else {
            // SAFETY: the capacity is reserved.
            let n = unsafe { node::read_any(from, to, len) };
            checked(n, len, from, "read")?;
        }
        // SAFETY: `len` bytes after the old end were just written.
        unsafe { out.set_len(out.len() + len) };
        Ok(())
    }
}

/// Device and inode, which distinguish an open file from all others.
fn file_id(file: &File) -> std::io::Result<(u64, u64)> {
    file.metadata().map(|about| (about.dev(), about.ino()))
}

fn checked(n: isize, len: usize, at: u64, done: &str) -> Result<()> {
    match n {
        n if n == len as isize => Ok(()),
        -1 => Err(Error::new(format!("{len} bytes at {at:#x} can't be {done}: {}", std::io::Error::last_os_error()))),
        n => Err(Error::new(format!("only {n} of {len} bytes at {at:#x} can be {done}"))),
    }
}

#[cfg(test)]
#[path = "../../../../test/rust/unit/device_main/backend/cpu/memory.rs"]
mod tests;
