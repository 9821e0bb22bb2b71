// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Buffers for bulk data of memory that this process can't access. Some unused buffers are kept, because the system
//! clears the pages of new ones. With an accelerator the first buffers are pinned memory.
//!
//! A message whose turn it is always gets a buffer: otherwise two devices that copy to each other could wait forever.
//! Other messages share [`STAGED_AHEAD`] buffers.

use super::buffer::{Block, Buffer, Size};
use crate::base::Result;
use crate::base::limits::{INLINE_MAX, MEMORY_AHEAD, STAGED, STAGED_AHEAD};
use crate::base::lock::{Mutex, order};
use crate::debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// The maximum number of buffers that are kept. No more than were in use at once: pieces of the program's memory are
/// many.
const KEPT: usize = if MEMORY_AHEAD > STAGED_AHEAD + 2 { MEMORY_AHEAD } else { STAGED_AHEAD + 2 };

#[derive(Default)]
pub(crate) struct Staging {
    kept: Mutex<Vec<Vec<u8>>, { order::LEAF }>,
    /// Pinned memory, once it is known whether there is any.
    pinned: OnceLock<Option<Arc<Block>>>,
    /// The number of buffers that belong to messages whose turn has not come, or is over.
    ahead: AtomicUsize,
}

impl Staging {
    /// Pins buffers if possible: those for small data and, unless MPI moves bulk data itself (`is_direct`), those for
    /// bulk data. True if buffers are pinned.
    ///
    /// # Safety
    /// `pin` allocates this much memory of this process that an accelerator's driver has pinned. The memory is
    /// writable, may have any contents, is used by nothing else, and is never freed.
    pub unsafe fn pin(&self, is_direct: bool, pin: impl FnOnce(usize) -> Result<*mut u8>) -> bool {
        let pin = || {
            let len = if is_direct { Block::LEAST } else { Block::MOST };
            let pinned = pin(len);
            match &pinned {
                Ok(_) => debug!("buffers: {len} bytes of pinned memory"),
                Err(e) => debug!("buffers: of ordinary memory; {e}"),
            }
            // SAFETY: the caller's promise. The memory is never freed: MPI may know its pages until MPI ends.
            pinned.ok().map(|at| unsafe { Block::divide(at, len) })
        };
        self.pinned.get_or_init(pin).is_some()
    }

    fn pinned(&self, size: Size) -> Option<Buffer> {
        self.pinned.get()?.as_ref()?.take(size)
    }

    /// An empty buffer for the small data of a launch.
    pub fn small(&self) -> Buffer {
        self.pinned(Size::Small).unwrap_or_default()
    }

    /// A buffer of this length with arbitrary contents.
    pub fn take(&self, len: usize) -> Buffer {
        if let Some(mut buffer) = self.pinned(Size::Large).filter(|_| len <= STAGED as usize) {
            buffer.resize(len);
            return buffer;
        }
        let mut buffer = self.kept.lock().pop().unwrap_or_default();
        if buffer.capacity() < len {
            // Growing would copy the old contents, and allocate more than requested.
            buffer = Vec::with_capacity(len);
        }
        buffer.resize(len, 0);
        buffer.into()
    }

    /// Keeps a buffer that is not needed any more, unless there are enough, or it was not for bulk data or is too
    /// large.
    pub fn give(&self, buffer: Buffer) {
        let Buffer::Heap(buffer) = buffer else { return };
        if (INLINE_MAX + 1..=STAGED as usize).contains(&buffer.capacity()) {
            let mut kept = self.kept.lock();
            if kept.len() < KEPT {
                kept.push(buffer);
            }
        }
    }

    /// True if one more message may have a buffer although it is not its turn, until [`Staging::end_ahead`] is called.
    pub fn begin_ahead(&self) -> bool {
        let one_more = |n: usize| (n < STAGED_AHEAD).then_some(n + 1);
        self.ahead.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more).is_ok()
    }

    pub fn end_ahead(&self) {
        self.ahead.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/transfers/staging.rs"]
mod tests;
