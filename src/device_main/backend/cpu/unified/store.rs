// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A file in memory whose offsets are the program's addresses, so that neighbors are one mapping: a process has 65,530 at
//! most.

use super::ranges::Ranges;
use crate::base::Result;
use crate::base::limits::MEMORY_KEPT;
use crate::sys::{mapping, node};
use memmap2::{Mmap, MmapOptions};
use rustix::fs::{FallocateFlags, fallocate};
use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// The file's length: all addresses of a process.
const ADDRESSES: u64 = 1 << 47;

pub(super) struct Store {
    file: File,
    /// What the file may have memory for.
    kept: Ranges,
}

impl Store {
    pub fn new(name: &CStr) -> Result<Store> {
        let file = node::memfd(name, 0)?;
        file.set_len(ADDRESSES)?;
        Ok(Store { file, kept: Ranges::default() })
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    pub fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(to, at)
    }

    /// Maps a range to its addresses. What is written there is not in the file, but in copies.
    pub fn map(&self, range: &Range<u64>) -> io::Result<()> {
        mapping::map_file_at(range, &self.file)
    }

    /// What the file has in a range.
    pub fn view(&self, range: &Range<u64>) -> Result<Mmap> {
        let view = MmapOptions::new().offset(range.start).len((range.end - range.start) as usize).populate().clone();
        // SAFETY: only this object, under its owner's lock, changes the file.
        Ok(unsafe { view.map(&self.file)? })
    }

    /// Notes that this range will be written.
    pub fn note(&mut self, range: &Range<u64>) {
        self.kept.insert(range.clone());
    }

    /// No kernel uses the file now: frees its memory if that is much.
    pub fn trim(&mut self) {
        if self.kept.bytes() > MEMORY_KEPT {
            let kept = std::mem::take(&mut self.kept);
            kept.iter().for_each(|range| self.free(&range));
        }
    }

    /// Frees the memory of a range, which no kernel uses.
    pub fn free(&mut self, range: &Range<u64>) {
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // If this fails, the memory stays in use.
        let _ = fallocate(&self.file, hole, range.start, range.end - range.start);
        self.kept.remove(range);
    }
}
