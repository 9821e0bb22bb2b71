// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Allocates device memory without asking the device: the arena is one range of
//! addresses that only this allocator hands out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;

/// Every allocation starts at a multiple of this: a cache line.
const ALIGN: u64 = 64;
/// Allocations from this size on start at a page and end with one, so that they can be
/// given back to the system.
const PAGED: u64 = 64 << 10;
const PAGE: u64 = 4096;
/// Freed bytes that the device keeps for reuse before it gives memory back.
const KEEP: u64 = 64 << 20;

/// The memory of one device, as the host side sees it.
#[derive(Debug)]
pub struct Arena {
    used: u64,
    /// Free ranges by address, with their lengths; neighbours are always merged.
    holes: BTreeMap<u64, u64>,
    /// The same by length.
    by_size: BTreeSet<(u64, u64)>,
    taken: HashMap<u64, u64>,
    /// Free ranges (start, end) that the device still has memory behind.
    dirty: BTreeMap<u64, u64>,
    dirty_bytes: u64,
}

impl Arena {
    /// An empty arena; both ends of the range are multiples of the page size.
    pub fn new(range: Range<u64>) -> Arena {
        let mut arena = Arena {
            used: 0,
            holes: BTreeMap::new(),
            by_size: BTreeSet::new(),
            taken: HashMap::new(),
            dirty: BTreeMap::new(),
            dirty_bytes: 0,
        };
        arena.insert(range);
        arena
    }

    /// Bytes handed out now.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Takes `size` bytes, or `None` if there is no hole large enough.
    pub fn alloc(&mut self, size: u64) -> Option<u64> {
        let unit = if size >= PAGED { PAGE } else { ALIGN };
        let len = size.max(1).checked_next_multiple_of(unit)?;
        // The smallest hole that fits; large blocks go to its end, small ones to its
        // front, so that small ones do not push large ones off page boundaries.
        let (hole, at) = self.by_size.range((len, 0)..).find_map(|&(hole_len, hole)| {
            let at = if unit == PAGE { (hole + hole_len - len) & !(PAGE - 1) } else { hole };
            (at >= hole).then_some((hole..hole + hole_len, at))
        })?;
        self.remove(&hole);
        self.insert(hole.start..at);
        self.insert(at + len..hole.end);
        self.make_clean(at..at + len);
        self.taken.insert(at, len);
        self.used += len;
        Some(at)
    }

    /// Gives back what [`Arena::alloc`] returned; false if it did not.
    pub fn free(&mut self, at: u64) -> bool {
        let Some(len) = self.taken.remove(&at) else { return false };
        self.used -= len;
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
        true
    }

    /// Ranges whose memory the device shall give back to the system, once enough is
    /// unused. The device must do so before it obeys anything that is sent later.
    pub fn take_discards(&mut self) -> Vec<Range<u64>> {
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

    /// Takes a range out of the dirty ones, cutting those that it overlaps.
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: u64 = 1 << 44;

    fn arena(len: u64) -> Arena {
        Arena::new(BASE..BASE + len)
    }

    #[test]
    fn large_blocks_are_pages_and_small_ones_lines() {
        let mut a = arena(1 << 30);
        assert_eq!(a.alloc(1).unwrap() % ALIGN, 0);
        assert_eq!(a.alloc(100_001).unwrap() % PAGE, 0);
        assert_eq!(a.alloc(7).unwrap() % ALIGN, 0);
        assert_eq!(a.alloc(PAGED).unwrap() % PAGE, 0);
    }

    #[test]
    fn too_much_is_refused_and_all_can_be_had() {
        let mut a = arena(1 << 20);
        assert_eq!(a.alloc((1 << 20) + 1), None);
        assert_eq!(a.alloc(u64::MAX), None);
        let all = a.alloc(1 << 20).unwrap();
        assert_eq!(a.alloc(1), None);
        assert!(a.free(all) && !a.free(all));
        assert_eq!(a.alloc(1 << 20), Some(all));
    }

    #[test]
    fn reuse_discards_nothing_and_much_unused_is_discarded() {
        let mut a = arena(1 << 30);
        let small = a.alloc(100).unwrap();
        for _ in 0..1000 {
            let p = a.alloc(1 << 20).unwrap();
            a.free(p);
            assert!(a.take_discards().is_empty());
        }
        let p = a.alloc(100 << 20).unwrap();
        a.free(p);
        let d = a.take_discards();
        assert!(d.iter().any(|r| r.contains(&p)), "{d:?}");
        assert!(a.take_discards().is_empty());
        assert!(a.free(small));
    }

    proptest! {
        #[test]
        fn blocks_never_overlap_and_all_memory_comes_back(ops in prop::collection::vec((any::<bool>(), 0u64..200_000, any::<prop::sample::Index>()), 1..200)) {
            let mut a = arena(8 << 20);
            let mut live: Vec<Range<u64>> = Vec::new();
            for (alloc, size, pick) in ops {
                if alloc || live.is_empty() {
                    let Some(at) = a.alloc(size) else { continue };
                    let new = at..at + size.max(1);
                    prop_assert!(at >= BASE && new.end <= BASE + (8 << 20));
                    prop_assert!(live.iter().all(|r| r.end <= new.start || new.end <= r.start));
                    live.push(new);
                } else {
                    prop_assert!(a.free(live.swap_remove(pick.index(live.len())).start));
                }
                for d in a.take_discards() {
                    prop_assert!(live.iter().all(|r| r.end <= d.start || d.end <= r.start));
                }
            }
            for r in live {
                prop_assert!(a.free(r.start));
            }
            prop_assert_eq!(a.used(), 0);
            prop_assert_eq!(a.holes.len(), 1);
            prop_assert_eq!(a.by_size.len(), 1);
            prop_assert_eq!(a.dirty_bytes, a.dirty.iter().map(|(s, e)| e - s).sum::<u64>());
            prop_assert!(a.alloc(8 << 20).is_some());
        }
    }
}
