// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A file in memory whose offsets are the program's addresses. So neighboring pages share a mapping; a process can have
//! only 65,530 mappings.

use crate::base::Result;
use crate::base::limits::MEMORY_KEPT;
use crate::base::ranges::Ranges;
use crate::sys::{mapping, shared_file};
use crate::wire::command::SharedFile;
use memmap2::{Mmap, MmapOptions};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// Changes of at least this many bytes are offered to a program of this node, which reads them from the file.
pub(super) const LARGE: usize = 64 << 10;
/// The file's length: all addresses of a process.
const ADDRESSES: u64 = 1 << 47;

pub(super) struct Store {
    file: Arc<File>,
    nonce: u64,
    /// The ranges for which the file may have memory.
    kept: Ranges,
}

impl Store {
    pub fn new() -> Result<Store> {
        // The nonce at its start is in no page that a program may have.
        let (file, nonce) = shared_file::create(ADDRESSES)?;
        Ok(Store { file: Arc::new(file), nonce, kept: Ranges::default() })
    }

    /// The description with which the program can open the file.
    pub fn to_offer(&self) -> SharedFile {
        let (pid, descriptor) = (std::process::id(), self.file.as_raw_fd() as u32);
        SharedFile { pid, descriptor, nonce: self.nonce, len: ADDRESSES }
    }

    /// The file for other threads, which may use it while the owner holds its lock.
    pub fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, at)
    }

    pub fn read(&self, at: u64, to: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(to, at)
    }

    /// Maps a range to its addresses. Writes go to copies of the pages, not to the file.
    pub fn map(&self, range: &Range<u64>) -> io::Result<()> {
        mapping::map_file_at(range, &self.file)
    }

    /// The file's contents in a range. Unless all of it `is_needed`, pages of a large range are mapped only when they
    /// are read.
    pub fn view(&self, range: &Range<u64>, is_needed: bool) -> Result<Mmap> {
        let mut view = MmapOptions::new().offset(range.start).len((range.end - range.start) as usize).clone();
        if is_needed || range.end - range.start < LARGE as u64 {
            view.populate();
        }
        // SAFETY: only this object and `Source::copy` change the file, while its owner holds a lock.
        Ok(unsafe { view.map(&self.file)? })
    }

    /// Notes that this range will be written.
    pub fn note(&mut self, range: &Range<u64>) {
        self.kept.insert(range.clone());
    }

    /// Frees the file's memory if that exceeds a limit. No kernel may be using the file.
    pub fn trim(&mut self) {
        if self.kept.bytes() > MEMORY_KEPT {
            std::mem::take(&mut self.kept).iter().for_each(|range| self.free(&range));
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
