// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Host to device: operations of the whole device. The device executes them on receipt, even if earlier messages of
//! queues are unfinished.

use super::Reader;
use super::command::{COMMAND_MAX, Operation, SharedFile};
use super::format::{Bytes, Field, wire_format};
use crate::base::limits::MEMORY_PIECE;
use crate::base::{Error, Result};

wire_format! {
    /// One operation of the device. Addresses are device addresses, lengths are bytes.
    #[allow(missing_docs, reason = "the fields are named in each operation's line")]
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Control<'a> {
        /// Maps the arena at this address. If the device can open the shared file, the file's first `beginning` bytes
        /// are the arena's beginning. The reply carries the arena's first 8 bytes.
        Start { at: u64, len: u64, beginning: u64, shared: SharedFile } = 1,
        /// The device's number in the program, for `omp_get_device_num` in its regions.
        Number { device: u32 } = 2,
        /// The addresses of the program's standard streams, which the device replaces by its own.
        Streams { input: u64, output: u64, errors: u64 } = 3,
        /// Loads ahead of time the libraries that every image will need; see [`super::command::libraries`].
        Preload { libraries: Bytes<'a> } = 4,
        /// Moves pages of the arena to the shared file, at `offset`, unless a message of a queue is unfinished. The
        /// reply carries 1 if they were moved, else 0 (8 bytes).
        Share { at: u64, len: u64, offset: u64 } = 5,
        /// Returns unused memory to the system.
        Discard { at: u64, len: u64 } = 6,
        /// Starts statistics, and a trace of up to this many events.
        Trace { events: u64 } = 7,
        /// Appends the device's time to the reply, see `base::clock`.
        Clock = 8,
        /// Sends as many records of statistics and trace as a [`super::reply::Reply::Records`] holds, and forgets them;
        /// the reply carries the number of the remaining ones.
        Recall = 9,
        /// The host has written this many printed bytes; the device may send more.
        Printed { bytes: u64 } = 10,
        /// An answer to the device.
        Answer(answer: Answer<'a>) = 11,
        /// Ends the device.
        Shutdown = 12,
    }
}

wire_format! {
    /// The host's answer to a device that requests the program's memory or functions.
    #[allow(missing_docs, reason = "the fields are named in each answer's line")]
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Answer<'a> {
        /// A part of the answer to [`super::reply::Reply::Fetch`]: from `at` on, the device already has `same` bytes of
        /// the program's memory, and `bytes` follow these. Both are whole pages. `more` is false in the last part.
        Pages { at: u64, same: u64, more: bool, bytes: Bytes<'a> } = 1,
        /// As `Pages`, with a piece of `len` bytes of bulk data in place of `bytes`.
        PagesAside { at: u64, same: u64, more: bool, len: u32 } = 2,
        /// To [`super::reply::Reply::Find`]: the function's symbol, and whether a library exports it.
        Function { is_exported: bool, name: Bytes<'a> } = 3,
        /// To [`super::reply::Reply::ChangedThere`]: the host has read the bytes.
        Taken = 4,
        /// To [`super::reply::Reply::ChangedAside`]: the host has merged these changes, except blocks where its own old
        /// bytes differ: bit `i` of `others` stands for block `i`.
        Merged { at: u64, others: u64 } = 5,
        /// To any of these requests: the memory or function does not exist, or regions may not use it. See
        /// [`Answer::NOTHING`].
        Refuse { why: Bytes<'a> } = 6,
    }
}

impl Answer<'_> {
    /// The refusal without a reason: there is nothing for regions there. The error of the region explains that.
    pub const NOTHING: Answer<'static> = Answer::Refuse { why: Bytes(b"") };
}

const _: () = assert!(Control::LEN <= COMMAND_MAX);

impl<'a> Operation<'a> for Control<'a> {
    fn check(&self) -> Result<()> {
        match *self {
            Control::Answer(Answer::PagesAside { len, .. }) if !(1..=MEMORY_PIECE).contains(&(len as usize)) => {
                Err(Error::new("a piece of the program's memory has a wrong length"))
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/wire/control.rs"]
mod tests;
