// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Asks the program for its memory and functions, and sends it what regions have changed. Large pieces of memory travel as
//! bulk data: a message of 28 KiB costs the processor 100 µs over TCP.

use super::completion::Completion;
use super::home::{Function, Piece};
use super::host::Host;
use super::staging::Staging;
use crate::base::limits::MEMORY_AHEAD;
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::link::{Peer, Span};
use crate::mpi::TAG_MEMORY;
use crate::wire::command::SharedFile;
use crate::wire::reply::{self, Digests, Known};
use crate::wire::{BLOCK, memory_piece};
use std::collections::VecDeque;
use std::ops::Range;
use std::thread::Thread;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_128;

/// How long an asking thread polls before it sleeps, and how long it sleeps if nothing wakes it: the receiver does,
/// unless it is in a kernel that waits for the answer.
const POLLS: Duration = Duration::from_micros(50);
const SLEEP: Duration = Duration::from_micros(100);
/// With this many messages unsent, a kernel's changes wait: they would fill the memory.
const CHANGES_UNSENT: usize = 64;

/// A message of the program to the thread that has asked.
pub(super) enum Answer {
    Pages {
        at: u64,
        same: u64,
        bytes: Vec<u8>,
        more: bool,
    },
    /// The bytes come as bulk data.
    PagesAside {
        at: u64,
        same: u64,
        len: usize,
        more: bool,
    },
    /// Here they are. This one is not a message.
    Arrived {
        at: u64,
        bytes: Result<Vec<u8>>,
    },
    Function(Function),
    Taken,
    Merged {
        at: u64,
        others: u64,
    },
    Refused(String),
}

/// Asks the program on behalf of one thread.
pub(super) struct Asker<'a> {
    pub host: &'a Host,
    pub answers: &'a Answers,
    pub staging: &'a Staging,
    /// Makes progress.
    pub drive: &'a dyn Fn(),
}

/// The answers that have arrived, and the thread that waits for them.
#[derive(Default)]
pub(super) struct Answers {
    arrived: Mutex<VecDeque<Answer>, { order::LEAF }>,
    asker: Mutex<Option<Thread>, { order::LEAF }>,
}

impl Answer {
    /// The error if this is not the answer that was asked for.
    pub fn error(self) -> Error {
        match self {
            Answer::Refused(why) => Error::new(why),
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

    fn wait(&self) -> Answer {
        self.answers.wait(self.drive)
    }

    fn memory_of_program(&self) -> Peer {
        Peer { rank: self.host.rank(), tag: TAG_MEMORY }
    }

    /// See [`super::home::Home::fetch`].
    pub fn fetch(
        &self,
        at: u64,
        len: u64,
        known: Known<'_>,
        piece: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        self.send(|message| reply::fetch(message, at, len, known));
        // In their order; of those without bytes, bulk data is under way.
        let mut pieces: VecDeque<(u64, u64, Option<Vec<u8>>)> = VecDeque::new();
        let (mut result, mut is_last) = (Ok(()), false);
        while !is_last || !pieces.is_empty() {
            match self.wait() {
                Answer::Pages { at, same, bytes, more } => {
                    pieces.push_back((at, same, Some(bytes)));
                    is_last = !more;
                }
                Answer::PagesAside { at, same, len, more } => {
                    pieces.push_back((at, same, None));
                    self.receive(at + same, len);
                    is_last = !more;
                }
                Answer::Arrived { at: arrived, bytes } => {
                    let bytes = bytes.unwrap_or_else(|e| {
                        result = Err(e);
                        Vec::new()
                    });
                    let awaited = pieces.iter_mut().find(|(at, same, bytes)| bytes.is_none() && at + same == arrived);
                    if let Some(awaited) = awaited {
                        awaited.2 = Some(bytes);
                    }
                }
                other => return Err(other.error()),
            }
            while pieces.front().is_some_and(|(_, _, bytes)| bytes.is_some())
                && let Some((at, same, bytes)) = pieces.pop_front()
            {
                let bytes = bytes.unwrap_or_default();
                // After an error the rest of the answer must be taken too.
                result = result.and_then(|()| piece(Piece { at, same, bytes: &bytes }));
                self.staging.give(bytes);
            }
        }
        result
    }

    /// Receives bulk data of the program's memory at an address.
    fn receive(&self, at: u64, len: usize) {
        let mut bytes = self.staging.take(len);
        // SAFETY: the heap block does not move with the vector, which the completion keeps until the transfer is done.
        let span = unsafe { Span::new(bytes.as_mut_ptr(), len) };
        let begun = self.host.link().receive_bulk(self.memory_of_program(), span, Completion::Memory(at, bytes));
        self.host.require(begun);
    }

    /// See [`super::home::Home::function`].
    pub fn function(&self, at: u64) -> Result<Function> {
        self.send(|message| reply::find(message, at));
        match self.wait() {
            Answer::Function(function) => Ok(function),
            other => Err(other.error()),
        }
    }

    /// See [`super::home::Home::offer_changes`].
    pub fn offer_changes(&self, seq: u64, at: u64, new: &[u8], old: SharedFile) -> Result<bool> {
        self.send(|message| reply::changed_there(message, seq, at, new, old));
        match self.wait() {
            Answer::Taken => Ok(true),
            Answer::Refused(_) => Ok(false),
            other => Err(other.error()),
        }
    }

    /// See [`super::home::Home::send_changes`].
    pub fn send_changes(&self, seq: u64, write: &mut dyn FnMut(&mut Vec<u8>)) {
        self.send(|message| {
            reply::begin_changed(message, seq);
            write(message);
        });
        while !self.host.link().has_fewer_unsent(CHANGES_UNSENT) {
            (self.drive)();
        }
    }

    /// See [`super::home::Home::send_range`].
    pub fn send_range(&self, seq: u64, at: u64, new: &[u8], old: &[u8]) -> Result<Vec<Range<u64>>> {
        let end = at + new.len() as u64;
        let Some(piece) = memory_piece(self.host.link().fragment()) else {
            return Ok(std::iter::once(at..end).collect());
        };
        let (mut others, mut result, mut unanswered) = (Vec::new(), Ok(()), 0);
        let pieces = new.chunks(piece).zip(old.chunks(piece));
        for (at, (new, old)) in (at..).step_by(piece).zip(pieces) {
            self.send_piece(seq, at, new, old);
            unanswered += 1;
            if unanswered == MEMORY_AHEAD {
                result = result.and(self.wait_for_merge(end, &mut others));
                unanswered -= 1;
            }
        }
        // After an error, too.
        (0..unanswered).for_each(|_| result = result.clone().and(self.wait_for_merge(end, &mut others)));
        result.map(|()| others)
    }

    fn send_piece(&self, seq: u64, at: u64, new: &[u8], old: &[u8]) {
        let mut digests = Vec::new();
        old.chunks(BLOCK).for_each(|block| Digests::push(&mut digests, xxh3_128(block)));
        self.send(|message| reply::changed_aside(message, seq, at, new.len() as u32, Digests(&digests)));
        let mut bytes = self.staging.take(new.len());
        bytes.copy_from_slice(new);
        // SAFETY: as in `receive`.
        let span = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
        self.host.require(self.host.link().send_bulk(self.memory_of_program(), span, Completion::Sent(bytes)));
    }

    /// Waits until the program has taken over a piece of a range that ends at `end`, and notes the blocks that it has not.
    fn wait_for_merge(&self, end: u64, others: &mut Vec<Range<u64>>) -> Result<()> {
        let (at, bits) = match self.wait() {
            Answer::Merged { at, others } => (at, others),
            other => return Err(other.error()),
        };
        let is_other = |i: &u64| bits & 1 << i != 0;
        let block = |i| at + i * BLOCK as u64..end.min(at + (i + 1) * BLOCK as u64);
        others.extend((0..u64::from(u64::BITS)).filter(is_other).map(block));
        Ok(())
    }
}

impl Answers {
    pub fn arrive(&self, answer: Answer) {
        self.arrived.lock().push_back(answer);
        if let Some(asker) = &*self.asker.lock() {
            asker.unpark();
        }
    }

    /// Waits for an answer; `drive` makes progress.
    pub fn wait(&self, drive: impl Fn()) -> Answer {
        *self.asker.lock() = Some(std::thread::current());
        let since = Instant::now();
        loop {
            drive();
            match self.arrived.lock().pop_front() {
                Some(answer) => return answer,
                None if since.elapsed() < POLLS => std::thread::yield_now(),
                None => std::thread::park_timeout(SLEEP),
            }
        }
    }
}
