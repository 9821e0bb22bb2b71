// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The messages that one device was sent and that are not complete, by their numbers.
//!
//! A message has parts that end in any order: its answer, the program's own ends of the bulk
//! transfers that it names, and the message to another device that receives what it sends
//! there. It is complete, and forgotten, when all of them are over, whatever older messages
//! are still open.

use super::engine::Target;
use super::queue::Queue;
use super::tags::Lease;
use crate::base::limits::{FIRST_MESSAGE, IN_FLIGHT};
use std::collections::VecDeque;
use std::sync::Arc;

/// A message that was sent.
pub struct Sent {
    seq: u64,
    /// The queue that is complete only when this message is.
    pub queue: Arc<Queue>,
    /// Where the bytes of its reads go.
    pub targets: Vec<Target>,
    /// The last kernel that it runs, 0 if it runs none.
    pub kernel: u64,
    /// The tags of its bulk transfers, which nobody else may use as long as it is here.
    pub lease: Option<Arc<Lease>>,
    /// The message that this one is a part of: its port and number.
    pub part_of: Option<(usize, u64)>,
    answered: bool,
    /// Parts that are not over.
    parts: u32,
    /// One of its parts is another device's.
    is_split: bool,
}

/// What a message has besides its answer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extra {
    /// Bulk transfers of which the program is one end.
    pub transfers: u32,
    /// A message to another device.
    pub elsewhere: bool,
}

/// See the module.
pub struct Flight {
    /// The number of the next message.
    next: u64,
    /// In the order of their numbers.
    sent: VecDeque<Sent>,
    answered: u64,
    /// Empty lists of targets, for reuse.
    spares: Vec<Vec<Target>>,
}

impl Default for Flight {
    fn default() -> Self {
        Flight { next: FIRST_MESSAGE, sent: VecDeque::with_capacity(IN_FLIGHT), answered: 0, spares: Vec::new() }
    }
}

impl Flight {
    /// Adds a message and returns its number.
    pub fn push(
        &mut self,
        queue: Arc<Queue>,
        targets: Vec<Target>,
        kernel: u64,
        (lease, extra): (Option<Arc<Lease>>, Extra),
        part_of: Option<(usize, u64)>,
    ) -> u64 {
        let seq = self.next;
        self.next += 1;
        let parts = 1 + extra.transfers + u32::from(extra.elsewhere);
        let is_split = extra.elsewhere;
        self.sent.push_back(Sent { seq, queue, targets, kernel, lease, part_of, answered: false, parts, is_split });
        seq
    }

    /// An empty list of targets.
    #[inline]
    pub fn targets(&mut self) -> Vec<Target> {
        self.spares.pop().unwrap_or_default()
    }

    #[inline]
    fn position(&self, seq: u64) -> Option<usize> {
        // The common case: the oldest message.
        match self.sent.front() {
            Some(first) if first.seq == seq => Some(0),
            _ => self.sent.binary_search_by_key(&seq, |s| s.seq).ok(),
        }
    }

    /// A message that is to be answered.
    #[inline]
    pub fn unanswered(&mut self, seq: u64) -> Option<&mut Sent> {
        let i = self.position(seq)?;
        self.sent.get_mut(i).filter(|s| !s.answered)
    }

    /// The answer to a message came, and was dealt with. Returns the message if it is complete.
    #[inline]
    pub fn answer(&mut self, seq: u64) -> Option<Sent> {
        let i = self.position(seq)?;
        self.sent[i].answered = true;
        self.answered += 1;
        self.end_part_of(i)
    }

    /// Another part of a message is over. Returns the message if it is complete.
    pub fn end_part(&mut self, seq: u64) -> Option<Sent> {
        let i = self.position(seq)?;
        self.end_part_of(i)
    }

    #[inline]
    fn end_part_of(&mut self, i: usize) -> Option<Sent> {
        let sent = &mut self.sent[i];
        sent.parts -= 1;
        if sent.parts > 0 {
            return None;
        }
        let mut sent = if i == 0 { self.sent.pop_front()? } else { self.sent.remove(i)? };
        if self.spares.len() < IN_FLIGHT {
            let mut targets = std::mem::take(&mut sent.targets);
            targets.clear();
            self.spares.push(targets);
        }
        Some(sent)
    }

    /// True if message `seq`, which was sent, is complete.
    pub fn is_complete(&self, seq: u64) -> bool {
        self.position(seq).is_none()
    }

    /// True if message `seq` is not complete and another device has a part in it.
    pub fn is_split(&self, seq: u64) -> bool {
        self.position(seq).is_some_and(|i| self.sent[i].is_split)
    }

    /// How many messages were sent, and how many were answered.
    pub fn counts(&self) -> (u64, u64) {
        (self.next - FIRST_MESSAGE, self.answered)
    }

    /// The last kernel of the oldest message that runs one and is not answered.
    pub fn kernel(&self) -> Option<u64> {
        self.sent.iter().find(|s| !s.answered && s.kernel != 0).map(|s| s.kernel)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn push(flight: &mut Flight, extra: Extra) -> u64 {
        flight.push(Queue::control(0), Vec::new(), 0, (None, extra), None)
    }

    #[test]
    fn nothing_is_kept_of_messages_behind_one_that_stays_open() {
        let mut flight = Flight::default();
        let open = push(&mut flight, Extra::default());
        for _ in 0..100_000 {
            let seq = push(&mut flight, Extra::default());
            assert!(flight.answer(seq).is_some());
        }
        assert!(flight.sent.len() == 1 && flight.sent.capacity() <= 2 * IN_FLIGHT && flight.spares.len() <= IN_FLIGHT);
        assert!(!flight.is_complete(open));
    }

    proptest! {
        /// In whatever order parts end, a message is complete exactly when all of its own are over.
        #[test]
        fn a_message_is_complete_when_all_its_parts_are_over(
            extras in prop::collection::vec((0u32..3, any::<bool>()), 1..40),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 200),
        ) {
            let mut flight = Flight::default();
            let mut parts: Vec<(u64, bool)> = Vec::new();
            for (transfers, elsewhere) in extras {
                let seq = push(&mut flight, Extra { transfers, elsewhere });
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
}
