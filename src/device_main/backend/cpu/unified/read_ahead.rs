// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Read-ahead: how much to fetch at one fault. A kernel that goes through memory in order gets more each time, so it
//! faults more and more rarely.

use std::ops::Range;

/// Bytes that are fetched around an address that continues no stream.
pub(super) const LEAST: u64 = 64 << 10;
/// From another node, a stream's next fetch is four times as large as its last one up to this size, and twice as large
/// from there on: a round trip may take as long as the transfer of this many bytes.
const SOON: u64 = 4 << 20;
/// The maximum number of bytes that are fetched at once.
const MOST: u64 = 64 << 20;
/// The number of streams (threads, or arrays) that are followed at a time.
const STREAMS: usize = 16;

/// Where a thread of a kernel will fault next if it goes on in order, and the size of its last fetch.
#[derive(Clone, Copy, Debug, Default)]
struct Stream {
    next: u64,
    len: u64,
    is_other: bool,
}

/// A stream's last fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Before {
    pub range: Range<u64>,
    /// None of it equaled the bytes that this process had kept.
    pub is_other: bool,
}

/// The last streams, in turn.
#[derive(Debug, Default)]
pub(super) struct ReadAhead {
    streams: [Stream; STREAMS],
    oldest: usize,
}

impl ReadAhead {
    /// The range to fetch with this page and, if the page continues a stream, that stream's last fetch. The program
    /// `is_near` if it is on the same node.
    pub fn around(&self, page: u64, is_near: bool) -> (Range<u64>, Option<Before>) {
        match self.streams.iter().find(|s| s.follows(page)) {
            Some(&Stream { next, len, is_other }) => {
                let range = next - len..next;
                let times = if len < SOON && !is_near { 4 } else { 2 };
                (page..page.saturating_add((times * len).clamp(LEAST, MOST)), Some(Before { range, is_other }))
            }
            None => (page & !(LEAST - 1)..(page & !(LEAST - 1)) + LEAST, None),
        }
    }

    /// Notes a fetch.
    pub fn note(&mut self, page: u64, Before { range, is_other }: Before) {
        let new = Stream { next: range.end, len: range.end - range.start, is_other };
        let place = self.streams.iter().position(|s| s.follows(page)).unwrap_or_else(|| {
            self.oldest = (self.oldest + 1) % STREAMS;
            self.oldest
        });
        self.streams[place] = new;
    }
}

impl Stream {
    /// True if the page is the next one, or not much further on.
    fn follows(self, page: u64) -> bool {
        (self.next..self.next.saturating_add(self.len.max(1))).contains(&page) && self.len > 0
    }
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/read_ahead.rs"]
mod tests;
