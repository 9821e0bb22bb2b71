// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Reserves the tags of bulk transfers: a tag belongs to one transfer between two ranks until both
//! ends have completed.
//!
//! MPI matches a send with a receive by the two ranks and the tag alone. A transfer can stay open
//! while a kernel runs and any number of others start and complete, so a tag counter that wraps
//! around could give one transfer's bytes to another.

use crate::base::limits::BULK_TAGS;
use crate::base::lock::{Mutex, order};
use crate::mpi::TAG_BULK;
use rustc_hash::FxHashMap;
use std::ops::Range;
use std::sync::Arc;

/// The tags of all pairs of ranks that exchange bulk data.
#[derive(Debug, Default)]
pub(crate) struct Tags {
    lanes: Mutex<FxHashMap<Pair, Lane>, { order::LEAF }>,
}

/// The sending and the receiving rank.
type Pair = (usize, usize);

#[derive(Debug, Default)]
struct Lane {
    /// Where the search for free tags begins. Tags are reused as late as possible, so that a mix-up is detected.
    next: u32,
    /// Blocks of tags in use, unordered. They are few, so the search is linear.
    used: Vec<Range<u32>>,
}

/// A block of consecutive tags, freed when the last clone of its `Arc` is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    tags: Arc<Tags>,
    pair: Pair,
    block: Range<u32>,
}

impl Tags {
    /// Takes `n` consecutive tags between two ranks, if that many are free now.
    pub(crate) fn lease(self: &Arc<Tags>, from: usize, to: usize, n: usize) -> Option<Arc<Lease>> {
        let pair = (from, to);
        let block = self.lanes.lock().entry(pair).or_default().take(n as u32)?;
        Some(Arc::new(Lease { tags: self.clone(), pair, block }))
    }
}

impl Lane {
    fn take(&mut self, n: u32) -> Option<Range<u32>> {
        assert!((1..=BULK_TAGS).contains(&n), "{n} tags for one transfer");
        let block = self.free_from(self.next, n).or_else(|| self.free_from(0, n))?;
        self.next = block.end;
        self.used.push(block.clone());
        Some(block)
    }

    /// The first `n` free tags at or behind `start`.
    fn free_from(&self, mut start: u32, n: u32) -> Option<Range<u32>> {
        while start + n <= BULK_TAGS {
            let overlap = self.used.iter().find(|used| used.start < start + n && start < used.end);
            let Some(used) = overlap else { return Some(start..start + n) };
            start = used.end;
        }
        None
    }
}

impl Lease {
    /// The first tag, as MPI knows it.
    pub(crate) fn tag(&self) -> u32 {
        TAG_BULK + self.block.start
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(lane) = self.tags.lanes.lock().get_mut(&self.pair) {
            lane.used.retain(|block| *block != self.block);
        }
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/messages/bulk_tags.rs"]
mod tests;
