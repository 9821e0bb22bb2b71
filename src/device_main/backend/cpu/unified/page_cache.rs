// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The page cache of a device on another node: memory of the program that it keeps after its regions have ended. Before
//! the device uses a block of pages again, it sends the program the block's digest, and the program confirms that its
//! memory is the same.

use super::store::Store;
use crate::base::Result;
use crate::base::limits::MEMORY_KEPT;
use crate::base::ranges::Ranges;
use crate::wire;
use crate::wire::reply::Known;
use std::collections::BTreeMap;
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128;

/// A digest covers a block or a part of one. Blocks begin at multiples of their length.
const BLOCK: u64 = wire::BLOCK as u64;

#[derive(Default)]
pub(super) struct PageCache {
    pages: Ranges,
    /// By number of the block: the value of `ends` at its last use.
    used: BTreeMap<u64, u64>,
    ends: u64,
}

impl PageCache {
    /// Adds the pages that were used, once all regions have ended. Returns the least recently used blocks, which are
    /// dropped to stay below the limit.
    pub fn add(&mut self, pages: &Ranges) -> Vec<Range<u64>> {
        self.ends += 1;
        let mut is_more = false;
        for range in pages.iter() {
            is_more |= !self.pages.covers(&range);
            let blocks = range.start / BLOCK..range.end.div_ceil(BLOCK);
            self.pages.insert(range);
            self.used.extend(blocks.map(|block| (block, self.ends)));
        }
        // Counting takes time if there are many small ranges.
        if is_more { self.drop_oldest() } else { Vec::new() }
    }

    fn drop_oldest(&mut self) -> Vec<Range<u64>> {
        let mut excess = self.pages.bytes().saturating_sub(MEMORY_KEPT);
        if excess == 0 {
            return Vec::new();
        }
        let mut oldest: Vec<_> = self.used.iter().map(|(&block, &used)| (used, block)).collect();
        oldest.sort_unstable();
        let mut dropped = Ranges::default();
        for (_, block) in oldest {
            let all = block * BLOCK..(block + 1) * BLOCK;
            excess = excess.saturating_sub(self.pages.within(&all).map(|range| range.end - range.start).sum());
            self.used.remove(&block);
            self.pages.remove(&all);
            dropped.insert(all);
            if excess == 0 {
                break;
            }
        }
        dropped.iter().collect()
    }

    /// Removes pages from the cache.
    pub fn remove(&mut self, range: &Range<u64>) {
        self.pages.remove(range);
        for block in range.start / BLOCK..range.end.div_ceil(BLOCK) {
            if self.pages.within(&(block * BLOCK..(block + 1) * BLOCK)).next().is_none() {
                self.used.remove(&block);
            }
        }
    }

    /// The kept parts of a range.
    pub fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        self.pages.within(range)
    }
}

/// If memory has probably changed, only one in this many blocks is reported.
const FEW: usize = 16;

/// The parts of a range that this process already has, as it reports them to the program.
#[derive(Default)]
pub(super) struct KnownParts {
    pages: Ranges,
    /// The parts in the form of a message.
    list: Vec<u8>,
}

impl KnownParts {
    /// Digests of these ranges in the store. Parts beyond a maximum number are left out, so the program sends them
    /// again. If most blocks have probably changed (`are_other`), skips most digests, because these take time.
    pub fn of(store: &Store, ranges: impl Iterator<Item = Range<u64>>, are_other: bool) -> Result<KnownParts> {
        let mut known = KnownParts::default();
        // Read into one buffer, which stays in the processor's cache; mapping the blocks would take longer.
        let mut block = Vec::new();
        for part in ranges.flat_map(blocks).step_by(if are_other { FEW } else { 1 }).take(Known::MOST) {
            block.resize((part.end - part.start) as usize, 0);
            store.read(part.start, &mut block)?;
            Known::push(&mut known.list, (part.start, block.len() as u32, xxh3_128(&block)));
            known.pages.insert(part);
        }
        Ok(known)
    }

    pub fn list(&self) -> Known<'_> {
        Known(&self.list)
    }

    /// True if these parts are enough to conclude, if all of them differ, that the rest has probably changed too.
    pub fn is_much(&self) -> bool {
        self.pages.bytes() >= 4 * BLOCK
    }

    /// True if the report covers the whole range.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        self.pages.covers(range)
    }
}

/// Divides a range at block boundaries.
fn blocks(range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    std::iter::from_fn(move || {
        let part = at..range.end.min((at / BLOCK + 1) * BLOCK);
        at = part.end;
        (!part.is_empty()).then_some(part)
    })
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/page_cache.rs"]
mod tests;
