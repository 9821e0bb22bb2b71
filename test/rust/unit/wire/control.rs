// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/wire/control.rs`.

use super::*;
use crate::wire::command::{COMMAND_MAX, CONTROL, Head, Operations, Writer};
use proptest::prelude::*;

fn every_operation(n: u64, bytes: &[u8]) -> Vec<Control<'_>> {
    let (a, more) = (n as u32, n.is_multiple_of(2));
    let answers = [
        Answer::Pages { at: n, same: n, more, bytes: Bytes(bytes) },
        Answer::PagesAside { at: n, same: !n, more, len: a % MEMORY_PIECE as u32 + 1 },
        Answer::Function { is_exported: more, name: Bytes(bytes) },
        Answer::Taken,
        Answer::Merged { at: n, others: !n },
        Answer::Refuse { why: Bytes(bytes) },
    ];
    let others = [
        Control::Start { at: n, len: !n, beginning: 5, shared: SharedFile { pid: 7, descriptor: 8, nonce: n, len: 9 } },
        Control::Number { device: a },
        Control::Streams { input: n, output: !n, errors: n / 2 },
        Control::Preload { libraries: Bytes(bytes) },
        Control::Share { at: n, len: !n, offset: n / 2 },
        Control::Discard { at: n, len: !n },
        Control::Trace { events: n },
        Control::Clock,
        Control::Recall,
        Control::Printed { bytes: n },
        Control::Shutdown,
    ];
    answers.map(Control::Answer).into_iter().chain(others).collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read(n: u64, bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut message = Vec::new();
        Head::begin(&mut message, CONTROL, true);
        Head::patch(&mut message, 1, 0, 0);
        let operations = every_operation(n, &bytes);
        for operation in &operations {
            let before = message.len();
            Writer(&mut message).push(*operation);
            let data = match operation {
                Control::Preload { .. } | Control::Answer(_) => bytes.len(),
                _ => 0,
            };
            prop_assert!(message.len() - before <= COMMAND_MAX + data);
        }
        let (_, mut rest) = Operations::open(&message).unwrap();
        for operation in operations {
            prop_assert_eq!(rest.take().unwrap(), Some(operation));
        }
        prop_assert_eq!(rest.take::<Control<'_>>().unwrap(), None);
    }

    #[test]
    fn a_piece_of_memory_has_a_length(at: u64, len in prop::sample::select(vec![0, MEMORY_PIECE as u32 + 1, u32::MAX])) {
        let mut message = Vec::new();
        Head::begin(&mut message, CONTROL, true);
        Head::patch(&mut message, 1, 0, 0);
        Writer(&mut message).push(Control::Answer(Answer::PagesAside { at, same: 0, more: false, len }));
        prop_assert!(Operations::open(&message).unwrap().1.take::<Control<'_>>().is_err());
    }
}
