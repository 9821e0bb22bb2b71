// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What a device has seen happen, for the statistics and the trace of its host: the
//! contents of a [`super::reply::Reply::Records`].
//!
//! Times are ticks of the device's [`crate::base::clock`].

use super::Reader;
use crate::base::{Error, Result};

/// What an [`Event`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A message was executed; `what` is 0.
    Message = 1,
    /// A kernel ran; `what` is its address.
    Kernel = 2,
    /// Bulk data of `what` bytes came in from the rank `peer`.
    Receive = 3,
    /// Bulk data of `what` bytes went out to the rank `peer`.
    Send = 4,
    /// Data of `what` bytes was moved within the device.
    Copy = 5,
    /// An image of `what` bytes came in from the rank `peer`.
    Image = 6,
    /// An image was loaded, `what` is its number.
    Load = 7,
}

/// Something that took time on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// What it was.
    pub kind: Kind,
    /// The queue that it was done for.
    pub queue: u32,
    /// The message that it was a part of.
    pub seq: u64,
    /// See [`Kind`].
    pub what: u64,
    /// When it began.
    pub begin: u64,
    /// When it ended.
    pub end: u64,
    /// See [`Kind`]; 0 where that does not speak of it.
    pub peer: u32,
    /// The tag of the transfer, 0 if it is none.
    pub tag: u32,
}

/// A way that data takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Way {
    /// From the host.
    ToDevice = 1,
    /// To the host.
    ToHost = 2,
    /// To another device.
    ToOther = 3,
    /// From another device.
    FromOther = 4,
    /// From a place on the device to another one there.
    Within = 5,
}

impl Way {
    /// All of them; the place of each is its number less 1.
    pub const ALL: [Way; 5] = [Way::ToDevice, Way::ToHost, Way::ToOther, Way::FromOther, Way::Within];
}

/// Sums over things of one sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// How many.
    pub count: u64,
    /// Their bytes, 0 where these have no meaning.
    pub bytes: u64,
    /// Ticks that they took.
    pub time: u64,
}

impl Sum {
    /// Adds another one.
    pub fn add(&mut self, other: Sum) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.time = self.time.saturating_add(other.time);
    }
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record {
    /// 1: something happened.
    Event(Event),
    /// 2: how often the kernel at an address ran since it was last told, and how long.
    Kernel(u64, Sum),
    /// 3: what data took a way since it was last told.
    Moved(Way, Sum),
    /// 4: so many events were not kept since it was last told.
    Dropped(u64),
}

/// Bytes that a record takes at most.
pub const RECORD_MAX: usize = 46;

impl Record {
    /// Appends the record to a message.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut put = |bytes: &[u8]| out.extend_from_slice(bytes);
        let sum = |s: &Sum| [s.count, s.bytes, s.time];
        match self {
            Record::Event(e) => {
                put(&[1, e.kind as u8]);
                [e.queue, e.peer, e.tag].iter().for_each(|n| put(&n.to_le_bytes()));
                [e.seq, e.what, e.begin, e.end].iter().for_each(|n| put(&n.to_le_bytes()));
            }
            Record::Kernel(kernel, s) => {
                put(&[2]);
                put(&kernel.to_le_bytes());
                sum(s).iter().for_each(|n| put(&n.to_le_bytes()));
            }
            Record::Moved(way, s) => {
                put(&[3, *way as u8]);
                sum(s).iter().for_each(|n| put(&n.to_le_bytes()));
            }
            Record::Dropped(events) => {
                put(&[4]);
                put(&events.to_le_bytes());
            }
        }
    }
}

/// Takes records off a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Records<'a>(pub &'a [u8]);

impl Records<'_> {
    /// The next record, or `None` at the end.
    ///
    /// # Errors
    /// Anything that no device of this protocol sends.
    pub fn take(&mut self) -> Result<Option<Record>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut r = Reader(self.0);
        let record = match r.u8()? {
            1 => {
                let kind = kind(r.u8()?)?;
                let (queue, peer, tag) = (r.u32()?, r.u32()?, r.u32()?);
                let (seq, what, begin, end) = (r.u64()?, r.u64()?, r.u64()?, r.u64()?);
                if end < begin {
                    return Err(Error::new("an event ends before it begins"));
                }
                Record::Event(Event { kind, queue, seq, what, begin, end, peer, tag })
            }
            2 => Record::Kernel(r.u64()?, sum(&mut r)?),
            3 => {
                let n = usize::from(r.u8()?);
                let way = n.checked_sub(1).and_then(|i| Way::ALL.get(i));
                let way = *way.ok_or_else(|| Error::new(format!("data took an unknown way {n}")))?;
                Record::Moved(way, sum(&mut r)?)
            }
            4 => Record::Dropped(r.u64()?),
            n => return Err(Error::new(format!("unknown kind {n} of record"))),
        };
        self.0 = r.0;
        Ok(Some(record))
    }
}

fn sum(r: &mut Reader<'_>) -> Result<Sum> {
    Ok(Sum { count: r.u64()?, bytes: r.u64()?, time: r.u64()? })
}

fn kind(n: u8) -> Result<Kind> {
    use Kind::*;
    [Message, Kernel, Receive, Send, Copy, Image, Load]
        .into_iter()
        .find(|&k| k as u8 == n)
        .ok_or_else(|| Error::new(format!("unknown kind {n} of event")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(n: u64, begin in 0u64..1 << 60, time in 0u64..1 << 60, kind in 1u8..8, a: u32, way in 0usize..5) {
            let event = Event {
                kind: super::kind(kind).unwrap(), queue: a, seq: n, what: !n, begin, end: begin + time, peer: !a, tag: a / 3,
            };
            let sum = Sum { count: n / 2, bytes: n / 3, time };
            let all = [Record::Event(event), Record::Kernel(n, sum), Record::Moved(Way::ALL[way], sum), Record::Dropped(n)];
            let mut message = Vec::new();
            for record in &all {
                let before = message.len();
                record.write(&mut message);
                prop_assert!(message.len() - before <= RECORD_MAX);
            }
            let mut rest = Records(&message);
            for record in all {
                prop_assert_eq!(rest.take().unwrap(), Some(record));
            }
            prop_assert_eq!(rest.take().unwrap(), None);
        }

        #[test]
        fn any_bytes_are_safe_to_read(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut rest = Records(&bytes);
            while let Ok(Some(_)) = rest.take() {}
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let mut message = Vec::new();
        let event = Event { kind: Kind::Copy, queue: 1, seq: 2, what: 3, begin: 5, end: 4, peer: 0, tag: 0 };
        Record::Event(event).write(&mut message);
        assert!(Records(&message).take().is_err(), "time goes back");
        for bytes in [&[5][..], &[1, 0], &[1, 8], &[3, 0, 0], &[3, 6, 0], &[4, 1]] {
            assert!(Records(bytes).take().is_err(), "{bytes:?}");
        }
    }

    #[test]
    fn ways_stand_at_their_places() {
        assert!(Way::ALL.iter().enumerate().all(|(i, &way)| way as usize == i + 1));
    }
}
