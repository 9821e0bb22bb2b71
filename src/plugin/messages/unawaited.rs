// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The messages of one device that are not complete and that nobody waits for: they give the program nothing. Later
//! messages of the device's queues are ordered behind them there.

use super::queue::Queue;
use crate::base::lock::{Guard, Mutex, order};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Default)]
pub(crate) struct Unawaited {
    messages: Mutex<Messages, { order::UNAWAITED }>,
    /// How many there were; readable without the lock.
    added: AtomicU64,
}

/// The last message of each queue.
#[derive(Default)]
pub(crate) struct Messages(Vec<Message>);

struct Message {
    /// How many there were with this one.
    stamp: u64,
    seq: u64,
    queue: Arc<Queue>,
}

impl Unawaited {
    /// How many messages there were.
    #[inline]
    pub(crate) fn added(&self) -> u64 {
        self.added.load(Ordering::Acquire)
    }

    pub(crate) fn lock(&self) -> Guard<'_, Messages, { order::UNAWAITED }> {
        self.messages.lock()
    }

    /// True if all of them are complete.
    pub(crate) fn is_empty(&self, is_complete: impl Fn(u64) -> bool) -> bool {
        self.messages.lock().0.iter().all(|m| is_complete(m.seq))
    }

    /// Nobody waits for the messages of `queue` up to number `seq`, unless that one is complete.
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

    /// Forgets complete messages. Returns the numbers of those that a message of `queue` must wait for; it waits for
    /// the first `seen` ones already, which this advances.
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
    /// True if nobody waits for message `seq` of this queue.
    pub(crate) fn contains(&self, queue: &Arc<Queue>, seq: u64) -> bool {
        self.0.iter().any(|m| Arc::ptr_eq(&m.queue, queue) && seq <= m.seq)
    }

    /// The numbers of all of them.
    pub(crate) fn numbers(&self) -> Vec<u64> {
        self.0.iter().map(|m| m.seq).collect()
    }
}
