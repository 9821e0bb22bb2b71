// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Host to device: a message is a [`Head`] and any number of [`Command`]s, executed in
//! order by one queue of the device.

use super::{MESSAGE_MAX, Reader};
use crate::base::limits::IMAGE_PARTS;
use crate::base::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What stands in front of every command message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Number of the message on its link, counted from 1 without gaps.
    pub seq: u64,
    /// The queue that executes it; messages of one queue are executed in order.
    pub queue: u32,
    /// The first message of a new use of that queue: an earlier failure is forgotten.
    pub fresh: bool,
    /// The core of its node that the sender ran on.
    pub core: u16,
}

/// Bytes that a [`Head`] takes.
pub const HEAD_LEN: usize = 15;

/// The number of a message whose head was not [`Head::patch`]ed yet.
const UNSENT: u64 = 0;

impl Head {
    /// Starts a message: the head with places for number and core, see [`Head::patch`].
    pub fn begin(out: &mut Vec<u8>, queue: u32, fresh: bool) {
        out.clear();
        out.extend_from_slice(&UNSENT.to_le_bytes());
        out.extend_from_slice(&queue.to_le_bytes());
        out.push(u8::from(fresh));
        out.extend_from_slice(&[0; 2]);
    }

    /// Puts number and core into a message's head, when it is sent.
    pub fn patch(message: &mut [u8], seq: u64, core: u16) {
        message[..8].copy_from_slice(&seq.to_le_bytes());
        message[13..15].copy_from_slice(&core.to_le_bytes());
    }
}

/// One operation for the device. Addresses are device addresses, lengths are bytes.
#[allow(missing_docs, reason = "the fields are named in each operation's line")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Command<'a> {
    /// 1: puts these bytes at an address.
    Write { to: u64, bytes: &'a [u8] },
    /// 2: puts the bytes at an address into the reply.
    Read { from: u64, len: u32 },
    /// 3: receives bulk data from a rank straight to its place.
    Receive { to: u64, len: u64, rank: u32, tag: u32 },
    /// 4: sends bulk data to a rank straight from its place.
    Send { from: u64, len: u64, rank: u32, tag: u32 },
    /// 6: moves data within the device.
    Copy { to: u64, from: u64, len: u64 },
    /// 5: runs the kernel at an address with these arguments; 15: with one, an array of
    /// pointers to these.
    Launch { kernel: u64, args: Args<'a>, array: bool },
    /// 7: waits until the device has executed message `seq` of another queue.
    Wait { seq: u64 },
    /// 8: returns memory that holds nothing any more to the system; done on receipt.
    Discard { at: u64, len: u64 },
    /// 9: maps the arena at this address.
    Start { at: u64, len: u64 },
    /// 10: receives an image as bulk data, one transfer for each of its [`parts`] with tags
    /// from `tag` on, and passes each on to two more devices as soon as it is there, by their
    /// ranks and with tags of their own. The last `libraries` of the `len` bytes list the
    /// host's libraries.
    Image { image: u32, rank: u32, tag: u32, len: u64, libraries: u64, to: [Option<(u32, u32)>; 2] },
    /// 16: loads an image that was received; the reply carries its address.
    Load { image: u32 },
    /// 11: unloads an image.
    Unload { image: u32 },
    /// 12: an image was loaded where the host can't have it; load it elsewhere.
    Move { image: u32 },
    /// 13: ends the device.
    Shutdown,
    /// 17: loads libraries that every image will need, while there is time: lines of name,
    /// tab, path on the host.
    Preload { libraries: &'a [u8] },
    /// 18: from now on, what happens is summed up, and up to so many events of it are kept.
    Watch { events: u64 },
    /// 19: the reply carries the time of the device, see [`crate::base::clock`].
    Clock,
    /// 20: as many records of what happened as a [`super::reply::Reply::Records`] holds are
    /// sent and forgotten; the reply carries the number of those that are left.
    Recall,
    /// 21: the host has written this many bytes of what the device printed; more may follow.
    Printed { bytes: u64 },
    /// 14: calls of a function at address `from` shall reach the function that the
    /// pointer at address `to` names.
    Redirect { from: u64, to: u64 },
}

/// The arguments of a [`Command::Launch`]: 8 bytes each.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Args<'a>(&'a [u8]);

impl<'a> Args<'a> {
    /// The arguments in order.
    pub fn iter(self) -> impl ExactSizeIterator<Item = u64> + 'a {
        // as_chunks leaves no rest: the reader took a multiple of 8 bytes.
        self.0.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c))
    }
}

/// Appends commands to a message.
pub struct Writer<'a>(pub &'a mut Vec<u8>);

impl Writer<'_> {
    fn op(&mut self, op: u8, fields: &[u64]) {
        self.0.push(op);
        for f in fields {
            self.0.extend_from_slice(&f.to_le_bytes());
        }
    }

    /// Appends [`Command::Launch`].
    pub fn launch(&mut self, kernel: u64, args: impl ExactSizeIterator<Item = u64>, array: bool) {
        self.op(if array { 15 } else { 5 }, &[kernel, args.len() as u64]);
        args.for_each(|a| self.0.extend_from_slice(&a.to_le_bytes()));
    }

    /// Appends any command but a launch.
    pub fn push(&mut self, command: Command<'_>) {
        match command {
            Command::Write { to, bytes } => {
                self.op(1, &[to, bytes.len() as u64]);
                self.0.extend_from_slice(bytes);
            }
            Command::Read { from, len } => self.op(2, &[from, u64::from(len)]),
            Command::Receive { to, len, rank, tag } => self.op(3, &[to, len, pair(rank, tag)]),
            Command::Send { from, len, rank, tag } => self.op(4, &[from, len, pair(rank, tag)]),
            Command::Launch { kernel, args, array } => self.launch(kernel, args.iter(), array),
            Command::Copy { to, from, len } => self.op(6, &[to, from, len]),
            Command::Wait { seq } => self.op(7, &[seq]),
            Command::Discard { at, len } => self.op(8, &[at, len]),
            Command::Start { at, len } => self.op(9, &[at, len]),
            Command::Image { image, rank, tag, len, libraries, to: [left, right] } => {
                let [left, right] = [left, right].map(|to| to.map_or(NOBODY, |(rank, tag)| pair(rank, tag)));
                self.op(10, &[u64::from(image), pair(rank, tag), len, libraries, left, right]);
            }
            Command::Load { image } => self.op(16, &[u64::from(image)]),
            Command::Preload { libraries } => {
                self.op(17, &[libraries.len() as u64]);
                self.0.extend_from_slice(libraries);
            }
            Command::Unload { image } => self.op(11, &[u64::from(image)]),
            Command::Move { image } => self.op(12, &[u64::from(image)]),
            Command::Shutdown => self.op(13, &[]),
            Command::Redirect { from, to } => self.op(14, &[from, to]),
            Command::Watch { events } => self.op(18, &[events]),
            Command::Clock => self.op(19, &[]),
            Command::Recall => self.op(20, &[]),
            Command::Printed { bytes } => self.op(21, &[bytes]),
        }
    }
}

fn pair(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

/// Bytes that a launch with this many arguments takes in a message.
pub const fn launch_len(args: usize) -> usize {
    17 + 8 * args
}

/// Bytes that any other command takes in a message, besides those of a write or preload.
pub const COMMAND_MAX: usize = 49;

/// No rank and tag, where these may be.
const NOBODY: u64 = u64::MAX;

/// The parts in which an image travels: small enough that whoever passes it on begins
/// early, and not too many.
pub fn parts(len: u64) -> impl Iterator<Item = Range<usize>> {
    let len = len as usize;
    let part = len.div_ceil(IMAGE_PARTS).max(1 << 20);
    (0..len).step_by(part).map(move |at| at..len.min(at + part))
}

/// Reads a list of libraries: of each its name and where the host has it, both ended by a NUL
/// byte. What is cut off at the end is left out.
pub fn libraries(list: &[u8]) -> BTreeMap<String, PathBuf> {
    let end = list.iter().rposition(|b| *b == 0).unwrap_or(0);
    let words: Vec<&[u8]> = list[..end].split(|b| *b == 0).collect();
    let pairs = words.chunks_exact(2);
    pairs.map(|p| (String::from_utf8_lossy(p[0]).into_owned(), OsStr::from_bytes(p[1]).into())).collect()
}

/// Takes commands off a message.
#[derive(Clone, Debug)]
pub struct Commands<'a>(Reader<'a>);

impl<'a> Commands<'a> {
    /// Splits a received message.
    ///
    /// # Errors
    /// A message that is too short or too long, or has no number.
    pub fn open(message: &'a [u8]) -> Result<(Head, Commands<'a>)> {
        if message.len() > MESSAGE_MAX {
            return Err(Error::new("a message is too long"));
        }
        let mut r = Reader(message);
        let head = Head { seq: r.u64()?, queue: r.u32()?, fresh: r.u8()? != 0, core: r.u16()? };
        if head.seq == UNSENT {
            return Err(Error::new("a message has no number"));
        }
        Ok((head, Commands(r)))
    }

    /// Goes on with a message at a position that [`Commands::position`] gave.
    pub fn resume(message: &'a [u8], position: usize) -> Commands<'a> {
        Commands(Reader(message.get(position..).unwrap_or_default()))
    }

    /// How far this message has been read.
    pub fn position(&self, message: &[u8]) -> usize {
        message.len() - self.0.0.len()
    }

    /// The next command, or `None` at the end.
    ///
    /// # Errors
    /// An unknown operation, or one that ends too early.
    #[inline]
    pub fn take(&mut self) -> Result<Option<Command<'a>>> {
        if self.0.0.is_empty() {
            return Ok(None);
        }
        let r = &mut self.0;
        let op = r.u8()?;
        Ok(Some(match op {
            1 => {
                let (to, len) = (r.u64()?, r.u64()?);
                Command::Write { to, bytes: r.bytes(usize::try_from(len).unwrap_or(usize::MAX))? }
            }
            2 => {
                let (from, len) = (r.u64()?, r.u64()?);
                let len = u32::try_from(len).ok().filter(|&n| n as usize <= MESSAGE_MAX);
                Command::Read { from, len: len.ok_or_else(|| Error::new("a read is too long for a reply"))? }
            }
            3 => {
                let (to, len, (rank, tag)) = (r.u64()?, r.u64()?, unpair(r.u64()?));
                Command::Receive { to, len, rank, tag }
            }
            4 => {
                let (from, len, (rank, tag)) = (r.u64()?, r.u64()?, unpair(r.u64()?));
                Command::Send { from, len, rank, tag }
            }
            5 | 15 => {
                let (kernel, n) = (r.u64()?, r.u64()?);
                let bytes = usize::try_from(n).ok().and_then(|n| n.checked_mul(8)).unwrap_or(usize::MAX);
                Command::Launch { kernel, args: Args(r.bytes(bytes)?), array: op == 15 }
            }
            6 => Command::Copy { to: r.u64()?, from: r.u64()?, len: r.u64()? },
            7 => Command::Wait { seq: r.u64()? },
            8 => Command::Discard { at: r.u64()?, len: r.u64()? },
            9 => Command::Start { at: r.u64()?, len: r.u64()? },
            10 => {
                let (image, (rank, tag)) = (id(r.u64()?)?, unpair(r.u64()?));
                let (len, libraries, to) = (r.u64()?, r.u64()?, [r.u64()?, r.u64()?]);
                if libraries >= len {
                    return Err(Error::new("an image has no bytes besides its list of libraries"));
                }
                let to = to.map(|to| (to != NOBODY).then_some(unpair(to)));
                Command::Image { image, rank, tag, len, libraries, to }
            }
            11 => Command::Unload { image: id(r.u64()?)? },
            12 => Command::Move { image: id(r.u64()?)? },
            13 => Command::Shutdown,
            14 => Command::Redirect { from: r.u64()?, to: r.u64()? },
            17 => {
                let len = r.u64()?;
                Command::Preload { libraries: r.bytes(usize::try_from(len).unwrap_or(usize::MAX))? }
            }
            16 => Command::Load { image: id(r.u64()?)? },
            18 => Command::Watch { events: r.u64()? },
            19 => Command::Clock,
            20 => Command::Recall,
            21 => Command::Printed { bytes: r.u64()? },
            _ => return Err(Error::new(format!("unknown operation {op} in a message"))),
        }))
    }
}

fn unpair(n: u64) -> (u32, u32) {
    ((n >> 32) as u32, n as u32)
}

fn id(n: u64) -> Result<u32> {
    u32::try_from(n).map_err(|_| Error::new("an image number is out of range"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn every_command(n: u64, bytes: &[u8]) -> Vec<Command<'_>> {
        let (a, b) = (n as u32, (n >> 7) as u32);
        vec![
            Command::Write { to: n, bytes },
            Command::Read { from: n, len: a % (MESSAGE_MAX as u32 + 1) },
            Command::Receive { to: n, len: n ^ 5, rank: a, tag: b },
            Command::Send { from: n, len: n ^ 9, rank: b, tag: a },
            Command::Copy { to: n, from: !n, len: n / 3 },
            Command::Launch { kernel: n, args: Args(&bytes[..bytes.len() / 8 * 8]), array: n.is_multiple_of(2) },
            Command::Wait { seq: n },
            Command::Discard { at: n, len: !n },
            Command::Start { at: n, len: !n },
            Command::Image { image: a, rank: b, tag: a, len: n.max(1), libraries: n / 2, to: [Some((a / 2, b)), None] },
            Command::Load { image: b },
            Command::Preload { libraries: bytes },
            Command::Unload { image: a },
            Command::Move { image: b },
            Command::Shutdown,
            Command::Redirect { from: n, to: !n },
            Command::Watch { events: n },
            Command::Clock,
            Command::Recall,
            Command::Printed { bytes: n },
        ]
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(n: u64, queue: u32, fresh: bool, core: u16, seq in 1u64.., bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut message = Vec::new();
            Head::begin(&mut message, queue, fresh);
            prop_assert_eq!(message.len(), HEAD_LEN);
            prop_assert!(Commands::open(&message).is_err(), "an unsent message is no message");
            let commands = every_command(n, &bytes);
            for c in &commands {
                let before = message.len();
                Writer(&mut message).push(*c);
                let limit = match c {
                    Command::Write { bytes, .. } | Command::Preload { libraries: bytes } => COMMAND_MAX + bytes.len(),
                    Command::Launch { args, .. } => launch_len(args.iter().len()),
                    _ => COMMAND_MAX,
                };
                prop_assert!(message.len() - before <= limit);
            }
            Head::patch(&mut message, seq, core);
            let (head, mut rest) = Commands::open(&message).unwrap();
            prop_assert_eq!(head, Head { seq, queue, fresh, core });
            for c in commands {
                rest = Commands::resume(&message, rest.position(&message));
                prop_assert_eq!(rest.take().unwrap(), Some(c));
            }
            prop_assert_eq!(rest.take().unwrap(), None);
        }

        #[test]
        fn parts_are_the_whole(len in 1u64..1 << 40) {
            let all: Vec<_> = parts(len).collect();
            prop_assert!(all.len() <= IMAGE_PARTS);
            prop_assert!(all.iter().all(|p| !p.is_empty()));
            prop_assert!(all.windows(2).all(|w| w[0].end == w[1].start));
            prop_assert_eq!((all[0].start, all[all.len() - 1].end), (0, len as usize));
        }

        #[test]
        fn any_bytes_are_safe_to_read(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok((_, mut rest)) = Commands::open(&bytes) {
                while let Ok(Some(_)) = rest.take() {}
            }
        }
    }
}
