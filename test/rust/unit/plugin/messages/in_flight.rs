// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/messages/in_flight.rs`.

use super::*;
use crate::plugin::messages::batch::ExtraParts;
use proptest::prelude::*;

fn push(flight: &mut InFlight, extra: ExtraParts) -> u64 {
    flight.push(Queue::control(0), Awaited { extra, ..Awaited::default() }, None)
}

#[test]
fn nothing_is_kept_of_messages_behind_one_that_stays_open() {
    let mut flight = InFlight::default();
    let open = push(&mut flight, ExtraParts::default());
    for _ in 0..100_000 {
        let seq = push(&mut flight, ExtraParts::default());
        assert!(flight.answer(seq).is_some());
    }
    assert!(flight.sent.len() == 1 && flight.sent.capacity() <= 2 * IN_FLIGHT && flight.pool.len() <= IN_FLIGHT);
    assert!(!flight.is_complete(open));
}

#[test]
fn a_device_does_not_know_of_a_shared_read_in_an_earlier_message() {
    let (mut flight, queue, other) = (InFlight::default(), Queue::control(0), 1);
    let source = Source::Shared { here: std::ptr::null(), device: 0 };
    let reads = vec![PendingRead { to: std::ptr::null_mut(), len: 0, source }];
    let first = flight.push(queue.clone(), Awaited { reads, ..Awaited::default() }, None);
    let second = flight.push(queue.clone(), Awaited::default(), None);
    let message = |seq, queue| QueueMessage { id: MessageId { port: 0, seq }, queue };
    assert!(flight.ends_elsewhere(message(first, queue.id)) && flight.ends_elsewhere(message(second, queue.id)));
    assert!(!flight.ends_elsewhere(message(second, other)));
    assert!(flight.answer(first).is_some() && !flight.ends_elsewhere(message(second, queue.id)));
}

proptest! {
    /// In whatever order parts end, a message is complete exactly when all of its own parts are over.
    #[test]
    fn a_message_is_complete_when_all_its_parts_are_over(
        extras in prop::collection::vec((0u32..3, any::<bool>()), 1..40),
        picks in prop::collection::vec(any::<prop::sample::Index>(), 200),
    ) {
        let mut flight = InFlight::default();
        let mut parts: Vec<(u64, bool)> = Vec::new();
        for (transfers, elsewhere) in extras {
            let seq = push(&mut flight, ExtraParts { transfers, elsewhere });
            parts.push((seq, true));
            parts.extend((0..transfers + u32::from(elsewhere)).map(|_| (seq, false)));
        }
        let mut picks = picks.into_iter().cycle();
        while !parts.is_empty() {
            let (seq, is_answer) = parts.swap_remove(picks.next().unwrap().index(parts.len()));
            prop_assert!(!flight.is_complete(seq));
            prop_assert_eq!(flight.unanswered(seq).is_some(), is_answer || parts.contains(&(seq, true)));
            let complete = if is_answer { flight.answer(seq) } else { flight.end_part(seq) };
            let is_last = parts.iter().all(|p| p.0 != seq);
            prop_assert_eq!(complete.is_some(), is_last);
            prop_assert_eq!(flight.is_complete(seq), is_last);
        }
        let (sent, answered) = flight.counts();
        prop_assert!(sent == answered && flight.sent.is_empty());
    }
}
