// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The trace of a device: its records of each message, if its host requests them.
//!
//! Time stamps cost more than anything else here. So one stamp both ends an interval and begins the next
//! one, and records that can wait are made after the reply was sent.
//!
//! The recording functions are not inlined: without a trace they would take registers from the code
//! around them.

use crate::base::clock;
use crate::base::lock::{Mutex, order};
use crate::device_main::backend::Exchange;
use crate::wire::command::{Command, Head};
use crate::wire::record::{Direction, Kind, RECORD_MAX, Record, Sum, TraceEvent};
use crate::wire::{Bytes, MESSAGE_MAX};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// The records since the host's last request.
#[derive(Default)]
struct Log {
    /// The maximum number of events.
    limit: u64,
    events: Vec<TraceEvent>,
    dropped: u64,
    kernels: FxHashMap<u64, Sum>,
    /// For each kernel, the program's memory that it fetched, that it found unchanged, and that it changed.
    memory: FxHashMap<u64, [Sum; 3]>,
    moved: [Sum; Direction::ALL.len()],
}

impl Log {
    fn event(&mut self, mut event: TraceEvent) {
        // The clocks of threads may differ a little.
        event.end = event.end.max(event.begin);
        if (self.events.len() as u64) < self.limit {
            self.events.push(event);
        } else if self.limit > 0 {
            self.dropped = self.dropped.saturating_add(1);
        }
        if event.kind == Kind::Kernel {
            let sum = Sum { count: 1, bytes: 0, time: event.end - event.begin };
            self.kernels.entry(event.what).or_default().add(sum);
        }
    }

    fn moved(&mut self, way: Direction, sum: Sum) {
        self.moved[way as usize - 1].add(sum);
    }

    fn left(&self) -> usize {
        let directions = self.moved.iter().filter(|s| s.count > 0).count();
        self.events.len() + self.kernels.len() + self.memory.len() + directions + usize::from(self.dropped > 0)
    }
}

#[derive(Default)]
pub(crate) struct Trace {
    on: AtomicBool,
    log: Mutex<Log, { order::LEAF }>,
}

impl Trace {
    /// Begins the trace, which keeps up to this many events.
    pub fn begin(&self, events: u64) {
        self.log.lock().limit = events;
        self.on.store(true, Ordering::Relaxed);
    }

    /// A trace for a message that arrives now, if messages are traced.
    #[inline]
    pub fn message(&self) -> Option<Box<MessageTrace>> {
        self.on.load(Ordering::Relaxed).then(Box::default)
    }

    /// Records the end of a bulk transfer; `event` lacks only its end. `host`: the peer is the host.
    #[cold]
    #[inline(never)]
    pub fn transferred(&self, event: TraceEvent, host: bool) {
        let event = TraceEvent { end: clock::now(), ..event };
        let way = match (event.kind, host) {
            (Kind::Receive, true) => Some(Direction::ToDevice),
            (Kind::Receive, false) => Some(Direction::FromOther),
            (Kind::Send, true) => Some(Direction::ToHost),
            (Kind::Send, false) => Some(Direction::ToOther),
            _ => None,
        };
        let mut log = self.log.lock();
        if let Some(way) = way {
            log.moved(way, Sum { count: 1, bytes: event.what, time: event.end.saturating_sub(event.begin) });
        }
        log.event(event);
    }

    /// Moves as many records as fit into a message; returns how many are left.
    pub fn recall(&self, message: &mut Vec<u8>) -> u64 {
        let log = &mut *self.log.lock();
        let mut put = |record: Record| {
            let fits = message.len() + RECORD_MAX <= MESSAGE_MAX;
            if fits {
                record.write(message);
            }
            fits
        };
        log.kernels.retain(|&kernel, sum| !put(Record::Kernel(kernel, *sum)));
        log.memory.retain(|&kernel, &mut [fetched, unchanged, changed]| {
            !put(Record::Memory(kernel, fetched, unchanged, changed))
        });
        for (way, sum) in Direction::ALL.into_iter().zip(&mut log.moved) {
            if sum.count > 0 && put(Record::Moved(way, *sum)) {
                *sum = Sum::default();
            }
        }
        if log.dropped > 0 && put(Record::Dropped(log.dropped)) {
            log.dropped = 0;
        }
        // Take events from the end, so that no event moves; the host sorts them.
        while let Some(&event) = log.events.last()
            && put(Record::Event(event))
        {
            log.events.pop();
        }
        log.left() as u64
    }
}

/// The record of one message while it is executed.
#[derive(Default)]
pub(crate) struct MessageTrace {
    /// The stamp `at` is still current.
    fresh: bool,
    /// The last time stamp.
    at: u64,
    /// The time at which the first command started; 0 before.
    begun: u64,
    /// The direction in which data is being moved since `at`, and how much; the time is 0 until the move ends.
    moving: Option<(Direction, Sum)>,
    /// The last event, not recorded yet.
    last: Option<TraceEvent>,
}

impl MessageTrace {
    #[inline]
    fn now(&mut self) -> u64 {
        if !self.fresh {
            self.at = clock::now();
            self.fresh = true;
        }
        self.at
    }

    /// A thread begins or continues to execute the message.
    #[cold]
    #[inline(never)]
    pub fn enter(&mut self) {
        self.fresh = false;
        if self.begun == 0 {
            self.begun = self.now();
        }
    }

    #[cold]
    #[inline(never)]
    pub fn take_up(&mut self, trace: &Trace, command: &Command<'_>) {
        let next = match command {
            Command::Write { bytes: Bytes(bytes), .. } => Some((Direction::ToDevice, bytes.len() as u64)),
            Command::Read { len, .. } => Some((Direction::ToHost, u64::from(*len))),
            _ => None,
        };
        if self.moving.map(|m| m.0) != next.map(|n| n.0) {
            let since = self.at;
            let now = self.now();
            if let Some((way, sum)) = self.moving.take() {
                trace.log.lock().moved(way, Sum { time: now.saturating_sub(since), ..sum });
            }
        }
        if let Some((way, bytes)) = next {
            let (_, sum) = self.moving.get_or_insert((way, Sum::default()));
            sum.add(Sum { count: 1, bytes, time: 0 });
            self.fresh = false;
        }
    }

    /// The start time of an action that begins now.
    #[cold]
    #[inline(never)]
    pub fn start(&mut self) -> u64 {
        let now = self.now();
        self.fresh = false;
        now
    }

    /// Records something that began at `begin` and ended at `end`.
    #[cold]
    #[inline(never)]
    pub fn done(&mut self, trace: &Trace, head: Head, kind: Kind, what: u64, (begin, end): (u64, u64)) {
        let event = TraceEvent { kind, queue: head.queue, seq: head.seq, what, begin, end, peer: 0, tag: 0 };
        if let Some(earlier) = self.last.replace(event) {
            trace.log.lock().event(earlier);
        }
        (self.at, self.fresh) = (end, true);
    }

    /// Records what a kernel waited for.
    #[cold]
    #[inline(never)]
    pub fn exchanged(&self, trace: &Trace, head: Head, kernel: u64, exchange: Exchange) {
        let Exchange { kind, bytes, begin, end } = exchange;
        let mut log = trace.log.lock();
        let place = match kind {
            Kind::Change => 2,
            Kind::Confirm => 1,
            _ => 0,
        };
        log.memory.entry(kernel).or_default()[place].add(Sum { count: 1, bytes, time: end.saturating_sub(begin) });
        log.event(TraceEvent { kind, queue: head.queue, seq: head.seq, what: bytes, begin, end, peer: 0, tag: 0 });
    }

    /// Records a copy within the device, or to or from its accelerator.
    #[cold]
    #[inline(never)]
    pub fn copied(&mut self, trace: &Trace, head: Head, (kind, bytes): (Kind, u64), (begin, end): (u64, u64)) {
        self.done(trace, head, kind, bytes, (begin, end));
        let way = match kind {
            Kind::Write => Direction::ToAccelerator,
            Kind::Read => Direction::FromAccelerator,
            _ => Direction::Within,
        };
        trace.log.lock().moved(way, Sum { count: 1, bytes, time: end.saturating_sub(begin) });
    }

    /// The commands were executed; what follows moves no data.
    #[cold]
    #[inline(never)]
    pub fn settle(&mut self) {
        if self.moving.is_some() {
            let since = self.at;
            let now = self.now();
            self.moving.iter_mut().for_each(|(_, sum)| sum.time = now.saturating_sub(since));
        }
    }

    /// Records the message. Its reply was sent, or is sent next.
    #[cold]
    #[inline(never)]
    pub fn finish(&mut self, trace: &Trace, head: Head) {
        self.fresh = false;
        let end = self.now();
        let mut log = trace.log.lock();
        if let Some((way, sum)) = self.moving.take() {
            log.moved(way, sum);
        }
        if let Some(earlier) = self.last.take() {
            log.event(earlier);
        }
        let (queue, seq, begin) = (head.queue, head.seq, self.begun);
        log.event(TraceEvent { kind: Kind::Message, queue, seq, what: 0, begin, end, peer: 0, tag: 0 });
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/messages/trace.rs"]
mod tests;
