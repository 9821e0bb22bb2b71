// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The messages in a [`super::replay_log`] and their answers: the effects of each message, whether it
//! was sent to the worker and answered, and whether it must be sent and answered again.

use crate::link::Peer;
use crate::wire::command::{CONTROL, Command, Operations, parts};
use crate::workers::packet::Route;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// How long a message that runs a region may take while its worker counts as nearly quiescent. Other
/// devices may wait for messages that are held back from the worker, and the worker for them.
const SOON: Duration = Duration::from_millis(100);
/// How long a message may take that only moves data to or from the program or loads an image; also for
/// every message after a load, which can't be replayed.
const PATIENT: Duration = Duration::from_secs(5);

/// The approximate costs of a message, a route and a piece besides their bytes.
const MESSAGE_COST: u64 = 200;
const ROUTE_COST: u64 = 400;
const PIECE_COST: u64 = 64;

/// The parameters of a log.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    /// Keep everything for a replay, because the worker may be replaced.
    pub(crate) keeps: bool,
    /// Bytes to keep before the worker is checkpointed.
    pub(crate) limit: u64,
    /// The rank of the program.
    pub(crate) host: u32,
    /// Bytes of a piece of bulk data.
    pub(crate) fragment: u64,
}

/// The effects of a message.
#[derive(Default)]
pub(super) struct Effects {
    /// It concerns the whole device, such as the device's clock. A replay may answer it differently.
    pub(super) is_control: bool,
    /// It loads or unloads an image. A replay might load at other addresses.
    pub(super) loads: bool,
    /// It may take as long as a region.
    runs: bool,
    /// The cost of keeping the message.
    pub(super) cost: u64,
    pub(super) receives: Vec<Route>,
    pub(super) sends: Vec<Route>,
    /// Pieces of an image still to be forwarded. The answer does not wait for them.
    pub(super) forwards: u64,
}

impl Effects {
    fn of(message: &[u8], terms: &Terms) -> Effects {
        let mut effects = Effects { cost: MESSAGE_COST + message.len() as u64, ..Effects::default() };
        let pieces = |len: u64| len.div_ceil(terms.fragment);
        let Ok((head, mut commands)) = Operations::open(message) else { return effects };
        effects.is_control = head.queue == CONTROL;
        if effects.is_control {
            return effects;
        }
        while let Ok(Some(command)) = commands.take() {
            match command {
                Command::Receive { len, rank, tag, .. } => {
                    effects.receives.push((rank, tag));
                    effects.cost += len + pieces(len) * PIECE_COST;
                    effects.runs |= rank != terms.host;
                }
                Command::Send { len, rank, tag, .. } => {
                    effects.sends.push((rank, tag));
                    effects.cost += pieces(len) * PIECE_COST;
                    effects.runs |= rank != terms.host;
                }
                Command::Image { rank, tag, len, to, .. } => {
                    for (i, part) in parts(len).enumerate() {
                        let nth = |rank: u32, tag| (rank, Peer { rank: rank as usize, tag }.nth(i).tag);
                        effects.receives.push(nth(rank, tag));
                        effects.cost += (part.len() as u64) + pieces(part.len() as u64) * PIECE_COST;
                        for (rank, tag) in to.into_iter().flatten() {
                            effects.sends.push(nth(rank, tag));
                            effects.forwards += pieces(part.len() as u64);
                        }
                    }
                    effects.cost += effects.forwards * PIECE_COST;
                    effects.runs |= rank != terms.host;
                }
                Command::Load { .. } | Command::Move { .. } | Command::Unload { .. } | Command::Redirect { .. } => {
                    effects.loads = true;
                }
                Command::Launch { .. } | Command::Wait { .. } => effects.runs = true,
                _ => {}
            }
        }
        effects.cost += (effects.receives.len() + effects.sends.len()) as u64 * ROUTE_COST;
        effects
    }
}

/// A message from the host.
pub(super) struct Entry {
    message: Box<[u8]>,
    pub(super) effects: Effects,
    /// How many answers the host had when it sent the message.
    after: usize,
    /// The number and hash of the answer, once the host has it.
    pub(super) answer: Option<(usize, u64)>,
}

impl Entry {
    pub(super) fn is_over(&self) -> bool {
        self.answer.is_some() && self.effects.forwards == 0
    }
}

/// Messages by number.
#[derive(Default)]
pub(crate) struct Messages {
    pub(super) entries: BTreeMap<u64, Entry>,
    /// Unanswered messages, and when they were sent to the worker.
    pub(super) open: BTreeMap<u64, Instant>,
    /// Messages before this number were sent to the worker.
    pub(super) sent: u64,
    /// Messages before this number were sent to a lost worker. Their bulk data is kept until they are
    /// sent to its successor.
    to_replay: u64,
    /// How many answers the host has.
    answers: usize,
    /// The numbers of a lost worker's answers that its successor has not given yet.
    pub(super) missing: BTreeSet<usize>,
}

impl Messages {
    pub(super) fn push(&mut self, seq: u64, message: &[u8], terms: &Terms) {
        let (effects, after) = (Effects::of(message, terms), self.answers);
        self.entries.insert(seq, Entry { message: message.into(), effects, after, answer: None });
    }

    /// The next message for the worker, if the worker has given all answers on which the message may depend.
    pub(crate) fn next(&self) -> Option<&[u8]> {
        let (_, entry) = self.entries.range(self.sent..).next()?;
        let comes_next = self.missing.first().is_none_or(|&number| number >= entry.after);
        comes_next.then_some(&entry.message)
    }

    /// Marks the next message as sent. Returns it, and whether it was never sent before.
    pub(super) fn mark_sent(&mut self, now: Instant) -> Option<(u64, &Entry, bool)> {
        let (&seq, entry) = self.entries.range(self.sent..).next()?;
        self.sent = seq + 1;
        if entry.answer.is_none() {
            self.open.insert(seq, now);
        }
        Some((seq, entry, seq >= self.to_replay))
    }

    /// Records that the host gets an answer with this hash. `keeps`: a replay must repeat the answer.
    pub(super) fn commit(&mut self, seq: u64, hash: u64, keeps: bool) {
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.answer = Some((self.answers, hash));
            self.answers += usize::from(keeps);
        }
    }

    /// True if this message concerns the whole device.
    pub(crate) fn is_control(&self, seq: u64) -> bool {
        self.entries.get(&seq).is_some_and(|entry| entry.effects.is_control)
    }

    /// The oldest unanswered message that was sent to the worker.
    pub(crate) fn oldest_open(&self) -> Option<u64> {
        self.open.keys().next().copied()
    }

    /// True during a replay: until all messages that a lost worker received are sent again, and all answers
    /// that the host has are given again.
    pub(crate) fn are_replayed(&self) -> bool {
        !self.missing.is_empty() || self.sent < self.to_replay
    }

    /// True if the worker is expected to answer all messages soon, judging by their age. Nothing was sent to
    /// it since `since`. `patient` is true after a load.
    pub(super) fn are_nearly_answered(&self, since: Instant, now: Instant, patient: bool) -> bool {
        let within = |since, patience| now.saturating_duration_since(since) <= patience;
        let patience = |runs: bool| if runs && !patient { SOON } else { PATIENT };
        let runs = |seq| self.entries.get(seq).is_some_and(|entry| entry.effects.runs);
        within(since, patience(self.open.is_empty()))
            && self.open.iter().all(|(seq, &since)| within(since, patience(runs(seq))))
    }

    /// Forgets the messages that were sent, because the worker was checkpointed.
    pub(super) fn forget_sent(&mut self) {
        self.entries = self.entries.split_off(&self.sent);
        self.to_replay = 0;
        self.forget_answers();
    }

    /// Forgets messages that are over.
    pub(super) fn forget_finished(&mut self) {
        self.entries.retain(|_, entry| !entry.is_over());
        if self.to_replay > 0 {
            self.to_replay = self.end_before(self.sent.max(self.to_replay));
        }
        self.forget_answers();
    }

    /// Renumbers the answers of the remaining messages. Only messages that were never sent depend on them.
    fn forget_answers(&mut self) {
        self.missing.clear();
        self.answers = 0;
        let sent = self.sent.max(self.to_replay);
        for (&seq, entry) in &mut self.entries {
            if let Some((number, _)) = &mut entry.answer {
                *number = self.answers;
                self.answers += 1;
            }
            entry.after = if seq < sent { 0 } else { self.answers };
        }
    }

    /// True if the host has the answer to this message, and a lost worker's successor has not given it yet.
    pub(super) fn is_missing(&self, entry: &Entry) -> bool {
        entry.answer.is_some_and(|(number, _)| self.missing.contains(&number))
    }

    /// One more than the number of the last message before `seq`; 0 if there is none.
    fn end_before(&self, seq: u64) -> u64 {
        self.entries.range(..seq).next_back().map_or(0, |(seq, _)| seq + 1)
    }

    /// Prepares to send a successor the messages that were sent to the lost worker. Returns their number.
    pub(super) fn restart(&mut self) -> usize {
        self.to_replay = self.to_replay.max(self.end_before(self.sent));
        self.sent = 0;
        self.open.clear();
        self.missing = (0..self.answers).collect();
        self.entries.range(..self.to_replay).count()
    }
}

#[cfg(test)]
impl Messages {
    /// The bytes in memory, without the overhead of the tables.
    pub(super) fn held(&self) -> usize {
        let messages: usize = self.entries.values().map(|e| e.message.len() + size_of::<Entry>()).sum();
        messages + 64 * self.open.len() + 40 * self.missing.len()
    }
}
