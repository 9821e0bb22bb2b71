// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Memory that the program watches for its own writes: what was fetched of it is used again without asking, until a kernel
//! comes with the word that it has changed.

use crate::base::limits::{WATCHED_MIN, WATCHED_PARTS};
use crate::base::ranges::Ranges;
use std::collections::{BTreeMap, BTreeSet};
use std::mem;
use std::ops::Range;

/// The uses of memory are counted in parts of this many bytes.
const PART: u64 = 1 << 20;
/// Memory that changes again and again is watched anew after this many uses: the program's next writes to it take faults.
const USES: u32 = 16;

#[derive(Default)]
pub(super) struct Watched {
    /// The number of the last word about watched memory; 0 if there was none.
    number: u64,
    /// The program has watched this since before any of it was fetched that is still here.
    ranges: Ranges,
    /// What the store has of it.
    pub current: Ranges,
    /// What kernels have changed since all had ended last.
    changed: Ranges,
    /// How often kernels have used parts that were not watched.
    uses: BTreeMap<u64, u32>,
}

impl Watched {
    /// A kernel comes: of what was watched before, only this is unchanged, and `more` is watched from now on. Nothing of
    /// `more` may be in use. Kernels may overtake each other, so the program numbers these words.
    pub fn renew(&mut self, number: u64, unchanged: &Ranges, more: &Ranges) {
        if number <= self.number {
            // What is here now is as a later kernel finds it.
            return;
        }
        // Memory may have been watched anew by a word that has not come, and since then it counts as unchanged.
        let nothing = Ranges::default();
        let unchanged = if number == self.number + 1 { unchanged } else { &nothing };
        self.number = number;
        let keep = |ranges: &mut Ranges| {
            let old = mem::take(ranges);
            unchanged.iter().for_each(|range| old.within(&range).for_each(|part| ranges.insert(part)));
        };
        keep(&mut self.ranges);
        keep(&mut self.current);
        for range in more.iter() {
            self.current.remove(&range);
            self.ranges.insert(range);
        }
    }

    /// A kernel has changed this, or it is not here any more.
    pub fn change(&mut self, range: &Range<u64>) {
        if self.number > 0 {
            self.current.remove(range);
            self.changed.insert(range.clone());
        }
    }

    /// All kernels have ended; they have used these pages. Returns what the program should watch: what has been used, and not
    /// changed, twice, and if the program changes it then, ever more rarely.
    pub fn end(&mut self, used: &Ranges) -> Vec<Range<u64>> {
        if self.number == 0 {
            return Vec::new();
        }
        let (mut others, mut unchanged) = (Ranges::default(), BTreeSet::new());
        for range in used.iter() {
            unchanged.extend(self.current.within(&range).flat_map(numbers));
            self.ranges.within(&range).for_each(|part| self.current.insert(part));
            others.insert(range);
        }
        let changed = mem::take(&mut self.changed);
        changed.iter().for_each(|range| self.current.remove(&range));
        changed.iter().chain(self.ranges.iter()).for_each(|range| others.remove(&range));
        let others: BTreeSet<_> = others.iter().flat_map(numbers).collect();
        // Watching these was worth it.
        unchanged.difference(&others).for_each(|number| {
            self.uses.remove(number);
        });
        let mut wanted = Ranges::default();
        for number in others {
            let uses = self.uses.entry(number).or_default();
            *uses += 1;
            if *uses > 1 && (uses.is_power_of_two() || uses.is_multiple_of(USES)) {
                // With what is watched around it: alone it may be too small.
                used.within(&(number * PART..(number + 1) * PART)).for_each(|part| wanted.insert(part));
            }
        }
        changed.iter().for_each(|range| wanted.remove(&range));
        wanted.iter().filter(|range| range.end - range.start >= WATCHED_MIN).take(WATCHED_PARTS).collect()
    }
}

/// The parts that a range is in.
fn numbers(range: Range<u64>) -> Range<u64> {
    range.start / PART..range.end.div_ceil(PART)
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/watched.rs"]
mod tests;
