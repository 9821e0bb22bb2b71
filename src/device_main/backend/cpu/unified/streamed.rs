// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Memory of this process alone, at addresses where kernels write in order. It has large pages, and does not fault at
//! each page. It is kept for later regions, because Linux clears new memory, which takes as long as copying to it.

use crate::base::limits::{MOVED_KEPT, MOVED_MIN};
use crate::base::ranges::Ranges;
use crate::sys::mapping::Movable;
use std::ops::Range;

pub(super) struct Streamed {
    ranges: Ranges,
    moved: Vec<Movable>,
    /// Memory for later ranges, the oldest first.
    kept: Vec<Movable>,
    /// The least bytes that are moved.
    pub min: u64,
}

impl Streamed {
    pub fn new() -> Streamed {
        Streamed { ranges: Ranges::default(), moved: Vec::new(), kept: Vec::new(), min: MOVED_MIN }
    }

    /// Memory for a range, if the range is large enough and the system has memory and addresses for it.
    pub fn prepare(&mut self, range: &Range<u64>) -> Option<Movable> {
        let len = range.end - range.start;
        if len < self.min {
            return None;
        }
        let fits = |kept: &Movable| (len..=2 * len).contains(&kept.room());
        let best = (0..self.kept.len()).filter(|&i| fits(&self.kept[i])).min_by_key(|&i| self.kept[i].room());
        match best {
            Some(place) => Some(self.kept.remove(place)),
            None => Movable::new(len).ok(),
        }
    }

    /// Moves memory to a range; false if the range has become too small, or the system can't move it.
    pub fn place(&mut self, mut memory: Movable, range: &Range<u64>) -> bool {
        let is_moved = range.end - range.start >= self.min && memory.move_to(range).is_ok();
        if is_moved {
            self.ranges.insert(range.clone());
            self.moved.push(memory);
        }
        is_moved
    }

    pub fn ranges(&self) -> &Ranges {
        &self.ranges
    }

    /// Forgets a range that is unmapped.
    pub fn remove(&mut self, range: &Range<u64>) {
        self.ranges.remove(range);
        let is_whole = |at: Range<u64>| at.end <= range.start || range.end <= at.start;
        self.moved.retain(|memory| memory.moved().is_none_or(is_whole));
    }

    /// Takes the memory back, because no kernel runs.
    pub fn clear(&mut self) {
        for mut memory in self.moved.drain(..) {
            // SAFETY: no kernel runs that could use it, and it was not removed.
            if unsafe { memory.move_back() }.is_ok() {
                self.kept.push(memory);
            }
        }
        let mut room: u64 = self.kept.iter().map(Movable::room).sum();
        self.kept.retain(|memory| {
            let is_kept = room <= MOVED_KEPT;
            room -= if is_kept { 0 } else { memory.room() };
            is_kept
        });
        self.ranges.clear();
    }
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/streamed.rs"]
mod tests;
