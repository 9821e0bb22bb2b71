// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A device's statistics and trace: the contents of a [`super::reply::Reply::Records`]. Times are
//! ticks of the device's `base::clock`.

use super::Reader;
use super::format::{Field, wire_format};
use crate::base::{Error, Result};

wire_format! {
    /// The kind of a [`TraceEvent`], which determines its `what`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Kind {
        /// The device executed a message; `what` is 0.
        Message = 1,
        /// A kernel ran; `what` is its address.
        Kernel = 2,
        /// Bulk data of `what` bytes arrived from the rank `peer`.
        Receive = 3,
        /// Bulk data of `what` bytes left for the rank `peer`.
        Send = 4,
        /// Data of `what` bytes moved within the device.
        Copy = 5,
        /// An image of `what` bytes arrived from the rank `peer`.
        Image = 6,
        /// The device loaded the image with the number `what`.
        Load = 7,
        /// A kernel waited for `what` bytes of the program's memory.
        Fetch = 8,
        /// `what` bytes that a kernel changed in the program's memory were sent back.
        Change = 9,
        /// Data of `what` bytes was copied to an accelerator, not as a part of a kernel's launch.
        Write = 10,
        /// Data of `what` bytes was copied from an accelerator, not as a part of a kernel's launch.
        Read = 11,
        /// A kernel waited for the program to confirm that `what` bytes of its memory are as the device has them.
        Confirm = 12,
    }
}

wire_format! {
    /// An operation of a device, as a part of message `seq` of a queue. [`Kind`] defines `what` and `peer`; `tag` is a
    /// transfer's. Fields that a kind does not have are 0.
    #[allow(missing_docs, reason = "see above")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct TraceEvent {
        pub kind: Kind,
        pub queue: u32,
        pub seq: u64,
        pub what: u64,
        pub begin: u64,
        pub end: u64,
        pub peer: u32,
        pub tag: u32,
    }
}

wire_format! {
    /// Where data moves: from or to the host, from or to another device, within the device, or between a device's process
    /// and its accelerator, except as a part of a kernel's launch.
    #[allow(missing_docs, reason = "see above")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Direction {
        ToDevice = 1,
        ToHost = 2,
        ToOther = 3,
        FromOther = 4,
        Within = 5,
        ToAccelerator = 6,
        FromAccelerator = 7,
    }
}

impl Direction {
    /// All directions; the index of each is its number minus 1.
    pub(crate) const ALL: [Direction; 7] = [
        Direction::ToDevice,
        Direction::ToHost,
        Direction::ToOther,
        Direction::FromOther,
        Direction::Within,
        Direction::ToAccelerator,
        Direction::FromAccelerator,
    ];
}

wire_format! {
    /// Sums over all events of one kind.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Sum {
        /// Their number.
        pub count: u64,
        /// Their bytes; 0 for kernels.
        pub bytes: u64,
        /// Their ticks.
        pub time: u64,
    }
}

impl Sum {
    pub(crate) fn add(&mut self, other: Sum) {
        self.count = self.count.saturating_add(other.count);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.time = self.time.saturating_add(other.time);
    }
}

wire_format! {
    /// One record.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Record {
        /// An event of the trace.
        Event(event: TraceEvent) = 1,
        /// Runs of the kernel at an address since its last record.
        Kernel(kernel: u64, sum: Sum) = 2,
        /// Data that moved in a direction since its last record.
        Moved(way: Direction, sum: Sum) = 3,
        /// The number of events that the trace dropped since the last `Dropped`.
        Dropped(events: u64) = 4,
        /// The program's memory that the kernel at an address fetched, found unchanged, and changed since its last
        /// record.
        Memory(kernel: u64, fetched: Sum, unchanged: Sum, changed: Sum) = 5,
    }
}

/// The maximum size of a record in bytes.
pub(crate) const RECORD_MAX: usize = Record::LEN;

impl Record {
    /// Appends the record to a message.
    pub fn write(&self, out: &mut Vec<u8>) {
        Field::write(self, out);
    }
}

/// Takes records from a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Records<'a>(pub &'a [u8]);

impl Records<'_> {
    /// The next record, or `None` at the end.
    pub fn take(&mut self) -> Result<Option<Record>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut r = Reader(self.0);
        let record = r.take()?;
        if matches!(record, Record::Event(e) if e.end < e.begin) {
            return Err(Error::new("an event ends before it begins"));
        }
        self.0 = r.0;
        Ok(Some(record))
    }
}

impl<'a> Field<'a> for Records<'a> {
    const LEN: usize = 0;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(r: &mut Reader<'a>) -> Result<Self> {
        Ok(Records(r.take()?))
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/wire/record.rs"]
mod tests;
