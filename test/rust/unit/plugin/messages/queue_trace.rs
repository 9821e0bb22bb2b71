// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/messages/queue_trace.rs`.

use super::*;

const ALL: Tracing = Tracing { on: true, trace: true, events: 100 };

pub(crate) fn trace_of(what: &[What]) -> QueueTrace {
    let mut trace = QueueTrace::default();
    what.iter().enumerate().for_each(|(i, &w)| trace.asked(i as u64, w));
    trace
}

#[test]
fn only_messages_with_something_in_them_are_noted() {
    let mut trace = trace_of(&[]);
    trace.sent(1);
    assert!(trace.notes.is_empty());
    trace.asked(5, What::Submit(4));
    trace.sent(2);
    trace.sent(3);
    trace.waited((6, 9), (3, true), false, &ALL);
    trace.sent(4);
    let all: Vec<What> = trace.notes.iter().map(|n| n.what).collect();
    assert_eq!(all, [What::Submit(4), What::Sent(2), What::Wait { end: 9, seq: 3, by_reply: true }]);
}

#[test]
fn a_device_keeps_a_limited_number_and_counts_the_others() {
    let mut device = DeviceTrace::default();
    let mut trace = trace_of(&[What::Submit(1); 6]);
    trace.waited((10, 30), (1, true), true, &Tracing { trace: false, ..ALL });
    device.take(3, &mut trace, 8);
    assert!(trace.notes.is_empty());
    device.take(4, &mut trace_of(&[What::Submit(2); 6]), 8);
    let all = device.take_all();
    assert_eq!((all.notes[&3].len(), all.notes[&4].len(), all.dropped), (6, 2, 4));
    assert_eq!(all.waits, Sum { count: 1, bytes: 0, time: 20 });
    device.take(3, &mut trace_of(&[What::Load]), 8);
    assert_eq!((device.notes[&3].len(), device.dropped), (0, 1));
}
