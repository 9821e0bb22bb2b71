// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Sends the program's memory to a device, except what the device already has: it keeps pages of earlier regions, and
//! names them by digests. The program compares these with digests of its current memory.

use super::{Post, SpareBuffers};
use crate::base::Result;
use crate::base::limits::{self, MEMORY_PIECE_MIN};
use crate::sys::node;
use crate::wire::control::Answer;
use crate::wire::reply::{Known, KnownPart};
use crate::wire::{BLOCK, Bytes, MESSAGE_MAX};
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128;

const PAGE: usize = limits::PAGE as usize;
/// Bytes of memory in one message: whole pages.
const PIECE: usize = (MESSAGE_MAX - PAGE / 2) / PAGE * PAGE;

/// Bytes of memory in several messages: whole blocks.
const MESSAGES: usize = PIECE / PAGE * BLOCK;

/// Sends the readable prefix of a range that begins with a page; false if nothing is readable.
pub(super) fn send(
    post: (&dyn Post, usize),
    buffers: &SpareBuffers,
    range: Range<u64>,
    mut known: Known<'_>,
) -> Result<bool> {
    let (aside, bytes) = (post.0.piece_len(), buffers.take());
    let mut sender = Sender { post, buffers, aside, at: range.start, end: range.end, same: 0, bytes };
    let (mut at, next) = (range.start, known.take()?);
    let mut parts = Parts { next, rest: known };
    while at < range.end {
        let (end, digest) = parts.part(at, range.end)?;
        let wanted = (end - at) as usize;
        let n = sender.read(at, wanted, digest)?;
        at += n as u64;
        if n < wanted {
            break;
        }
    }
    if at > range.start {
        sender.flush(false)?;
    }
    buffers.give(sender.bytes);
    Ok(at > range.start)
}

/// Divides a range into parts that a device has and parts that it does not have.
struct Parts<'a> {
    next: Option<KnownPart>,
    rest: Known<'a>,
}

impl Parts<'_> {
    /// The end of the part at an address, at most `limit`, and the part's digest on the device, if the device has it.
    fn part(&mut self, at: u64, limit: u64) -> Result<(u64, Option<u128>)> {
        while self.next.is_some_and(|(known, ..)| known < at) {
            self.next = self.rest.take()?;
        }
        let block = limit.min(at.saturating_add(BLOCK as u64));
        Ok(match self.next {
            Some((known, len, digest)) if known == at => (limit.min(known + u64::from(len)), Some(digest)),
            Some((known, ..)) => (block.min(known), None),
            None => (block, None),
        })
    }
}

/// Sends memory: next, the `same` bytes at an address that the device already has, and the `bytes` after these.
struct Sender<'a> {
    post: (&'a dyn Post, usize),
    buffers: &'a SpareBuffers,
    /// Bytes of a piece of bulk data, if bulk data can be used.
    aside: Option<usize>,
    at: u64,
    /// The end of the requested range; the answer may end earlier.
    end: u64,
    same: u64,
    bytes: Vec<u8>,
}

impl Sender<'_> {
    /// Adds the readable prefix of a part, which is no longer than a block. Returns its length.
    fn read(&mut self, at: u64, wanted: usize, digest: Option<u128>) -> Result<usize> {
        let most = self.aside.unwrap_or(MESSAGES);
        if self.bytes.len() + wanted > most {
            self.flush(true)?;
        }
        let start = self.bytes.len();
        self.bytes.reserve_exact(most.min(start + (self.end - at) as usize) - start);
        // SAFETY: there is room for this many bytes.
        let n = unsafe { node::read_any(at, self.bytes.as_mut_ptr().add(start), wanted) };
        let n = usize::try_from(n).map_or(0, |n| n / PAGE * PAGE);
        // SAFETY: these bytes were written.
        unsafe { self.bytes.set_len(start + n) };
        if n == wanted && digest.is_some_and(|digest| digest == xxh3_128(&self.bytes[start..])) {
            self.bytes.truncate(start);
            if start > 0 {
                self.flush(true)?;
            }
            self.same += n as u64;
        }
        Ok(n)
    }

    /// Sends what was collected; `more` is true if the answer goes on.
    fn flush(&mut self, more: bool) -> Result<()> {
        let (post, port) = self.post;
        if self.aside.is_some() && self.bytes.len() >= MEMORY_PIECE_MIN {
            let bytes = std::mem::replace(&mut self.bytes, self.buffers.take());
            let (at, same, len) = (self.at, self.same, bytes.len());
            post.answer(port, Answer::PagesAside { at, same, more, len: len as u32 })?;
            post.piece(port, bytes)?;
            self.advance(len);
            return Ok(());
        }
        let mut bytes = std::mem::take(&mut self.bytes);
        let mut rest = &bytes[..];
        loop {
            let (now, later) = rest.split_at(rest.len().min(PIECE));
            let more = more || !later.is_empty();
            post.answer(port, Answer::Pages { at: self.at, same: self.same, more, bytes: Bytes(now) })?;
            self.advance(now.len());
            rest = later;
            if rest.is_empty() {
                bytes.clear();
                self.bytes = bytes;
                return Ok(());
            }
        }
    }

    fn advance(&mut self, len: usize) {
        self.at += self.same + len as u64;
        self.same = 0;
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/unified/fetch.rs"]
mod tests;
