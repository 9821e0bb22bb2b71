// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The pages of the program that this process has, at the program's addresses.
//!
//! They are shared mappings of a file in memory whose offsets are the addresses, so that neighbors are one mapping: a
//! process has 65,530 at most. A page is written to the file before it is mapped: no thread sees it half fetched.

use super::ahead::{Ahead, LEAST};
use super::diff::{changed_bytes, changed_words};
use super::ranges::Ranges;
use super::source::Source;
use crate::base::{Error, Result};
use crate::device_main::home::Home;
use crate::sys::{mapping, node};
use crate::wire::MESSAGE_MAX;
use crate::wire::reply::Changes;
use rustix::fs::{FallocateFlags, fallocate};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
/// The file's length: all addresses of a process.
const ADDRESSES: u64 = 1 << 47;
/// Most bytes of one change: its new and its old bytes go into one message.
const CHANGE_MAX: usize = (MESSAGE_MAX / 2 - 2 * Changes::HEAD) / 8 * 8;
/// With more mappings than this, pages are made writable, or fetched, in larger pieces.
const MANY: usize = 10_000;

/// Most bytes that are kept for the next kernel, which then need not be allocated again.
const KEPT: u64 = 1 << 30;
/// Changes of at least this many bytes are offered to a program of this node.
const LARGE: usize = 64 << 10;

pub(super) struct Pages {
    source: Source,
    file: File,
    mapped: Ranges,
    writable: Ranges,
    /// What the writable pages held when they were fetched, by the address of each piece.
    old: BTreeMap<u64, Vec<u8>>,
    reads: Ahead,
    writes: Ahead,
    /// Pages that the file still has memory for.
    kept: Ranges,
    /// Buffers for `old`.
    buffers: Vec<Vec<u8>>,
}

impl Pages {
    pub fn new(home: &dyn Home) -> Result<Pages> {
        let file = node::memfd(c"omptarget-mpi-pages", 0)?;
        file.set_len(ADDRESSES)?;
        let (mapped, writable, old, reads, writes, kept, buffers) = Default::default();
        Ok(Pages { source: Source::new(home.process()), file, mapped, writable, old, reads, writes, kept, buffers })
    }

    pub fn make_accessible(&mut self, home: &dyn Home, address: u64, to_write: bool) -> Result<()> {
        let page = address & !(PAGE - 1);
        if self.mapped.around(page).is_none() {
            self.fetch(home, page)?;
        }
        if to_write && self.writable.around(page).is_none() {
            self.make_writable(page)?;
        }
        Ok(())
    }

    /// Fetches a page, and others with it.
    fn fetch(&mut self, home: &dyn Home, page: u64) -> Result<()> {
        let wanted = self.mapped.gap(page, &self.reads.around(page));
        let got = match self.fetch_range(home, wanted.clone()) {
            Ok(got) if got.contains(&page) => got,
            // The program has nothing somewhere before the page.
            _ if wanted.start < page => self.fetch_range(home, page..wanted.end)?,
            other => other?,
        };
        self.reads.note(page, got);
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
        mapping::map_file_at(range.start, end - range.start, libc::PROT_READ, Some(&self.file), range.start).map_err(
            |e| {
                Error::from(e).context(format_args!(
                    "the program has {:#x} to {end:#x}, which this device can't map there",
                    range.start
                ))
            },
        )?;
        self.mapped.insert(range.start..end);
        Ok(range.start..end)
    }

    /// Makes a page writable, and others with it. A copy is made first, while nothing can change them.
    fn make_writable(&mut self, page: u64) -> Result<()> {
        let mapped = self.mapped.around(page).ok_or(Error::Reported)?;
        let mut wanted = self.writes.around(page);
        if self.old.len() > MANY {
            wanted = wanted.start & !(32 * LEAST - 1)..wanted.end.next_multiple_of(32 * LEAST);
        }
        let range = self.writable.gap(page, &(wanted.start.max(mapped.start)..wanted.end.min(mapped.end)));
        let mut old = self.buffers.pop().unwrap_or_default();
        old.resize((range.end - range.start) as usize, 0);
        self.file.read_exact_at(&mut old, range.start)?;
        mapping::protect(range.start, range.end - range.start, libc::PROT_READ | libc::PROT_WRITE)?;
        self.old.insert(range.start, old);
        self.writable.insert(range.clone());
        self.writes.note(page, range);
        Ok(())
    }

    /// Sends home what differs from what was fetched, for the kernel of message `seq`. Unless it is the `last` that runs,
    /// what others write meanwhile differs the next time.
    pub fn send_changes(&mut self, home: &dyn Home, seq: u64, last: bool) -> Result<()> {
        let mut copy = Vec::new();
        let mut outgoing = Outgoing { home, seq, pending: Vec::new(), has_sent: false };
        for (&at, old) in &mut self.old {
            // SAFETY: these pages are mapped, and no kernel runs that could write there.
            let mut now = unsafe { std::slice::from_raw_parts(at as *const u8, old.len()) };
            if !last {
                copy.resize(old.len(), 0);
                self.file.read_exact_at(&mut copy, at)?;
                now = &copy;
            }
            let changes: Vec<_> = changed_words(now, old).collect();
            let len: usize = changes.iter().map(|change| change.len()).sum();
            if len < LARGE || !self.source.is_near() || !home.offer_changes(seq, at, now, old)? {
                for change in changes {
                    outgoing.push(at + change.start as u64, &now[change.clone()], &old[change]);
                }
            }
            if !last {
                std::mem::swap(old, &mut copy);
            }
        }
        outgoing.flush();
        if outgoing.has_sent {
            self.source.come_after_messages();
        }
        Ok(())
    }

    /// Fetches all pages again and takes over what the program has changed. Kernels use them meanwhile.
    pub fn refresh(&mut self, home: &dyn Home) -> Result<()> {
        for range in self.mapped.iter().collect::<Vec<_>>() {
            let mut end = range.start;
            self.source.read(home, range.clone(), &mut |at, bytes| {
                end = at + bytes.len() as u64;
                take_over(&self.file, &mut self.old, at, bytes)
            })?;
            if end < range.end {
                return Err(Error::new(format!(
                    "the program has unmapped {end:#x}, which a region that still runs has used"
                )));
            }
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
        self.writable.clear();
        self.buffers.extend(std::mem::take(&mut self.old).into_values());
        if self.kept.bytes() > KEPT {
            self.buffers.clear();
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            for range in self.kept.iter() {
                // If this fails, the memory stays in use.
                let _ = fallocate(&self.file, hole, range.start, range.end - range.start);
            }
            self.kept.clear();
        }
    }
}

/// Stores what differs in the program's memory now from what it was when it was fetched.
fn take_over(file: &File, all_old: &mut BTreeMap<u64, Vec<u8>>, at: u64, bytes: &[u8]) -> Result<()> {
    let mut known = vec![0; bytes.len()];
    file.read_exact_at(&mut known, at)?;
    let end = at + bytes.len() as u64;
    let first = all_old.range(..=at).next_back().map_or(at, |(&start, _)| start);
    for (&start, old) in all_old.range_mut(first..end) {
        let (from, to) = (start.max(at), (start + old.len() as u64).min(end));
        let here = from.saturating_sub(at) as usize..to.saturating_sub(at) as usize;
        let old = old.iter_mut().skip((from - start) as usize);
        for ((known, old), theirs) in known[here.clone()].iter_mut().zip(old).zip(&bytes[here]) {
            if *known == *old {
                *old = *theirs;
            } else {
                // A kernel has changed it. If the program has too, it will find the conflict.
                *known = *theirs;
            }
        }
    }
    for change in changed_bytes(bytes, &known) {
        file.write_all_at(&bytes[change.clone()], at + change.start as u64)?;
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
