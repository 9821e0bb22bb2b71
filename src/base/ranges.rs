// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A set of addresses, stored as the fewest possible ranges.

use std::collections::BTreeMap;
use std::ops::Range;

/// Start and end of each range; no two touch.
#[derive(Debug, Default)]
pub(crate) struct Ranges(BTreeMap<u64, u64>);

impl Ranges {
    pub fn insert(&mut self, range: Range<u64>) {
        let (mut start, mut end) = (range.start, range.end);
        while let Some((&first, &last)) = self.0.range(..=end).next_back().filter(|(_, last)| **last >= start) {
            self.0.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.0.insert(start, end);
    }

    pub fn remove(&mut self, range: &Range<u64>) {
        let is_behind = |end: u64| end > range.start;
        let before_end = self.0.range(..range.end).rev().take_while(|(_, end)| is_behind(**end));
        for (start, end) in before_end.map(|(&start, &end)| (start, end)).collect::<Vec<_>>() {
            self.0.remove(&start);
            if start < range.start {
                self.0.insert(start, range.start);
            }
            if range.end < end {
                self.0.insert(range.end, end);
            }
        }
    }

    /// The range that contains an address.
    pub fn around(&self, address: u64) -> Option<Range<u64>> {
        let (&start, &end) = self.0.range(..=address).next_back()?;
        (address < end).then_some(start..end)
    }

    /// True if all of a range is in the set.
    pub fn covers(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.around(range.start).is_some_and(|around| around.end >= range.end)
    }

    /// The parts of a range that are in the set.
    pub fn within(&self, range: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
        let Range { start, end } = *range;
        let first = self.around(start).map_or(start, |around| around.start);
        let near = self.0.range(first..end.max(first));
        near.map(move |(&from, &to)| from.max(start)..to.min(end)).filter(|part| !part.is_empty())
    }

    /// The largest part of `within` around an address that is disjoint from the set. The address is not in the set.
    pub fn gap(&self, address: u64, within: &Range<u64>) -> Range<u64> {
        let before = self.0.range(..=address).next_back().map_or(0, |(_, &end)| end);
        let behind = self.0.range(address..).next().map_or(u64::MAX, |(&start, _)| start);
        within.start.max(before)..within.end.min(behind)
    }

    pub fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.0.iter().map(|(&start, &end)| start..end)
    }

    pub fn bytes(&self) -> u64 {
        self.iter().map(|range| range.end - range.start).sum()
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }
}

impl FromIterator<Range<u64>> for Ranges {
    fn from_iter<T: IntoIterator<Item = Range<u64>>>(list: T) -> Ranges {
        let mut ranges = Ranges::default();
        list.into_iter().filter(|range| !range.is_empty()).for_each(|range| ranges.insert(range));
        ranges
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/base/ranges.rs"]
mod tests;
