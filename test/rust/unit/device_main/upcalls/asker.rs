// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/upcalls/asker.rs`, with a program that is a list of answers.

use super::*;
use crate::device_main::crash::board::CrashBoard;
use crate::link::backoff::BackoffPolicy;
use crate::link::doorbell::Doorbells;
use crate::link::{Inbox, Link, Transport};
use crate::mpi::{Received, Request};
use crate::wire::reply::Known;
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

const HOST: usize = 0;
const PAGE: u64 = 4096;
const AT: u64 = 0x1000_0000;

/// A piece that was fetched: where, how many bytes are as before, how many others there are, and the first of these.
type Got = (u64, u64, usize, Option<u8>);

#[derive(Default)]
struct Wire {
    /// Bulk data that the program sends, in order.
    to_device: VecDeque<Vec<u8>>,
    /// Bytes of each piece of bulk data that the device has sent.
    to_program: Vec<usize>,
    /// Messages that the device has sent.
    messages: usize,
    /// Receives of bulk data, by their numbers.
    receives: BTreeMap<u64, (usize, usize)>,
    requests: u64,
}

struct End(Arc<Mutex<Wire, { order::LEAF }>>);

impl Wire {
    fn request(&mut self) -> Request {
        self.requests += 1;
        Request(self.requests)
    }
}

impl Transport for End {
    unsafe fn send(&mut self, _: usize, tag: u32, _: *const u8, len: usize) -> Result<Request> {
        let mut wire = self.0.lock();
        match tag {
            TAG_MEMORY => wire.to_program.push(len),
            _ => wire.messages += 1,
        }
        Ok(wire.request())
    }

    unsafe fn receive(&mut self, _: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
        let mut wire = self.0.lock();
        let request = wire.request();
        // No message arrives this way.
        let room = if tag == TAG_MEMORY { (data as usize, len) } else { (0, 0) };
        wire.receives.insert(request.0, room);
        Ok(request)
    }

    unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        let mut wire = self.0.lock();
        let Some(&(to, room)) = wire.receives.get(&request.0) else { return Ok(Some(Received { from: 1, len: 0 })) };
        let Some(bytes) = (room > 0).then(|| wire.to_device.pop_front()).flatten() else { return Ok(None) };
        wire.receives.remove(&request.0);
        assert!(bytes.len() <= room);
        // SAFETY: the receiver has promised this room.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to as *mut u8, bytes.len()) };
        Ok(Some(Received { from: HOST, len: bytes.len() }))
    }

    unsafe fn cancel(&mut self, request: Request) {
        self.0.lock().receives.remove(&request.0);
    }

    fn finish(&mut self) {}

    fn abort(&mut self, code: i32) -> ! {
        panic!("aborted with {code}")
    }
}

struct Device {
    host: Host,
    wire: Arc<Mutex<Wire, { order::LEAF }>>,
    answers: Answers,
    staging: Staging,
}

impl Device {
    fn new() -> Device {
        let wire = Arc::default();
        let end = Box::new(End(Arc::clone(&wire)));
        let link = Link::new(end, usize::MAX, Doorbells::new(None, Vec::new(), 0), Vec::new()).unwrap();
        let quit: fn(i32) -> ! = |code| panic!("quit with {code}");
        let null = File::options().write(true).open("/dev/null").unwrap();
        let host = Host::new(link, (HOST, None), BackoffPolicy::ALONE, (CrashBoard::new().unwrap(), null), quit);
        Device { host, wire, answers: Answers::default(), staging: Staging::default() }
    }

    /// Asks a program that gives these answers. All of them must be taken.
    fn ask<R>(&self, answers: impl IntoIterator<Item = Arrival>, ask: impl FnOnce(&Asker<'_>) -> R) -> R {
        answers.into_iter().for_each(|answer| self.answers.arrive(answer));
        let drive = || {
            let mut inbox = Inbox::default();
            self.host.link().drive(&mut inbox).unwrap();
            for (completion, result) in inbox.completed.drain(..) {
                if let Completion::Memory(at, bytes) = completion {
                    self.answers.arrive(Arrival::Bulk { at, bytes: result.map(|()| bytes) });
                }
            }
        };
        let asker = Asker { host: &self.host, answers: &self.answers, staging: &self.staging, drive: &drive };
        let result = ask(&asker);
        assert!(self.answers.arrived.lock().is_empty());
        result
    }

    /// Fetches memory: its pieces as they come.
    fn fetch(&self, answers: impl IntoIterator<Item = Arrival>) -> (Vec<Got>, Result<()>) {
        let mut pieces = Vec::new();
        let mut piece = |Piece { at, same, bytes }: Piece<'_>| {
            pieces.push((at, same, bytes.len(), bytes.first().copied()));
            Ok(())
        };
        let result = self.ask(answers, |asker| asker.fetch(&[(AT..AT + (1 << 20), Known(&[]))], &mut piece));
        (pieces, result)
    }

    fn send_range(&self, answers: impl IntoIterator<Item = Arrival>, len: usize) -> Result<Vec<Range<u64>>> {
        let (new, old) = (vec![1; len], vec![0; len]);
        self.ask(answers, |asker| asker.send_range(7, AT, &new, &old))
    }

    fn send_bulk(&self, pieces: impl IntoIterator<Item = Vec<u8>>) {
        self.wire.lock().to_device.extend(pieces);
    }
}

fn pages(at: u64, value: u8, more: bool) -> Arrival {
    Arrival::Pages { at, same: 0, bytes: vec![value; PAGE as usize], more }
}

fn aside(at: u64, same: u64, len: usize, more: bool) -> Arrival {
    Arrival::PagesAside { at, same, len, more }
}

fn merged(at: u64, others: u64) -> Arrival {
    Arrival::Merged { at, others }
}

#[test]
fn pieces_come_in_order_whether_they_are_messages_or_bulk_data() {
    let device = Device::new();
    let len = 3 * PAGE as usize;
    device.send_bulk([vec![2; len], vec![4; len]]);
    let behind = AT + 2 * PAGE + len as u64;
    let answers = [
        pages(AT, 1, true),
        aside(AT + PAGE, PAGE, len, true),
        pages(behind, 3, true),
        aside(behind + PAGE, 0, len, false),
    ];
    let (pieces, result) = device.fetch(answers);
    result.unwrap();
    let page = PAGE as usize;
    let expected = [
        (AT, 0, page, Some(1)),
        (AT + PAGE, PAGE, len, Some(2)),
        (behind, 0, page, Some(3)),
        (behind + PAGE, 0, len, Some(4)),
    ];
    assert_eq!(pieces, expected);
    assert_eq!(device.wire.lock().messages, 1);
}

#[test]
fn an_answer_that_fails_is_taken_to_its_end() {
    let device = Device::new();
    let len = PAGE as usize;
    // The program refuses the rest, or answers something else: the bulk data that is under way belongs to no later
    // request.
    for (last, why) in [
        (Arrival::Refused("gone".into()), "gone"),
        (Arrival::Taken, "something else"),
        (merged(AT, 0), "something else"),
    ] {
        device.send_bulk([vec![1; len]]);
        let (pieces, result) = device.fetch([aside(AT, 0, len, true), last]);
        assert!(result.unwrap_err().to_string().contains(why));
        assert!(pieces.len() == 1 && device.wire.lock().to_device.is_empty());
    }
    let (pieces, result) = device.fetch([pages(AT, 5, false)]);
    result.unwrap();
    assert_eq!(pieces.len(), 1);
    // A piece that can't be stored.
    device.send_bulk([vec![1; len]]);
    let mut calls = 0;
    let mut piece = |_: Piece<'_>| {
        calls += 1;
        Err(Error::new("no room"))
    };
    let answers = [pages(AT, 1, true), aside(AT + PAGE, 0, len, false)];
    let result = device.ask(answers, |asker| asker.fetch(&[(AT..AT + 2 * PAGE, Known(&[]))], &mut piece));
    assert!(result.unwrap_err().to_string().contains("no room"));
    assert_eq!((calls, device.wire.lock().to_device.len()), (1, 0));
}

#[test]
fn ranges_that_are_asked_for_at_once_are_answered_in_turn() {
    let device = Device::new();
    let len = PAGE as usize;
    let behind = |n: u64| AT + n * (1 << 20);
    device.send_bulk([vec![2; len]]);
    // More than may be under way. The program has nothing of the second one, and refuses the third one.
    let ranges: Vec<_> = (0..MEMORY_ASKED as u64 + 3).map(|n| (behind(n)..behind(n) + PAGE, Known(&[]))).collect();
    let answers = (0..ranges.len() as u64).map(|n| match n {
        0 => aside(behind(n), 0, len, false),
        1 => Arrival::Nothing,
        2 => Arrival::Refused("gone".into()),
        n => pages(behind(n), n as u8, false),
    });
    let mut got = Vec::new();
    let result = device.ask(answers, |asker| {
        asker.fetch(&ranges, &mut |Piece { at, .. }| {
            got.push(at);
            Ok(())
        })
    });
    assert!(result.unwrap_err().to_string().contains("gone"));
    let is_sent = |&at: &u64| at != behind(1) && at != behind(2);
    let expected: Vec<_> = ranges.iter().map(|(range, _)| range.start).filter(is_sent).collect();
    assert_eq!((got, device.wire.lock().messages), (expected, ranges.len()));
}

#[test]
fn bulk_data_that_is_lost_is_an_error() {
    let device = Device::new();
    let lost = Arrival::Bulk { at: AT, bytes: Err(Error::new("lost")) };
    let (pieces, result) = device.fetch([aside(AT, 0, PAGE as usize, true), lost, pages(AT + PAGE, 1, false)]);
    assert!(pieces.is_empty() && result.unwrap_err().to_string().contains("lost"));
}

#[test]
fn addresses_that_make_no_sense_are_passed_on() {
    let device = Device::new();
    let len = PAGE as usize;
    device.send_bulk([vec![1; len]]);
    let (pieces, result) = device.fetch([aside(u64::MAX, u64::MAX, len, true), pages(u64::MAX, 2, false)]);
    result.unwrap();
    assert_eq!(pieces, [(u64::MAX, u64::MAX, len, Some(1)), (u64::MAX, 0, len, Some(2))]);
}

#[test]
fn other_answers_than_asked_for_are_errors() {
    let device = Device::new();
    let old = || SharedFile { pid: 1, descriptor: 2, nonce: 3, len: 4 };
    let offer = |answer| device.ask([answer], |asker| asker.offer_changes(7, AT, &[1], old()));
    assert!(offer(Arrival::Taken).unwrap());
    assert!(!offer(Arrival::Nothing).unwrap() && !offer(Arrival::Refused("lost".into())).unwrap());
    assert!(offer(merged(AT, 0)).is_err());
    let find = |answer| device.ask([answer], |asker| asker.function(AT));
    let function = Function { symbol: "f".into(), is_exported: true };
    assert_eq!(find(Arrival::Function(function)).unwrap().unwrap().symbol, "f");
    assert!(find(Answer::NOTHING.into()).unwrap().is_none());
    assert!(find(Arrival::Refused("none".into())).unwrap_err().to_string().contains("none"));
    assert!(find(Arrival::Taken).is_err());
}

#[test]
fn blocks_that_the_program_does_not_take_over_are_returned() {
    let device = Device::new();
    let piece = memory_piece(usize::MAX).unwrap();
    let at = |n: usize| AT + (n * piece) as u64;
    let block = BLOCK as u64;
    let rest = 100;
    // The last piece ends in a block of 100 bytes.
    let answers = [merged(at(0), 0b10), merged(at(1), 0), merged(at(2), 1)];
    assert_eq!(
        device.send_range(answers, 2 * piece + BLOCK + rest).unwrap(),
        [AT + block..AT + 2 * block, at(2)..at(2) + block]
    );
    assert_eq!(std::mem::take(&mut device.wire.lock().to_program), [piece, piece, BLOCK + rest]);
    let others = device.send_range([merged(AT, 0b10)], BLOCK + rest).unwrap();
    assert!(others.into_iter().eq(std::iter::once(AT + block..AT + block + rest as u64)));
    if MEMORY_AHEAD > 1 {
        // They may come in any order.
        let others = device.send_range([merged(at(1), 1), merged(at(0), 0)], 2 * piece).unwrap();
        assert!(others.into_iter().eq(std::iter::once(at(1)..at(1) + block)));
    }
}

#[test]
fn nothing_more_is_sent_once_all_of_a_piece_is_refused() {
    let device = Device::new();
    let piece = memory_piece(usize::MAX).unwrap();
    let at = |n: usize| AT + (n * piece) as u64;
    let all = (1 << (piece / BLOCK)) - 1;
    let sent = MEMORY_AHEAD;
    let answers = (0..sent).map(|n| merged(at(n), if n == 0 { all } else { 0 }));
    let others = device.send_range(answers, (sent + 2) * piece).unwrap();
    assert_eq!(device.wire.lock().to_program.len(), sent);
    let first = (at(0)..at(1)).step_by(BLOCK).map(|at| at..at + BLOCK as u64);
    assert!(others.into_iter().eq(std::iter::once(at(sent)..at(sent + 2)).chain(first)));
}

#[test]
fn damaged_answers_to_changes_are_errors() {
    let piece = memory_piece(usize::MAX).unwrap();
    let last = AT + piece as u64;
    // Of another piece, with more blocks than there are, or something else.
    for damaged in [merged(AT + 1, 0), merged(AT, 1 << (piece / BLOCK)), merged(AT, 1 << 63), Arrival::Taken] {
        let device = Device::new();
        // What was sent by then is still answered.
        let others = Some(merged(last, 0)).filter(|_| MEMORY_AHEAD > 1);
        assert!(device.send_range([damaged].into_iter().chain(others), piece + 8).is_err());
    }
}

#[test]
fn an_answer_does_not_wait_for_the_thread_that_sleeps() {
    let answers = Answers::default();
    std::thread::scope(|scope| {
        scope.spawn(|| answers.wait(|| {}));
        std::thread::sleep(10 * POLLS);
        // The receiver finds the lock free, nearly always.
        let is_free = |_: &u32| {
            std::thread::sleep(SLEEP);
            answers.arrived.try_lock().is_some()
        };
        let free = (0..100).filter(is_free).count();
        answers.arrive(Arrival::Taken);
        assert!(free > 50, "{free} of 100");
    });
}
