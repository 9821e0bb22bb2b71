// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What a kernel has used of a program on another node when it ran last: all of that is asked for at once when the kernel
//! uses some of it again, where each separate part would take a round trip. It is not mapped before it is used, so what
//! the kernel does not use any more is not asked for again.

use super::ranges::Ranges;
use std::collections::VecDeque;
use std::ops::Range;

/// Kernels of which this is remembered.
const KERNELS: usize = 64;
/// Most bytes of one, which is what a wrong guess may cost once: as much as a stream asks for at once.
const MOST: u64 = 64 << 20;
/// Most parts of one.
const PARTS: usize = 2048;

#[derive(Default)]
pub(super) struct Together {
    /// By kernel; what has ended last is at the end.
    used: VecDeque<(u64, Vec<Range<u64>>)>,
    /// The kernel that has used memory first since none ran.
    first: Option<u64>,
    /// What has arrived for it and was not used yet.
    pub ready: Ranges,
}

impl Together {
    /// A kernel uses a page. If it is the first to do so, and the page is among what it has used the last time, returns
    /// all of that.
    pub fn begin(&mut self, kernel: u64, page: u64) -> Vec<Range<u64>> {
        if self.first.is_some() {
            return Vec::new();
        }
        self.first = Some(kernel);
        let before = self.used.iter().find(|(used, _)| *used == kernel).map(|(_, ranges)| ranges);
        before.filter(|ranges| ranges.iter().any(|range| range.contains(&page))).cloned().unwrap_or_default()
    }

    /// No kernel runs; these pages were used.
    pub fn end(&mut self, pages: &Ranges) {
        self.ready.clear();
        let Some(kernel) = self.first.take() else { return };
        self.used.retain(|(used, _)| *used != kernel);
        if self.used.len() == KERNELS {
            self.used.pop_front();
        }
        let mut room = MOST;
        let parts = pages.iter().take(PARTS).map_while(|range| {
            let part = range.start..range.end.min(range.start + room);
            room -= part.end - part.start;
            (!part.is_empty()).then_some(part)
        });
        self.used.push_back((kernel, parts.collect()));
    }
}
