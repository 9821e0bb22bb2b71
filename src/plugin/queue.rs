// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Queues and events: what one `__tgt_async_info` and one event of libomptarget are.

use super::engine::Target;
use super::flight::Extra;
use super::pending::Pending;
use super::tags::Lease;
use super::watch::Notes;
use crate::base::Error;
use crate::base::lock::{Mutex, order};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The numbers of a device's queues. A number is given again only when its queue is gone, and
/// with it all of its messages: a device knows queues by their numbers.
#[derive(Debug, Default)]
pub struct Ids(Mutex<FreeIds, { order::LEAF }>);

#[derive(Debug, Default)]
struct FreeIds {
    free: Vec<u32>,
    /// The highest number ever given; 0 is [`Queue::control`]'s.
    highest: u32,
}

impl Ids {
    fn take(&self) -> u32 {
        let ids = &mut *self.0.lock();
        ids.free.pop().unwrap_or_else(|| {
            ids.highest += 1;
            ids.highest
        })
    }
}

/// Operations that a device executes in order.
pub struct Queue {
    /// Its number on the wire.
    pub id: u32,
    /// Where the number came from, and goes back to.
    ids: Option<Arc<Ids>>,
    /// The index of its device's [`super::engine::Port`].
    pub port: usize,
    /// The message that is being collected.
    pub open: Mutex<Open, { order::OPEN }>,
    /// Messages and transfers that are not done.
    pub pending: Pending,
    failed: AtomicBool,
    failure: Mutex<Option<Error>, { order::LEAF }>,
}

/// A message that is being collected.
#[derive(Default)]
pub struct Open {
    /// Empty if there is none.
    pub message: Vec<u8>,
    /// Where the bytes of its reads go.
    pub targets: Vec<Target>,
    /// Bytes of its reads.
    pub reply: usize,
    /// The last kernel that it runs, 0 if it runs none.
    pub kernel: u64,
    /// The tags of the bulk transfers that it names.
    pub lease: Option<Arc<Lease>>,
    /// What it has besides its answer.
    pub extra: Extra,
    /// Events whose position is the end of this message, with their stamps.
    pub events: Vec<(Arc<Event>, u64)>,
    /// The number of the message sent last, 0 if none.
    pub last: u64,
    /// No message of this use of the queue was sent yet.
    pub fresh: bool,
    /// What receives its copies to other devices: a queue on each.
    pub ends: Vec<Arc<Queue>>,
    /// What was asked of the queue, if that is watched.
    pub notes: Notes,
}

impl Open {
    /// Forgets all but the notes, for a new use of the queue; keeps the memory of its lists.
    pub fn reset(&mut self) {
        self.message.clear();
        self.targets.clear();
        self.events.clear();
        self.ends.clear();
        self.reply = 0;
        self.kernel = 0;
        self.lease = None;
        self.extra = Extra::default();
        self.last = 0;
        self.fresh = true;
    }
}

impl Queue {
    /// A queue that has done nothing yet.
    pub fn new(ids: &Arc<Ids>, port: usize) -> Arc<Queue> {
        Queue::with(ids.take(), Some(ids.clone()), port)
    }

    /// A queue for what concerns the whole device, which has the number 0.
    pub fn control(port: usize) -> Arc<Queue> {
        Queue::with(0, None, port)
    }

    fn with(id: u32, ids: Option<Arc<Ids>>, port: usize) -> Arc<Queue> {
        Arc::new(Queue {
            id,
            ids,
            port,
            open: Mutex::new(Open { fresh: true, ..Open::default() }),
            pending: Pending::default(),
            failed: AtomicBool::new(false),
            failure: Mutex::default(),
        })
    }

    /// True if nothing that was sent is under way.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.pending.is_idle()
    }

    /// Remembers the first failure.
    #[cold]
    pub fn fail(&self, error: Error) {
        let mut failure = self.failure.lock();
        match &*failure {
            Some(Error::Text(_)) => {}
            _ => *failure = Some(error),
        }
        self.failed.store(true, Ordering::Relaxed);
    }

    /// The first failure since this was last asked.
    #[inline]
    pub fn take_failure(&self) -> Option<Error> {
        if !self.failed.load(Ordering::Relaxed) {
            return None;
        }
        self.failed.store(false, Ordering::Relaxed);
        self.failure.lock().take()
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        if let Some(ids) = &self.ids {
            ids.0.lock().free.push(self.id);
        }
    }
}

/// A position in a queue that other queues can wait for. It outlives its queue and, once
/// complete, stays so until it is recorded again.
#[derive(Default)]
pub struct Event {
    position: Mutex<Position, { order::LEAF }>,
    stamp: AtomicU64,
}

/// Where an event was recorded.
#[derive(Clone, Default)]
pub enum Position {
    /// Nowhere, or where nothing had to be waited for.
    #[default]
    Complete,
    /// At the end of the message that this queue is collecting.
    Open(Arc<Queue>),
    /// At the end of this message of this port.
    Sent {
        /// See [`Queue::port`].
        port: usize,
        /// The message's number.
        seq: u64,
    },
}

impl Event {
    /// Records the event at what `queue` has collected and sent so far.
    pub fn record(self: &Arc<Event>, queue: &Arc<Queue>, open: &mut Open) {
        let stamp = self.stamp.fetch_add(1, Ordering::Relaxed) + 1;
        *self.position.lock() = if !open.message.is_empty() {
            open.events.push((self.clone(), stamp));
            Position::Open(queue.clone())
        } else if open.last != 0 {
            Position::Sent { port: queue.port, seq: open.last }
        } else {
            Position::Complete
        };
    }

    /// The message that the event stands in was sent, unless it was recorded anew since.
    pub fn sent(&self, queue: &Queue, stamp: u64, seq: u64) {
        let mut position = self.position.lock();
        if self.stamp.load(Ordering::Relaxed) == stamp {
            *position = Position::Sent { port: queue.port, seq };
        }
    }

    /// Where the event is.
    pub fn position(&self) -> Position {
        self.position.lock().clone()
    }
}
