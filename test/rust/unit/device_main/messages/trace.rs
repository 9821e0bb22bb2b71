// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/messages/trace.rs`.

use super::*;
use crate::wire::record::Records;

const HEAD: Head = Head { seq: 7, queue: 3, fresh: false, core: 0, merged: 0 };

fn traced(events: u64) -> (Trace, Box<MessageTrace>) {
    let trace = Trace::default();
    trace.begin(events);
    let message = trace.message().unwrap();
    (trace, message)
}

fn all(trace: &Trace) -> Vec<Record> {
    let mut records = Vec::new();
    loop {
        let mut message = vec![4];
        let left = trace.recall(&mut message);
        assert!(message.len() <= MESSAGE_MAX);
        let mut rest = Records(&message[1..]);
        while let Some(record) = rest.take().unwrap() {
            records.push(record);
        }
        if left == 0 {
            return records;
        }
    }
}

#[test]
fn nothing_is_traced_unless_asked_for() {
    assert!(Trace::default().message().is_none());
}

#[test]
fn a_region_is_summed_up_and_reported_once() {
    let (trace, mut message) = traced(100);
    message.enter();
    for len in [3, 4] {
        message.take_up(&trace, &Command::Write { to: 0, bytes: Bytes(&[0; 8][..len]) });
    }
    message.take_up(&trace, &Command::Wait { seq: 1 });
    let begin = message.start();
    for (kind, bytes) in [(Kind::Fetch, 4096), (Kind::Fetch, 65536), (Kind::Confirm, 8192), (Kind::Change, 8)] {
        message.exchanged(&trace, HEAD, 0xa0, Exchange { kind, bytes, begin: begin + 2, end: begin + 5 });
    }
    message.done(&trace, HEAD, Kind::Kernel, 0xa0, (begin, begin + 10));
    message.take_up(&trace, &Command::Read { from: 0, len: 5 });
    message.settle();
    message.finish(&trace, HEAD);
    let records = all(&trace);
    let kernel = |r: &Record| matches!(r, Record::Kernel(0xa0, Sum { count: 1, time: 10, .. }));
    let written = |r: &Record| matches!(r, Record::Moved(Direction::ToDevice, Sum { count: 2, bytes: 7, .. }));
    let read = |r: &Record| matches!(r, Record::Moved(Direction::ToHost, Sum { count: 1, bytes: 5, .. }));
    assert!(records.iter().any(kernel) && records.iter().any(written) && records.iter().any(read));
    let (fetched, changed) = (Sum { count: 2, bytes: 69632, time: 6 }, Sum { count: 1, bytes: 8, time: 3 });
    let unchanged = Sum { count: 1, bytes: 8192, time: 3 };
    assert!(records.contains(&Record::Memory(0xa0, fetched, unchanged, changed)));
    let events = records.iter().filter_map(|r| if let Record::Event(e) = r { Some(e) } else { None });
    let events: Vec<&TraceEvent> = events.collect();
    let of = |kind| *events.iter().find(|e| e.kind == kind).unwrap();
    let (message, kernel) = (of(Kind::Message), of(Kind::Kernel));
    assert!(message.begin <= kernel.begin && message.end >= kernel.end);
    assert_eq!((events.len(), kernel.queue, kernel.seq), (6, 3, 7));
    assert!(all(&trace).is_empty());
}

#[test]
fn events_beyond_the_limit_are_counted_and_sums_are_not_cut() {
    let (trace, mut message) = traced(2000);
    for i in 0..5000 {
        message.done(&trace, HEAD, Kind::Kernel, 1 + i % 3, (i, i + 1));
    }
    message.finish(&trace, HEAD);
    let records = all(&trace);
    let events = records.iter().filter(|r| matches!(r, Record::Event(_))).count();
    assert_eq!((events, records.contains(&Record::Dropped(3001))), (2000, true));
    let runs = |r: &Record| if let Record::Kernel(_, sum) = r { sum.count } else { 0 };
    assert_eq!(records.iter().map(runs).sum::<u64>(), 5000);
}

#[test]
fn without_room_for_events_only_sums_are_kept() {
    let (trace, mut message) = traced(0);
    trace.message().unwrap().done(&trace, HEAD, Kind::Kernel, 1, (1, 2));
    message.done(&trace, HEAD, Kind::Kernel, 1, (1, 2));
    message.finish(&trace, HEAD);
    assert_eq!(all(&trace), [Record::Kernel(1, Sum { count: 1, bytes: 0, time: 1 })]);
}
