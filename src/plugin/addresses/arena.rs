// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Allocates device memory without a message: each device has one range of addresses, its arena,
//! and only this allocator allocates there.

use crate::base::limits::PAGE;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// A cache line, the unit of allocation: no two allocations share one.
const ALIGN: u64 = 64;
/// The smallest alignment, that of malloc: libomptarget pads data that needs a larger one.
const MALLOC_ALIGN: u64 = 16;
/// Allocations from this size on occupy whole pages, so that the system can reclaim these.
const PAGED: u64 = 64 << 10;
/// Allocations from this size on start in the first line of a large page, so that the device's system
/// can use large pages for them. The size is that of x86-64, and of AArch64 with base pages of 4 KiB.
pub(crate) const LARGE_PAGE: u64 = 2 << 20;
/// Freed blocks of up to this many lines are kept for the next allocation of their size: a region
/// maps data of the same sizes each time it runs.
const QUICK_LINES: usize = 64;
/// The number of blocks of each size that are kept.
const QUICK_BLOCKS: usize = 16;
/// An address this far from a block is not reported as near it.
const NEAR: u64 = 1 << 20;
/// Freed bytes that the device keeps for reuse. Once there are more, it returns all of them to its system.
const KEEP: u64 = 64 << 20;

/// The memory of one device, as the host side sees it.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) used: u64,
    /// The maximum of `used`.
    pub(crate) peak: u64,
    /// Free ranges by address, with their lengths; adjacent ones are always merged.
    holes: BTreeMap<u64, u64>,
    /// The same ranges, as (length, address).
    by_size: BTreeSet<(u64, u64)>,
    /// Allocations by address: the bytes taken, and the bytes requested.
    taken: FxHashMap<u64, (u64, u64)>,
    /// Free blocks that are not holes, by their number of lines.
    quick: [Vec<u64>; QUICK_LINES + 1],
    /// Free ranges (start, end) for which the device still holds memory.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
}

impl Arena {
    /// Both ends of the range are multiples of the page size.
    pub(crate) fn new(range: Range<u64>) -> Arena {
        let mut arena = Arena {
            used: 0,
            peak: 0,
            holes: BTreeMap::new(),
            by_size: BTreeSet::new(),
            taken: FxHashMap::default(),
            quick: std::array::from_fn(|_| Vec::new()),
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
        };
        arena.insert(range);
        arena
    }

    /// Allocates `size` bytes, if a hole is large enough. If there is room, a large allocation gets
    /// the same offset within its cache line as `like`: a large copy between different offsets takes
    /// up to twice the time (docs/dev/measurements.md).
    pub(crate) fn alloc(&mut self, size: u64, like: u64) -> Option<u64> {
        let offset = if size >= PAGED { like % ALIGN / MALLOC_ALIGN * MALLOC_ALIGN } else { 0 };
        let placed = size.checked_add(offset).and_then(|size| self.take(size));
        let (at, len) = match placed {
            Some((at, len)) => (at + offset, len),
            None => {
                self.flush_quick();
                self.take(size)?
            }
        };
        self.taken.insert(at, (len, size));
        self.used += len;
        self.peak = self.peak.max(self.used);
        Some(at)
    }

    /// Describes an address in or near an allocation.
    pub(crate) fn place(&self, address: u64) -> Option<String> {
        let before = self.taken.iter().filter(|(at, _)| **at <= address).max_by_key(|(at, _)| **at);
        if let Some((&at, &(_, size))) = before {
            let block = format!("the {size} bytes at {at:#x} that were allocated for the program");
            match (address - at).checked_sub(size) {
                None => return Some(format!("in {block}")),
                Some(0) => return Some(format!("just past the end of {block}")),
                Some(past) if past < NEAR => return Some(format!("{past} bytes past the end of {block}")),
                Some(_) => {}
            }
        }
        let behind = self.taken.iter().filter(|(at, _)| **at > address).min_by_key(|(at, _)| **at);
        let (&at, &(_, size)) = behind.filter(|(at, _)| **at - address < NEAR)?;
        let before = at - address;
        Some(format!("{before} bytes before the {size} bytes at {at:#x} that were allocated for the program"))
    }

    /// Takes lines or pages for `size` bytes; returns their address and length.
    fn take(&mut self, size: u64) -> Option<(u64, u64)> {
        let unit = if size >= PAGED { PAGE } else { ALIGN };
        let len = size.max(1).checked_next_multiple_of(unit)?;
        if let Some(at) = self.quick.get_mut((len / ALIGN) as usize).and_then(Vec::pop) {
            return Some((at, len));
        }
        // The smallest hole that fits. Large blocks go to its end and small ones to its front, so that
        // small ones do not push large ones off page boundaries.
        let (hole, at) = self.by_size.range((len, 0)..).find_map(|&(hole_len, hole)| {
            let at = match len {
                LARGE_PAGE.. => (hole + hole_len - len) & !(LARGE_PAGE - 1),
                PAGED.. => (hole + hole_len - len) & !(PAGE - 1),
                _ => hole,
            };
            (at >= hole).then_some((hole..hole + hole_len, at))
        })?;
        self.remove(&hole);
        self.insert(hole.start..at);
        self.insert(at + len..hole.end);
        self.make_clean(at..at + len);
        Some((at, len))
    }

    /// Frees what [`Arena::alloc`] returned; false for any other address.
    pub(crate) fn free(&mut self, at: u64) -> bool {
        let Some((len, _)) = self.taken.remove(&at) else { return false };
        let at = at - at % ALIGN;
        self.used -= len;
        match self.quick.get_mut((len / ALIGN) as usize) {
            Some(quick) if quick.len() < QUICK_BLOCKS => quick.push(at),
            _ => self.give_back(at, len),
        }
        true
    }

    /// Turns all quick blocks into holes.
    fn flush_quick(&mut self) {
        for lines in 0..self.quick.len() {
            while let Some(at) = self.quick[lines].pop() {
                self.give_back(at, lines as u64 * ALIGN);
            }
        }
    }

    fn give_back(&mut self, at: u64, len: u64) {
        if len >= PAGED {
            self.dirty.insert(at, at + len);
            self.dirty_bytes += len;
        }
        let mut merged = at..at + len;
        if let Some((&start, &before)) = self.holes.range(..at).next_back()
            && start + before == at
        {
            self.remove(&(start..at));
            merged.start = start;
        }
        if let Some(&after) = self.holes.get(&merged.end) {
            self.remove(&(merged.end..merged.end + after));
            merged.end += after;
        }
        self.insert(merged);
    }

    /// Takes the ranges that the device is to discard, once enough memory is unused. The device must
    /// discard them before it executes anything that is sent later.
    pub(crate) fn take_discards(&mut self) -> Vec<Range<u64>> {
        if self.dirty_bytes <= KEEP {
            return Vec::new();
        }
        self.dirty_bytes = 0;
        std::mem::take(&mut self.dirty).into_iter().map(|(start, end)| start..end).collect()
    }

    fn insert(&mut self, hole: Range<u64>) {
        let len = hole.end - hole.start;
        if len > 0 {
            self.holes.insert(hole.start, len);
            self.by_size.insert((len, hole.start));
        }
    }

    fn remove(&mut self, hole: &Range<u64>) {
        self.holes.remove(&hole.start);
        self.by_size.remove(&(hole.end - hole.start, hole.start));
    }

    fn make_clean(&mut self, range: Range<u64>) {
        while let Some((&start, &end)) =
            self.dirty.range(..range.end).next_back().filter(|(_, end)| **end > range.start)
        {
            self.dirty.remove(&start);
            self.dirty_bytes -= end.min(range.end) - start.max(range.start);
            if end > range.end {
                self.dirty.insert(range.end, end);
            }
            if start < range.start {
                self.dirty.insert(start, range.start);
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/addresses/arena.rs"]
mod tests;
