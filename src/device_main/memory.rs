// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The device's memory: the arena, the writable parts of images, and everything else
//! that only this process knows (a kernel's own heap and stack).

use crate::base::{Error, Result, node};
use parking_lot::RwLock;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module.
#[derive(Default)]
pub struct Memory {
    /// The arena's addresses, empty before it is mapped.
    start: AtomicU64,
    end: AtomicU64,
    /// Memory of images that can be written without faulting.
    data: RwLock<Vec<Range<u64>>>,
}

impl Memory {
    /// Maps the arena at an address that the host side chose.
    ///
    /// # Errors
    /// Something lies there. An arena that was mapped before, and not used yet, is gone.
    pub fn start(&self, at: u64, len: u64) -> Result<()> {
        if len == 0 || at.checked_add(len).is_none() {
            return Err(Error::new("the arena has no size"));
        }
        let old = self.range();
        if !old.is_empty() {
            self.end.store(old.start, Relaxed);
            // SAFETY: mapped below by an earlier call; the host has not used it.
            unsafe { libc::munmap(old.start as *mut _, (old.end - old.start) as usize) };
        }
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: NOREPLACE: the call changes nothing that is mapped already.
        let got = unsafe { libc::mmap(at as *mut _, len as usize, protection, flags, -1, 0) };
        if got == libc::MAP_FAILED {
            let e = Error::from(std::io::Error::last_os_error());
            return Err(e.context(format_args!("can't map {len} bytes at {at:#x}")));
        }
        if got as u64 != at {
            // SAFETY: this range was mapped just now and nobody knows of it.
            unsafe { libc::munmap(got, len as usize) };
            return Err(Error::new(format!("can't map {len} bytes at {at:#x}: the addresses are in use")));
        }
        // Large pages: kernels miss the TLB less, and MPI has fewer pages to look up when it
        // copies between processes. A refusal leaves small ones.
        // SAFETY: the range was mapped just now.
        unsafe { libc::madvise(got, len as usize, libc::MADV_HUGEPAGE) };
        self.start.store(at, Relaxed);
        self.end.store(at + len, Relaxed);
        Ok(())
    }

    #[inline]
    fn range(&self) -> Range<u64> {
        self.start.load(Relaxed)..self.end.load(Relaxed)
    }

    /// Gives memory of the arena that holds nothing any more back to the system.
    pub fn discard(&self, at: u64, len: u64) {
        let range = self.range();
        if len > 0 && range.contains(&at) && len <= range.end - at {
            // SAFETY: the range is the arena's. A refusal leaves the memory in use, no more.
            unsafe { libc::madvise(at as *mut _, len as usize, libc::MADV_DONTNEED) };
        }
    }

    /// Memory of an image that stays writable.
    pub fn add_data(&self, ranges: impl Iterator<Item = Range<u64>>) {
        self.data.write().extend(ranges);
    }

    /// An image that covers `span` is gone.
    pub fn remove_data(&self, span: &Range<u64>) {
        self.data.write().retain(|r| !span.contains(&r.start));
    }

    /// True if the range can be read and written without faulting.
    #[inline]
    pub fn is_plain(&self, at: u64, len: u64) -> bool {
        let Some(end) = at.checked_add(len) else { return false };
        let within = |r: &Range<u64>| r.start <= at && end <= r.end;
        within(&self.range()) || self.data.read().iter().any(within)
    }

    /// Puts bytes at an address.
    ///
    /// # Errors
    /// An address that can't be written; parts before it may be written.
    #[inline]
    pub fn write(&self, to: u64, bytes: &[u8]) -> Result<()> {
        if self.is_plain(to, bytes.len() as u64) {
            // SAFETY: the range was just checked; what kernels do with it meanwhile is
            // the program's business, as with any device memory.
            unsafe { std::ptr::copy(bytes.as_ptr(), to as *mut u8, bytes.len()) };
            return Ok(());
        }
        checked(node::write_any(to, bytes), bytes.len(), to, "written")
    }

    /// Appends the bytes at an address to `out`.
    ///
    /// # Errors
    /// An address that can't be read; `out` is as before then.
    #[inline]
    pub fn read(&self, from: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        out.reserve(len);
        let to = out.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        if self.is_plain(from, len as u64) {
            // SAFETY: the range was just checked, and the capacity was reserved.
            unsafe { std::ptr::copy(from as *const u8, to, len) };
        } else {
            // SAFETY: the capacity was reserved.
            let n = unsafe { node::read_any(from, to, len) };
            checked(n, len, from, "read")?;
        }
        // SAFETY: `len` bytes behind the old end were just written.
        unsafe { out.set_len(out.len() + len) };
        Ok(())
    }

    /// Moves bytes within the device.
    ///
    /// # Errors
    /// An address that can't be read or written.
    pub fn copy(&self, to: u64, from: u64, len: u64) -> Result<()> {
        if self.is_plain(to, len) && self.is_plain(from, len) {
            // SAFETY: both ranges were just checked; `copy` lets them overlap.
            unsafe { std::ptr::copy(from as *const u8, to as *mut u8, len as usize) };
            return Ok(());
        }
        let mut bytes = Vec::new();
        self.read(from, usize::try_from(len).unwrap_or(usize::MAX), &mut bytes)?;
        self.write(to, &bytes)
    }
}

fn checked(n: isize, len: usize, at: u64, done: &str) -> Result<()> {
    match n {
        n if n == len as isize => Ok(()),
        -1 => Err(Error::new(format!("{len} bytes at {at:#x} can't be {done}: {}", std::io::Error::last_os_error()))),
        n => Err(Error::new(format!("only {n} of {len} bytes at {at:#x} can be {done}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arena_takes_and_gives() {
        let m = Memory::default();
        m.start(0x2346_0000_0000, 1 << 20).unwrap();
        m.start(0x2345_0000_0000, 1 << 20).unwrap();
        assert!(!m.is_plain(0x2346_0000_0000, 1));
        m.write(0x2345_0000_0010, b"hello").unwrap();
        m.copy(0x2345_0000_0012, 0x2345_0000_0010, 5).unwrap();
        let mut out = b">".to_vec();
        m.read(0x2345_0000_0010, 7, &mut out).unwrap();
        assert_eq!(out, b">hehello");
        m.discard(0x2345_0000_0000, 4096);
        m.read(0x2345_0000_0010, 1, &mut out).unwrap();
        assert_eq!(out.last(), Some(&0));
    }

    #[test]
    fn memory_of_ones_own_is_reached_and_wild_addresses_fail() {
        let m = Memory::default();
        let own = Box::new(7u64);
        let at = &raw const *own as u64;
        let mut out = Vec::new();
        m.read(at, 8, &mut out).unwrap();
        assert_eq!(out, 7u64.to_ne_bytes());
        m.write(at, &9u64.to_ne_bytes()).unwrap();
        // SAFETY: a box of its own.
        assert_eq!(unsafe { (&raw const *own).read_volatile() }, 9);
        for wild in [0, 16, u64::MAX - 3, 1 << 62] {
            assert!(m.read(wild, 8, &mut out).is_err() && m.write(wild, &[1; 8]).is_err());
            assert!(m.copy(wild, at, 8).is_err() && m.copy(at, wild, 8).is_err());
        }
        assert!(m.write(checked as *const () as u64, &[0; 8]).is_err(), "code is not writable");
        assert_eq!(out.len(), 8);
    }
}
