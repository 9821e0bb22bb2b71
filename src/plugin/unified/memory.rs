// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Sends the program's memory to a device, but for what the device has already: it has kept pages of earlier regions, and
//! names them by digests. The program compares these with digests of what it has now.

use crate::base::{Error, Result};
use crate::sys::node;
use crate::wire::command::Command;
use crate::wire::reply::{Known, KnownPart};
use crate::wire::{Bytes, MESSAGE_MAX};
use std::ops::Range;
use xxhash_rust::xxh3::xxh3_128;

const PAGE: usize = 4096;
/// Bytes of memory in one message: whole pages.
const PIECE: usize = (MESSAGE_MAX - PAGE / 2) / PAGE * PAGE;
/// Bytes that are read at once, and no part that a device has is longer: they stay in the processor's cache.
const BLOCK: u64 = Known::PART_MAX as u64;

/// Sends a range that begins with a page, or what there is from its start on.
pub(super) fn send(send: &dyn Fn(Command<'_>) -> Result<()>, range: Range<u64>, mut known: Known<'_>) -> Result<()> {
    let mut answer = Answer { send, at: range.start, same: 0, bytes: Vec::with_capacity(PIECE) };
    let (mut at, next) = (range.start, known.take()?);
    let mut parts = Parts { next, rest: known };
    let mut block = vec![0; BLOCK as usize];
    while at < range.end {
        let (end, digest) = parts.part(at, range.end)?;
        let wanted = (end - at) as usize;
        // SAFETY: a part is no longer than the buffer.
        let n = unsafe { node::read_any(at, block.as_mut_ptr(), wanted) };
        let n = usize::try_from(n).map_or(0, |n| n / PAGE * PAGE);
        let here = &block[..n];
        if n == wanted && digest.is_some_and(|digest| digest == xxh3_128(here)) {
            answer.push_same(n as u64)?;
        } else {
            answer.push(here)?;
        }
        at += n as u64;
        if n < wanted {
            break;
        }
    }
    // The error that follows explains the address.
    if at == range.start { Err(Error::new("")) } else { answer.flush(false) }
}

/// Divides a range into what a device knows and what it does not.
struct Parts<'a> {
    next: Option<KnownPart>,
    rest: Known<'a>,
}

impl Parts<'_> {
    /// Where the part at an address ends, before `limit`, and its digest on the device, if the device has it.
    fn part(&mut self, at: u64, limit: u64) -> Result<(u64, Option<u128>)> {
        while self.next.is_some_and(|(known, ..)| known < at) {
            self.next = self.rest.take()?;
        }
        let block = limit.min(at.saturating_add(BLOCK));
        Ok(match self.next {
            Some((known, len, digest)) if known == at => (limit.min(known + u64::from(len)), Some(digest)),
            Some((known, ..)) => (block.min(known), None),
            None => (block, None),
        })
    }
}

/// The message that is next: `same` bytes at an address are as the device has them, and `bytes` follow.
struct Answer<'a> {
    send: &'a dyn Fn(Command<'_>) -> Result<()>,
    at: u64,
    same: u64,
    bytes: Vec<u8>,
}

impl Answer<'_> {
    fn push_same(&mut self, len: u64) -> Result<()> {
        if !self.bytes.is_empty() {
            self.flush(true)?;
        }
        self.same += len;
        Ok(())
    }

    fn push(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.bytes.len() == PIECE {
                self.flush(true)?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PIECE - self.bytes.len()));
            self.bytes.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    fn flush(&mut self, more: bool) -> Result<()> {
        let Answer { send, at, same, bytes } = self;
        send(Command::Pages { at: *at, same: *same, more, bytes: Bytes(bytes) })?;
        self.at += self.same + self.bytes.len() as u64;
        self.same = 0;
        self.bytes.clear();
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/unified/memory.rs"]
mod tests;
