// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Every message between host and device, defined once, with its validator.
//!
//! No I/O and no MPI here: bytes in, values out. Numbers are little-endian. A host sends
//! [`command`] messages; a device answers each with one [`reply`]; before either, all
//! ranks exchange a [`hello`].

pub mod check;
pub mod command;
pub mod hello;
pub mod packet;
pub mod record;
pub mod reply;

use crate::base::{Error, Result};

/// Raised with every change of a message's layout or meaning.
pub const PROTOCOL: u32 = 6;

pub use crate::base::limits::{INLINE_MAX, MESSAGE_MAX};

/// A message to or from a rank with several devices has one byte more, the last: which of
/// them it is for, or from.
pub const ROOM: usize = MESSAGE_MAX + 1;

/// Takes values off the front of a received message.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n).ok_or_else(short)?;
        self.0 = tail;
        Ok(head)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or_else(short)?;
        self.0 = tail;
        Ok(*head)
    }

    #[inline]
    pub fn u8(&mut self) -> Result<u8> {
        Ok(self.array::<1>()?[0])
    }

    #[inline]
    pub fn u16(&mut self) -> Result<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    #[inline]
    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    #[inline]
    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }
}

#[cold]
fn short() -> Error {
    Error::new("a message ends too early")
}
