// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The pages of the program that this process has, at the program's addresses.
//!
//! They are private mappings of a file in memory whose offsets are the addresses, so that neighbors are one mapping: a
//! process has 65,530 at most. A page is written to the file before it is mapped: no thread sees it half fetched. When a
//! kernel writes to a page, Linux gives this process a copy of it; the file keeps what was fetched, and `pagemap` shows
//! which pages have copies.

use super::ahead::Ahead;
use super::diff::{changed_bytes, changed_words};
use super::ranges::Ranges;
use super::source::Source;
use crate::base::{Error, Result};
use crate::device_main::home::Home;
use crate::sys::{mapping, node};
use crate::wire::MESSAGE_MAX;
use crate::wire::reply::Changes;
use memmap2::{Mmap, MmapOptions};
use rustix::fs::{FallocateFlags, fallocate};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU8, Ordering};

const PAGE: u64 = 4096;
/// The file's length: all addresses of a process.
const ADDRESSES: u64 = 1 << 47;
/// Most bytes of one change: its new and its old bytes go into one message.
const CHANGE_MAX: usize = (MESSAGE_MAX / 2 - 2 * Changes::HEAD) / 8 * 8;
/// Most bytes that are kept for the next kernel, which then need not be allocated again.
const KEPT: u64 = 1 << 30;
/// Changes of at least this many bytes are offered to a program of this node.
const LARGE: usize = 64 << 10;

pub(super) struct Pages {
    source: Source,
    file: File,
    /// This process's pagemap.
    pagemap: File,
    mapped: Ranges,
    ahead: Ahead,
    /// What the file still has memory for.
    kept: Ranges,
}

impl Pages {
    pub fn new(home: &dyn Home) -> Result<Pages> {
        let file = node::memfd(c"omptarget-mpi-pages", 0)?;
        file.set_len(ADDRESSES)?;
        let (source, pagemap) = (Source::new(home.process()), File::open("/proc/self/pagemap")?);
        let (mapped, ahead, kept) = Default::default();
        Ok(Pages { source, file, pagemap, mapped, ahead, kept })
    }

    /// Fetches the page of an address, and others with it, unless it is there.
    pub fn fetch(&mut self, home: &dyn Home, address: u64) -> Result<()> {
        let page = address & !(PAGE - 1);
        if self.mapped.around(page).is_some() {
            return Ok(());
        }
        let wanted = self.mapped.gap(page, &self.ahead.around(page));
        let got = match self.fetch_range(home, wanted.clone()) {
            Ok(got) if got.contains(&page) => got,
            // The program has nothing somewhere before the page.
            _ if wanted.start < page => self.fetch_range(home, page..wanted.end)?,
            other => other?,
        };
        self.ahead.note(page, got);
        Ok(())
    }

    /// Fetches what the program has from the start of a range on.
    fn fetch_range(&mut self, home: &dyn Home, range: Range<u64>) -> Result<Range<u64>> {
        let mut end = range.start;
        self.source.read(home, range.clone(), &mut |at, bytes| {
            if at != end || at + bytes.len() as u64 > range.end {
                return Err(Error::new("the program sends other memory than this device has asked for"));
            }
            end += bytes.len() as u64;
            Ok(self.file.write_all_at(bytes, at)?)
        })?;
        let got = range.start..end;
        mapping::map_private_at(&got, &self.file).map_err(|e| {
            Error::from(e).context(format_args!(
                "the program has {:#x} to {end:#x}, which this device can't map there",
                range.start
            ))
        })?;
        self.mapped.insert(got.clone());
        Ok(got)
    }

    /// Sends home what differs from what was fetched, for the kernel of message `seq`. Unless it is the `last` that runs,
    /// what others write meanwhile differs the next time.
    pub fn send_changes(&mut self, home: &dyn Home, seq: u64, last: bool) -> Result<()> {
        let mut copy = Vec::new();
        let mut outgoing = Outgoing { home, seq, pending: Vec::new(), has_sent: false };
        for written in self.written()? {
            let at = written.start;
            let old = self.fetched(&written)?;
            // SAFETY: these pages are mapped. If others may write there, they are only copied.
            let mut now = unsafe { std::slice::from_raw_parts(at as *const u8, old.len()) };
            if !last {
                copy.clear();
                copy.extend_from_slice(now);
                now = &copy;
            }
            let changes: Vec<_> = changed_words(now, &old).collect();
            let len: usize = changes.iter().map(|change| change.len()).sum();
            if len < LARGE || !self.source.is_near() || !home.offer_changes(seq, at, now, &old)? {
                for change in changes {
                    outgoing.push(at + change.start as u64, &now[change.clone()], &old[change]);
                }
            }
            if !last {
                self.file.write_all_at(now, at)?;
            }
        }
        outgoing.flush();
        if outgoing.has_sent {
            self.source.come_after_messages();
        }
        Ok(())
    }

    /// The pages that kernels have written to.
    fn written(&self) -> Result<Vec<Range<u64>>> {
        let mut written = Ranges::default();
        for range in self.mapped.iter() {
            let mut entries = vec![0; (range.end - range.start) as usize / PAGE as usize * size_of::<u64>()];
            self.pagemap.read_exact_at(&mut entries, range.start / PAGE * size_of::<u64>() as u64)?;
            let pages = (range.start..range.end).step_by(PAGE as usize);
            let copies = pages.zip(entries.as_chunks().0).filter(|(_, entry)| is_copy(u64::from_ne_bytes(**entry)));
            copies.for_each(|(page, _)| written.insert(page..page + PAGE));
        }
        Ok(written.iter().collect())
    }

    /// What was fetched of a range.
    fn fetched(&self, range: &Range<u64>) -> Result<Mmap> {
        let view = MmapOptions::new().offset(range.start).len((range.end - range.start) as usize).populate().clone();
        // SAFETY: only this object, under its lock, changes the file.
        Ok(unsafe { view.map(&self.file)? })
    }

    /// Fetches all pages again and takes over what the program has changed. Kernels use them meanwhile.
    pub fn refresh(&mut self, home: &dyn Home) -> Result<()> {
        for range in self.mapped.iter().collect::<Vec<_>>() {
            let mut end = range.start;
            let read = self.source.read(home, range.clone(), &mut |at, bytes| {
                end = at + bytes.len() as u64;
                take_over(&self.file, at, bytes)
            });
            if end == range.end {
                continue;
            }
            // The program has unmapped something. If a kernel needs what lies behind that, it is fetched again.
            let gone = end..range.end;
            if self.written()?.iter().any(|written| written.start < gone.end && gone.start < written.end) {
                let unmapped =
                    format!("the program has unmapped {end:#x}, near what a region has written that still runs");
                return Err(read.err().unwrap_or(Error::Reported).context(unmapped));
            }
            // SAFETY: this object mapped it. A kernel that uses it faults.
            unsafe { mapping::unmap(gone.start, gone.end - gone.start) };
            self.mapped.remove(&gone);
        }
        Ok(())
    }

    pub fn forget(&mut self) {
        for range in self.mapped.iter() {
            // SAFETY: this object mapped it, and no kernel runs that could use it.
            unsafe { mapping::unmap(range.start, range.end - range.start) };
            self.kept.insert(range);
        }
        self.mapped.clear();
        if self.kept.bytes() > KEPT {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            for range in self.kept.iter() {
                // If this fails, the memory stays in use.
                let _ = fallocate(&self.file, hole, range.start, range.end - range.start);
            }
            self.kept.clear();
        }
    }
}

/// True if an entry of a pagemap (Linux, admin-guide/mm/pagemap.rst) shows a copy, not a page of the file: a present page
/// that belongs to no file, or a swapped one.
fn is_copy(entry: u64) -> bool {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    entry & (PRESENT | OF_FILE) == PRESENT || entry & SWAPPED != 0
}

/// Stores what differs in the program's memory now, `bytes`, from what was fetched, in the file, and in mapped pages that
/// are copies.
fn take_over(file: &File, at: u64, bytes: &[u8]) -> Result<()> {
    let mut known = vec![0; bytes.len()];
    file.read_exact_at(&mut known, at)?;
    for change in changed_bytes(bytes, &known) {
        for i in change {
            let (theirs, known) = (bytes[i], known[i]);
            // SAFETY: the page is mapped.
            let mine = unsafe { AtomicU8::from_ptr((at + i as u64) as *mut u8) };
            // What both have changed stays as it was, in the file too, for the program to find the conflict.
            if mine.load(Ordering::Relaxed) == known {
                file.write_all_at(&[theirs], at + i as u64)?;
                // If the page is a copy. A kernel may write another value at this moment.
                let _ = mine.compare_exchange(known, theirs, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// Changes on their way home, until they fill a message.
struct Outgoing<'a> {
    home: &'a dyn Home,
    seq: u64,
    pending: Vec<u8>,
    has_sent: bool,
}

impl Outgoing<'_> {
    fn push(&mut self, at: u64, new: &[u8], old: &[u8]) {
        const ROOM: usize = MESSAGE_MAX - 2 * Changes::HEAD;
        let pieces = new.chunks(CHANGE_MAX).zip(old.chunks(CHANGE_MAX));
        for (at, (new, old)) in (at..).step_by(CHANGE_MAX).zip(pieces) {
            if self.pending.len() + Changes::HEAD + 2 * new.len() > ROOM {
                self.flush();
            }
            Changes::push(&mut self.pending, at, new, old);
        }
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            self.home.send_changes(self.seq, &mut |message| message.extend_from_slice(&self.pending));
            self.has_sent = true;
            self.pending.clear();
        }
    }
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/pages.rs"]
mod tests;
