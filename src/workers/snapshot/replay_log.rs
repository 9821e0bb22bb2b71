// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The log that a rank keeps of one of its workers: without spares, the unanswered messages; with
//! spares, everything since the last checkpoint, enough to bring the snapshot to the worker's state.
//! No I/O here.
//!
//! A replay sends the successor the same messages in the same order. It sends no message before the
//! successor has given all answers that the host had when it sent that message: the host may have sent
//! the message because of these answers, and reuses memory. The successor requests the same pieces of
//! bulk data, in the same order on each route. It receives the same pieces again; pieces that were sent
//! are not sent again. Its answers must be the same: otherwise the program would continue with a state
//! that does not match the answers that it has.
//!
//! If nothing is kept for a replay, a message leaves the log when it is over, in any order. The others
//! stay: the successor answers each of them with a failure, and does the rest of their transfers, for
//! which the other side waits. While a message forwards an image, the host may already have its answer:
//! the message leaves the log when the successor has answered it, too.
//!
//! Invariants:
//! - A message is over when it is answered and has forwarded its image, if any. No two messages that
//!   are not over use the same route: the host reuses a tag once both ends of its transfer have
//!   answered.
//! - Heartbeat requests are not in the log: they are answered out of order, and never replayed.

use super::bulk_log::BulkLog;
use super::messages::{Messages, Terms};
use crate::wire::reply::Stream;
use crate::workers::packet::Route;
use std::time::Instant;
use xxhash_rust::xxh3::xxh3_64;

/// The output on a stream: the number of bytes that the host has, and how many of these a replay must still repeat.
#[derive(Clone, Copy, Default)]
struct Printed {
    bytes: u64,
    again: u64,
}

/// What to do with an answer.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// Forward it.
    New,
    /// Forward it after the next checkpoint, because a replay could give a different answer; or earlier,
    /// after [`ReplayLog::commit`].
    Postpone,
    /// Ignore it: the host has it.
    Known,
    /// The host has a different answer.
    Differs,
    /// It answers no message.
    Unknown,
}

/// The messages to and from a worker since its last checkpoint.
pub(crate) struct ReplayLog {
    pub(super) terms: Terms,
    /// Everything is now kept for a replay.
    pub(crate) keeps: bool,
    /// The cost of keeping the messages that were sent.
    pub(super) bytes: u64,
    /// An image was loaded or unloaded; a replay might load it at other addresses.
    pub(super) loads: bool,
    pub(crate) messages: Messages,
    pub(crate) bulk: BulkLog,
    printed: [Printed; 2],
}

impl ReplayLog {
    pub(crate) fn new(terms: Terms) -> ReplayLog {
        ReplayLog {
            terms,
            keeps: terms.keeps,
            bytes: 0,
            loads: false,
            messages: Messages::default(),
            bulk: BulkLog::default(),
            printed: Default::default(),
        }
    }

    /// Logs message `seq` of the host.
    pub(crate) fn push(&mut self, seq: u64, message: &[u8]) {
        self.messages.push(seq, message, &self.terms);
    }

    /// Records that [`Messages::next`] was sent to the worker.
    pub(crate) fn message_sent(&mut self, now: Instant) {
        let Some((seq, entry, is_new)) = self.messages.mark_sent(now) else { return };
        self.loads |= self.keeps && entry.effects.loads;
        if is_new && self.keeps {
            self.bytes += entry.effects.cost;
        }
        if is_new && entry.effects.forwards > 0 {
            self.bulk.begin_forward(seq, &entry.effects.sends);
        }
    }

    /// Decides what to do with the answer to message `seq`.
    pub(crate) fn answer(&mut self, seq: u64, reply: &[u8]) -> Answer {
        let messages = &mut self.messages;
        let Some(entry) = messages.entries.get(&seq).filter(|_| seq < messages.sent) else { return Answer::Unknown };
        let is_compared = self.keeps && !entry.effects.is_control;
        let hash = if is_compared { xxh3_64(reply) } else { 0 };
        let is_postponed = is_compared && (entry.effects.loads || self.terms.limit == 0);
        match entry.answer {
            None if messages.open.remove(&seq).is_none() => Answer::Unknown,
            None if is_postponed => Answer::Postpone,
            None => {
                self.commit(seq, hash);
                Answer::New
            }
            Some((number, before)) => {
                messages.missing.remove(&number);
                if !self.keeps {
                    self.end_if_over(seq);
                } else if before != hash {
                    return Answer::Differs;
                }
                Answer::Known
            }
        }
    }

    /// Records that the host gets the answer to message `seq`, which has this hash.
    pub(crate) fn commit(&mut self, seq: u64, hash: u64) {
        self.messages.commit(seq, hash, self.keeps);
        self.end_if_over(seq);
    }

    /// Lets other messages use the routes of this one if it is over.
    fn end_if_over(&mut self, seq: u64) {
        let messages = &mut self.messages;
        let Some(entry) = messages.entries.get(&seq).filter(|entry| entry.is_over()) else { return };
        if !self.keeps && (messages.is_missing(entry) || self.bulk.repeats_sends(&entry.effects)) {
            // The successor still does this message's transfers, and may answer before it has forwarded an image.
            return;
        }
        self.bulk.end_message(&entry.effects, self.keeps);
        if !self.keeps {
            messages.entries.remove(&seq);
        }
    }

    /// Logs output of the worker. Returns the part that the host does not have.
    pub(crate) fn print<'a>(&mut self, stream: Stream, bytes: &'a [u8]) -> &'a [u8] {
        let printed = &mut self.printed[stream as usize - 1];
        let again = printed.again.min(bytes.len() as u64);
        printed.again -= again;
        let new = &bytes[again as usize..];
        printed.bytes += new.len() as u64;
        new
    }

    /// Logs a piece that its waiter has received.
    pub(crate) fn received(&mut self, route: Route, index: usize, bytes: Vec<u8>) {
        self.bulk.received(route, index, if self.keeps { bytes } else { Vec::new() });
    }

    /// Logs that the worker sends a piece; see [`BulkLog::send`].
    pub(crate) fn send(&mut self, route: Route, hash: u64) -> Option<u64> {
        let before = self.bulk.send(route, hash)?;
        if let Some(seq) = self.bulk.forwarder(route) {
            // This may be the last piece of an answered message.
            self.end_if_over(seq);
        }
        Some(before)
    }

    /// Records that a piece was sent.
    pub(crate) fn sent(&mut self, route: Route) {
        self.bulk.sent();
        let Some(seq) = self.bulk.forwarder(route) else { return };
        if let Some(entry) = self.messages.entries.get_mut(&seq) {
            entry.effects.forwards = entry.effects.forwards.saturating_sub(1);
        }
        self.end_if_over(seq);
    }

    /// True if the worker has finished all messages that were sent to it.
    pub(crate) fn is_quiescent(&self) -> bool {
        self.messages.oldest_open().is_none() && self.bulk.is_idle() && !self.messages.are_replayed()
    }

    /// True after [`ReplayLog::give_up`], until the worker is checkpointed.
    pub(crate) fn gave_up(&self) -> bool {
        self.terms.keeps && !self.keeps
    }

    /// True if the worker should be checkpointed before it gets another message; never during a replay.
    pub(crate) fn wants_checkpoint(&self) -> bool {
        self.terms.keeps
            && !self.messages.are_replayed()
            && (self.gave_up() || self.loads || self.bytes > self.terms.limit)
    }

    /// Forgets everything that a checkpoint of the quiescent worker made obsolete.
    pub(crate) fn checkpointed(&mut self) {
        self.messages.forget_sent();
        self.bulk.clear();
        (self.keeps, self.bytes, self.loads) = (self.terms.keeps, 0, false);
        self.printed = Default::default();
    }

    /// Keeps nothing for a replay until the worker is checkpointed, except what is needed to report the
    /// failure of each unanswered message to the host. Postponed answers must have been
    /// [committed](ReplayLog::commit).
    pub(crate) fn give_up(&mut self) {
        self.messages.forget_finished();
        self.bulk.forget_finished();
        (self.keeps, self.bytes, self.loads) = (false, 0, false);
    }

    /// [`ReplayLog::give_up`] permanently.
    pub(crate) fn give_up_for_good(&mut self) {
        self.terms.keeps = false;
        // No output is repeated.
        self.printed = Default::default();
        self.give_up();
    }

    /// Prepares the log for the successor of a lost worker. Returns how many messages are replayed.
    pub(crate) fn restart(&mut self) -> usize {
        self.bulk.restart();
        for printed in &mut self.printed {
            printed.again = printed.bytes;
        }
        self.messages.restart()
    }
}

#[cfg(test)]
impl ReplayLog {
    /// The bytes in memory, without the overhead of the tables.
    pub(super) fn held(&self) -> u64 {
        (self.messages.held() + self.bulk.held()) as u64
    }
}
