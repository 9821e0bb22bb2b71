// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The incomplete messages that were sent to one device, by number.
//!
//! A message has parts that end in any order: its answer, the program's own ends of the bulk
//! transfers that it names, and the message that makes another device receive what it sends. The
//! message is complete, and removed, when all parts have ended, even if older messages are still open.

use super::batch::{Awaited, PendingRead, Source};
use super::queue::{MessageId, Queue, QueueMessage};
use crate::base::limits::{FIRST_MESSAGE, IN_FLIGHT};
use std::collections::VecDeque;
use std::sync::Arc;

pub(crate) struct SentMessage {
    seq: u64,
    /// The queue that is complete only when this message is.
    pub(crate) queue: Arc<Queue>,
    pub(crate) awaited: Awaited,
    /// The message that this one is a part of.
    pub(crate) part_of: Option<MessageId>,
    answered: bool,
    /// The number of parts that have not ended.
    parts: u32,
}

/// The incomplete messages, and counts of all messages.
pub(crate) struct InFlight {
    next: u64,
    /// In the order of their numbers.
    sent: VecDeque<SentMessage>,
    answered: u64,
    /// Empty lists of reads, for reuse.
    pub(super) pool: Vec<Vec<PendingRead>>,
}

impl Default for InFlight {
    fn default() -> Self {
        InFlight { next: FIRST_MESSAGE, sent: VecDeque::new(), answered: 0, pool: Vec::new() }
    }
}

impl InFlight {
    pub(crate) fn push(&mut self, queue: Arc<Queue>, awaited: Awaited, part_of: Option<MessageId>) -> u64 {
        let seq = self.next;
        self.next += 1;
        let parts = 1 + awaited.extra.transfers + u32::from(awaited.extra.elsewhere);
        self.sent.push_back(SentMessage { seq, queue, awaited, part_of, answered: false, parts });
        seq
    }

    #[inline]
    fn position(&self, seq: u64) -> Option<usize> {
        // Usually it is the oldest message.
        match self.sent.front() {
            Some(first) if first.seq == seq => Some(0),
            _ => self.sent.binary_search_by_key(&seq, |s| s.seq).ok(),
        }
    }

    #[inline]
    pub(crate) fn unanswered(&self, seq: u64) -> Option<&SentMessage> {
        self.position(seq).map(|i| &self.sent[i]).filter(|s| !s.answered)
    }

    /// Marks a message as answered. Returns the message if that completes it.
    #[inline]
    pub(crate) fn answer(&mut self, seq: u64) -> Option<SentMessage> {
        let i = self.position(seq)?;
        self.sent[i].answered = true;
        self.answered += 1;
        self.end_part_of(i)
    }

    /// Ends a part of a message other than its answer. Returns the message if that completes it.
    pub(crate) fn end_part(&mut self, seq: u64) -> Option<SentMessage> {
        let i = self.position(seq)?;
        self.end_part_of(i)
    }

    #[inline]
    fn end_part_of(&mut self, i: usize) -> Option<SentMessage> {
        let sent = &mut self.sent[i];
        sent.parts -= 1;
        if sent.parts > 0 {
            return None;
        }
        let mut sent = if i == 0 { self.sent.pop_front()? } else { self.sent.remove(i)? };
        if self.pool.len() < IN_FLIGHT {
            let mut reads = std::mem::take(&mut sent.awaited.reads);
            reads.clear();
            self.pool.push(reads);
        }
        Some(sent)
    }

    /// True if message `seq`, which must have been sent, is complete.
    pub(crate) fn is_complete(&self, seq: u64) -> bool {
        self.position(seq).is_none()
    }

    /// True if the messages of a queue up to this one, which must have been sent, are complete. An earlier one may end
    /// later: its data may come from an accelerator.
    pub(crate) fn is_over(&self, QueueMessage { id, queue }: QueueMessage) -> bool {
        let mut until = self.sent.iter().take_while(|sent| sent.seq <= id.seq);
        !until.any(|sent| (sent.queue.port(), sent.queue.id) == (id.port, queue))
    }

    /// True if a message of a queue up to this one is incomplete although the device may have executed it: another
    /// device has a part in it, or this process reads shared memory.
    pub(crate) fn ends_elsewhere(&self, QueueMessage { id, queue }: QueueMessage) -> bool {
        let is_shared = |read: &PendingRead| matches!(read.source, Source::Shared { .. });
        let ends_elsewhere = |awaited: &Awaited| awaited.extra.elsewhere || awaited.reads.iter().any(is_shared);
        let mut until = self.sent.iter().take_while(|sent| sent.seq <= id.seq);
        until.any(|sent| sent.queue.id == queue && ends_elsewhere(&sent.awaited))
    }

    /// The numbers of messages sent and answered.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.next - FIRST_MESSAGE, self.answered)
    }

    /// The last kernel of the oldest unanswered message that runs one.
    pub(crate) fn kernel(&self) -> Option<u64> {
        self.sent.iter().find(|s| !s.answered && s.awaited.kernel != 0).map(|s| s.awaited.kernel)
    }

    /// True if a message for which `is_awaited` returns true runs a kernel.
    pub(crate) fn has_kernel(&self, is_awaited: impl Fn(&Arc<Queue>, u64) -> bool) -> bool {
        self.sent.iter().any(|s| !s.answered && s.awaited.kernel != 0 && is_awaited(&s.queue, s.seq))
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/messages/in_flight.rs"]
mod tests;
