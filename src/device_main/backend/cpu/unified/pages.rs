// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! This process's pages of the program's memory, at the program's addresses.
//!
//! They are private mappings of a store with the fetched bytes. A page is written to the store before it is mapped, so
//! no thread sees it half fetched. When a kernel writes to a page, Linux gives this process a copy of it. The store
//! keeps the fetched bytes, and `pagemap` shows which pages have copies. Copying page by page is slow. So where a
//! kernel writes in order, the next pages are copied at once, and all of them may have changed.

use super::diff::{WORD, changed_words, is_change_of, parts_with_much_change};
use super::page_cache::{KnownParts, PageCache};
use super::read_ahead::{Before, LEAST, ReadAhead};
use super::source::Source;
use super::store::{LARGE, Store};
use super::streamed::Streamed;
use super::working_sets::WorkingSets;
use crate::base::limits::{MEMORY_PIECE_MIN, UNMERGED};
use crate::base::ranges::Ranges;
use crate::base::{Error, Result};
use crate::device_main::upcalls::interface::{Piece, Upcalls};
use crate::sys::mapping;
use crate::wire::MESSAGE_MAX;
use crate::wire::command::SharedFile;
use crate::wire::reply::Changes;
use std::fs::File;
use std::mem;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
/// The maximum size of one change in bytes: its new and old bytes must fit into one message.
const CHANGE_MAX: usize = (MESSAGE_MAX / 2 - 2 * Changes::HEAD) / 8 * 8;

pub(super) struct Pages {
    source: Source,
    /// The fetched bytes.
    fetched: Store,
    /// This process's pagemap.
    pagemap: File,
    mapped: Ranges,
    /// Memory of this process alone, where kernels write in order.
    streamed: Streamed,
    /// The pages in `fetched` from earlier regions, if the program is on another node.
    cache: PageCache,
    read_ahead: ReadAhead,
    working_sets: WorkingSets,
}

/// Bytes of the program's memory that a kernel waited for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub fetched: u64,
    /// Bytes that were here, and that the program has confirmed.
    pub unchanged: u64,
}

impl Pages {
    pub fn new(upcalls: &dyn Upcalls) -> Result<Pages> {
        let fetched = Store::new()?;
        let (source, pagemap) = (Source::new(upcalls.process()), File::open("/proc/self/pagemap")?);
        let (mapped, cache, read_ahead, working_sets) = Default::default();
        Ok(Pages { source, fetched, pagemap, mapped, streamed: Streamed::new(), cache, read_ahead, working_sets })
    }

    /// True if the page of an address is here.
    pub fn has(&self, address: u64) -> bool {
        self.mapped.around(address).is_some()
    }

    /// Fetches the page of an address that a kernel uses, and pages around it, unless it is here. `forward`: only pages
    /// after it. None if the program has nothing there.
    pub fn fetch(&mut self, upcalls: &dyn Upcalls, kernel: u64, address: u64, forward: bool) -> Result<Option<Amount>> {
        let page = address & !(PAGE - 1);
        if self.mapped.around(page).is_some() {
            // The page was fetched for another thread.
            let is_there = mapping::is_mapped(&(page..page + PAGE));
            return if is_there { Ok(Some(Amount::default())) } else { Err(Error::new("a region has unmapped it")) };
        }
        let early =
            if self.source.is_near() { Amount::default() } else { self.fetch_working_set(upcalls, kernel, page)? };
        let (range, before) = match forward {
            true => (page..page + LEAST, None),
            false => self.read_ahead.around(page, self.source.is_near()),
        };
        let is_written = before.as_ref().is_some_and(|before| self.is_written(&before.range));
        let is_other = before.is_some_and(|before| before.is_other);
        let mut wanted = self.mapped.gap(page, &range);
        if let Some(here) = self.here(page) {
            wanted = wanted.start.max(here.start)..wanted.end.min(here.end);
        }
        let (got, mut amount) = match self.fetch_range(upcalls, wanted.clone(), is_written, is_other) {
            Ok(got) if got.0.range.contains(&page) => got,
            // The program has nothing somewhere before the page.
            _ if wanted.start < page => self.fetch_range(upcalls, page..wanted.end, is_written, is_other)?,
            other => other?,
        };
        if got.range.is_empty() {
            return Ok(None);
        }
        self.read_ahead.note(page, got);
        amount.fetched += early.fetched;
        amount.unchanged += early.unchanged;
        Ok(Some(amount))
    }

    /// The range around a page that the store has up to date, though it is not mapped.
    fn here(&self, page: u64) -> Option<Range<u64>> {
        self.working_sets.ready.around(page)
    }

    /// Brings the kernel's working set in the store up to date with the program.
    fn fetch_working_set(&mut self, upcalls: &dyn Upcalls, kernel: u64, page: u64) -> Result<Amount> {
        let mut amount = Amount::default();
        if self.here(page).is_some() {
            return Ok(amount);
        }
        let mut wanted: Ranges = self.working_sets.begin(kernel, page).into_iter().collect();
        // Mapped pages are already up to date.
        self.mapped.iter().for_each(|range| wanted.remove(&range));
        let ranges: Vec<_> = wanted.iter().collect();
        if ranges.is_empty() {
            return Ok(amount);
        }
        let mut known = Vec::new();
        for range in &ranges {
            self.fetched.note(range);
            known.push(KnownParts::of(&self.fetched, self.cache.within(range), false)?);
        }
        let wanted: Vec<_> = ranges.iter().cloned().zip(known.iter().map(KnownParts::list)).collect();
        let (fetched, ready) = (&self.fetched, &mut self.working_sets.ready);
        // If a part does not arrive, the kernel requests it when it uses it, and then reports why.
        let _ = upcalls.fetch(&wanted, &mut |Piece { at, same, bytes }| {
            let same_end = at.saturating_add(same);
            let end = same_end.saturating_add(bytes.len() as u64);
            let place = ranges.partition_point(|range| range.start <= at).checked_sub(1);
            if !place.is_some_and(|i| end <= ranges[i].end && known[i].covers(&(at..same_end))) {
                return Err(Error::new("the program sends other memory than this device has asked for"));
            }
            amount.add(same, bytes);
            fetched.write(same_end, bytes)?;
            ready.insert(at..end);
            Ok(())
        });
        Ok(amount)
    }

    /// Fetches and maps the readable prefix of a range.
    fn fetch_range(
        &mut self,
        upcalls: &dyn Upcalls,
        range: Range<u64>,
        is_written: bool,
        is_other: bool,
    ) -> Result<(Before, Amount)> {
        let mut own = if is_written { self.streamed.prepare(&range) } else { None };
        let (Before { range: got, is_other }, amount) =
            self.receive(upcalls, &range, own.as_mut().map(|own| own.as_mut_slice(&range)), is_other)?;
        if got.is_empty() {
            return Ok((Before { range: got, is_other }, amount));
        }
        if !own.is_some_and(|own| self.streamed.place(own, &got)) {
            self.fetched.map(&got).map_err(|e| {
                let Range { start, end } = got;
                Error::from(e)
                    .context(format_args!("the program has {start:#x} to {end:#x}, which this device can't map there"))
            })?;
        }
        self.mapped.insert(got.clone());
        Ok((Before { range: got, is_other }, amount))
    }

    /// Brings the readable prefix of a range into the store, and into `own`.
    fn receive(
        &mut self,
        upcalls: &dyn Upcalls,
        range: &Range<u64>,
        mut own: Option<&mut [u8]>,
        is_other: bool,
    ) -> Result<(Before, Amount)> {
        if self.here(range.start).is_some_and(|here| here.end >= range.end) {
            own.map_or(Ok(()), |own| self.fetched.read(range.start, own))?;
            return Ok((Before { range: range.clone(), is_other: false }, Amount::default()));
        }
        self.fetched.note(range);
        if let Some(end) = self.source.copy(upcalls, range.clone(), own.as_deref_mut(), self.fetched.file()) {
            let amount = Amount { fetched: end - range.start, unchanged: 0 };
            return Ok((Before { range: range.start..end, is_other }, amount));
        }
        let known = KnownParts::of(&self.fetched, self.cache.within(range), is_other)?;
        let fetched = &self.fetched;
        let (mut amount, mut unchanged) = (Amount::default(), Vec::new());
        let end =
            self.source.read(upcalls, range.clone(), &known, own.as_deref_mut(), &mut |Piece { at, same, bytes }| {
                amount.add(same, bytes);
                let behind = at + same;
                unchanged.push(at..behind);
                Ok(fetched.write(behind, bytes)?)
            });
        if let Some(own) = own {
            for part in unchanged.into_iter().filter(|part| !part.is_empty()) {
                let (from, end) = ((part.start - range.start) as usize, (part.end - range.start) as usize);
                fetched.read(part.start, &mut own[from..end])?;
            }
        }
        let got = range.start..*end.as_ref().unwrap_or(&range.start);
        if got.end < range.end && !self.source.is_near() {
            // The program no longer has this page; nothing is known of those after it.
            self.drop_kept(&(got.end..range.end.min(got.end + PAGE)));
        }
        let is_other = amount.unchanged == 0 && (is_other || known.is_much());
        end.map(|_| (Before { range: got, is_other }, amount))
    }

    /// Drops kept pages that the program no longer has.
    fn drop_kept(&mut self, gone: &Range<u64>) {
        self.cache.remove(gone);
        self.fetched.free(gone);
    }

    /// Sends the differences from the fetched bytes, for the kernel of message `seq`. Unless it is the `last` that
    /// runs, concurrent writes of others differ the next time. Returns how many bytes were sent or offered to the
    /// program.
    pub fn send_changes(&mut self, upcalls: &dyn Upcalls, seq: u64, last: bool) -> Result<u64> {
        let mut outgoing = Outgoing { upcalls, seq, pending: Vec::new(), sent: Vec::new(), bytes: 0 };
        let result = self.push_changes(&mut outgoing, last);
        // Even after an error: pushed changes may already count as fetched.
        outgoing.flush();
        outgoing.sent.into_iter().for_each(|changes| self.source.note_sent(changes));
        result.map(|()| outgoing.bytes)
    }

    fn push_changes(&mut self, outgoing: &mut Outgoing<'_>, last: bool) -> Result<()> {
        let mut copy = Vec::new();
        for written in self.written()? {
            let at = written.start;
            let old = self.fetched.view(&written, !self.source.is_near())?;
            // SAFETY: these pages are mapped. If others may write there, the bytes are only copied.
            let mut now = unsafe { std::slice::from_raw_parts(at as *const u8, old.len()) };
            if !last {
                copy.clear();
                copy.extend_from_slice(now);
                now = &copy;
            }
            match self.source.is_near() {
                // Too little for a part with much change, so there is no need to compare again.
                true if !is_change_of(LARGE, now, &old) => outgoing.push_words(at, now, &old, 0..now.len()),
                true if outgoing.offer(at, now, self.fetched.to_offer())? => {}
                _ => outgoing.push_range(at, now, &old)?,
            }
            // Keep the changes, which the program now has too.
            if !last || !self.source.is_near() {
                self.fetched.write(at, now)?;
            }
        }
        Ok(())
    }

    /// The ranges to which kernels have, or may have, written.
    fn written(&self) -> Result<Vec<Range<u64>>> {
        let (mut written, mut of_store) = (Ranges::default(), Ranges::default());
        self.mapped.iter().for_each(|range| of_store.insert(range));
        self.streamed.ranges().iter().for_each(|range| of_store.remove(&range));
        for range in of_store.iter() {
            self.copies(&range)?.into_iter().for_each(|page| written.insert(page..page + PAGE));
        }
        self.streamed.ranges().iter().for_each(|range| written.insert(range));
        written.iter().try_for_each(|range| check_mapped(&range))?;
        Ok(written.iter().collect())
    }

    /// The pages of a range of which this process has copies.
    fn copies(&self, range: &Range<u64>) -> Result<Vec<u64>> {
        let mut entries = vec![0; (range.end - range.start) as usize / PAGE as usize * size_of::<u64>()];
        self.pagemap.read_exact_at(&mut entries, range.start / PAGE * size_of::<u64>() as u64)?;
        let pages = (range.start..range.end).step_by(PAGE as usize).zip(entries.as_chunks().0);
        Ok(pages.filter(|(_, entry)| is_copy(u64::from_ne_bytes(**entry))).map(|(page, _)| page).collect())
    }

    /// True if kernels have written to most of the last pages of a range.
    fn is_written(&self, range: &Range<u64>) -> bool {
        const LAST: u64 = 8;
        let last = range.start.max(range.end.saturating_sub(LAST * PAGE))..range.end;
        let written = match self.streamed.ranges().around(last.start) {
            None => self.copies(&last).map(|copies| copies.len()),
            Some(_) => self.changed_pages(&last),
        };
        written.is_ok_and(|pages| 2 * pages as u64 * PAGE > last.end - last.start)
    }

    /// The number of pages of a range that differ from the fetched bytes.
    fn changed_pages(&self, range: &Range<u64>) -> Result<usize> {
        let len = (range.end - range.start) as usize;
        let mut old = vec![0; len];
        self.fetched.read(range.start, &mut old)?;
        check_mapped(range)?;
        // SAFETY: these pages are mapped. If others write there, any value will do.
        let new = unsafe { std::slice::from_raw_parts(range.start as *const u8, len) };
        Ok(new.chunks(PAGE as usize).zip(old.chunks(PAGE as usize)).filter(|(new, old)| new != old).count())
    }

    /// Fetches all pages again and takes over the program's changes, while kernels use the pages.
    pub fn refresh(&mut self, upcalls: &dyn Upcalls) -> Result<Amount> {
        self.forget_unused();
        let mut amount = Amount::default();
        for mut rest in self.mapped.iter().flat_map(steps).collect::<Vec<_>>() {
            check_mapped(&rest)?;
            // Pages that the program unmapped are forgotten, and perhaps some after them: these are fetched again.
            let mut step = PAGE;
            while !rest.is_empty() {
                let fetched = &self.fetched;
                let own = Some(rest.clone()).filter(|_| !self.source.is_near());
                let known = KnownParts::of(fetched, own.into_iter(), false)?;
                let read = self.source.read(upcalls, rest.clone(), &known, None, &mut |Piece { at, same, bytes }| {
                    amount.add(same, bytes);
                    take_over(fetched, at + same, bytes)
                });
                let end = *read.as_ref().unwrap_or(&rest.start);
                let mut gone = end..rest.end.min(end + step);
                if step > PAGE && self.is_changed_in(&gone)? {
                    step = PAGE;
                    gone.end = end + PAGE;
                }
                if self.is_changed_in(&gone)? {
                    let unmapped =
                        format!("the program has unmapped {end:#x}, which a region has written that still runs");
                    return Err(Error::new(unmapped));
                }
                if !gone.is_empty() {
                    // SAFETY: this object mapped it. A kernel that uses it faults.
                    unsafe { mapping::unmap(gone.start, gone.end - gone.start) };
                    self.mapped.remove(&gone);
                    self.streamed.remove(&gone);
                    if !self.source.is_near() {
                        self.drop_kept(&gone);
                    }
                }
                (step, rest.start) = (2 * step, gone.end);
            }
        }
        Ok(amount)
    }

    /// True if something in a range differs from the fetched bytes.
    fn is_changed_in(&self, range: &Range<u64>) -> Result<bool> {
        for written in self.written()? {
            let common = written.start.max(range.start)..written.end.min(range.end);
            if !common.is_empty() {
                let old = self.fetched.view(&common, false)?;
                // SAFETY: these pages are mapped. If others write there, any value will do.
                let now = unsafe { std::slice::from_raw_parts(common.start as *const u8, old.len()) };
                if is_change_of(1, now, &old) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Forgets all pages, because no kernel runs: they are no longer the program's memory, but the store may keep them.
    pub fn forget(&mut self) {
        self.streamed.clear();
        for range in self.mapped.iter() {
            // SAFETY: this object mapped the pages, and no kernel runs that could use them.
            unsafe { mapping::unmap(range.start, range.end - range.start) };
        }
        if self.source.is_near() {
            self.fetched.trim();
        } else {
            self.forget_unused();
            self.working_sets.end(&self.mapped);
            for range in self.cache.add(&self.mapped) {
                self.fetched.free(&range);
            }
        }
        self.mapped.clear();
    }

    /// Forgets prefetched pages that no kernel has used, and frees them unless the cache keeps them.
    fn forget_unused(&mut self) {
        let mut unused = mem::take(&mut self.working_sets.ready);
        self.mapped.iter().for_each(|range| unused.remove(&range));
        for range in unused.iter().collect::<Vec<_>>() {
            self.cache.within(&range).for_each(|kept| unused.remove(&kept));
        }
        unused.iter().for_each(|range| self.fetched.free(&range));
    }
}

impl Amount {
    fn add(&mut self, unchanged: u64, fetched: &[u8]) {
        self.fetched += fetched.len() as u64;
        self.unchanged += unchanged;
    }
}

/// Divides a range into the parts of single requests.
fn steps(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    const STEP: usize = 64 << 20;
    (range.start..range.end).step_by(STEP).map(move |at| at..range.end.min(at + STEP as u64))
}

/// True if an entry of a pagemap (Linux, admin-guide/mm/pagemap.rst) shows a copy, not a page of the file: a present
/// page that belongs to no file, or a swapped one.
fn is_copy(entry: u64) -> bool {
    const PRESENT: u64 = 1 << 63;
    const SWAPPED: u64 = 1 << 62;
    const OF_FILE: u64 = 1 << 61;
    entry & (PRESENT | OF_FILE) == PRESENT || entry & SWAPPED != 0
}

/// Fails if a region has unmapped some of these pages: this thread would fault there, and wait for itself.
fn check_mapped(range: &Range<u64>) -> Result<()> {
    let Range { start, end } = range;
    let unmapped = || Error::new(format!("a region has unmapped memory of the program in {start:#x} to {end:#x}"));
    if mapping::is_mapped(range) { Ok(()) } else { Err(unmapped()) }
}

/// Takes over the program's changes: where its memory, `bytes`, now differs from the fetched bytes. Bytes that a kernel
/// has changed too stay as they were, also in the store, so that the program finds the conflict.
fn take_over(fetched: &Store, at: u64, bytes: &[u8]) -> Result<()> {
    let mut known = vec![0; bytes.len()];
    fetched.read(at, &mut known)?;
    let mut is_changed = false;
    for (at, (new, old)) in (at..).step_by(WORD).zip(bytes.as_chunks().0.iter().zip(known.as_chunks_mut().0)) {
        // SAFETY: the pages are mapped.
        is_changed |= new != old && unsafe { replace(at, new, old) };
    }
    // The store comes last: Linux may be copying a page for a kernel that writes to it. Until the copy is mapped, such
    // a page would show what is stored now, and then the old bytes again, as if the kernel had written them.
    if is_changed { Ok(fetched.write(at, &known)?) } else { Ok(()) }
}

/// In a mapped word and in `old`, replaces the bytes that are equal in both by those of `new`, which makes the page a
/// copy. False if nothing changes.
///
/// # Safety
/// The word is mapped. Other threads access it by accesses of the processor, never by references.
unsafe fn replace(at: u64, new: &[u8; WORD], old: &mut [u8; WORD]) -> bool {
    // SAFETY: the caller's promise.
    let word = unsafe { AtomicU64::from_ptr(at as *mut u64) };
    let mut here = word.load(Ordering::Relaxed);
    loop {
        let (mut next, mut taken) = (here.to_ne_bytes(), *old);
        for ((next, taken), new) in next.iter_mut().zip(&mut taken).zip(new) {
            if next == taken {
                (*next, *taken) = (*new, *new);
            }
        }
        if taken == *old {
            return false;
        }
        match word.compare_exchange_weak(here, u64::from_ne_bytes(next), Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => {
                *old = taken;
                return true;
            }
            Err(now) => here = now,
        }
    }
}

/// Collects changes until they fill a message.
struct Outgoing<'a> {
    upcalls: &'a dyn Upcalls,
    seq: u64,
    pending: Vec<u8>,
    /// The changes of the first messages that were sent, of one more than [`UNMERGED`] at most.
    sent: Vec<Vec<u8>>,
    /// Bytes of the program's memory that were sent or offered.
    bytes: u64,
}

impl Outgoing<'_> {
    /// Lets the program read a range itself; false if it can't.
    fn offer(&mut self, at: u64, now: &[u8], old: SharedFile) -> Result<bool> {
        let is_taken = self.upcalls.offer_changes(self.seq, at, now, old)?;
        self.bytes += if is_taken { now.len() as u64 } else { 0 };
        Ok(is_taken)
    }

    /// Adds the differences in a range. Where much differs, sends whole blocks.
    fn push_range(&mut self, at: u64, now: &[u8], old: &[u8]) -> Result<()> {
        let mut done = 0;
        for part in parts_with_much_change(now, old).filter(|part| part.len() >= MEMORY_PIECE_MIN) {
            self.push_words(at, now, old, done..part.start);
            self.bytes += part.len() as u64;
            done = part.end;
            for range in self.upcalls.send_range(self.seq, at + part.start as u64, &now[part.clone()], &old[part])? {
                self.push_words(at, now, old, (range.start - at) as usize..(range.end - at) as usize);
            }
        }
        self.push_words(at, now, old, done..now.len());
        Ok(())
    }

    /// Adds the words that differ in a part of a range.
    fn push_words(&mut self, at: u64, now: &[u8], old: &[u8], part: Range<usize>) {
        let (now, old, at) = (&now[part.clone()], &old[part.clone()], at + part.start as u64);
        for change in changed_words(now, old) {
            self.push(at + change.start as u64, &now[change.clone()], &old[change]);
        }
    }

    fn push(&mut self, at: u64, new: &[u8], old: &[u8]) {
        const ROOM: usize = MESSAGE_MAX - 2 * Changes::HEAD;
        self.bytes += new.len() as u64;
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
            self.upcalls.send_changes(self.seq, &mut |message| message.extend_from_slice(&self.pending));
            match self.sent.len() <= UNMERGED {
                true => self.sent.push(mem::take(&mut self.pending)),
                false => self.pending.clear(),
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/pages.rs"]
mod tests;
