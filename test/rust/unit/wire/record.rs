// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/wire/record.rs`.

use super::*;
use proptest::prelude::*;

proptest! {
    #[test]
    fn what_is_written_is_read(n: u64, begin in 0u64..1 << 60, time in 0u64..1 << 60, kind in 1u8..12, a: u32, way in 0..Direction::ALL.len()) {
        let event = TraceEvent {
            kind: Reader(&[kind]).take().unwrap(), queue: a, seq: n, what: !n, begin, end: begin + time, peer: !a, tag: a / 3,
        };
        let sum = Sum { count: n / 2, bytes: n / 3, time };
        let all = [
            Record::Event(event), Record::Kernel(n, sum), Record::Moved(Direction::ALL[way], sum), Record::Dropped(n),
            Record::Memory(n, sum, Sum::default(), sum),
        ];
        let mut message = Vec::new();
        for record in &all {
            let before = message.len();
            record.write(&mut message);
            prop_assert!(message.len() - before <= RECORD_MAX);
        }
        let mut rest = Records(&message);
        for record in all {
            prop_assert_eq!(rest.take().unwrap(), Some(record));
        }
        prop_assert_eq!(rest.take().unwrap(), None);
    }
}

#[test]
fn nonsense_is_refused() {
    let mut message = Vec::new();
    let event = TraceEvent { kind: Kind::Copy, queue: 1, seq: 2, what: 3, begin: 5, end: 4, peer: 0, tag: 0 };
    Record::Event(event).write(&mut message);
    assert!(Records(&message).take().is_err(), "time goes back");
    for bytes in [&[6][..], &[1, 0], &[1, 12], &[3, 0, 0], &[3, 8, 0], &[4, 1]] {
        assert!(Records(bytes).take().is_err(), "{bytes:?}");
    }
}

#[test]
fn ways_stand_at_their_places() {
    assert!(Direction::ALL.iter().enumerate().all(|(i, &way)| way as usize == i + 1));
}
