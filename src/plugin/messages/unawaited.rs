// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The unawaited messages of one device: incomplete messages that nobody waits for, because they give the program
//! nothing. The device executes later messages of its queues after them.

use super::queue::Queue;
use crate::base::lock::{Guard, Mutex, order};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Unawaited {
    messages: Mutex<Messages, { order::UNAWAITED }>,
    /// The number of messages added so far; readable without the lock.
    added: AtomicU64,
}

/// The last unawaited message of each queue.
#[derive(Default)]
pub(crate) struct Messages(Vec<Message>);

struct Message {
    /// The number of messages added so far, including this one.
    stamp: u64,
    seq: u64,
    queue: Arc<Queue>,
}

impl Unawaited {
    /// The number of messages added so far.
    #[inline]
    pub(crate) fn added(&self) -> u64 {
        self.added.load(Ordering::Acquire)
    }

    pub(crate) fn lock(&self) -> Guard<'_, Messages, { order::UNAWAITED }> {
        self.messages.lock()
    }

    /// True if all messages are complete.
    pub(crate) fn is_empty(&self, is_complete: impl Fn(u64) -> bool) -> bool {
        self.messages.lock().0.iter().all(|m| is_complete(m.seq))
    }

    /// Adds the messages of `queue` up to number `seq`, unless message `seq` is complete.
    pub(crate) fn add(&self, queue: &Arc<Queue>, seq: u64, is_complete: impl Fn(u64) -> bool) {
        let mut messages = self.messages.lock();
        if is_complete(seq) {
            return;
        }
        let stamp = self.added.load(Ordering::Relaxed) + 1;
        messages.0.retain(|m| !Arc::ptr_eq(&m.queue, queue));
        messages.0.push(Message { stamp, seq, queue: queue.clone() });
        self.added.store(stamp, Ordering::Release);
    }

    /// Forgets complete messages. Returns the numbers of those that a message of `queue` must wait for besides the
    /// first `seen` ones, and advances `seen` to all.
    #[cold]
    pub(crate) fn before(&self, queue: &Queue, seen: &mut u64, is_complete: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut messages = self.messages.lock();
        messages.0.retain(|m| !is_complete(m.seq));
        let seen = std::mem::replace(seen, self.added.load(Ordering::Relaxed));
        // A queue's own messages are executed in order.
        let others = messages.0.iter().filter(|m| m.stamp > seen && !std::ptr::eq(&*m.queue, queue));
        others.map(|m| m.seq).collect()
    }
}

impl Messages {
    /// True if message `seq` of this queue is unawaited.
    pub(crate) fn contains(&self, queue: &Arc<Queue>, seq: u64) -> bool {
        self.0.iter().any(|m| Arc::ptr_eq(&m.queue, queue) && seq <= m.seq)
    }

    /// The numbers of all messages.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.iter().map(|m| m.seq).collect()
    }
}
