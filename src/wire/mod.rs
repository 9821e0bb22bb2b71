// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Every message between host and device, defined once, with its validator. Each kind of message
//! is one line of a table; `format` derives its type, writer, reader and length.
//!
//! No I/O and no MPI here: bytes in, values out. Numbers are little-endian. All ranks exchange a
//! [`hello`]; then a host sends messages of [`command`]s or [`control`] operations, and a device answers each with one
//! [`reply`].

pub(crate) mod check;
pub mod command;
pub mod control;
pub(crate) mod format;
pub mod hello;
pub mod record;
pub mod reply;

use crate::base::limits::{MEMORY_PIECE, MEMORY_PIECE_MIN};
use crate::base::{Error, Result};

/// Incremented with every change of a message's layout or meaning.
pub const PROTOCOL: u32 = 22;

pub(crate) use crate::base::limits::INLINE_MAX;
pub use crate::base::limits::MESSAGE_MAX;
pub use format::{Bytes, Field};

/// Bytes of a message with the extra last byte that names the device of a rank with several devices.
pub(crate) const ROOM: usize = MESSAGE_MAX + 1;

/// Bytes of a block of the program's memory; each block has a digest.
pub const BLOCK: usize = 64 << 10;

/// Bytes of a piece of the program's memory that travels as bulk data, in whole blocks. `None` if the largest piece of
/// bulk data is too small for that to pay off.
pub(crate) fn memory_piece(fragment: usize) -> Option<usize> {
    let piece = MEMORY_PIECE.min(fragment) / BLOCK * BLOCK;
    (piece >= MEMORY_PIECE_MIN).then_some(piece)
}

/// Takes values from the front of a received message.
#[derive(Clone, Debug)]
pub struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    #[inline]
    pub(crate) fn bytes(&mut self, n: usize) -> Result<&'a [u8]> {
        let (head, tail) = self.0.split_at_checked(n).ok_or_else(short)?;
        self.0 = tail;
        Ok(head)
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, tail) = self.0.split_first_chunk::<N>().ok_or_else(short)?;
        self.0 = tail;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn take<T: Field<'a>>(&mut self) -> Result<T> {
        T::read(self)
    }
}

#[cold]
fn short() -> Error {
    Error::new("a message ends too early")
}

#[cfg(test)]
#[path = "../../test/rust/unit/wire.rs"]
mod tests;
