// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Device to host: one [`Reply::Done`] or [`Reply::Failed`] per command message, and
//! [`Reply::Output`] whenever something was printed, and [`Reply::Records`] if asked for.

use super::record::Records;
use super::{MESSAGE_MAX, Reader};
use crate::base::{Error, Result};

/// A message from a device.
#[allow(missing_docs, reason = "the fields are named in each kind's line")]
#[derive(Clone, Debug, PartialEq)]
pub enum Reply<'a> {
    /// 1: message `seq` was executed; the bytes of its reads in order.
    Done { seq: u64, bytes: &'a [u8] },
    /// 2: message `seq` failed.
    Failed { seq: u64, failure: Failure },
    /// 3: something was printed; comes before the reply of the kernel that printed it.
    Output { stream: Stream, bytes: &'a [u8] },
    /// 4: what happened on the device; comes before the reply to the command that asks for it.
    Records(Records<'a>),
}

/// Where printed text belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stream {
    /// Standard output.
    Out = 1,
    /// Standard error.
    Err = 2,
}

/// Why a message failed on the device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Failure {
    /// The device executes nothing any more: its memory can't be trusted.
    pub lost: bool,
    /// Address of the kernel that failed, or 0.
    pub kernel: u64,
    /// The signal that ended it, or 0.
    pub signal: u32,
    /// The address that it faulted at, or 0.
    pub address: u64,
    /// What failed and why.
    pub text: String,
}

/// Starts a [`Reply::Done`] to which the bytes of reads are appended.
pub fn begin_done(out: &mut Vec<u8>, seq: u64) {
    out.clear();
    out.push(1);
    out.extend_from_slice(&seq.to_le_bytes());
}

/// Bytes that a [`Reply::Done`] takes besides those of its reads.
pub const DONE_LEN: usize = 9;

/// Makes a [`Reply::Failed`].
pub fn failed(out: &mut Vec<u8>, seq: u64, failure: &Failure) {
    out.clear();
    out.push(2);
    out.extend_from_slice(&seq.to_le_bytes());
    out.push(u8::from(failure.lost));
    out.extend_from_slice(&failure.kernel.to_le_bytes());
    out.extend_from_slice(&failure.signal.to_le_bytes());
    out.extend_from_slice(&failure.address.to_le_bytes());
    let end = failure.text.floor_char_boundary(MESSAGE_MAX - out.len());
    out.extend_from_slice(&failure.text.as_bytes()[..end]);
}

/// Bytes that a [`Reply::Output`] takes besides those that were printed.
pub const OUTPUT_LEN: usize = 2;

/// Starts a [`Reply::Output`] to which the printed bytes are appended.
pub fn begin_output(out: &mut Vec<u8>, stream: Stream) {
    out.clear();
    out.extend_from_slice(&[3, stream as u8]);
}

/// Starts a [`Reply::Records`] to which [`super::record::Record::write`] appends.
pub fn begin_records(out: &mut Vec<u8>) {
    out.clear();
    out.push(4);
}

impl<'a> Reply<'a> {
    /// Reads a message from a device.
    ///
    /// # Errors
    /// Anything that no device of this protocol sends.
    #[inline]
    pub fn parse(message: &'a [u8]) -> Result<Reply<'a>> {
        let mut r = Reader(message);
        Ok(match r.u8()? {
            1 => Reply::Done { seq: r.u64()?, bytes: r.0 },
            2 => {
                let seq = r.u64()?;
                let (lost, kernel, signal, address) = (r.u8()? != 0, r.u64()?, r.u32()?, r.u64()?);
                let text = String::from_utf8_lossy(r.0).into_owned();
                Reply::Failed { seq, failure: Failure { lost, kernel, signal, address, text } }
            }
            3 => {
                let stream = match r.u8()? {
                    1 => Stream::Out,
                    2 => Stream::Err,
                    n => return Err(Error::new(format!("output for an unknown stream {n}"))),
                };
                Reply::Output { stream, bytes: r.0 }
            }
            4 => Reply::Records(Records(r.0)),
            kind => return Err(Error::new(format!("unknown kind {kind} of reply"))),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_written_is_read(seq: u64, bytes in prop::collection::vec(any::<u8>(), 0..200),
                                   lost: bool, kernel: u64, signal: u32, address: u64, text in ".{0,80}") {
            let mut out = Vec::new();
            begin_done(&mut out, seq);
            prop_assert_eq!(out.len(), DONE_LEN);
            out.extend_from_slice(&bytes);
            prop_assert_eq!(Reply::parse(&out).unwrap(), Reply::Done { seq, bytes: &bytes });
            let failure = Failure { lost, kernel, signal, address, text };
            failed(&mut out, seq, &failure);
            prop_assert_eq!(Reply::parse(&out).unwrap(), Reply::Failed { seq, failure });
            begin_output(&mut out, Stream::Err);
            prop_assert_eq!(out.len(), OUTPUT_LEN);
            out.extend_from_slice(&bytes);
            prop_assert_eq!(Reply::parse(&out).unwrap(), Reply::Output { stream: Stream::Err, bytes: &bytes });
            begin_records(&mut out);
            out.extend_from_slice(&bytes);
            prop_assert_eq!(Reply::parse(&out).unwrap(), Reply::Records(Records(&bytes)));
        }

        #[test]
        fn any_bytes_are_safe_to_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Reply::parse(&bytes);
        }
    }
}
