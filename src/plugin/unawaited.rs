// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The messages of one device that are not complete and that nobody waits for: they only copied the program's data to
//! the device. Whatever the program does next with that device is ordered behind them there.

use super::queue::Queue;
use crate::base::lock::{Mutex, order};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct Unawaited {
    messages: Mutex<Messages, { order::UNAWAITED }>,
    /// There may be messages; readable without the lock.
    any: AtomicBool,
}

#[derive(Default)]
struct Messages {
    /// The last message of each queue.
    last: Vec<Message>,
    /// How many were added.
    added: u64,
}

impl Messages {
    fn forget_complete(&mut self, any: &AtomicBool, is_complete: impl Fn(u64) -> bool) {
        self.last.retain(|m| !is_complete(m.seq));
        any.store(!self.last.is_empty(), Ordering::Release);
    }
}

struct Message {
    /// A later message has a larger stamp.
    stamp: u64,
    seq: u64,
    queue: Arc<Queue>,
}

impl Unawaited {
    /// Nobody waits for the messages of `queue` up to number `seq`.
    pub(crate) fn add(&self, queue: &Arc<Queue>, seq: u64) {
        let mut messages = self.messages.lock();
        messages.added += 1;
        let stamp = messages.added;
        messages.last.retain(|m| !Arc::ptr_eq(&m.queue, queue));
        messages.last.push(Message { stamp, seq, queue: queue.clone() });
        self.any.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        !self.any.load(Ordering::Acquire)
    }

    /// True if nobody waits for message `seq` of this queue.
    pub(crate) fn contains(&self, queue: &Arc<Queue>, seq: u64) -> bool {
        !self.is_empty() && self.messages.lock().last.iter().any(|m| Arc::ptr_eq(&m.queue, queue) && seq <= m.seq)
    }

    pub(crate) fn forget_complete(&self, is_complete: impl Fn(u64) -> bool) {
        if !self.is_empty() {
            self.messages.lock().forget_complete(&self.any, is_complete);
        }
    }

    /// Forgets complete messages. Returns the numbers of those that a message of `queue` must wait for; it waits for
    /// those up to stamp `seen` already, which this advances.
    #[cold]
    pub(crate) fn before(&self, queue: &Queue, seen: &mut u64, is_complete: impl Fn(u64) -> bool) -> Vec<u64> {
        let mut messages = self.messages.lock();
        messages.forget_complete(&self.any, is_complete);
        let seen = std::mem::replace(seen, messages.added);
        // A queue's own messages are executed in order.
        let others = messages.last.iter().filter(|m| m.stamp > seen && !std::ptr::eq(&*m.queue, queue));
        others.map(|m| m.seq).collect()
    }
}
