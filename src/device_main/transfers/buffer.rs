// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Memory for data in transit: on the heap, or a part of a block that an accelerator's driver has pinned. The
//! accelerator copies from and to pinned memory without an additional copy by the driver.

use crate::base::limits::{PINNED, STAGED, THREADS};
use crate::base::lock::{Mutex, order};
use crate::wire::MESSAGE_MAX;
use std::ops::{Deref, DerefMut};
use std::slice;
use std::sync::Arc;

/// The size of a part for the small data of one launch: the data in the message, and the data in its reply.
const SMALL: usize = 2 * MESSAGE_MAX;
/// The size of a part for bulk data, and the small data of a launch that takes the bulk data along.
const LARGE: usize = STAGED as usize + SMALL;

/// Bytes that do not move with this value.
pub(crate) enum Buffer {
    Heap(Vec<u8>),
    Pinned(Part),
}

/// A part of a [`Block`]; the drop returns it to the block.
pub(crate) struct Part {
    at: usize,
    len: usize,
    size: Size,
    block: Arc<Block>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Size {
    Small,
    Large,
}

impl Size {
    fn room(self) -> usize {
        match self {
            Size::Small => SMALL,
            Size::Large => LARGE,
        }
    }
}

/// Pinned memory, divided into parts.
pub(crate) struct Block {
    free: Mutex<Vec<(usize, Size)>, { order::LEAF }>,
}

impl Block {
    /// The size of a block for small data only.
    pub const LEAST: usize = THREADS * SMALL;
    /// The size of a block for bulk data, too.
    pub const MOST: usize = Block::LEAST + (PINNED - Block::LEAST) / LARGE * LARGE;

    /// Divides memory: a part for the small data of each thread, the rest for bulk data.
    ///
    /// # Safety
    /// The memory can be read and written, is never freed, and nothing else uses it.
    pub unsafe fn divide(start: *mut u8, len: usize) -> Arc<Block> {
        let begin = start as usize;
        let small = (0..THREADS).map(|i| (begin + i * SMALL, Size::Small));
        let rest = begin + Block::LEAST;
        let large = (rest..(begin + len + 1).saturating_sub(LARGE)).step_by(LARGE).map(|at| (at, Size::Large));
        Arc::new(Block { free: Mutex::new(small.chain(large).collect()) })
    }

    /// An empty buffer of this size, if one is free.
    pub fn take(self: &Arc<Block>, size: Size) -> Option<Buffer> {
        let mut free = self.free.lock();
        let place = free.iter().rposition(|part| part.1 == size)?;
        let (at, size) = free.swap_remove(place);
        Some(Buffer::Pinned(Part { at, len: 0, size, block: Arc::clone(self) }))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.block.free.lock().push((self.at, self.size));
    }
}

impl Buffer {
    /// Changes the length. New bytes have arbitrary contents.
    pub fn resize(&mut self, len: usize) {
        match self {
            Buffer::Heap(bytes) => bytes.resize(len, 0),
            Buffer::Pinned(part) if len <= part.size.room() => part.len = len,
            Buffer::Pinned(_) => {
                let mut bytes = Vec::with_capacity(len);
                bytes.extend_from_slice(self);
                bytes.resize(len, 0);
                *self = Buffer::Heap(bytes);
            }
        }
    }
}

impl Default for Buffer {
    fn default() -> Buffer {
        Buffer::Heap(Vec::new())
    }
}

impl From<Vec<u8>> for Buffer {
    fn from(bytes: Vec<u8>) -> Buffer {
        Buffer::Heap(bytes)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Buffer::Heap(bytes) => bytes,
            // SAFETY: `divide`'s caller answers for the memory, and no other value has this part of it.
            Buffer::Pinned(part) => unsafe { slice::from_raw_parts(part.at as *const u8, part.len) },
        }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Buffer::Heap(bytes) => bytes,
            // SAFETY: as in `deref`.
            Buffer::Pinned(part) => unsafe { slice::from_raw_parts_mut(part.at as *mut u8, part.len) },
        }
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/transfers/buffer.rs"]
mod tests;
