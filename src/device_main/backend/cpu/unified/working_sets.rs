// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The working set of each kernel: the memory of a program on another node that its last run used. Once the kernel
//! touches one of those pages first, the whole set is fetched at once; otherwise each part would take a round trip. A
//! fetched page is mapped only when the kernel uses it, so a page that it no longer uses drops out of the set.

use crate::base::limits::{KERNELS_REMEMBERED, MEMORY_REMEMBERED, PARTS_REMEMBERED};
use crate::base::ranges::Ranges;
use std::collections::VecDeque;
use std::ops::Range;

#[derive(Default)]
pub(super) struct WorkingSets {
    /// Ordered by the kernels' last ends, the most recent at the end.
    used: VecDeque<Used>,
    /// The first kernel that has used memory since the last time when no kernel ran.
    first: Option<u64>,
    /// Memory that has arrived for that kernel and was not used yet.
    pub ready: Ranges,
}

/// The working set of a kernel.
struct Used {
    kernel: u64,
    parts: Vec<Range<u64>>,
    /// In its last run the kernel used at least half of its previous set.
    is_steady: bool,
}

impl WorkingSets {
    /// Notes that a kernel uses a page. If it is the first kernel to use any, and the page is in its working set,
    /// returns the set if that is steady.
    pub fn begin(&mut self, kernel: u64, page: u64) -> Vec<Range<u64>> {
        if self.first.is_some() {
            return Vec::new();
        }
        self.first = Some(kernel);
        let before = self.used.iter().find(|used| used.kernel == kernel && used.is_steady);
        before
            .filter(|used| used.parts.iter().any(|part| part.contains(&page)))
            .map_or(Vec::new(), |used| used.parts.clone())
    }

    /// Notes that no kernel runs, and that these pages were used.
    pub fn end(&mut self, pages: &Ranges) {
        let Some(kernel) = self.first.take() else { return };
        let before = self.used.iter().position(|used| used.kernel == kernel);
        let is_steady = before.and_then(|i| self.used.remove(i)).is_none_or(|before| {
            let again = before.parts.iter().flat_map(|part| pages.within(part)).map(length).sum::<u64>();
            2 * again >= before.parts.into_iter().map(length).sum()
        });
        if self.used.len() == KERNELS_REMEMBERED {
            self.used.pop_front();
        }
        let mut room = MEMORY_REMEMBERED;
        let parts = pages.iter().take(PARTS_REMEMBERED).map_while(|range| {
            let part = range.start..range.end.min(range.start + room);
            room -= length(part.clone());
            (!part.is_empty()).then_some(part)
        });
        self.used.push_back(Used { kernel, parts: parts.collect(), is_steady });
    }
}

fn length(range: Range<u64>) -> u64 {
    range.end - range.start
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/working_sets.rs"]
mod tests;
