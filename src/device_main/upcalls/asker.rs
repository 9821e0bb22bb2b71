// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Makes upcalls by messages: asks the program for its memory and functions, and sends it the changes of regions.
//! Large pieces of memory travel as bulk data, because a message of 28 KiB costs the processor 100 µs over TCP.

use super::interface::{Function, Piece, Wanted};
use crate::base::limits::{MEMORY_AHEAD, MEMORY_ASKED};
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::device_main::host::Host;
use crate::device_main::transfers::buffer::Buffer;
use crate::device_main::transfers::completion::Completion;
use crate::device_main::transfers::staging::Staging;
use crate::link::{Peer, Span};
use crate::mpi::TAG_MEMORY;
use crate::wire::command::SharedFile;
use crate::wire::control::Answer;
use crate::wire::reply::{self, Digests, Reply};
use crate::wire::{BLOCK, memory_piece};
use std::collections::VecDeque;
use std::ops::Range;
use std::thread::Thread;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_128;

/// How long an asking thread polls before it sleeps, and how long it sleeps if nothing wakes it. The receiver wakes it,
/// unless the receiver itself is in a kernel that waits for the answer.
const POLLS: Duration = Duration::from_micros(50);
const SLEEP: Duration = Duration::from_micros(100);
/// While this many messages are unsent, a kernel does not send more changes: they would fill the memory.
const CHANGES_UNSENT: usize = 64;

/// What arrives for the asking thread: an answer of the program, or bulk data that an answer announced.
pub(crate) enum Arrival {
    Pages { at: u64, same: u64, bytes: Vec<u8>, more: bool },
    PagesAside { at: u64, same: u64, len: usize, more: bool },
    Bulk { at: u64, bytes: Result<Buffer> },
    Function(Function),
    Taken,
    Merged { at: u64, others: u64 },
    Nothing,
    Refused(String),
}

impl From<Answer<'_>> for Arrival {
    fn from(answer: Answer<'_>) -> Arrival {
        match answer {
            Answer::Pages { at, same, more, bytes } => Arrival::Pages { at, same, more, bytes: bytes.0.to_vec() },
            Answer::PagesAside { at, same, more, len } => Arrival::PagesAside { at, same, more, len: len as usize },
            Answer::Function { is_exported, name } => Arrival::Function(Function { symbol: name.text(), is_exported }),
            Answer::Taken => Arrival::Taken,
            Answer::Merged { at, others } => Arrival::Merged { at, others },
            Answer::NOTHING => Arrival::Nothing,
            Answer::Refuse { why } => Arrival::Refused(why.text()),
        }
    }
}

/// A piece of an answer, in its turn.
struct Incoming {
    at: u64,
    same: u64,
    /// `None` while they are in flight as bulk data.
    bytes: Option<Buffer>,
    /// The bytes are bulk data.
    is_staged: bool,
}

impl Incoming {
    /// The address of its bytes. For a damaged answer any address will do: the reader notices that nobody asked for it.
    fn behind(&self) -> u64 {
        self.at.saturating_add(self.same)
    }
}

/// Asks the program on behalf of one thread.
pub(crate) struct Asker<'a> {
    pub host: &'a Host,
    pub answers: &'a Answers,
    pub staging: &'a Staging,
    /// Makes progress.
    pub drive: &'a dyn Fn(),
}

/// The answers that have arrived, and the thread that waits for them.
#[derive(Default)]
pub(crate) struct Answers {
    arrived: Mutex<VecDeque<Arrival>, { order::LEAF }>,
    asker: Mutex<Option<Thread>, { order::LEAF }>,
}

impl Arrival {
    /// The error if this is not the answer that was asked for.
    pub fn error(self) -> Error {
        match self {
            Arrival::Refused(why) => Error::new(why),
            _ => Error::new("the program answers something else than this device has asked for"),
        }
    }
}

impl Asker<'_> {
    /// Sends a message to the program.
    fn send(&self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut message = self.host.link().buffer();
        write(&mut message);
        self.host.send(message);
    }

    fn wait(&self) -> Arrival {
        self.answers.wait(self.drive)
    }

    fn memory_of_program(&self) -> Peer {
        Peer { rank: self.host.rank(), tag: TAG_MEMORY }
    }

    /// See [`super::interface::Upcalls::fetch`].
    pub fn fetch(&self, ranges: &[Wanted<'_>], piece: &mut dyn FnMut(Piece<'_>) -> Result<()>) -> Result<()> {
        let mut pieces: VecDeque<Incoming> = VecDeque::new();
        let (mut result, mut refused) = (Ok(()), Ok(()));
        let (mut rest, mut unanswered) = (ranges.iter(), 0usize);
        loop {
            while unanswered < MEMORY_ASKED
                && let Some((Range { start, end }, known)) = rest.next()
            {
                self.send(|message| Reply::Fetch { at: *start, len: end - start, known: *known }.write(message));
                unanswered += 1;
            }
            if unanswered == 0 && pieces.is_empty() {
                return result.and(refused);
            }
            match self.wait() {
                Arrival::Pages { at, same, bytes, more } => {
                    pieces.push_back(Incoming { at, same, bytes: Some(bytes.into()), is_staged: false });
                    unanswered = unanswered.saturating_sub(usize::from(!more));
                }
                Arrival::PagesAside { at, same, len, more } => {
                    let piece = Incoming { at, same, bytes: None, is_staged: true };
                    self.receive(piece.behind(), len);
                    pieces.push_back(piece);
                    unanswered = unanswered.saturating_sub(usize::from(!more));
                }
                Arrival::Bulk { at: arrived, bytes } => {
                    let bytes = bytes.unwrap_or_else(|e| {
                        result = Err(e);
                        Buffer::default()
                    });
                    let awaited = pieces.iter_mut().find(|piece| piece.bytes.is_none() && piece.behind() == arrived);
                    if let Some(awaited) = awaited {
                        awaited.bytes = Some(bytes);
                    }
                }
                Arrival::Nothing => unanswered = unanswered.saturating_sub(1),
                // Continue: bulk data in flight still arrives, and no later request may mistake it for its own.
                other => {
                    refused = Err(other.error());
                    unanswered = unanswered.saturating_sub(1);
                }
            }
            while pieces.front().is_some_and(|piece| piece.bytes.is_some())
                && let Some(Incoming { at, same, bytes, is_staged }) = pieces.pop_front()
            {
                let bytes = bytes.unwrap_or_default();
                // After an error, the rest of the answer must still be received.
                result = result.and_then(|()| piece(Piece { at, same, bytes: &bytes }));
                if is_staged {
                    self.staging.give(bytes);
                }
            }
        }
    }

    /// Receives bulk data of the program's memory at an address.
    fn receive(&self, at: u64, len: usize) {
        let mut bytes = self.staging.take(len);
        // SAFETY: the bytes do not move with the buffer, which the completion keeps until the transfer is done.
        let span = unsafe { Span::new(bytes.as_mut_ptr(), len) };
        let begun = self.host.link().receive_bulk(self.memory_of_program(), span, Completion::Memory(at, bytes));
        self.host.require(begun);
    }

    /// See [`super::interface::Upcalls::function`].
    pub fn function(&self, at: u64) -> Result<Option<Function>> {
        self.send(|message| Reply::Find { at }.write(message));
        match self.wait() {
            Arrival::Function(function) => Ok(Some(function)),
            Arrival::Nothing => Ok(None),
            other => Err(other.error()),
        }
    }

    /// See [`super::interface::Upcalls::offer_changes`].
    pub fn offer_changes(&self, seq: u64, at: u64, new: &[u8], old: SharedFile) -> Result<bool> {
        let (len, new) = (new.len() as u64, new.as_ptr() as u64);
        self.send(|message| Reply::ChangedThere { seq, at, len, new, old }.write(message));
        match self.wait() {
            Arrival::Taken => Ok(true),
            Arrival::Nothing | Arrival::Refused(_) => Ok(false),
            other => Err(other.error()),
        }
    }

    /// See [`super::interface::Upcalls::send_changes`].
    pub fn send_changes(&self, seq: u64, write: &mut dyn FnMut(&mut Vec<u8>)) {
        self.host.count_changes();
        self.send(|message| {
            reply::begin_changed(message, seq);
            write(message);
        });
        let mut backoff = self.host.backoff();
        while !self.host.link().has_fewer_unsent(CHANGES_UNSENT) {
            (self.drive)();
            backoff.pause(None);
        }
    }

    /// See [`super::interface::Upcalls::send_range`].
    pub fn send_range(&self, seq: u64, at: u64, new: &[u8], old: &[u8]) -> Result<Vec<Range<u64>>> {
        let end = at + new.len() as u64;
        let Some(piece) = memory_piece(self.host.link().fragment()) else {
            return Ok(std::iter::once(at..end).collect());
        };
        let (mut others, mut result) = (Vec::new(), Ok(()));
        let (mut rest, mut unanswered) = (at..end, VecDeque::new());
        while !rest.is_empty() || !unanswered.is_empty() {
            if !rest.is_empty() && unanswered.len() < MEMORY_AHEAD {
                let sent = rest.start..end.min(rest.start + piece as u64);
                let bytes = (sent.start - at) as usize..(sent.end - at) as usize;
                self.send_piece(seq, sent.start, &new[bytes.clone()], &old[bytes]);
                rest.start = sent.end;
                unanswered.push_back(sent);
                continue;
            }
            match self.wait_for_merge(&mut unanswered) {
                Ok((all, refused)) => {
                    if refused.len() == all {
                        // The program probably has other bytes in the rest of the range, too.
                        others.extend(Some(std::mem::replace(&mut rest, end..end)).filter(|rest| !rest.is_empty()));
                    }
                    others.extend(refused);
                }
                // Send no more, but receive the answers to the pieces that were sent.
                Err(e) => (result, rest) = (result.and(Err(e)), end..end),
            }
        }
        result.map(|()| others)
    }

    fn send_piece(&self, seq: u64, at: u64, new: &[u8], old: &[u8]) {
        let mut digests = Vec::new();
        old.chunks(BLOCK).for_each(|block| Digests::push(&mut digests, xxh3_128(block)));
        self.send(|message| {
            Reply::ChangedAside { seq, at, len: new.len() as u32, old: Digests(&digests) }.write(message)
        });
        let mut bytes = self.staging.take(new.len());
        bytes.copy_from_slice(new);
        // SAFETY: as in `receive`.
        let span = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
        self.host.require(self.host.link().send_bulk(self.memory_of_program(), span, Completion::Sent(bytes)));
    }

    /// Waits for the program's answer to one of these pieces, and removes the piece. Returns the number of its blocks,
    /// and the blocks that the program did not take over.
    fn wait_for_merge(&self, unanswered: &mut VecDeque<Range<u64>>) -> Result<(usize, Vec<Range<u64>>)> {
        let answer = self.wait();
        let place = match answer {
            Arrival::Merged { at, .. } => unanswered.iter().position(|piece| piece.start == at),
            _ => None,
        };
        // Each answer belongs to a piece, even if it makes no sense.
        let Some(piece) = unanswered.remove(place.unwrap_or(0)) else { return Err(answer.error()) };
        let blocks = (piece.end - piece.start).div_ceil(BLOCK as u64) as u32;
        match answer {
            Arrival::Merged { others, .. } if place.is_some() && others.checked_shr(blocks).unwrap_or(0) == 0 => {
                let starts = (piece.start..piece.end).step_by(BLOCK).enumerate();
                let refused = starts.filter(|(i, _)| others & 1 << i != 0);
                let refused = refused.map(|(_, at)| at..piece.end.min(at + BLOCK as u64)).collect();
                Ok((blocks as usize, refused))
            }
            other => Err(other.error()),
        }
    }
}

impl Answers {
    pub fn arrive(&self, answer: Arrival) {
        self.arrived.lock().push_back(answer);
        if let Some(asker) = &*self.asker.lock() {
            asker.unpark();
        }
    }

    /// Waits for an answer; `drive` makes progress.
    pub fn wait(&self, drive: impl Fn()) -> Arrival {
        *self.asker.lock() = Some(std::thread::current());
        let since = Instant::now();
        loop {
            drive();
            // Release the lock before this thread sleeps: otherwise the receiver would wait for it repeatedly.
            let arrived = self.arrived.lock().pop_front();
            match arrived {
                Some(answer) => return answer,
                None if since.elapsed() < POLLS => std::thread::yield_now(),
                None => std::thread::park_timeout(SLEEP),
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/upcalls/asker.rs"]
mod tests;
