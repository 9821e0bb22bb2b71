// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Device to host: one [`Reply::Done`] or [`Reply::Failed`] per command message; before it, the output of regions,
//! their changes to the program's memory, their requests to the program, and records.

use super::command::SharedFile;
use super::format::{Field, wire_format};
use super::record::Records;
use super::{BLOCK, MESSAGE_MAX, Reader};
use crate::base::limits::{MEMORY_PIECE, PAGE};
use crate::base::{Error, Result};

wire_format! {
    /// A message from a device.
    #[allow(missing_docs, reason = "the fields are named in each kind's line")]
    #[derive(Clone, Debug, PartialEq)]
    pub enum Reply<'a> {
        /// The device has executed message `seq`; the bytes of its reads follow in order.
        Done { seq: u64, bytes: &'a [u8] } = 1,
        /// Message `seq` failed.
        Failed { seq: u64, failure: Failure } = 2,
        /// Printed text; precedes the reply of the kernel that printed it.
        Output { stream: Stream, bytes: &'a [u8] } = 3,
        /// Statistics and trace; precedes the reply to the command that requests it.
        Records(records: Records<'a>) = 4,
        /// Requests the program's memory at this address, up to `len` bytes, which a region uses. The host sends what
        /// the device does not already have as [`super::control::Answer::Pages`].
        Fetch { at: u64, len: u64, known: Known<'a> } = 5,
        /// Changes that the kernel of message `seq` made to the program's memory; precedes the reply to that message.
        Changed { seq: u64, changes: Changes<'a> } = 6,
        /// A change of a large range, when host and device are on one node: the new bytes are at address `new` of the
        /// device, the old ones at the offset `at` of a file of the device. The host reads them there and answers with
        /// [`super::control::Answer::Taken`].
        ChangedThere { seq: u64, at: u64, len: u64, new: u64, old: SharedFile } = 8,
        /// A change of a large range that the host can't read: a piece of bulk data of `len` bytes has the new bytes,
        /// and `old` the digests of the old blocks. The host answers with [`super::control::Answer::Merged`].
        ChangedAside { seq: u64, at: u64, len: u32, old: Digests<'a> } = 9,
        /// Requests the name of the program's function at this address, which a region calls.
        Find { at: u64 } = 7,
    }
}

/// Changes of the program's memory. Each has an address, a length, the new bytes, and the old bytes, which the region
/// fetched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Changes<'a>(pub &'a [u8]);

/// An address, the new bytes and the old ones.
pub type Change<'a> = (u64, &'a [u8], &'a [u8]);

impl<'a> Changes<'a> {
    /// Bytes of a change besides its contents.
    pub(crate) const HEAD: usize = <(u64, u32)>::LEN;

    /// Appends a change to a message that [`begin_changed`] has started.
    pub fn push(out: &mut Vec<u8>, at: u64, new: &[u8], old: &[u8]) {
        (at, new.len() as u32).write(out);
        out.extend_from_slice(new);
        out.extend_from_slice(old);
    }

    /// The next change.
    pub fn take(&mut self) -> Result<Option<Change<'a>>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut rest = Reader(self.0);
        let (at, len): (u64, u32) = rest.take()?;
        let (new, old) = (rest.bytes(len as usize)?, rest.bytes(len as usize)?);
        self.0 = rest.0;
        Ok(Some((at, new, old)))
    }
}

impl<'a> Field<'a> for Changes<'a> {
    const LEN: usize = 0;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(r: &mut Reader<'a>) -> Result<Self> {
        let changes = Changes(r.take()?);
        let mut rest = changes;
        while rest.take()?.is_some() {}
        Ok(changes)
    }
}

/// Parts of the program's memory that a device has kept: for each an address, a length and a digest (XXH3-128). They
/// consist of whole pages, ascend, and do not overlap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Known<'a>(pub &'a [u8]);

/// An address, a length and the digest of the device's bytes there.
pub type KnownPart = (u64, u32, u128);

impl<'a> Known<'a> {
    /// The maximum number of bytes of memory in a part.
    pub const PART_MAX: u32 = BLOCK as u32;
    /// The maximum number of parts in a message.
    pub(crate) const MOST: usize = (MESSAGE_MAX - Reply::LEN) / Self::EACH;
    const EACH: usize = u64::LEN + u32::LEN + u128::LEN;

    /// Appends a part to a list.
    pub fn push(out: &mut Vec<u8>, (at, len, digest): KnownPart) {
        at.write(out);
        len.write(out);
        digest.write(out);
    }

    /// The next part.
    pub fn take(&mut self) -> Result<Option<KnownPart>> {
        if self.0.is_empty() {
            return Ok(None);
        }
        let mut rest = Reader(self.0);
        let part = (rest.take()?, rest.take()?, rest.take()?);
        self.0 = rest.0;
        Ok(Some(part))
    }

    fn check(mut self) -> Result<()> {
        let mut free = 0;
        while let Some((at, len, _)) = self.take()? {
            let end = at.checked_add(len.into()).filter(|_| at >= free && (1..=Self::PART_MAX).contains(&len));
            let is_whole = |end: &u64| at.is_multiple_of(PAGE) && end.is_multiple_of(PAGE);
            free =
                end.filter(is_whole).ok_or_else(|| Error::new("a device has no such part of the program's memory"))?;
        }
        Ok(())
    }
}

impl<'a> Field<'a> for Known<'a> {
    const LEN: usize = 0;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(r: &mut Reader<'a>) -> Result<Self> {
        let known = Known(r.take()?);
        known.check()?;
        Ok(known)
    }
}

/// Digests (XXH3-128) of the blocks of a range.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Digests<'a>(pub &'a [u8]);

impl<'a> Digests<'a> {
    /// Appends a digest to a list.
    pub fn push(out: &mut Vec<u8>, digest: u128) {
        digest.write(out);
    }

    /// The digests.
    pub fn iter(self) -> impl Iterator<Item = u128> + 'a {
        self.0.as_chunks().0.iter().map(|bytes| u128::from_le_bytes(*bytes))
    }

    /// True if these are the digests of a piece of memory of `len` bytes.
    fn fit(self, len: u32) -> bool {
        (1..=MEMORY_PIECE).contains(&(len as usize)) && self.0.len() == (len as usize).div_ceil(BLOCK) * u128::LEN
    }
}

impl<'a> Field<'a> for Digests<'a> {
    const LEN: usize = 0;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
    }

    fn read(r: &mut Reader<'a>) -> Result<Self> {
        Ok(Digests(r.take()?))
    }
}

wire_format! {
    /// Where printed text goes.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Stream {
        /// Standard output.
        Out = 1,
        /// Standard error.
        Err = 2,
    }
}

wire_format! {
    /// Why a message failed on the device.
    #[derive(Clone, Debug, Default, PartialEq)]
    pub struct Failure {
        /// The device executes nothing from now on, because its memory can't be trusted.
        pub lost: bool,
        /// Address of the kernel that failed, or 0.
        pub kernel: u64,
        /// The signal that the kernel received, or 0.
        pub signal: u32,
        /// The address of the kernel's fault, or 0.
        pub address: u64,
        /// What failed and why.
        pub text: String,
    }
}

/// Bytes of a [`Reply::Done`] without those of its reads.
pub(crate) const DONE_LEN: usize = 1 + u64::LEN;
/// Bytes of a [`Reply::Output`] without the printed text.
pub(crate) const OUTPUT_LEN: usize = 1 + Stream::LEN;

/// Starts a [`Reply::Done`]; the caller appends the bytes of reads.
#[inline]
pub fn begin_done(out: &mut Vec<u8>, seq: u64) {
    Reply::Done { seq, bytes: &[] }.write(out);
}

/// Writes a [`Reply::Failed`].
pub fn failed(out: &mut Vec<u8>, seq: u64, failure: &Failure) {
    Reply::Failed { seq, failure: failure.clone() }.write(out);
}

/// Starts a [`Reply::Output`]; the caller appends the printed text.
pub fn begin_output(out: &mut Vec<u8>, stream: Stream) {
    Reply::Output { stream, bytes: &[] }.write(out);
}

/// Starts a [`Reply::Records`]; [`super::record::Record::write`] appends to it.
pub fn begin_records(out: &mut Vec<u8>) {
    Reply::Records(Records(&[])).write(out);
}

/// Starts a [`Reply::Changed`]; [`Changes::push`] appends to it.
pub fn begin_changed(out: &mut Vec<u8>, seq: u64) {
    Reply::Changed { seq, changes: Changes(&[]) }.write(out);
}

impl<'a> Reply<'a> {
    /// Writes the message over `out`.
    #[inline(always)]
    pub fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        Field::write(self, out);
    }

    /// Reads a message from a device.
    #[inline]
    pub fn parse(message: &'a [u8]) -> Result<Reply<'a>> {
        match Reader(message).take()? {
            Reply::ChangedAside { len, old, .. } if !old.fit(len) => {
                Err(Error::new("a piece of the program's memory has a wrong length, or not as many digests as blocks"))
            }
            reply => Ok(reply),
        }
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/wire/reply.rs"]
mod tests;
