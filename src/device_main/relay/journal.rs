// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What a rank remembers of one of its workers since it was last copied: enough to bring the
//! copy to where the worker was. No I/O here.
//!
//! A replay gives the copy the same messages in the same order, none before it has answered
//! what the host had an answer to when it sent that one: the host may have done so for that
//! answer, and reuses memory. What the copy asks for then is what was asked before, in the
//! same order for each rank and tag: data that was received is given again, data that was
//! sent is not sent again. What it answers was answered before and must be the same, or else
//! the program would go on with a state that the answers it has do not come from.
//!
//! Questions whether the device is there have numbers like all messages, and only these are
//! here: they are answered outside of the order, and never again.

use crate::wire::command::{Command, Commands, Head};
use crate::wire::reply::Stream;
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// The least limit where nothing is kept but messages.
const SMALL: u64 = 64 << 20;

/// The rank and the tag of a transfer.
pub type Lane = (u32, u32);

/// A message from the host.
struct Entry {
    /// Empty if it is a question.
    message: Box<[u8]>,
    /// How many answers the host had before it sent this.
    after: usize,
    /// Its number among the answers, and its hash.
    answer: Option<(usize, u64)>,
    /// It has an answer that the host has not got.
    waits: bool,
    /// It changes what is loaded, which a replay might do at other addresses.
    loads: bool,
}

impl Entry {
    /// What it costs to keep.
    fn bytes(&self) -> u64 {
        (self.message.len() + size_of::<Entry>()) as u64
    }
}

/// A worker's receive of a piece, and where in the worker it goes.
pub type Waiter = (u64, u64);

struct Piece {
    /// None while it is under way.
    bytes: Option<Vec<u8>>,
    waiter: Option<Waiter>,
}

/// Pieces in the order of their requests; `next` is what the worker will ask for.
struct Pieces<T> {
    all: Vec<T>,
    next: usize,
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Pieces { all: Vec::new(), next: 0 }
    }
}

/// What printed text was passed on, and how much is to be printed again.
#[derive(Clone, Copy, Default)]
struct Printed {
    bytes: u64,
    again: u64,
}

/// See the module.
#[derive(Default)]
pub struct Journal {
    /// See [`Journal::new`].
    keeps: bool,
    limit: u64,
    bytes: u64,
    /// The number of the first entry's message.
    first: u64,
    entries: VecDeque<Entry>,
    /// How many of them the worker has got, and how many of those are not answered.
    sent: usize,
    unanswered: usize,
    /// How many a worker that was lost has got: what was asked for on their behalf stays until
    /// another one has got them too.
    to_replay: usize,
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
    /// An empty journal, which is full after `limit` bytes. If it `keeps` nothing, it is good
    /// for no more than to tell the host of every message that it failed, and there is
    /// nothing to be gained from a small one.
    pub fn new(keeps: bool, limit: u64) -> Journal {
        let limit = if keeps { limit } else { limit.max(SMALL) };
        Journal { keeps, limit, first: 1, ..Journal::default() }
    }

    /// A message of the host.
    pub fn push(&mut self, message: &[u8]) {
        let message = message.into();
        let entry = Entry { message, after: self.given.len(), answer: None, waits: false, loads: false };
        self.bytes += entry.bytes();
        self.entries.push_back(entry);
        self.pass_questions();
    }

    /// The host asks whether the device is there.
    pub fn push_question(&mut self) {
        self.push(&[]);
    }

    /// Nobody is given them from here.
    fn pass_questions(&mut self) {
        while self.entries.get(self.sent).is_some_and(|e| e.message.is_empty()) {
            self.sent += 1;
        }
    }

    /// The next message for the worker.
    pub fn next_message(&self) -> Option<&[u8]> {
        self.entries.get(self.sent).filter(|e| e.after <= self.given_to).map(|e| &*e.message)
    }

    /// The worker has got it.
    pub fn message_sent(&mut self) {
        if let Some(entry) = self.entries.get_mut(self.sent) {
            self.sent += 1;
            self.unanswered += usize::from(entry.answer.is_none());
            entry.loads = self.keeps && loads(&entry.message);
            self.loads |= entry.loads;
        }
        self.pass_questions();
    }

    /// An answer to message `seq` came.
    pub fn answer(&mut self, seq: u64, reply: &[u8]) -> Answer {
        let (keeps, limit) = (self.keeps, self.limit);
        let Some(entry) = self.entry(seq) else { return Answer::Unknown };
        // What concerns the device, as its clock, may differ.
        let is_control = Commands::open(&entry.message).is_ok_and(|(Head { queue, .. }, _)| queue == 0);
        let hash = if keeps && !is_control { xxh3_64(reply) } else { 0 };
        let answer = match entry.answer {
            None if entry.waits => Answer::Unknown,
            None => {
                let later = keeps && !is_control && (entry.loads || limit == 0);
                entry.waits = later;
                self.unanswered -= 1;
                if !later {
                    self.commit(seq, hash);
                }
                if later { Answer::Later } else { Answer::New }
            }
            Some((number, before)) => {
                self.given[number] = true;
                if before == hash { Answer::Known } else { Answer::Differs }
            }
        };
        while self.given.get(self.given_to) == Some(&true) {
            self.given_to += 1;
        }
        answer
    }

    fn entry(&mut self, seq: u64) -> Option<&mut Entry> {
        let index = seq.checked_sub(self.first).map(|i| i as usize).filter(|&i| i < self.sent)?;
        self.entries.get_mut(index).filter(|e| !e.message.is_empty())
    }

    /// The host gets the answer to message `seq`, which has this hash.
    pub fn commit(&mut self, seq: u64, hash: u64) {
        let number = self.given.len();
        if let Some(entry) = self.entry(seq) {
            (entry.answer, entry.waits) = (Some((number, hash)), false);
            // Nothing has to wait for it.
            if !self.repeats() {
                self.given_to += 1;
            }
            self.given.push(true);
        }
    }

    /// True while the worker has still to get what another one had, or to answer what is
    /// answered.
    pub fn repeats(&self) -> bool {
        self.given_to < self.given.len() || self.sent < self.to_replay
    }

    /// Messages without an answer, of those that the worker has got; the oldest first.
    pub fn unanswered(&self) -> impl Iterator<Item = u64> {
        let got = self.entries.iter().take(self.sent).enumerate();
        let open = got.filter(|(_, e)| e.answer.is_none() && !e.waits && !e.message.is_empty());
        open.map(|(i, _)| self.first + i as u64)
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
        if index == pieces.all.len() {
            self.under_way += 1;
            pieces.all.push(Piece { bytes: None, waiter: Some(waiter) });
            return Asked::New(index);
        }
        match &mut pieces.all[index] {
            Piece { bytes: Some(bytes), .. } => Asked::Done(bytes),
            piece => {
                piece.waiter = Some(waiter);
                Asked::UnderWay
            }
        }
    }

    /// A piece came: who waits for it.
    pub fn waiter(&self, lane: Lane, index: usize) -> Option<Waiter> {
        self.receives.get(&lane)?.all.get(index)?.waiter
    }

    /// A piece came, and who waited for it has it.
    pub fn received(&mut self, lane: Lane, index: usize, bytes: Vec<u8>) {
        if let Some(piece) = self.receives.get_mut(&lane).and_then(|p| p.all.get_mut(index)) {
            self.under_way -= 1;
            let bytes = if self.keeps { bytes } else { Vec::new() };
            self.bytes += bytes.len() as u64;
            *piece = Piece { bytes: Some(bytes), waiter: None };
        }
    }

    /// The worker sends a piece with this hash; [`Asked::Done`] tells the hash of what was sent.
    pub fn send(&mut self, lane: Lane, hash: u64) -> Asked<u64> {
        let pieces = self.sends.entry(lane).or_default();
        let index = pieces.next;
        pieces.next += 1;
        if let Some(&before) = pieces.all.get(index) {
            return Asked::Done(before);
        }
        self.under_way += 1;
        pieces.all.push(hash);
        Asked::New(index)
    }

    /// A piece was sent.
    pub fn sent(&mut self) {
        self.under_way -= 1;
    }

    /// True if nothing that the worker has got is unfinished.
    pub fn is_quiet(&self) -> bool {
        self.unanswered == 0 && self.under_way == 0 && !self.repeats()
    }

    /// True if there is something to forget.
    pub fn is_dirty(&self) -> bool {
        self.sent > 0
    }

    /// True if the worker must be copied before it goes on, which can't be while something is
    /// repeated.
    pub fn wants_copy(&self) -> bool {
        !self.repeats() && (self.loads || (self.is_dirty() && self.bytes > self.limit))
    }

    /// How long the worker may be kept waiting for that. Other devices may wait for what it is
    /// kept from, and it for them.
    pub fn patience(&self) -> Duration {
        // What is loaded can't be done again.
        if self.loads { Duration::from_secs(5) } else { Duration::from_millis(100) }
    }

    /// At a point of quiet: forgets what led there.
    pub fn forget(&mut self) {
        self.first += self.sent as u64;
        self.entries.drain(..self.sent);
        self.given.clear();
        self.entries.iter_mut().for_each(|e| e.after = 0);
        self.bytes = self.entries.iter().map(Entry::bytes).sum();
        (self.sent, self.to_replay, self.given_to) = (0, 0, 0);
        self.pass_questions();
        (self.loads, self.printed) = (false, [Printed::default(); 2]);
        self.receives.clear();
        self.sends.clear();
    }

    /// The worker is lost: from here on its copy asks and answers. Returns how many messages
    /// it will be given again.
    pub fn restart(&mut self) -> usize {
        self.to_replay = self.to_replay.max(self.sent);
        self.given.fill(false);
        self.entries.iter_mut().for_each(|e| e.waits = false);
        (self.sent, self.given_to, self.unanswered) = (0, 0, 0);
        self.pass_questions();
        for pieces in self.receives.values_mut() {
            pieces.next = 0;
            pieces.all.iter_mut().for_each(|p| p.waiter = None);
        }
        self.sends.values_mut().for_each(|pieces| pieces.next = 0);
        for printed in &mut self.printed {
            printed.again = printed.bytes;
        }
        self.entries.iter().take(self.to_replay).filter(|e| !e.message.is_empty()).count()
    }
}

/// True if a message changes what is loaded.
fn loads(message: &[u8]) -> bool {
    let Ok((_, mut commands)) = Commands::open(message) else { return false };
    while let Ok(Some(command)) = commands.take() {
        if matches!(
            command,
            Command::Load { .. } | Command::Move { .. } | Command::Unload { .. } | Command::Redirect { .. }
        ) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::command::Writer;

    fn message(seq: u64, queue: u32, command: Command<'_>) -> Vec<u8> {
        let mut m = Vec::new();
        Head::begin(&mut m, queue, true);
        Writer(&mut m).push(command);
        Head::patch(&mut m, seq, 0);
        m
    }

    fn with_messages(journal: &mut Journal, n: u64) {
        for seq in 1..=n {
            journal.push(&message(seq, 1, Command::Read { from: 0, len: 8 }));
            journal.message_sent();
        }
    }

    #[test]
    fn a_replay_repeats_what_was_answered_and_answers_the_rest() {
        let mut j = Journal::new(true, 1 << 20);
        with_messages(&mut j, 3);
        assert_eq!(j.answer(1, b"one"), Answer::New);
        assert_eq!(j.answer(9, b"nine"), Answer::Unknown);
        assert_eq!(j.unanswered().collect::<Vec<_>>(), [2, 3]);
        assert!(!j.is_quiet());
        assert_eq!(j.restart(), 3);
        for _ in 0..3 {
            assert!(j.next_message().is_some());
            j.message_sent();
        }
        assert!(j.next_message().is_none() && j.repeats());
        assert_eq!(j.answer(1, b"one"), Answer::Known);
        assert!(!j.repeats());
        assert_eq!(j.answer(3, b"three"), Answer::New);
        assert_eq!(j.answer(2, b"two"), Answer::New);
        assert!(j.is_quiet());
        j.restart();
        j.message_sent();
        assert_eq!(j.answer(1, b"another one"), Answer::Differs);
    }

    #[test]
    fn what_came_after_an_answer_comes_after_it_again() {
        let mut j = Journal::new(true, 1 << 20);
        with_messages(&mut j, 2);
        assert_eq!(j.answer(2, b"two"), Answer::New);
        j.push(&message(3, 5, Command::Read { from: 0, len: 8 }));
        j.message_sent();
        assert_eq!(j.answer(1, b"one"), Answer::New);
        j.restart();
        j.message_sent();
        j.message_sent();
        assert_eq!(j.answer(1, b"one"), Answer::Known);
        assert!(j.next_message().is_none());
        assert_eq!(j.answer(2, b"two"), Answer::Known);
        assert!(j.next_message().is_some());
    }

    #[test]
    fn there_is_no_quiet_in_the_middle_of_a_replay() {
        let mut j = Journal::new(true, 0);
        with_messages(&mut j, 2);
        assert_eq!(j.answer(1, b"one"), Answer::Later);
        j.commit(1, xxh3_64(b"one"));
        assert_eq!(j.receive((0, 1), (1, 100)), Asked::New(0));
        j.received((0, 1), 0, b"data".to_vec());
        j.restart();
        j.message_sent();
        assert_eq!(j.answer(1, b"one"), Answer::Known);
        assert!(!j.is_quiet() && !j.wants_copy(), "the second message is still to come, and asks for the data");
        j.restart();
        assert_eq!(j.restart(), 2);
    }

    #[test]
    fn what_is_forgotten_does_not_come_back() {
        let mut j = Journal::new(true, 200);
        with_messages(&mut j, 2);
        j.push(&message(3, 1, Command::Load { image: 1 }));
        assert_eq!(j.answer(1, b""), Answer::New);
        assert_eq!(j.answer(2, b""), Answer::New);
        assert!(j.is_quiet() && j.wants_copy());
        j.forget();
        assert!(!j.wants_copy() && !j.is_dirty());
        j.message_sent();
        assert!(j.wants_copy(), "an image is loaded");
        assert_eq!(j.answer(2, b""), Answer::Unknown);
        assert_eq!(j.answer(3, b"here"), Answer::Later);
        assert!(j.is_quiet());
        assert_eq!(j.restart(), 1);
        j.message_sent();
        assert_eq!(j.answer(3, b"there"), Answer::Later);
        j.forget();
        assert_eq!(j.restart(), 0);
    }

    #[test]
    fn questions_only_count() {
        let mut j = Journal::new(true, 1 << 20);
        with_messages(&mut j, 1);
        j.push_question();
        j.push_question();
        assert_eq!(j.answer(2, b"here"), Answer::Unknown);
        assert_eq!(j.unanswered().collect::<Vec<_>>(), [1]);
        assert_eq!(j.answer(1, b"one"), Answer::New);
        assert!(j.is_quiet() && j.next_message().is_none());
        assert_eq!(j.restart(), 1);
        j.message_sent();
        assert_eq!(j.answer(1, b"one"), Answer::Known);
        assert!(j.is_quiet());
        j.push(&message(4, 1, Command::Read { from: 0, len: 8 }));
        j.forget();
        j.message_sent();
        assert_eq!(j.answer(4, b"four"), Answer::New);
    }

    #[test]
    fn data_is_received_and_sent_once() {
        let mut j = Journal::new(true, 1 << 20);
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
        j.sent();
    }

    #[test]
    fn text_is_printed_once() {
        let mut j = Journal::new(true, 1 << 20);
        assert_eq!(j.print(Stream::Out, b"hello "), b"hello ");
        assert_eq!(j.print(Stream::Err, b"!"), b"!");
        j.restart();
        assert_eq!(j.print(Stream::Out, b"hel"), b"");
        assert_eq!(j.print(Stream::Out, b"lo world"), b"world");
        assert_eq!(j.print(Stream::Err, b"!"), b"");
        j.restart();
        assert_eq!(j.print(Stream::Out, b"hello world\n"), b"\n");
    }
}
