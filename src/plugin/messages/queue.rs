// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Queues and events: the plugin's side of libomptarget's `__tgt_async_info` and events.

use super::batch::Batch;
use super::pending::Pending;
use super::queue_trace::{QueueTrace, Tracing, What};
use crate::base::lock::{Guard, Mutex, order};
use crate::base::sync;
use crate::wire::command::CONTROL;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The numbers of a device's queues. The device identifies queues by number, so a number is reused only
/// after its queue has been dropped, and with it all of the queue's messages.
#[derive(Debug, Default)]
pub(crate) struct Ids(Mutex<FreeIds, { order::LEAF }>);

#[derive(Debug, Default)]
struct FreeIds {
    free: Vec<u32>,
    /// The highest number in use so far; 0 is [`CONTROL`].
    highest: u32,
}

/// A message that was sent to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MessageId {
    /// The device's number, which is the index of its [`super::port::Port`].
    pub(crate) port: usize,
    /// The message's number among those to this device.
    pub(crate) seq: u64,
}

/// A message of the queue of this number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueMessage {
    pub(crate) id: MessageId,
    pub(crate) queue: u32,
}

/// Operations that a device executes in order.
pub(crate) struct Queue {
    /// The queue's number on the wire.
    pub(crate) id: u32,
    /// Where the number came from and returns to.
    ids: Option<Arc<Ids>>,
    port: usize,
    open: Mutex<Open, { order::OPEN }>,
    /// Messages and transfers that are not complete.
    pub(crate) pending: Pending,
    /// The last wait for this queue took as long as a kernel that may need the cores of this node.
    pub(crate) waited_long: AtomicBool,
}

/// The end of a queue: the message that it collects, and the state of what it has sent.
#[derive(Default)]
pub(crate) struct Open {
    batch: Batch,
    /// Events whose position is the end of the batch, with their stamps.
    events: Vec<(Arc<Event>, u64)>,
    /// The number of the message sent last, 0 if none.
    pub(crate) last: u64,
    /// The number of the device's unawaited messages that precede what this queue collects.
    pub(crate) seen: u64,
    /// The number of the last message that reads shared memory, 0 if none.
    pub(crate) shares: u64,
    /// The queues that receive this queue's copies to other devices, one on each.
    receivers: Vec<Arc<Queue>>,
    pub(crate) trace: QueueTrace,
}

impl Open {
    pub(crate) fn batch(&mut self) -> &mut Batch {
        &mut self.batch
    }

    /// Adds an operation of the batch to the trace, if there is one.
    #[inline]
    pub(crate) fn note(&mut self, tracing: &Tracing, at: u64, what: What) {
        if tracing.trace {
            self.trace.asked(at, what);
        }
    }

    /// Sets the number that the batch was given. `reads_shared`: it reads shared memory.
    pub(crate) fn numbered(&mut self, seq: u64, reads_shared: bool) {
        self.last = seq;
        if reads_shared {
            self.shares = seq;
        }
    }

    /// Gives the batch's events their final position, after the message was sent.
    #[inline]
    pub(crate) fn sent(&mut self, queue: &Queue, tracing: &Tracing) {
        if tracing.trace {
            self.trace.sent(self.last);
        }
        for (event, stamp) in self.events.drain(..) {
            event.sent(queue, stamp, self.last);
        }
    }

    /// The queue that receives all of this queue's copies to the device of a port.
    pub(crate) fn receiver(&mut self, port: usize, create: impl FnOnce() -> Arc<Queue>) -> Arc<Queue> {
        let known = self.receivers.iter().find(|queue| queue.port == port).cloned();
        known.unwrap_or_else(|| {
            let queue = create();
            self.receivers.push(queue.clone());
            queue
        })
    }

    /// Clears the state of this use of the queue except its trace; keeps the memory of its lists.
    pub(crate) fn reset(&mut self) {
        self.batch.reset();
        self.events.clear();
        self.receivers.clear();
        (self.last, self.shares) = (0, 0);
    }
}

impl Queue {
    pub(crate) fn new(ids: &Arc<Ids>, port: usize) -> Arc<Queue> {
        let mut numbers = ids.0.lock();
        let id = numbers.free.pop().unwrap_or_else(|| {
            numbers.highest += 1;
            numbers.highest
        });
        drop(numbers);
        Queue::with(id, Some(ids.clone()), port)
    }

    /// A queue for commands that concern the whole device.
    pub(crate) fn control(port: usize) -> Arc<Queue> {
        Queue::with(CONTROL, None, port)
    }

    fn with(id: u32, ids: Option<Arc<Ids>>, port: usize) -> Arc<Queue> {
        let open = Open { batch: Batch::new(id), ..Open::default() };
        Arc::new(Queue {
            id,
            ids,
            port,
            open: Mutex::new(open),
            pending: Pending::default(),
            waited_long: AtomicBool::new(false),
        })
    }

    /// The device's number, which is the index of its [`super::port::Port`].
    pub(crate) fn port(&self) -> usize {
        self.port
    }

    /// The message with this number to the queue's device.
    pub(crate) fn message(&self, seq: u64) -> MessageId {
        MessageId { port: self.port, seq }
    }

    #[inline]
    #[track_caller]
    pub(crate) fn open(&self) -> Guard<'_, Open, { order::OPEN }> {
        self.open.lock()
    }

    /// [`Queue::open`] while the queue at the sending end of a copy is locked.
    pub(crate) fn open_receiver(&self) -> Guard<'_, Open, { order::OTHER_END }> {
        self.open.lock_as()
    }

    /// True if everything that was collected is complete.
    pub(crate) fn is_idle(&self) -> bool {
        let open = self.open();
        open.batch.is_empty() && self.pending.is_idle()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(ids) = &self.ids {
            ids.0.lock().free.push(self.id);
        }
    }
}

/// A position in a queue that other queues can wait for. It outlives its queue. Once complete, it stays
/// complete until it is recorded again.
#[derive(Default)]
pub(crate) struct Event {
    pub(crate) position: Mutex<Position, { order::LEAF }>,
    stamp: AtomicU64,
}

/// Destroyed events, kept for reuse, so that their memory always holds an event: LLVM 16's libomptarget may wait for an
/// event that another thread destroys at that moment, that of a mapping next to unmapped memory that it looks up.
static DESTROYED: sync::Mutex<Vec<Arc<Event>>> = sync::Mutex::new(Vec::new());

#[derive(Clone, Default)]
pub(crate) enum Position {
    /// Not recorded, or recorded on a queue with nothing to wait for.
    #[default]
    Complete,
    /// At the end of the message that this queue is collecting.
    Open(Arc<Queue>),
    /// At the end of this message.
    Sent(QueueMessage),
}

impl Event {
    /// An event that is complete.
    pub(crate) fn create() -> Arc<Event> {
        DESTROYED.lock().pop().unwrap_or_default()
    }

    /// Completes the event. It can still be waited for as long as the process runs.
    pub(crate) fn destroy(self: Arc<Event>) {
        self.stamp.fetch_add(1, Ordering::Relaxed);
        let position = std::mem::take(&mut *self.position.lock());
        drop(position); // perhaps the last share of a queue
        DESTROYED.lock().push(self);
    }

    /// Records the event behind everything that `queue` has collected and sent so far.
    pub(crate) fn record(self: &Arc<Event>, queue: &Arc<Queue>) {
        let open = &mut *queue.open.lock();
        let stamp = self.stamp.fetch_add(1, Ordering::Relaxed) + 1;
        *self.position.lock() = if !open.batch.is_empty() {
            open.events.push((self.clone(), stamp));
            Position::Open(queue.clone())
        } else if open.last != 0 {
            Position::Sent(QueueMessage { id: queue.message(open.last), queue: queue.id })
        } else {
            Position::Complete
        };
    }

    /// Sets the number of the event's message, unless the event has been recorded again since.
    fn sent(&self, queue: &Queue, stamp: u64, seq: u64) {
        let mut position = self.position.lock();
        if self.stamp.load(Ordering::Relaxed) == stamp {
            *position = Position::Sent(QueueMessage { id: queue.message(seq), queue: queue.id });
        }
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/messages/queue.rs"]
mod tests;
