// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What a rank remembers of one of its workers: without spares the messages that are not
//! answered, with spares everything since the worker was last copied, enough to bring the copy
//! to where the worker was. No I/O here.
//!
//! A replay gives the copy the same messages in the same order, none before it has answered
//! what the host had an answer to when it sent that one: the host may have done so for that
//! answer, and reuses memory. What the copy asks for then is what was asked before, in the
//! same order for each rank and tag: data that was received is given again, data that was
//! sent is not sent again. What it answers was answered before and must be the same, or else
//! the program would go on with a state that the answers it has do not come from.
//!
//! Where nothing is kept for a replay, a message leaves the journal when it is answered, in any
//! order. The others stay: the copy answers each of them with a failure, and does the rest of
//! their transfers, for which the other side waits.
//!
//! Invariants:
//! - A message is over when it is answered and has passed on the image that it brings, if any.
//!   No rank and tag is used by two messages that are not over: the host uses a tag again when
//!   both ends of its transfer have answered.
//! - Questions whether the device is there are not here: they are answered outside of the order,
//!   and never again.

use crate::link::Peer;
use crate::wire::command::{Command, Commands, Head, parts};
use crate::wire::reply::Stream;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// How long a message that runs a region may keep a worker from a point of quiet that is still
/// called near. Other devices may wait for what the worker is kept from, and it for them.
pub const SOON: Duration = Duration::from_millis(100);
/// The same for a message that only moves data to or from the program or loads an image, and for
/// all after one that has loaded: what is loaded can't be done again.
pub const PATIENT: Duration = Duration::from_secs(5);

/// What a message, a rank and tag, and a piece cost besides their bytes, about.
const OF_MESSAGE: u64 = 200;
const OF_LANE: u64 = 400;
const OF_PIECE: u64 = 64;

/// The rank and the tag of a transfer.
pub type Lane = (u32, u32);

/// What a journal has to know of its rank.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The worker may be replaced, so that what it gets is kept.
    pub keeps: bool,
    /// Bytes to be kept before the worker is copied.
    pub limit: u64,
    /// The rank of the program.
    pub host: u32,
    /// Bytes of a piece of bulk data.
    pub fragment: u64,
}

/// A message from the host.
struct Entry {
    message: Box<[u8]>,
    /// How many answers the host had before it sent this.
    after: usize,
    /// Its number among the answers, and its hash.
    answer: Option<(usize, u64)>,
    /// It has an answer that the host has not got.
    waits: bool,
    /// What the message does; none before a worker has got it.
    what: Option<What>,
}

/// What a message does, as far as it matters here.
#[derive(Default)]
struct What {
    /// It changes what is loaded, which a replay might do at other addresses.
    loads: bool,
    /// It may take as long as a region does.
    runs: bool,
    /// Bytes of bulk data that it brings, and pieces that it moves.
    brings: u64,
    pieces: u64,
    receives: Vec<Lane>,
    sends: Vec<Lane>,
    /// Of its sends, pieces of an image that are not sent: the answer does not wait for them.
    owes: u64,
}

impl What {
    fn of(message: &[u8], terms: &Terms) -> What {
        let mut what = What::default();
        let pieces = |len: u64| len.div_ceil(terms.fragment);
        let Ok((_, mut commands)) = Commands::open(message) else { return what };
        while let Ok(Some(command)) = commands.take() {
            match command {
                Command::Receive { len, rank, tag, .. } => {
                    what.receives.push((rank, tag));
                    what.brings += len;
                    what.pieces += pieces(len);
                    what.runs |= rank != terms.host;
                }
                Command::Send { len, rank, tag, .. } => {
                    what.sends.push((rank, tag));
                    what.pieces += pieces(len);
                    what.runs |= rank != terms.host;
                }
                Command::Image { rank, tag, len, to, .. } => {
                    what.brings += len;
                    for (i, part) in parts(len).enumerate() {
                        let nth = |rank: u32, tag| (rank, Peer { rank: rank as usize, tag }.nth(i).tag);
                        what.receives.push(nth(rank, tag));
                        what.pieces += pieces(part.len() as u64);
                        for (rank, tag) in to.into_iter().flatten() {
                            what.sends.push(nth(rank, tag));
                            what.owes += pieces(part.len() as u64);
                        }
                    }
                    what.pieces += what.owes;
                    what.runs |= rank != terms.host;
                }
                Command::Load { .. } | Command::Move { .. } | Command::Unload { .. } | Command::Redirect { .. } => {
                    what.loads = true;
                }
                Command::Launch { .. } | Command::Wait { .. } => what.runs = true,
                _ => {}
            }
        }
        what
    }

    /// What it costs to keep a message that does this.
    fn cost(&self, message: &[u8]) -> u64 {
        let lanes = (self.receives.len() + self.sends.len()) as u64;
        OF_MESSAGE + message.len() as u64 + self.brings + lanes * OF_LANE + self.pieces * OF_PIECE
    }
}

/// A worker's receive of a piece, and where in the worker it goes.
pub type Waiter = (u64, u64);

struct Piece {
    /// None while it is under way.
    bytes: Option<Vec<u8>>,
    waiter: Option<Waiter>,
}

/// Pieces in the order of their requests, numbered from `base` on; `next` is what the worker will
/// ask for, and those before `over` are of messages that are over.
struct Pieces<T> {
    base: usize,
    all: Vec<T>,
    next: usize,
    over: usize,
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Pieces { base: 0, all: Vec::new(), next: 0, over: 0 }
    }
}

impl<T> Pieces<T> {
    fn end(&self) -> usize {
        self.base + self.all.len()
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        self.all.get_mut(index.checked_sub(self.base)?)
    }

    /// Forgets what is over; false if that was all.
    fn drop_over(&mut self) -> bool {
        self.all.drain(..self.over - self.base);
        self.base = self.over;
        self.next = self.next.max(self.base);
        !self.all.is_empty()
    }

    fn restart(&mut self) {
        self.next = self.base;
    }
}

/// What printed text was passed on, and how much is to be printed again.
#[derive(Clone, Copy, Default)]
struct Printed {
    bytes: u64,
    again: u64,
}

/// A message that the worker has got and not answered.
struct Open {
    since: Instant,
    runs: bool,
}

/// See the module.
pub struct Journal {
    terms: Terms,
    /// Everything is kept for a replay now.
    keeps: bool,
    /// What it costs to keep what the worker has got.
    bytes: u64,
    /// By number.
    entries: BTreeMap<u64, Entry>,
    /// The worker has got those before this number.
    sent: u64,
    open: BTreeMap<u64, Open>,
    /// A worker that was lost had got those before this number: what was asked for on their behalf
    /// stays until another one has got them too.
    to_replay: u64,
    /// Of each answer that the host has by its number: the worker that there is now has given it
    /// too.
    given: Vec<bool>,
    /// All answers before this one are.
    given_to: usize,
    /// It has changed what is loaded, which a replay might not do at the same addresses.
    loads: bool,
    receives: FxHashMap<Lane, Pieces<Piece>>,
    /// Hashes.
    sends: FxHashMap<Lane, Pieces<u64>>,
    /// Messages that are passing an image on.
    passes: FxHashMap<Lane, u64>,
    under_way: usize,
    printed: [Printed; 2],
}

/// What to do about an answer.
#[derive(Debug, PartialEq)]
pub enum Answer {
    /// Pass it on.
    New,
    /// Pass it on when the worker was copied: it could be another one the next time. Or
    /// sooner, after [`Journal::commit`].
    Later,
    /// The host has it.
    Known,
    /// The host has another one.
    Differs,
    /// It answers nothing.
    Unknown,
}

/// What to do about a worker's request for a piece.
#[derive(Debug, PartialEq)]
pub enum Asked<T> {
    /// Start it; this is its place.
    New(usize),
    /// It is under way, and will be told.
    UnderWay,
    /// It is done.
    Done(T),
}

impl Journal {
    /// An empty journal.
    pub fn new(terms: Terms) -> Journal {
        Journal {
            terms,
            keeps: terms.keeps,
            bytes: 0,
            entries: BTreeMap::new(),
            sent: 0,
            open: BTreeMap::new(),
            to_replay: 0,
            given: Vec::new(),
            given_to: 0,
            loads: false,
            receives: FxHashMap::default(),
            sends: FxHashMap::default(),
            passes: FxHashMap::default(),
            under_way: 0,
            printed: [Printed::default(); 2],
        }
    }

    /// Message number `seq` of the host.
    pub fn push(&mut self, seq: u64, message: &[u8]) {
        let message = message.into();
        let entry = Entry { message, after: self.given.len(), answer: None, waits: false, what: None };
        self.entries.insert(seq, entry);
    }

    /// The next message for the worker.
    pub fn next_message(&self) -> Option<&[u8]> {
        let (_, entry) = self.entries.range(self.sent..).next()?;
        (entry.after <= self.given_to).then_some(&entry.message)
    }

    /// The worker has got it.
    pub fn message_sent(&mut self, now: Instant) {
        let Some((&seq, entry)) = self.entries.range_mut(self.sent..).next() else { return };
        self.sent = seq + 1;
        let what = entry.what.get_or_insert_with(|| {
            let what = What::of(&entry.message, &self.terms);
            if self.keeps {
                self.bytes += what.cost(&entry.message);
            }
            if what.owes > 0 {
                self.passes.extend(what.sends.iter().map(|&lane| (lane, seq)));
            }
            what
        });
        self.loads |= self.keeps && what.loads;
        if entry.answer.is_none() {
            self.open.insert(seq, Open { since: now, runs: what.runs });
        }
    }

    /// An answer to message `seq` came.
    pub fn answer(&mut self, seq: u64, reply: &[u8]) -> Answer {
        let (keeps, limit) = (self.keeps, self.terms.limit);
        let Some(entry) = self.entry(seq) else { return Answer::Unknown };
        // What concerns the device, as its clock, may differ.
        let is_control = Commands::open(&entry.message).is_ok_and(|(Head { queue, .. }, _)| queue == 0);
        let hash = if keeps && !is_control { xxh3_64(reply) } else { 0 };
        let answer = match entry.answer {
            None if entry.waits => Answer::Unknown,
            None => {
                let loads = entry.what.as_ref().is_some_and(|what| what.loads);
                let later = keeps && !is_control && (loads || limit == 0);
                entry.waits = later;
                self.open.remove(&seq);
                if !later {
                    self.commit(seq, hash);
                }
                if later { Answer::Later } else { Answer::New }
            }
            Some((number, before)) if keeps => {
                self.given[number] = true;
                if before == hash { Answer::Known } else { Answer::Differs }
            }
            Some(_) => Answer::Known,
        };
        while self.given.get(self.given_to) == Some(&true) {
            self.given_to += 1;
        }
        answer
    }

    /// A message that the worker has got.
    fn entry(&mut self, seq: u64) -> Option<&mut Entry> {
        if seq < self.sent { self.entries.get_mut(&seq) } else { None }
    }

    /// The host gets the answer to message `seq`, which has this hash.
    pub fn commit(&mut self, seq: u64, hash: u64) {
        let number = self.given.len();
        if let Some(entry) = self.entry(seq) {
            (entry.answer, entry.waits) = (Some((number, hash)), false);
            if self.keeps {
                // Nothing has to wait for it.
                if !self.repeats() {
                    self.given_to += 1;
                }
                self.given.push(true);
            }
            self.close(seq);
        }
    }

    /// If a message is over: other ones may use its ranks and tags.
    fn close(&mut self, seq: u64) {
        let Some(Entry { answer: Some(_), what: Some(what), .. }) = self.entries.get(&seq) else { return };
        if what.owes > 0 {
            return;
        }
        for lane in &what.receives {
            end_lane(&mut self.receives, *lane, self.keeps);
        }
        for lane in &what.sends {
            end_lane(&mut self.sends, *lane, self.keeps);
            self.passes.remove(lane);
        }
        if !self.keeps {
            self.entries.remove(&seq);
        }
    }

    /// True while the worker has still to get what another one had, or to answer what is
    /// answered.
    pub fn repeats(&self) -> bool {
        self.given_to < self.given.len() || self.sent < self.to_replay
    }

    /// Messages without an answer, of those that the worker has got; the oldest first.
    pub fn unanswered(&self) -> impl Iterator<Item = u64> {
        self.open.keys().copied()
    }

    /// Printed text came: what of it is new.
    pub fn print<'a>(&mut self, stream: Stream, bytes: &'a [u8]) -> &'a [u8] {
        let printed = &mut self.printed[stream as usize - 1];
        let again = printed.again.min(bytes.len() as u64);
        printed.again -= again;
        let new = &bytes[again as usize..];
        printed.bytes += new.len() as u64;
        new
    }

    /// The worker receives a piece.
    pub fn receive(&mut self, lane: Lane, waiter: Waiter) -> Asked<&[u8]> {
        let pieces = self.receives.entry(lane).or_default();
        let index = pieces.next;
        pieces.next += 1;
        if index == pieces.end() {
            self.under_way += 1;
            pieces.all.push(Piece { bytes: None, waiter: Some(waiter) });
            return Asked::New(index);
        }
        match &mut pieces.all[index - pieces.base] {
            Piece { bytes: Some(bytes), .. } => Asked::Done(bytes),
            piece => {
                piece.waiter = Some(waiter);
                Asked::UnderWay
            }
        }
    }

    /// A piece came: who waits for it.
    pub fn waiter(&mut self, lane: Lane, index: usize) -> Option<Waiter> {
        self.receives.get_mut(&lane)?.get_mut(index)?.waiter
    }

    /// A piece came, and who waited for it has it.
    pub fn received(&mut self, lane: Lane, index: usize, bytes: Vec<u8>) {
        self.under_way -= 1;
        if let Some(piece) = self.receives.get_mut(&lane).and_then(|pieces| pieces.get_mut(index)) {
            let bytes = if self.keeps { bytes } else { Vec::new() };
            *piece = Piece { bytes: Some(bytes), waiter: None };
        }
    }

    /// The worker sends a piece with this hash; [`Asked::Done`] tells the hash of what was sent.
    pub fn send(&mut self, lane: Lane, hash: u64) -> Asked<u64> {
        let pieces = self.sends.entry(lane).or_default();
        let index = pieces.next;
        pieces.next += 1;
        if let Some(&mut before) = pieces.get_mut(index) {
            return Asked::Done(before);
        }
        self.under_way += 1;
        pieces.all.push(hash);
        Asked::New(index)
    }

    /// A piece was sent.
    pub fn sent(&mut self, lane: Lane) {
        self.under_way -= 1;
        let Some(&seq) = self.passes.get(&lane) else { return };
        if let Some(Entry { what: Some(what), .. }) = self.entries.get_mut(&seq) {
            what.owes = what.owes.saturating_sub(1);
        }
        self.close(seq);
    }

    /// True if nothing that the worker has got is unfinished.
    pub fn is_quiet(&self) -> bool {
        self.open.is_empty() && self.passes.is_empty() && self.under_way == 0 && !self.repeats()
    }

    /// True if the worker, which has got nothing new since then, will be quiet soon, as far as it
    /// can be known from how long it has been at what it does.
    pub fn is_nearly_quiet(&self, since: Instant, now: Instant) -> bool {
        let within = |since, patience| now.saturating_duration_since(since) <= patience;
        let patience = |runs: bool| if runs && !self.loads { SOON } else { PATIENT };
        within(since, patience(self.open.is_empty())) && self.open.values().all(|o| within(o.since, patience(o.runs)))
    }

    /// What it costs to keep all this.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// True while everything is kept for a replay.
    pub fn keeps(&self) -> bool {
        self.keeps
    }

    /// True after [`Journal::give_up`], until the worker is copied.
    pub fn gave_up(&self) -> bool {
        self.terms.keeps && !self.keeps
    }

    /// True if the worker must be copied before it goes on, which can't be while something is
    /// repeated.
    pub fn wants_copy(&self) -> bool {
        self.terms.keeps && !self.repeats() && (self.gave_up() || self.loads || self.bytes > self.terms.limit)
    }

    /// At a point of quiet: forgets what led there.
    pub fn forget(&mut self) {
        self.entries = self.entries.split_off(&self.sent);
        self.given.clear();
        self.entries.values_mut().for_each(|e| e.after = 0);
        (self.bytes, self.to_replay, self.given_to) = (0, 0, 0);
        (self.keeps, self.loads, self.printed) = (self.terms.keeps, false, [Printed::default(); 2]);
        self.receives.clear();
        self.sends.clear();
    }

    /// Keeps nothing for a replay until the next [`Journal::forget`]: only what it takes to tell
    /// the host of each message that is not answered that it failed. Answers that wait were
    /// [committed](Journal::commit).
    pub fn give_up(&mut self) {
        self.keeps = false;
        let had = self.sent.max(self.to_replay);
        self.entries.retain(|_, e| e.answer.is_none() || e.what.as_ref().is_some_and(|what| what.owes > 0));
        self.entries.values_mut().for_each(|e| e.after = 0);
        self.to_replay =
            self.entries.range(..had).next_back().filter(|_| self.to_replay > 0).map_or(0, |(seq, _)| seq + 1);
        self.given = Vec::new();
        (self.bytes, self.given_to, self.loads) = (0, 0, false);
        self.receives.retain(|_, pieces| pieces.drop_over());
        self.sends.retain(|_, pieces| pieces.drop_over());
        for piece in self.receives.values_mut().flat_map(|pieces| &mut pieces.all) {
            piece.bytes = piece.bytes.take().map(|_| Vec::new());
        }
    }

    /// The same for good.
    pub fn give_up_for_good(&mut self) {
        self.terms.keeps = false;
        // Nothing is printed again.
        self.printed = [Printed::default(); 2];
        self.give_up();
    }

    /// The worker is lost: from here on its copy asks and answers. Returns how many messages
    /// it will be given again.
    pub fn restart(&mut self) -> usize {
        let last = self.entries.range(..self.sent).next_back().map_or(0, |(seq, _)| seq + 1);
        self.to_replay = self.to_replay.max(last);
        self.given.fill(false);
        self.entries.values_mut().for_each(|e| e.waits = false);
        (self.sent, self.given_to) = (0, 0);
        self.open.clear();
        for pieces in self.receives.values_mut() {
            pieces.restart();
            pieces.all.iter_mut().for_each(|p| p.waiter = None);
        }
        self.sends.values_mut().for_each(Pieces::restart);
        for printed in &mut self.printed {
            printed.again = printed.bytes;
        }
        self.entries.range(..self.to_replay).count()
    }
}

/// The message that used a rank and tag is over.
fn end_lane<T>(lanes: &mut FxHashMap<Lane, Pieces<T>>, lane: Lane, keeps: bool) {
    if keeps {
        if let Some(pieces) = lanes.get_mut(&lane) {
            pieces.over = pieces.end();
        }
    } else {
        lanes.remove(&lane);
    }
}

#[cfg(test)]
mod tests {
    use super::super::hold::{Hold, Verdict};
    use super::*;
    use crate::wire::command::Writer;
    use proptest::prelude::*;

    const HOST: u32 = 9;
    const FRAGMENT: u64 = 100;

    fn journal(keeps: bool, limit: u64) -> Journal {
        with_fragment(keeps, limit, FRAGMENT)
    }

    fn with_fragment(keeps: bool, limit: u64, fragment: u64) -> Journal {
        Journal::new(Terms { keeps, limit, host: HOST, fragment })
    }

    fn message(seq: u64, queue: u32, commands: &[Command<'_>]) -> Vec<u8> {
        let mut m = Vec::new();
        Head::begin(&mut m, queue, true);
        commands.iter().for_each(|command| Writer(&mut m).push(*command));
        Head::patch(&mut m, seq, 0);
        m
    }

    const READ: Command<'_> = Command::Read { from: 0, len: 8 };
    const WAIT: Command<'_> = Command::Wait { seq: 1 };

    fn push(journal: &mut Journal, seq: u64, command: Command<'_>) {
        journal.push(seq, &message(seq, 1, &[command]));
    }

    fn send(journal: &mut Journal) {
        assert!(journal.next_message().is_some());
        journal.message_sent(Instant::now());
    }

    fn with_messages(journal: &mut Journal, n: u64) {
        for seq in 1..=n {
            push(journal, seq, READ);
            send(journal);
        }
    }

    #[test]
    fn a_replay_repeats_what_was_answered_and_answers_the_rest() {
        let mut j = journal(true, 1 << 20);
        with_messages(&mut j, 3);
        assert_eq!(j.answer(1, b"one"), Answer::New);
        assert_eq!(j.answer(9, b"nine"), Answer::Unknown);
        assert_eq!(j.unanswered().collect::<Vec<_>>(), [2, 3]);
        assert!(!j.is_quiet());
        assert_eq!(j.restart(), 3);
        for _ in 0..3 {
            send(&mut j);
        }
        assert!(j.next_message().is_none() && j.repeats());
        assert_eq!(j.answer(1, b"one"), Answer::Known);
        assert!(!j.repeats());
        assert_eq!(j.answer(3, b"three"), Answer::New);
        assert_eq!(j.answer(2, b"two"), Answer::New);
        assert!(j.is_quiet());
        j.restart();
        send(&mut j);
        assert_eq!(j.answer(1, b"another one"), Answer::Differs);
    }

    #[test]
    fn what_came_after_an_answer_comes_after_it_again() {
        let mut j = journal(true, 1 << 20);
        with_messages(&mut j, 2);
        assert_eq!(j.answer(2, b"two"), Answer::New);
        push(&mut j, 3, READ);
        send(&mut j);
        assert_eq!(j.answer(1, b"one"), Answer::New);
        j.restart();
        send(&mut j);
        send(&mut j);
        assert_eq!(j.answer(1, b"one"), Answer::Known);
        assert!(j.next_message().is_none());
        assert_eq!(j.answer(2, b"two"), Answer::Known);
        assert!(j.next_message().is_some());
    }

    #[test]
    fn there_is_no_quiet_in_the_middle_of_a_replay() {
        let mut j = journal(true, 0);
        with_messages(&mut j, 2);
        assert_eq!(j.answer(1, b"one"), Answer::Later);
        j.commit(1, xxh3_64(b"one"));
        assert_eq!(j.receive((0, 1), (1, 100)), Asked::New(0));
        j.received((0, 1), 0, b"data".to_vec());
        j.restart();
        send(&mut j);
        assert_eq!(j.answer(1, b"one"), Answer::Known);
        assert!(!j.is_quiet() && !j.wants_copy(), "the second message is still to come, and asks for the data");
        j.restart();
        assert_eq!(j.restart(), 2);
    }

    #[test]
    fn what_is_forgotten_does_not_come_back() {
        let mut j = journal(true, 200);
        with_messages(&mut j, 2);
        push(&mut j, 3, Command::Load { image: 1 });
        assert_eq!(j.answer(1, b""), Answer::New);
        assert_eq!(j.answer(2, b""), Answer::New);
        assert!(j.is_quiet() && j.wants_copy());
        j.forget();
        assert!(!j.wants_copy());
        send(&mut j);
        assert!(j.wants_copy(), "an image is loaded");
        assert_eq!(j.answer(2, b""), Answer::Unknown);
        assert_eq!(j.answer(3, b"here"), Answer::Later);
        assert!(j.is_quiet());
        assert_eq!(j.restart(), 1);
        send(&mut j);
        assert_eq!(j.answer(3, b"there"), Answer::Later);
        j.forget();
        assert_eq!(j.restart(), 0);
    }

    #[test]
    fn numbers_of_questions_are_left_out() {
        let mut j = journal(true, 1 << 20);
        push(&mut j, 3, READ);
        push(&mut j, 7, READ);
        send(&mut j);
        assert_eq!(j.answer(2, b"here"), Answer::Unknown);
        assert_eq!(j.unanswered().collect::<Vec<_>>(), [3]);
        assert_eq!(j.answer(3, b"three"), Answer::New);
        assert_eq!(j.restart(), 1);
        send(&mut j);
        assert_eq!(j.answer(3, b"three"), Answer::Known);
        assert!(j.is_quiet());
        j.forget();
        send(&mut j);
        assert_eq!(j.answer(7, b"seven"), Answer::New);
    }

    #[test]
    fn data_is_received_and_sent_once() {
        let mut j = journal(true, 1 << 20);
        with_messages(&mut j, 1);
        let lane = (4, 77);
        assert_eq!(j.receive(lane, (1, 100)), Asked::New(0));
        assert_eq!(j.receive(lane, (2, 200)), Asked::New(1));
        assert_eq!(j.waiter(lane, 0), Some((1, 100)));
        j.received(lane, 0, b"first".to_vec());
        assert_eq!(j.send((5, 1), 42), Asked::New(0));
        j.restart();
        assert_eq!(j.receive(lane, (7, 100)), Asked::Done(&b"first"[..]));
        assert_eq!(j.receive(lane, (8, 200)), Asked::UnderWay);
        assert_eq!(j.waiter(lane, 1), Some((8, 200)));
        j.received(lane, 1, b"second".to_vec());
        assert_eq!(j.send((5, 1), 43), Asked::Done(42));
        assert!(!j.is_quiet());
        j.sent((5, 1));
    }

    #[test]
    fn text_is_printed_once() {
        let mut j = journal(true, 1 << 20);
        assert_eq!(j.print(Stream::Out, b"hello "), b"hello ");
        assert_eq!(j.print(Stream::Err, b"!"), b"!");
        j.restart();
        assert_eq!(j.print(Stream::Out, b"hel"), b"");
        assert_eq!(j.print(Stream::Out, b"lo world"), b"world");
        assert_eq!(j.print(Stream::Err, b"!"), b"");
        j.restart();
        assert_eq!(j.print(Stream::Out, b"hello world\n"), b"\n");
    }

    #[test]
    fn an_image_that_is_passed_on_is_kept_until_all_have_it() {
        let image = Command::Image { image: 1, rank: HOST, tag: 50, len: 150, libraries: 1, to: [Some((3, 50)), None] };
        let mut j = journal(false, 0);
        push(&mut j, 1, image);
        send(&mut j);
        for index in 0..2 {
            assert_eq!(j.receive((HOST, 50), (1, 1)), Asked::New(index));
            j.received((HOST, 50), index, vec![7; 50]);
        }
        assert_eq!(j.send((3, 50), 0), Asked::New(0));
        assert_eq!(j.answer(1, b"one"), Answer::New);
        j.sent((3, 50));
        assert!(!j.is_quiet(), "the second piece was not asked for yet");
        j.give_up_for_good();
        assert_eq!(j.restart(), 1);
        send(&mut j);
        assert_eq!(j.receive((HOST, 50), (1, 1)), Asked::Done(&[][..]));
        assert_eq!(j.receive((HOST, 50), (1, 1)), Asked::Done(&[][..]));
        assert_eq!(j.send((3, 50), 0), Asked::Done(0));
        assert_eq!(j.send((3, 50), 0), Asked::New(1));
        assert_eq!(j.answer(1, b"failed"), Answer::Known);
        j.sent((3, 50));
        assert!(j.is_quiet() && held(&j) == 0);
    }

    #[test]
    fn a_tag_comes_again() {
        for keeps in [false, true] {
            let mut j = journal(keeps, 1 << 20);
            let lane = (HOST, 50);
            push(&mut j, 1, Command::Receive { to: 0, len: 8, rank: HOST, tag: 50 });
            send(&mut j);
            assert_eq!(j.receive(lane, (1, 1)), Asked::New(0));
            j.received(lane, 0, b"of one".to_vec());
            assert_eq!(j.answer(1, b""), Answer::New);
            push(&mut j, 2, Command::Receive { to: 0, len: 8, rank: HOST, tag: 50 });
            send(&mut j);
            let Asked::New(index) = j.receive(lane, (2, 1)) else { panic!() };
            // All that is kept is of the second one.
            j.give_up_for_good();
            assert_eq!(j.restart(), 1);
            send(&mut j);
            assert_eq!(j.receive(lane, (3, 1)), Asked::UnderWay);
            assert_eq!(j.waiter(lane, index), Some((3, 1)));
            j.received(lane, index, b"of two".to_vec());
            assert_eq!(j.receive(lane, (4, 1)), Asked::New(index + 1));
        }
    }

    #[test]
    fn nothing_is_held_back_for_a_long_region() {
        let (mut j, mut hold, begin) = (journal(true, 0), Hold::default(), Instant::now());
        let at = |ms| begin + Duration::from_millis(ms);
        push(&mut j, 1, WAIT);
        j.message_sent(at(0));
        assert_eq!(hold.judge(&j, at(50)), Verdict::Wait, "it may be a short one");
        assert_eq!(hold.judge(&j, at(101)), Verdict::GoOn);
        let mut verdicts = Vec::new();
        for ms in 102..100_000 {
            verdicts.push(hold.judge(&j, at(ms)));
        }
        assert!(!verdicts.contains(&Verdict::Wait));
        // Short ones that overlap: a pause comes soon once they are held back.
        j.answer(1, b"");
        push(&mut j, 2, WAIT);
        j.message_sent(at(400_000));
        assert_eq!(hold.judge(&j, at(400_001)), Verdict::Wait);
    }

    /// Bytes that are kept, without what it costs to have them in tables.
    fn held(j: &Journal) -> u64 {
        let messages: usize = j.entries.values().map(|e| e.message.len()).sum();
        let pieces = j.receives.values().flat_map(|p| &p.all);
        let pieces: usize = pieces.map(|p| size_of::<Piece>() + p.bytes.as_ref().map_or(0, Vec::len)).sum();
        let hashes: usize = j.sends.values().map(|p| 8 * p.all.len()).sum();
        let lanes = 48 * (j.receives.len() + j.sends.len() + j.passes.len());
        (messages + j.entries.len() * size_of::<Entry>() + pieces + hashes + lanes + j.given.len() + 64 * j.open.len())
            as u64
    }

    /// A message of the test: what it brings and sends in pieces, and how far that is.
    #[derive(Clone, Debug)]
    struct Sample {
        brings: u64,
        sends: u64,
        tag: u32,
    }

    /// A worker that does the steps of its messages in any order, and the answer of each; the
    /// other ends of its transfers.
    struct Model {
        j: Journal,
        hold: Hold,
        now: Instant,
        samples: Vec<Sample>,
        /// Of each message on the worker: pieces that it has asked for, and of these not got.
        at_work: BTreeMap<u64, (u64, u64)>,
        /// Pieces that have moved of each message, ever.
        moved: BTreeMap<u64, u64>,
        /// Answers that the host has, or waits for until a copy.
        answered: BTreeMap<u64, bool>,
        /// Transfers that go on: the message, its lane, its place, whether it is a receive.
        transfers: Vec<(u64, Lane, usize, bool)>,
        fails: bool,
        replays: u32,
    }

    impl Model {
        fn new(j: Journal) -> Model {
            Model {
                j,
                hold: Hold::default(),
                now: Instant::now(),
                samples: Vec::new(),
                at_work: BTreeMap::new(),
                moved: BTreeMap::new(),
                answered: BTreeMap::new(),
                transfers: Vec::new(),
                fails: false,
                replays: 0,
            }
        }

        fn sample(&self, seq: u64) -> &Sample {
            &self.samples[seq as usize - 1]
        }

        fn pieces(&self, seq: u64) -> (u64, u64) {
            let Sample { brings, sends, .. } = self.sample(seq);
            (brings.div_ceil(self.j.terms.fragment), sends.div_ceil(self.j.terms.fragment))
        }

        /// The data of a piece.
        fn piece(&self, seq: u64, number: u64) -> Vec<u8> {
            let len = self.j.terms.fragment.min(self.sample(seq).brings - number * self.j.terms.fragment);
            vec![(17 * seq + number) as u8; len as usize]
        }

        /// The host sends a message whose tag no one has that it has no answer to.
        fn push(&mut self, brings: u64, sends: u64) {
            let used = |tag| {
                (1..=self.samples.len() as u64)
                    .any(|s| self.answered.get(&s) != Some(&true) && self.sample(s).tag == tag)
            };
            let tag = (10..).find(|&tag| !used(tag)).unwrap();
            self.samples.push(Sample { brings, sends, tag });
            let seq = self.samples.len() as u64;
            let bytes = [7u8; 40];
            let mut commands = vec![Command::Write { to: 0, bytes: &bytes }, WAIT];
            if brings > 0 {
                commands.push(Command::Receive { to: 0, len: brings, rank: HOST, tag });
            }
            if sends > 0 {
                commands.push(Command::Send { from: 0, len: sends, rank: HOST, tag });
            }
            self.j.push(seq, &message(seq, 1, &commands));
        }

        /// As `Device::feed`.
        fn feed(&mut self) {
            if self.j.is_quiet() && self.j.wants_copy() {
                self.copied();
            }
            while self.j.next_message().is_some() {
                match self.hold.judge(&self.j, self.now) {
                    Verdict::Wait => return,
                    Verdict::Pass => {}
                    verdict => {
                        self.release();
                        if verdict == Verdict::GiveUp {
                            self.j.give_up();
                        }
                    }
                }
                let Some(message) = self.j.next_message() else { return };
                let (head, _) = Commands::open(message).unwrap();
                self.j.message_sent(self.now);
                self.at_work.insert(head.seq, (0, 0));
            }
        }

        fn release(&mut self) {
            let waiting: Vec<u64> = self.answered.iter().filter(|(_, has)| !**has).map(|(seq, _)| *seq).collect();
            for seq in waiting {
                self.j.commit(seq, xxh3_64(&seq.to_le_bytes()));
                self.answered.insert(seq, true);
            }
        }

        fn copied(&mut self) {
            assert!(self.at_work.is_empty() && self.transfers.is_empty());
            self.j.forget();
            self.hold = Hold::default();
            self.answered.values_mut().for_each(|has| *has = true);
        }

        /// The n-th message at work goes on: its next piece, or its answer.
        fn step(&mut self, n: usize) {
            let Some((&seq, &(asked, waits))) = self.at_work.iter().nth(n % self.at_work.len().max(1)) else { return };
            let ((receives, sends), lane) = (self.pieces(seq), (HOST, self.sample(seq).tag));
            let moved = self.moved.get(&seq).copied().unwrap_or(0);
            if asked < receives + sends {
                let is_receive = asked < receives;
                let place = if is_receive {
                    match self.j.receive(lane, (seq, asked)) {
                        Asked::New(place) => Some(place),
                        Asked::UnderWay => {
                            self.at_work.insert(seq, (asked + 1, waits + 1));
                            return;
                        }
                        Asked::Done(bytes) => {
                            let bytes = bytes.to_vec();
                            assert!(self.fails || bytes == self.piece(seq, asked), "its own data again");
                            None
                        }
                    }
                } else {
                    match self.j.send(lane, seq) {
                        Asked::New(place) => Some(place),
                        Asked::UnderWay => unreachable!(),
                        Asked::Done(before) => {
                            assert!(self.fails || before == seq, "its own data again");
                            None
                        }
                    }
                };
                assert_eq!(place.is_some(), asked >= moved, "each piece moves once");
                if let Some(place) = place {
                    self.moved.insert(seq, moved + 1);
                    self.transfers.push((seq, lane, place, is_receive));
                }
                self.at_work.insert(seq, (asked + 1, waits + u64::from(place.is_some() && is_receive)));
            } else if waits == 0 && !self.transfers.iter().any(|t| t.0 == seq) {
                let reply = if self.fails { Vec::new() } else { seq.to_le_bytes().to_vec() };
                let got = self.j.answer(seq, &reply);
                let before = self.answered.get(&seq).copied();
                match got {
                    Answer::New => assert_eq!(self.answered.insert(seq, true), None, "one answer each"),
                    Answer::Later => {
                        assert_ne!(before, Some(true));
                        self.answered.insert(seq, false);
                        if self.hold.is_free(self.now) {
                            self.release();
                        }
                    }
                    Answer::Known => assert_eq!(before, Some(true)),
                    other => panic!("{other:?}"),
                }
                self.at_work.remove(&seq);
            }
        }

        /// The n-th transfer ends.
        fn arrive(&mut self, n: usize) {
            if self.transfers.is_empty() {
                return;
            }
            let (seq, lane, place, is_receive) = self.transfers.remove(n % self.transfers.len());
            if !is_receive {
                return self.j.sent(lane);
            }
            // Those of one message follow each other.
            let number = (place - self.j.receives[&lane].over) as u64;
            if let Some((by, asked)) = self.j.waiter(lane, place) {
                assert_eq!((by, asked), (seq, number));
                self.at_work.get_mut(&seq).unwrap().1 -= 1;
            }
            self.j.received(lane, place, self.piece(seq, number));
        }

        /// The worker is lost, and can be replaced or not.
        fn lose(&mut self, may: bool) {
            if self.fails {
                return;
            }
            self.at_work.clear();
            self.answered.retain(|_, has| *has);
            self.hold = Hold::default();
            self.replays += 1;
            if !may || self.j.gave_up() || !self.j.keeps() {
                self.fails = true;
                self.j.give_up_for_good();
            }
            self.j.restart();
        }

        /// What may be kept: the messages that are open with their data, and what the limit and
        /// the tries in vain allow.
        fn bound(&self) -> u64 {
            let open = (1..=self.samples.len() as u64).filter(|seq| self.answered.get(seq) != Some(&true));
            let cost = |seq: u64| 1000 + self.sample(seq).brings + 100 * (self.pieces(seq).0 + self.pieces(seq).1);
            let open: u64 = open.map(cost).sum();
            if !self.j.keeps() { open } else { open + self.j.terms.limit + (16 << 20) + 40_000 }
        }
    }

    proptest! {
        #[test]
        fn every_message_is_answered_once_and_the_memory_is_bounded(
            keeps: bool,
            limit in prop::sample::select(vec![0u64, 1000, 20_000, 1 << 30]),
            steps in prop::collection::vec((0u8..12, any::<u16>(), 0u64..800), 1..600),
        ) {
            let mut model = Model::new(journal(keeps, limit));
            for (kind, n, size) in steps {
                match kind {
                    0 | 1 => model.push(if n % 3 == 0 { size } else { 0 }, if n % 4 == 0 { size } else { 0 }),
                    2 | 3 => model.arrive(n.into()),
                    4 => model.now += Duration::from_millis(size / 2),
                    5 if n % 8 == 0 => model.lose(n % 64 != 0),
                    _ => model.step(n.into()),
                }
                model.feed();
                prop_assert!(held(&model.j) <= model.bound(), "{} of {}", held(&model.j), model.bound());
            }
            // All comes to an end.
            for round in 0.. {
                model.now += Duration::from_millis(10);
                model.feed();
                model.arrive(round);
                model.step(round);
                if model.answered.len() == model.samples.len() && model.at_work.is_empty() && model.transfers.is_empty() {
                    break;
                }
                prop_assert!(round < 1_000_000, "no end");
            }
            prop_assert!(model.j.is_quiet());
            if !model.j.keeps() {
                prop_assert_eq!(held(&model.j), 0);
            }
        }

    }

    proptest! {
        // Each is several hundred messages of 100 kB.
        #![proptest_config(ProptestConfig::with_cases(10))]

        /// One message is open for ever, the others come and go in any order.
        #[test]
        fn an_open_message_keeps_no_other_one(keeps: bool, order in prop::collection::vec(any::<u16>(), 500..600)) {
            const BYTES: u64 = 100_000;
            let mut model = Model::new(with_fragment(keeps, 30 * BYTES, BYTES));
            model.push(BYTES, 0);
            let mut open = Vec::new();
            for n in order {
                model.push(BYTES, 0);
                open.push(model.samples.len() as u64);
                // At most 10 beside it.
                let seq = if open.len() > 10 { open.swap_remove(usize::from(n) % open.len()) } else { 0 };
                while seq > 0 && !model.answered.contains_key(&seq) {
                    model.now += Duration::from_millis(1);
                    model.feed();
                    if let Some(at) = model.at_work.keys().position(|s| *s == seq) {
                        model.step(at);
                    }
                    if let Some(at) = model.transfers.iter().position(|t| t.0 == seq) {
                        model.arrive(at);
                    }
                }
                let bound = if keeps { 50 * BYTES + (16 << 20) } else { 20_000 };
                prop_assert!(held(&model.j) <= bound);
            }
            prop_assert!(!model.answered.contains_key(&1) && model.j.gave_up() == keeps);
            prop_assert!(held(&model.j) <= 20_000);
        }
    }
}
