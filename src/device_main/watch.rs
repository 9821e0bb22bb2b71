// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What a device writes down of what happens, when its host asks for it.
//!
//! A time stamp costs more than anything else here, so one stamp is the end of what came
//! before and the beginning of what follows, and what can wait is written down after the
//! reply was sent.
//!
//! All of it is out of the way of who watches nothing: inlined, it would take registers from
//! the code around it.

use crate::base::clock;
use crate::base::lock::{Mutex, order};
use crate::wire::MESSAGE_MAX;
use crate::wire::command::{Command, Head};
use crate::wire::record::{Event, Kind, RECORD_MAX, Record, Sum, Way};
use rustc_hash::FxHashMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// What happened since the host asked last.
#[derive(Default)]
struct Log {
    /// How many events may be kept.
    limit: u64,
    events: Vec<Event>,
    dropped: u64,
    kernels: FxHashMap<u64, Sum>,
    moved: [Sum; Way::ALL.len()],
}

impl Log {
    fn event(&mut self, mut event: Event) {
        // Clocks of threads may differ a little.
        event.end = event.end.max(event.begin);
        if (self.events.len() as u64) < self.limit {
            self.events.push(event);
        } else if self.limit > 0 {
            self.dropped = self.dropped.saturating_add(1);
        }
        let sum = |bytes| Sum { count: 1, bytes, time: event.end - event.begin };
        if event.kind == Kind::Kernel {
            self.kernels.entry(event.what).or_default().add(sum(0));
        }
    }

    fn moved(&mut self, way: Way, sum: Sum) {
        self.moved[way as usize - 1].add(sum);
    }

    fn left(&self) -> usize {
        let ways = self.moved.iter().filter(|s| s.count > 0).count();
        self.events.len() + self.kernels.len() + ways + usize::from(self.dropped > 0)
    }
}

/// See the module.
#[derive(Default)]
pub struct Watch {
    on: AtomicBool,
    log: Mutex<Log, { order::LEAF }>,
}

impl Watch {
    /// Begins; at most so many events will be kept.
    pub fn begin(&self, events: u64) {
        self.log.lock().limit = events;
        self.on.store(true, Ordering::Relaxed);
    }

    /// The notes to be taken on a message that arrives now, if any are.
    #[inline]
    pub fn notes(&self) -> Option<Box<Notes>> {
        self.on.load(Ordering::Relaxed).then(Box::default)
    }

    /// Puts as many records into a message as it holds, and forgets them; returns how many
    /// are left.
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
        for (way, sum) in Way::ALL.into_iter().zip(&mut log.moved) {
            if sum.count > 0 && put(Record::Moved(way, *sum)) {
                *sum = Sum::default();
            }
        }
        if log.dropped > 0 && put(Record::Dropped(log.dropped)) {
            log.dropped = 0;
        }
        // The last ones first, which moves none; the host sorts them.
        while let Some(&event) = log.events.last()
            && put(Record::Event(event))
        {
            log.events.pop();
        }
        log.left() as u64
    }
}

/// What is written down of one message while it is executed.
#[derive(Default)]
pub struct Notes {
    /// Nothing that takes time was done since `at`.
    fresh: bool,
    /// When the last stamp was taken.
    at: u64,
    /// When the first command was taken up, 0 before.
    begun: u64,
    /// Since `at`, data is moved this way; the time is 0 until it ends.
    moving: Option<(Way, Sum)>,
    /// What was done last, to be written down.
    last: Option<Event>,
}

impl Notes {
    #[inline]
    fn now(&mut self) -> u64 {
        if !self.fresh {
            self.at = clock::now();
            self.fresh = true;
        }
        self.at
    }

    /// A thread begins to execute the message, or goes on.
    #[cold]
    #[inline(never)]
    pub fn enter(&mut self) {
        self.fresh = false;
        if self.begun == 0 {
            self.begun = self.now();
        }
    }

    /// A command is taken up.
    #[cold]
    #[inline(never)]
    pub fn take_up(&mut self, watch: &Watch, command: &Command<'_>) {
        let next = match command {
            Command::Write { bytes, .. } => Some((Way::ToDevice, bytes.len() as u64)),
            Command::Read { len, .. } => Some((Way::ToHost, u64::from(*len))),
            _ => None,
        };
        if self.moving.map(|m| m.0) != next.map(|n| n.0) {
            let since = self.at;
            let now = self.now();
            if let Some((way, sum)) = self.moving.take() {
                watch.log.lock().moved(way, Sum { time: now.saturating_sub(since), ..sum });
            }
        }
        if let Some((way, bytes)) = next {
            let (_, sum) = self.moving.get_or_insert((way, Sum::default()));
            sum.add(Sum { count: 1, bytes, time: 0 });
            self.fresh = false;
        }
    }

    /// When what is taken up now begins.
    #[cold]
    #[inline(never)]
    pub fn start(&mut self) -> u64 {
        let now = self.now();
        self.fresh = false;
        now
    }

    /// Something that began at `begin` is done, at `end`.
    #[cold]
    #[inline(never)]
    pub fn done(&mut self, watch: &Watch, head: Head, kind: Kind, what: u64, (begin, end): (u64, u64)) {
        let event = Event { kind, queue: head.queue, seq: head.seq, what, begin, end, peer: 0, tag: 0 };
        if let Some(earlier) = self.last.replace(event) {
            watch.log.lock().event(earlier);
        }
        (self.at, self.fresh) = (end, true);
    }

    /// Data was moved within the device.
    #[cold]
    #[inline(never)]
    pub fn copied(&mut self, watch: &Watch, head: Head, bytes: u64, begin: u64) {
        let end = clock::now();
        self.done(watch, head, Kind::Copy, bytes, (begin, end));
        watch.log.lock().moved(Way::Within, Sum { count: 1, bytes, time: end.saturating_sub(begin) });
    }

    /// A bulk transfer is over; `host` tells whether the peer is the host. `event` lacks only
    /// its end.
    #[cold]
    #[inline(never)]
    pub fn transferred(&mut self, watch: &Watch, event: Event, host: bool) {
        let event = Event { end: clock::now(), ..event };
        let way = match (event.kind, host) {
            (Kind::Receive, true) => Some(Way::ToDevice),
            (Kind::Receive, false) => Some(Way::FromOther),
            (Kind::Send, true) => Some(Way::ToHost),
            (Kind::Send, false) => Some(Way::ToOther),
            _ => None,
        };
        let mut log = watch.log.lock();
        if let Some(way) = way {
            log.moved(way, Sum { count: 1, bytes: event.what, time: event.end.saturating_sub(event.begin) });
        }
        log.event(event);
    }

    /// The message was executed: what follows moves no data.
    #[cold]
    #[inline(never)]
    pub fn settle(&mut self) {
        if self.moving.is_some() {
            let since = self.at;
            let now = self.now();
            self.moving.iter_mut().for_each(|(_, sum)| sum.time = now.saturating_sub(since));
        }
    }

    /// The message was executed and its reply sent, or will be next.
    #[cold]
    #[inline(never)]
    pub fn finish(&mut self, watch: &Watch, head: Head) {
        self.fresh = false;
        let end = self.now();
        let mut log = watch.log.lock();
        if let Some((way, sum)) = self.moving.take() {
            log.moved(way, sum);
        }
        if let Some(earlier) = self.last.take() {
            log.event(earlier);
        }
        let (queue, seq, begin) = (head.queue, head.seq, self.begun);
        log.event(Event { kind: Kind::Message, queue, seq, what: 0, begin, end, peer: 0, tag: 0 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::record::Records;

    const HEAD: Head = Head { seq: 7, queue: 3, fresh: false, core: 0 };

    /// Everything that a watch has to tell, message by message.
    fn all(watch: &Watch) -> Vec<Record> {
        let mut records = Vec::new();
        loop {
            let mut message = vec![4];
            let left = watch.recall(&mut message);
            assert!(message.len() <= MESSAGE_MAX);
            let mut rest = Records(&message[1..]);
            while let Some(record) = rest.take().unwrap() {
                records.push(record);
            }
            if left == 0 {
                return records;
            }
        }
    }

    #[test]
    fn nothing_is_watched_unless_asked_for() {
        let watch = Watch::default();
        assert!(watch.notes().is_none());
        watch.begin(1);
        assert!(watch.notes().is_some());
    }

    #[test]
    fn a_region_is_summed_up_and_told_once() {
        let watch = Watch::default();
        watch.begin(100);
        let mut notes = watch.notes().unwrap();
        notes.enter();
        for len in [3, 4] {
            notes.take_up(&watch, &Command::Write { to: 0, bytes: &[0; 8][..len] });
        }
        notes.take_up(&watch, &Command::Wait { seq: 1 });
        let begin = notes.start();
        notes.done(&watch, HEAD, Kind::Kernel, 0xa0, (begin, begin + 10));
        notes.take_up(&watch, &Command::Read { from: 0, len: 5 });
        notes.settle();
        notes.finish(&watch, HEAD);
        let records = all(&watch);
        assert!(records.iter().any(|r| matches!(r, Record::Kernel(0xa0, Sum { count: 1, time: 10, .. }))));
        assert!(records.iter().any(|r| matches!(r, Record::Moved(Way::ToDevice, Sum { count: 2, bytes: 7, .. }))));
        assert!(records.iter().any(|r| matches!(r, Record::Moved(Way::ToHost, Sum { count: 1, bytes: 5, .. }))));
        let events: Vec<&Event> = records
            .iter()
            .filter_map(|r| match r {
                Record::Event(e) => Some(e),
                _ => None,
            })
            .collect();
        let of = |kind| *events.iter().find(|e| e.kind == kind).unwrap();
        let (message, kernel) = (of(Kind::Message), of(Kind::Kernel));
        assert!(message.begin <= kernel.begin && message.end >= kernel.end);
        assert_eq!((events.len(), kernel.queue, kernel.seq), (2, 3, 7));
        assert!(all(&watch).is_empty());
    }

    #[test]
    fn events_beyond_the_limit_are_counted_and_sums_are_not_cut() {
        let watch = Watch::default();
        watch.begin(2000);
        let mut notes = watch.notes().unwrap();
        for i in 0..5000 {
            notes.done(&watch, HEAD, Kind::Kernel, 1 + i % 3, (i, i + 1));
        }
        notes.finish(&watch, HEAD);
        let records = all(&watch);
        let events = records.iter().filter(|r| matches!(r, Record::Event(_))).count();
        assert_eq!((events, records.contains(&Record::Dropped(3001))), (2000, true));
        let runs = |r: &Record| if let Record::Kernel(_, sum) = r { sum.count } else { 0 };
        assert_eq!(records.iter().map(runs).sum::<u64>(), 5000);
    }

    #[test]
    fn without_room_for_events_only_sums_are_kept() {
        let watch = Watch::default();
        watch.begin(0);
        watch.notes().unwrap().done(&watch, HEAD, Kind::Kernel, 1, (1, 2));
        let mut notes = watch.notes().unwrap();
        notes.done(&watch, HEAD, Kind::Kernel, 1, (1, 2));
        notes.finish(&watch, HEAD);
        assert_eq!(all(&watch), [Record::Kernel(1, Sum { count: 1, bytes: 0, time: 1 })]);
    }
}
