// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Buffers for bulk data of memory that this process can't access. Some are kept: the system clears the pages of new ones.

use crate::base::limits::{INLINE_MAX, STAGED};
use crate::base::lock::{Mutex, order};

/// Most buffers that are kept.
const KEPT: usize = 4;

#[derive(Default)]
pub(super) struct Staging(Mutex<Vec<Vec<u8>>, { order::LEAF }>);

impl Staging {
    /// A buffer of this length with any contents.
    pub fn take(&self, len: usize) -> Vec<u8> {
        let mut buffer = self.0.lock().pop().unwrap_or_default();
        buffer.resize(len, 0);
        buffer
    }

    /// Keeps a buffer that is not needed any more, unless there are enough, or it was not for bulk data or is too large.
    pub fn give(&self, buffer: Vec<u8>) {
        if (INLINE_MAX + 1..=STAGED as usize).contains(&buffer.capacity()) {
            let mut kept = self.0.lock();
            if kept.len() < KEPT {
                kept.push(buffer);
            }
        }
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/device_main/staging.rs"]
mod tests;
