// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Host to device: a message is a [`Head`] and any number of [`Command`]s, which one queue of the device executes in
//! order. If its queue is [`CONTROL`], it has [`super::control::Control`]s instead, which the device executes on
//! receipt.

use super::format::{Bytes, Field, wire_format};
use super::{MESSAGE_MAX, Reader};
use crate::base::limits::IMAGE_PARTS;
use crate::base::target::{LargeCopies, Target};
use crate::base::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

wire_format! {
    /// The head of every message to a device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Head {
        /// Number of the message among those to its device; the numbers have no gaps.
        pub seq: u64,
        /// The queue that executes the message.
        pub queue: u32,
        /// Starts a new use of that queue: the queue forgets an earlier failure.
        pub fresh: bool,
        /// The core of the sender's node on which it ran.
        pub core: u16,
        /// How many `Changed` messages of the device the sender had merged into the program's memory, modulo 2^32.
        pub merged: u32,
    }
}

pub(crate) const HEAD_LEN: usize = Head::LEN;

/// The queue of messages that concern the whole device.
pub const CONTROL: u32 = 0;

/// The number in a head before [`Head::patch`].
const UNSENT: u64 = 0;
/// The offset of the fields that are known only when the message is sent.
const PATCHED: usize = HEAD_LEN - u16::LEN - u32::LEN;

impl Head {
    /// Starts a message with a head; [`Head::patch`] completes it.
    pub fn begin(out: &mut Vec<u8>, queue: u32, fresh: bool) {
        out.clear();
        Head { seq: UNSENT, queue, fresh, core: 0, merged: 0 }.write(out);
    }

    /// Sets the fields of a message's head that are known only when it is sent.
    pub fn patch(message: &mut [u8], seq: u64, core: u16, merged: u32) {
        message[..u64::LEN].copy_from_slice(&seq.to_le_bytes());
        message[PATCHED..][..u16::LEN].copy_from_slice(&core.to_le_bytes());
        message[PATCHED + u16::LEN..HEAD_LEN].copy_from_slice(&merged.to_le_bytes());
    }
}

wire_format! {
    /// One operation of a queue. Addresses are device addresses, lengths are bytes.
    #[allow(missing_docs, reason = "the fields are named in each operation's line")]
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Command<'a> {
        /// Writes these bytes to an address.
        Write { to: u64, bytes: Bytes<'a> } = 1,
        /// Appends the bytes at an address to the reply, which must have room for them.
        Read { from: u64, len: u32 } = 2,
        /// Receives bulk data from a rank directly to an address.
        Receive { to: u64, len: u64, rank: u32, tag: u32 } = 3,
        /// Sends bulk data to a rank directly from an address.
        Send { from: u64, len: u64, rank: u32, tag: u32 } = 4,
        /// Runs a kernel with these arguments or, if `array`, with an array of pointers to them.
        Launch { kernel: u64, array: bool, args: Args<'a> } = 5,
        /// Moves data within the device.
        Copy { to: u64, from: u64, len: u64 } = 6,
        /// Waits until the device has executed message `seq` of another queue.
        Wait { seq: u64 } = 7,
        /// Receives an image as bulk data, one transfer for each of its `parts` with tags from `tag`
        /// on. Passes each part on as soon as it arrives, to up to two more devices by rank and first
        /// tag. The last `libraries` of the `len` bytes, but not all of them, list the host's libraries.
        Image { image: u32, rank: u32, tag: u32, len: u64, libraries: u64, to: [Option<(u32, u32)>; 2] } = 8,
        /// Loads a received image; the reply carries its address.
        Load { image: u32 } = 9,
        /// Unloads an image.
        Unload { image: u32 } = 10,
        /// Loads an image at another address, because the first one is not free on the host.
        Move { image: u32 } = 11,
        /// Redirects the function at address `from` to the one that the pointer at address `to` names.
        Redirect { from: u64, to: u64 } = 12,
        /// Allocates the arena at an address of the accelerator's choice, outside of the ranges in `taken`: `len` bytes
        /// or, unless `exact`, its share of the free memory or less. The reply carries an `Obtained`. `libraries` lists
        /// the host's libomptarget, see [`libraries`].
        Obtain { len: u64, exact: bool, libraries: Bytes<'a>, taken: Ranges<'a> } = 13,
        /// Keeps these addresses free on an accelerator's device: other devices use them.
        Avoid { taken: Ranges<'a> } = 14,
        /// Announces an entry of an image that an accelerator will load: `size` is 0 for a function, the flags are
        /// LLVM's.
        Entry { image: u32, size: u64, flags: u32, name: Bytes<'a> } = 15,
        /// Appends the address of an image's entry to the reply; launches name a function by this address.
        Address { image: u32, name: Bytes<'a> } = 16,
        /// Runs a kernel of an accelerator with these arguments in this shape.
        LaunchShaped { kernel: u64, shape: Shape, args: Args<'a> } = 17,
    }
}

wire_format! {
    /// A file that a process shares with another one on its node, see `sys::shared_file`; none if its length is 0.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SharedFile {
        /// The process.
        pub pid: u32,
        /// The file's descriptor in that process.
        pub descriptor: u32,
        /// The random number at the file's start.
        pub nonce: u64,
        /// Bytes.
        pub len: u64,
    }
}

wire_format! {
    /// The shape of a launch on an accelerator, as in LLVM's `KernelArgsTy`; 0 leaves the choice to the accelerator.
    #[allow(missing_docs, reason = "the names are LLVM's")]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Shape {
        pub version: u32,
        pub tripcount: u64,
        pub flags: u64,
        pub teams: [u32; 3],
        pub threads: [u32; 3],
        pub dynamic_memory: u32,
    }
}

/// The answer to [`Command::Obtain`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Obtained {
    pub(crate) arena: Range<u64>,
    /// The accelerator's target.
    pub(crate) target: Target,
    /// The accelerator in words, for the user.
    pub(crate) description: String,
    pub(crate) large: LargeCopies,
}

impl Obtained {
    /// Bytes of the numbers.
    const NUMBERS: usize = 32;
    pub(crate) const LEN: usize = 256;

    /// Truncates a description that is too long.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let len = self.arena.end - self.arena.start;
        let numbers = [self.arena.start, len, self.target.to_number(), self.large.to_number()];
        let mut bytes: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        bytes.extend_from_slice(self.description.as_bytes());
        bytes.resize(Obtained::LEN, 0);
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Obtained::LEN]) -> Obtained {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap_or_default());
        let [start, len, target, large] = [0, 8, 16, 24].map(number);
        let description = String::from_utf8_lossy(&bytes[Obtained::NUMBERS..]).trim_end_matches('\0').to_string();
        let (arena, target) = (start..start.saturating_add(len), Target::of_number(target));
        Obtained { arena, target, description, large: LargeCopies::of_number(large) }
    }
}

/// Address ranges: 16 bytes each, the address and the length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ranges<'a>(Bytes<'a>);

impl<'a> Ranges<'a> {
    const EACH: usize = 2 * u64::LEN;

    /// The ranges in a form that a command can hold.
    pub(crate) fn encode(ranges: &[Range<u64>]) -> Vec<u8> {
        let mut out = Vec::with_capacity(ranges.len() * Self::EACH);
        ranges.iter().for_each(|r| (r.start, r.end - r.start).write(&mut out));
        out
    }

    pub(crate) fn of(encoded: &'a [u8]) -> Ranges<'a> {
        Ranges(Bytes(encoded))
    }

    pub(crate) fn iter(self) -> impl Iterator<Item = Range<u64>> + 'a {
        let number = |bytes: &[u8]| bytes.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        let each = self.0.0.as_chunks::<16>().0.iter();
        each.map(move |r| number(r)..number(r).saturating_add(number(&r[u64::LEN..])))
    }
}

impl<'a> Field<'a> for Ranges<'a> {
    const LEN: usize = Bytes::LEN;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(r: &mut Reader<'a>) -> Result<Self> {
        let bytes: Bytes<'a> = r.take()?;
        match bytes.0.len().is_multiple_of(Self::EACH) {
            true => Ok(Ranges(bytes)),
            false => Err(Error::new("an address range is incomplete")),
        }
    }
}

/// The arguments of a launch: 8 bytes each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    pub(crate) fn iter(self) -> impl ExactSizeIterator<Item = u64> + 'a {
        // `as_chunks` leaves no remainder: the reader took a multiple of 8 bytes.
        self.0.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c))
    }
}

impl<'a> Field<'a> for Args<'a> {
    const LEN: usize = u32::LEN;

    #[inline]
    fn write(&self, out: &mut Vec<u8>) {
        (self.iter().len() as u32).write(out);
        out.extend_from_slice(self.0);
    }

    #[inline]
    fn read(r: &mut Reader<'a>) -> Result<Self> {
        let count: u32 = r.take()?;
        Ok(Args(r.bytes(count as usize * u64::LEN)?))
    }
}

/// Encodes the absence of a rank and tag.
const NOBODY: (u32, u32) = (u32::MAX, u32::MAX);

impl<'a> Field<'a> for [Option<(u32, u32)>; 2] {
    const LEN: usize = 2 * <(u32, u32)>::LEN;

    fn write(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|to| to.unwrap_or(NOBODY).write(out));
    }

    fn read(r: &mut Reader<'a>) -> Result<Self> {
        let to: ((u32, u32), (u32, u32)) = r.take()?;
        Ok([to.0, to.1].map(|to| Some(to).filter(|to| *to != NOBODY)))
    }
}

/// An operation in a message to a device.
pub trait Operation<'a>: Field<'a> {
    /// Fails if the operation is invalid although each of its fields is valid.
    fn check(&self) -> Result<()>;
}

impl<'a> Operation<'a> for Command<'a> {
    #[inline]
    fn check(&self) -> Result<()> {
        match *self {
            Command::Read { len, .. } if len as usize > MESSAGE_MAX => {
                Err(Error::new("a read is too long for a reply"))
            }
            Command::Image { len, libraries, .. } if libraries >= len => {
                Err(Error::new("an image has no bytes besides its list of libraries"))
            }
            _ => Ok(()),
        }
    }
}

/// Appends operations to a message.
pub struct Writer<'a>(pub &'a mut Vec<u8>);

impl Writer<'_> {
    /// Appends an operation.
    #[inline]
    pub fn push<'a>(&mut self, operation: impl Operation<'a>) {
        operation.write(self.0);
    }

    /// Appends a launch with arguments that need not lie in memory: [`Command::LaunchShaped`] if there is a shape.
    #[inline]
    pub(crate) fn launch(
        &mut self,
        kernel: u64,
        args: impl ExactSizeIterator<Item = u64>,
        array: bool,
        shape: Option<&Shape>,
    ) {
        match shape {
            None => self.push(Command::Launch { kernel, array, args: Args(&[]) }),
            Some(&shape) => self.push(Command::LaunchShaped { kernel, shape, args: Args(&[]) }),
        }
        // The last field is the count of arguments, 0.
        self.0.truncate(self.0.len() - Args::LEN);
        (args.len() as u32).write(self.0);
        args.for_each(|a| a.write(self.0));
    }
}

/// Bytes of a launch with this many arguments, and with a shape if it `is_shaped`.
pub(crate) const fn launch_len(args: usize, is_shaped: bool) -> usize {
    1 + u64::LEN + if is_shaped { Shape::LEN } else { bool::LEN } + Args::LEN + u64::LEN * args
}

/// The maximum size of any other operation in bytes, without data, names and lists.
pub(crate) const COMMAND_MAX: usize = Command::LEN;

/// The parts of an image: small, so that a device passes the first one on early, but not too many.
pub(crate) fn parts(len: u64) -> impl Iterator<Item = Range<usize>> {
    let len = len as usize;
    let part = len.div_ceil(IMAGE_PARTS).max(1 << 20);
    (0..len).step_by(part).map(move |at| at..len.min(at + part))
}

/// Reads a list of libraries: the name of each and its path on the host, both ended by a NUL byte. An
/// incomplete last entry is ignored.
pub fn libraries(list: &[u8]) -> BTreeMap<String, PathBuf> {
    let end = list.iter().rposition(|b| *b == 0).unwrap_or(0);
    let words: Vec<&[u8]> = list[..end].split(|b| *b == 0).collect();
    let pairs = words.chunks_exact(2);
    pairs.map(|p| (String::from_utf8_lossy(p[0]).into_owned(), OsStr::from_bytes(p[1]).into())).collect()
}

/// Takes the operations off a message.
#[derive(Clone, Debug)]
pub struct Operations<'a>(Reader<'a>);

impl<'a> Operations<'a> {
    /// Splits a received message into its head and its operations.
    pub fn open(message: &'a [u8]) -> Result<(Head, Operations<'a>)> {
        if message.len() > MESSAGE_MAX {
            return Err(Error::new("a message is too long"));
        }
        let mut r = Reader(message);
        let head: Head = r.take()?;
        if head.seq == UNSENT {
            return Err(Error::new("a message has no number"));
        }
        Ok((head, Operations(r)))
    }

    /// Continues a message at a position that [`Operations::position`] returned.
    pub fn resume(message: &'a [u8], position: usize) -> Operations<'a> {
        Operations(Reader(message.get(position..).unwrap_or_default()))
    }

    /// The offset of the next operation in this message.
    pub fn position(&self, message: &[u8]) -> usize {
        message.len() - self.0.0.len()
    }

    /// The next operation, or `None` at the end.
    #[inline]
    pub fn take<T: Operation<'a>>(&mut self) -> Result<Option<T>> {
        if self.0.0.is_empty() {
            return Ok(None);
        }
        let operation: T = self.0.take()?;
        operation.check().map(|()| Some(operation))
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/wire/command.rs"]
mod tests;
