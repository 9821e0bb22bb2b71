// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Tests of the log and the hold: single cases, and a model of a worker that does anything in any
//! order.

use super::hold::{Hold, Verdict};
use super::messages::Terms;
use super::replay_log::{Answer, ReplayLog};
use super::*;
use crate::wire::command::{Command, Head, Operations, Writer};
use crate::wire::reply::Stream;
use crate::workers::packet::Route;
use proptest::prelude::*;
use std::collections::BTreeMap;

const HOST: u32 = 9;
const FRAGMENT: u64 = 100;
/// A limit that no single case reaches.
const LIMIT: u64 = 1 << 20;

fn replay_log(keeps: bool, limit: u64, fragment: u64) -> ReplayLog {
    ReplayLog::new(Terms { keeps, limit, host: HOST, fragment })
}

fn message(seq: u64, queue: u32, commands: &[Command<'_>]) -> Vec<u8> {
    let mut m = Vec::new();
    Head::begin(&mut m, queue, true);
    commands.iter().for_each(|command| Writer(&mut m).push(*command));
    Head::patch(&mut m, seq, 0, 0);
    m
}

const READ: Command<'_> = Command::Read { from: 0, len: 8 };
const WAIT: Command<'_> = Command::Wait { seq: 1 };

fn push(log: &mut ReplayLog, seq: u64, command: Command<'_>) {
    log.push(seq, &message(seq, 1, &[command]));
}

/// Sends the next `n` messages to the worker.
fn send(log: &mut ReplayLog, n: usize) {
    for _ in 0..n {
        assert!(log.messages.next().is_some());
        log.message_sent(Instant::now());
    }
}

/// A log whose worker has received messages 1 to `n`.
fn with_messages(limit: u64, n: u64) -> ReplayLog {
    let mut log = replay_log(true, limit, FRAGMENT);
    (1..=n).for_each(|seq| push(&mut log, seq, READ));
    send(&mut log, n as usize);
    log
}

/// The worker gives these answers, with these results.
fn answers<const N: usize>(log: &mut ReplayLog, cases: [(u64, &str, Answer); N]) {
    for (seq, reply, result) in cases {
        assert_eq!(log.answer(seq, reply.as_bytes()), result, "{reply}");
    }
}

#[test]
fn a_replay_repeats_what_was_answered_and_answers_the_rest() {
    let mut log = with_messages(LIMIT, 3);
    answers(&mut log, [(1, "one", Answer::New), (9, "nine", Answer::Unknown)]);
    assert_eq!(log.messages.oldest_open(), Some(2));
    assert!(!log.is_quiescent());
    assert_eq!(log.restart(), 3);
    send(&mut log, 3);
    assert!(log.messages.next().is_none() && log.messages.are_replayed());
    answers(&mut log, [(1, "one", Answer::Known)]);
    assert!(!log.messages.are_replayed());
    answers(&mut log, [(3, "three", Answer::New), (2, "two", Answer::New)]);
    assert!(log.is_quiescent());
    log.restart();
    send(&mut log, 1);
    answers(&mut log, [(1, "another one", Answer::Differs)]);
}

#[test]
fn what_came_after_an_answer_comes_after_it_again() {
    let mut log = with_messages(LIMIT, 2);
    answers(&mut log, [(2, "two", Answer::New)]);
    push(&mut log, 3, READ);
    send(&mut log, 1);
    answers(&mut log, [(1, "one", Answer::New)]);
    log.restart();
    send(&mut log, 2);
    answers(&mut log, [(1, "one", Answer::Known)]);
    assert!(log.messages.next().is_none());
    answers(&mut log, [(2, "two", Answer::Known)]);
    assert!(log.messages.next().is_some());
}

#[test]
fn a_worker_is_not_quiescent_in_the_middle_of_a_replay() {
    let mut log = with_messages(0, 2);
    answers(&mut log, [(1, "one", Answer::Postpone)]);
    log.commit(1, xxh3_64(b"one"));
    assert_eq!(log.bulk.receive((0, 1), (1, 100)), Asked::New(0));
    log.received((0, 1), 0, b"data".to_vec());
    log.restart();
    send(&mut log, 1);
    answers(&mut log, [(1, "one", Answer::Known)]);
    // The second message asks for the data.
    assert!(!log.is_quiescent() && !log.wants_checkpoint());
    log.restart();
    assert_eq!(log.restart(), 2);
}

#[test]
fn what_is_forgotten_does_not_come_back() {
    let mut log = with_messages(200, 2);
    push(&mut log, 3, Command::Load { image: 1 });
    answers(&mut log, [(1, "", Answer::New), (2, "", Answer::New)]);
    assert!(log.is_quiescent() && log.wants_checkpoint());
    log.checkpointed();
    assert!(!log.wants_checkpoint());
    send(&mut log, 1);
    assert!(log.wants_checkpoint(), "an image is loaded");
    answers(&mut log, [(2, "", Answer::Unknown), (3, "here", Answer::Postpone)]);
    assert!(log.is_quiescent());
    assert_eq!(log.restart(), 1);
    send(&mut log, 1);
    answers(&mut log, [(3, "there", Answer::Postpone)]);
    log.checkpointed();
    assert_eq!(log.restart(), 0);
}

#[test]
fn numbers_of_messages_may_have_gaps() {
    let mut log = with_messages(LIMIT, 0);
    push(&mut log, 3, READ);
    push(&mut log, 7, READ);
    send(&mut log, 1);
    answers(&mut log, [(2, "here", Answer::Unknown)]);
    assert_eq!(log.messages.oldest_open(), Some(3));
    answers(&mut log, [(3, "three", Answer::New)]);
    assert_eq!(log.restart(), 1);
    send(&mut log, 1);
    answers(&mut log, [(3, "three", Answer::Known)]);
    assert!(log.is_quiescent());
    log.checkpointed();
    send(&mut log, 1);
    answers(&mut log, [(7, "seven", Answer::New)]);
}

#[test]
fn data_is_received_and_sent_once() {
    let mut log = with_messages(LIMIT, 1);
    let route = (4, 77);
    assert_eq!(log.bulk.receive(route, (1, 100)), Asked::New(0));
    assert_eq!(log.bulk.receive(route, (2, 200)), Asked::New(1));
    assert_eq!(log.bulk.waiter(route, 0), Some((1, 100)));
    log.received(route, 0, b"first".to_vec());
    assert_eq!(log.send((5, 1), 42), None);
    log.restart();
    assert_eq!(log.bulk.receive(route, (7, 100)), Asked::Done(&b"first"[..]));
    assert_eq!(log.bulk.receive(route, (8, 200)), Asked::UnderWay);
    assert_eq!(log.bulk.waiter(route, 1), Some((8, 200)));
    log.received(route, 1, b"second".to_vec());
    assert_eq!(log.send((5, 1), 43), Some(42));
    assert!(!log.is_quiescent());
    log.sent((5, 1));
}

#[test]
fn text_is_printed_once() {
    let mut log = with_messages(LIMIT, 0);
    assert_eq!(log.print(Stream::Out, b"hello "), b"hello ");
    assert_eq!(log.print(Stream::Err, b"!"), b"!");
    log.restart();
    assert_eq!(log.print(Stream::Out, b"hel"), b"");
    assert_eq!(log.print(Stream::Out, b"lo world"), b"world");
    assert_eq!(log.print(Stream::Err, b"!"), b"");
    log.restart();
    assert_eq!(log.print(Stream::Out, b"hello world\n"), b"\n");
}

#[test]
fn an_image_that_is_forwarded_is_kept_until_all_have_it() {
    let image = Command::Image { image: 1, rank: HOST, tag: 50, len: 150, libraries: 1, to: [Some((3, 50)), None] };
    let mut log = replay_log(false, 0, FRAGMENT);
    push(&mut log, 1, image);
    send(&mut log, 1);
    for index in 0..2 {
        assert_eq!(log.bulk.receive((HOST, 50), (1, 1)), Asked::New(index));
        log.received((HOST, 50), index, vec![7; 50]);
    }
    assert_eq!(log.send((3, 50), 0), None);
    answers(&mut log, [(1, "one", Answer::New)]);
    log.sent((3, 50));
    assert!(!log.is_quiescent(), "the second piece was not asked for yet");
    log.give_up_for_good();
    assert_eq!(log.restart(), 1);
    send(&mut log, 1);
    assert_eq!(log.bulk.receive((HOST, 50), (1, 1)), Asked::Done(&[][..]));
    assert_eq!(log.bulk.receive((HOST, 50), (1, 1)), Asked::Done(&[][..]));
    assert_eq!(log.send((3, 50), 0), Some(0));
    assert_eq!(log.send((3, 50), 0), None);
    answers(&mut log, [(1, "failed", Answer::Known)]);
    log.sent((3, 50));
    assert!(log.is_quiescent() && log.held() == 0);
}

/// The host has the answer, and the last piece arrives while the successor still repeats the transfers.
#[test]
fn a_successor_may_answer_after_an_image_was_forwarded() {
    let image = Command::Image { image: 1, rank: HOST, tag: 50, len: 50, libraries: 1, to: [Some((3, 50)), None] };
    let mut log = replay_log(false, 0, FRAGMENT);
    push(&mut log, 1, image);
    push(&mut log, 2, READ);
    send(&mut log, 2);
    assert_eq!(log.bulk.receive((HOST, 50), (1, 1)), Asked::New(0));
    log.received((HOST, 50), 0, vec![7; 50]);
    assert_eq!(log.send((3, 50), 0), None);
    answers(&mut log, [(1, "one", Answer::New)]);
    log.give_up_for_good();
    assert_eq!(log.restart(), 2);
    push(&mut log, 3, Command::Receive { to: 0, len: 8, rank: HOST, tag: 50 });
    send(&mut log, 2);
    log.sent((3, 50));
    assert_eq!(log.bulk.receive((HOST, 50), (1, 1)), Asked::Done(&[][..]));
    assert_eq!(log.send((3, 50), 0), Some(0));
    assert!(log.messages.next().is_none(), "the route is still in use");
    answers(&mut log, [(2, "failed", Answer::New), (1, "failed", Answer::Known)]);
    send(&mut log, 1);
    assert_eq!(log.bulk.receive((HOST, 50), (3, 1)), Asked::New(0));
}

/// A worker forwards an image some pieces at a time, and does not wait for them before it answers.
#[test]
fn a_successor_may_answer_before_it_has_forwarded_an_image_again() {
    let image = Command::Image { image: 1, rank: HOST, tag: 50, len: 500, libraries: 1, to: [Some((3, 50)), None] };
    let mut log = replay_log(false, 0, FRAGMENT);
    push(&mut log, 1, image);
    send(&mut log, 1);
    for index in 0..5 {
        assert_eq!(log.bulk.receive((HOST, 50), (1, 1)), Asked::New(index));
        log.received((HOST, 50), index, vec![7; 100]);
        assert_eq!(log.send((3, 50), 0), None);
    }
    (0..4).for_each(|_| log.sent((3, 50)));
    answers(&mut log, [(1, "one", Answer::New)]);
    log.give_up_for_good();
    log.restart();
    push(&mut log, 2, Command::Send { from: 0, len: 8, rank: 3, tag: 50 });
    send(&mut log, 1);
    log.sent((3, 50));
    for _ in 0..5 {
        assert_eq!(log.bulk.receive((HOST, 50), (1, 1)), Asked::Done(&[][..]));
    }
    (0..4).for_each(|_| assert_eq!(log.send((3, 50), 0), Some(0)));
    answers(&mut log, [(1, "failed", Answer::Known)]);
    assert_eq!(log.send((3, 50), 0), Some(0), "the last piece was sent before the worker was lost");
    send(&mut log, 1);
    assert_eq!(log.send((3, 50), 0), None, "the route is the next message's");
    log.sent((3, 50));
    answers(&mut log, [(2, "failed", Answer::New)]);
    assert!(log.is_quiescent() && log.held() == 0);
}

#[test]
fn a_tag_comes_again() {
    let (route, receive) = ((HOST, 50), Command::Receive { to: 0, len: 8, rank: HOST, tag: 50 });
    for keeps in [false, true] {
        let mut log = replay_log(keeps, LIMIT, FRAGMENT);
        push(&mut log, 1, receive);
        send(&mut log, 1);
        assert_eq!(log.bulk.receive(route, (1, 1)), Asked::New(0));
        log.received(route, 0, b"of one".to_vec());
        answers(&mut log, [(1, "", Answer::New)]);
        push(&mut log, 2, receive);
        send(&mut log, 1);
        let Asked::New(index) = log.bulk.receive(route, (2, 1)) else { panic!() };
        // Only data of the second message is kept.
        log.give_up_for_good();
        assert_eq!(log.restart(), 1);
        send(&mut log, 1);
        assert_eq!(log.bulk.receive(route, (3, 1)), Asked::UnderWay);
        assert_eq!(log.bulk.waiter(route, index), Some((3, 1)));
        log.received(route, index, b"of two".to_vec());
        assert_eq!(log.bulk.receive(route, (4, 1)), Asked::New(index + 1));
    }
}

#[test]
fn nothing_is_held_back_for_a_long_region() {
    let (mut log, mut hold, begin) = (replay_log(true, 0, FRAGMENT), Hold::default(), Instant::now());
    let at = |ms| begin + Duration::from_millis(ms);
    push(&mut log, 1, WAIT);
    log.message_sent(at(0));
    assert_eq!(hold.decide(&log, at(50)), Verdict::Wait, "it may be a short one");
    assert_eq!(hold.decide(&log, at(101)), Verdict::GoOn);
    assert!((102..100_000).all(|ms| hold.decide(&log, at(ms)) != Verdict::Wait));
    // Short regions that overlap: holding them back soon makes a pause.
    log.answer(1, b"");
    push(&mut log, 2, WAIT);
    log.message_sent(at(400_000));
    assert_eq!(hold.decide(&log, at(400_001)), Verdict::Wait);
}

/// A message of the model: how many bytes it receives and sends.
struct Sample {
    brings: u64,
    sends: u64,
    tag: u32,
}

/// A worker that does the steps of its messages in any order, and the other ends of its transfers.
struct Model {
    log: ReplayLog,
    hold: Hold,
    now: Instant,
    samples: Vec<Sample>,
    /// Of each message on the worker: pieces that were asked for, and how many of them it waits for.
    at_work: BTreeMap<u64, (u64, u64)>,
    /// How many pieces of each message have ever moved.
    moved: BTreeMap<u64, u64>,
    /// Messages that were answered; true if the host has the answer, false if that waits for a
    /// checkpoint.
    answered: BTreeMap<u64, bool>,
    /// Transfers under way: message, route, place, whether the worker receives.
    transfers: Vec<(u64, Route, usize, bool)>,
    fails: bool,
}

impl Model {
    fn new(log: ReplayLog) -> Model {
        Model {
            log,
            hold: Hold::default(),
            now: Instant::now(),
            samples: Vec::new(),
            at_work: BTreeMap::new(),
            moved: BTreeMap::new(),
            answered: BTreeMap::new(),
            transfers: Vec::new(),
            fails: false,
        }
    }

    fn sample(&self, seq: u64) -> &Sample {
        &self.samples[seq as usize - 1]
    }

    fn pieces(&self, seq: u64) -> (u64, u64) {
        let Sample { brings, sends, .. } = self.sample(seq);
        (brings.div_ceil(self.log.terms.fragment), sends.div_ceil(self.log.terms.fragment))
    }

    fn piece(&self, seq: u64, number: u64) -> Vec<u8> {
        let len = self.log.terms.fragment.min(self.sample(seq).brings - number * self.log.terms.fragment);
        vec![(17 * seq + number) as u8; len as usize]
    }

    /// The host sends a message with a tag that no unanswered message has.
    fn push(&mut self, brings: u64, sends: u64) {
        let is_open = |seq: u64| self.answered.get(&seq) != Some(&true);
        let used = |tag| (1..).zip(&self.samples).any(|(seq, sample)| sample.tag == tag && is_open(seq));
        let tag = (10..).find(|&tag| !used(tag)).unwrap();
        self.samples.push(Sample { brings, sends, tag });
        let seq = self.samples.len() as u64;
        let mut commands = vec![Command::Write { to: 0, bytes: crate::wire::Bytes(&[7; 40]) }, WAIT];
        if brings > 0 {
            commands.push(Command::Receive { to: 0, len: brings, rank: HOST, tag });
        }
        if sends > 0 {
            commands.push(Command::Send { from: 0, len: sends, rank: HOST, tag });
        }
        self.log.push(seq, &message(seq, 1, &commands));
    }

    /// Does what `WorkerProxy::pump` does.
    fn pump(&mut self) {
        if self.log.is_quiescent() && self.log.wants_checkpoint() {
            self.checkpoint();
        }
        while self.log.messages.next().is_some() {
            let verdict = self.hold.decide(&self.log, self.now);
            if matches!(verdict, Verdict::GoOn | Verdict::GiveUp) {
                self.release();
            }
            if verdict == Verdict::GiveUp {
                self.log.give_up();
            }
            if verdict == Verdict::Wait {
                return;
            }
            let Some(message) = self.log.messages.next() else { return };
            let (head, _) = Operations::open(message).unwrap();
            self.log.message_sent(self.now);
            self.at_work.insert(head.seq, (0, 0));
        }
    }

    fn release(&mut self) {
        for (seq, has) in self.answered.iter_mut().filter(|(_, has)| !**has) {
            self.log.commit(*seq, xxh3_64(&seq.to_le_bytes()));
            *has = true;
        }
    }

    fn checkpoint(&mut self) {
        assert!(self.at_work.is_empty() && self.transfers.is_empty());
        self.log.checkpointed();
        self.hold = Hold::default();
        self.answered.values_mut().for_each(|has| *has = true);
    }

    /// The n-th message at work asks for its next piece, or is answered.
    fn step(&mut self, n: usize) {
        let Some((&seq, &(asked, waits))) = self.at_work.iter().nth(n % self.at_work.len().max(1)) else { return };
        let ((receives, sends), route) = (self.pieces(seq), (HOST, self.sample(seq).tag));
        let moved = self.moved.get(&seq).copied().unwrap_or(0);
        if asked < receives + sends {
            let is_receive = asked < receives;
            let place = if is_receive {
                match self.log.bulk.receive(route, (seq, asked)) {
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
                let before = self.log.send(route, seq);
                assert!(self.fails || before.is_none_or(|before| before == seq), "its own data again");
                before.is_none().then_some(0)
            };
            assert_eq!(place.is_some(), asked >= moved, "each piece moves once");
            if let Some(place) = place {
                self.moved.insert(seq, moved + 1);
                self.transfers.push((seq, route, place, is_receive));
            }
            self.at_work.insert(seq, (asked + 1, waits + u64::from(place.is_some() && is_receive)));
        } else if waits == 0 && !self.transfers.iter().any(|t| t.0 == seq) {
            let reply = if self.fails { Vec::new() } else { seq.to_le_bytes().to_vec() };
            let got = self.log.answer(seq, &reply);
            let before = self.answered.get(&seq).copied();
            match got {
                Answer::New => assert_eq!(self.answered.insert(seq, true), None, "one answer each"),
                Answer::Postpone => {
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

    /// Ends the n-th transfer.
    fn arrive(&mut self, n: usize) {
        if self.transfers.is_empty() {
            return;
        }
        let (seq, route, place, is_receive) = self.transfers.remove(n % self.transfers.len());
        if !is_receive {
            return self.log.sent(route);
        }
        // The pieces of a message have consecutive places.
        let number = (place - self.log.bulk.start_of(route)) as u64;
        if let Some((by, asked)) = self.log.bulk.waiter(route, place) {
            assert_eq!((by, asked), (seq, number));
            self.at_work.get_mut(&seq).unwrap().1 -= 1;
        }
        self.log.received(route, place, self.piece(seq, number));
    }

    /// The worker is lost. `may`: a spare is left.
    fn lose(&mut self, may: bool) {
        if self.fails {
            return;
        }
        self.at_work.clear();
        self.answered.retain(|_, has| *has);
        self.hold = Hold::default();
        if !may || self.log.gave_up() || !self.log.keeps {
            self.fails = true;
            self.log.give_up_for_good();
        }
        self.log.restart();
    }

    /// The memory that the log may take: for unanswered messages and their data, and up to the limits
    /// of the log and of failed holds.
    fn bound(&self) -> u64 {
        let open = (1..=self.samples.len() as u64).filter(|seq| self.answered.get(seq) != Some(&true));
        let cost = |seq: u64| 1000 + self.sample(seq).brings + 100 * (self.pieces(seq).0 + self.pieces(seq).1);
        let open: u64 = open.map(cost).sum();
        if !self.log.keeps { open } else { open + self.log.terms.limit + (16 << 20) + 40_000 }
    }
}

proptest! {
    #[test]
    fn every_message_is_answered_once_and_the_memory_is_bounded(
        keeps: bool,
        limit in prop::sample::select(vec![0u64, 1000, 20_000, 1 << 30]),
        steps in prop::collection::vec((0u8..12, any::<u16>(), 0u64..800), 1..600),
    ) {
        let mut model = Model::new(replay_log(keeps, limit, FRAGMENT));
        for (kind, n, size) in steps {
            match kind {
                0 | 1 => model.push(if n % 3 == 0 { size } else { 0 }, if n % 4 == 0 { size } else { 0 }),
                2 | 3 => model.arrive(n.into()),
                4 => model.now += Duration::from_millis(size / 2),
                5 if n % 8 == 0 => model.lose(n % 64 != 0),
                _ => model.step(n.into()),
            }
            model.pump();
            prop_assert!(model.log.held() <= model.bound(), "{} of {}", model.log.held(), model.bound());
        }
        // Everything finishes.
        for round in 0.. {
            model.now += Duration::from_millis(10);
            model.pump();
            model.arrive(round);
            model.step(round);
            // A replay goes on behind the last answer.
            if model.answered.len() == model.samples.len() && model.log.is_quiescent() {
                break;
            }
            prop_assert!(round < 1_000_000, "no end");
        }
        prop_assert!(model.at_work.is_empty() && model.transfers.is_empty());
        if !model.log.keeps {
            prop_assert_eq!(model.log.held(), 0);
        }
    }
}

proptest! {
    // Each case is several hundred messages of 100 kB.
    #![proptest_config(ProptestConfig::with_cases(10))]

    /// One message is never answered, the others come and go in any order.
    #[test]
    fn an_open_message_keeps_no_other_one(keeps: bool, order in prop::collection::vec(any::<u16>(), 500..600)) {
        const BYTES: u64 = 100_000;
        let mut model = Model::new(replay_log(keeps, 30 * BYTES, BYTES));
        model.push(BYTES, 0);
        let mut open = Vec::new();
        for n in order {
            model.push(BYTES, 0);
            open.push(model.samples.len() as u64);
            // At most 10 others are open.
            let seq = if open.len() > 10 { open.swap_remove(usize::from(n) % open.len()) } else { 0 };
            while seq > 0 && !model.answered.contains_key(&seq) {
                model.now += Duration::from_millis(1);
                model.pump();
                if let Some(at) = model.at_work.keys().position(|s| *s == seq) {
                    model.step(at);
                }
                if let Some(at) = model.transfers.iter().position(|t| t.0 == seq) {
                    model.arrive(at);
                }
            }
            let bound = if keeps { 50 * BYTES + (16 << 20) } else { 20_000 };
            prop_assert!(model.log.held() <= bound);
        }
        prop_assert!(!model.answered.contains_key(&1) && model.log.gave_up() == keeps);
        prop_assert!(model.log.held() <= 20_000);
    }
}

/// A process that sleeps.
fn sleeper() -> std::process::Child {
    std::process::Command::new("sleep").arg("60").spawn().unwrap()
}

#[test]
fn only_the_last_snapshot_can_take_an_order() {
    let (read, wake) = std::io::pipe().unwrap();
    let mut checkpoints = Checkpoints::new(Terms { keeps: true, limit: LIMIT, host: HOST, fragment: FRAGMENT }, wake);
    let mut processes: Vec<_> = (0..3).map(|_| sleeper()).collect();
    for process in &processes {
        checkpoints.replace(Pid::from_child(process));
    }
    assert!(checkpoints.wake(1));
    let ended: Vec<_> = processes.iter_mut().map(|process| process.try_wait().unwrap().is_some()).collect();
    assert_eq!(ended, [true, true, false]);
    checkpoints.end();
    drop(read);
}
