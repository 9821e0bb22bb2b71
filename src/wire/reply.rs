// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Device to host: one [`Reply::Done`] or [`Reply::Failed`] per command message, [`Reply::Output`] for
//! printed text, and [`Reply::Records`] on request.

use super::Reader;
use super::format::{Field, wire_format};
use super::record::Records;
use crate::base::Result;

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
        /// The device executes nothing any more, because its memory can't be trusted.
        pub lost: bool,
        /// Address of the kernel that failed, or 0.
        pub kernel: u64,
        /// The signal that it received, or 0.
        pub signal: u32,
        /// The address of its fault, or 0.
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

impl<'a> Reply<'a> {
    /// Writes the message over `out`.
    #[inline(always)]
    fn write(&self, out: &mut Vec<u8>) {
        out.clear();
        Field::write(self, out);
    }

    /// Reads a message from a device.
    #[inline]
    pub fn parse(message: &'a [u8]) -> Result<Reply<'a>> {
        Reader(message).take()
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/wire/reply.rs"]
mod tests;
