// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/trace/view.rs`.

use super::*;
use crate::plugin::messages::queue_trace::What;
use crate::plugin::messages::queue_trace::tests::trace_of;

#[test]
fn events_are_bounded_over_the_whole_run() {
    let event = |begin| TraceEvent { kind: Kind::Copy, queue: 1, seq: 1, what: 0, begin, end: begin, peer: 0, tag: 0 };
    let records = |begins: [u64; 2]| begins.map(|b| Record::Event(event(b))).to_vec();
    let mut seen = Seen::default();
    seen.add(records([2, 1]), DeviceTrace::default(), 3, |_| String::new());
    seen.add(records([4, 3]), DeviceTrace::default(), 3, |_| String::new());
    assert_eq!((seen.events, seen.dropped), ([1, 2, 3].map(event).to_vec(), 1));
}

#[test]
fn kernels_are_known_by_name_not_by_address() {
    let sum = |count| Sum { count, bytes: 0, time: 10 * count };
    let records = |count| {
        vec![
            Record::Kernel(0xa0, sum(count)),
            Record::Memory(0xa0, sum(10 * count), sum(5 * count), sum(1)),
            Record::Dropped(1),
        ]
    };
    let host = || {
        let mut device = DeviceTrace::default();
        device.take(1, &mut trace_of(&[What::Launch(0xa0)]), 9);
        device
    };
    let mut seen = Seen::default();
    seen.add(records(2), host(), 9, |_| "red".to_string());
    seen.add(records(3), host(), 9, |_| "blue".to_string());
    seen.add(records(4), DeviceTrace::default(), 9, |_| "red".to_string());
    assert_eq!((seen.names, seen.kernels), (vec!["red".to_string(), "blue".to_string()], vec![sum(6), sum(3)]));
    assert_eq!((seen.memory, seen.dropped), (vec![[sum(60), sum(30), sum(2)], [sum(30), sum(15), sum(1)]], 3));
    let launches: Vec<What> = seen.host.notes[&1].iter().map(|n| n.what).collect();
    assert_eq!(launches, [What::Launch(0), What::Launch(1)]);
}
