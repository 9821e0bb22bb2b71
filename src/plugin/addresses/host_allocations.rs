// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Memory of the program that regions use at the program's addresses: shared and host memory.

use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use std::alloc::{Layout, alloc, dealloc};
use std::collections::BTreeMap;
use std::ops::Range;

/// The alignment of every allocation.
const ALIGN: usize = 64;

/// The allocations: address to layout.
#[derive(Default)]
pub(crate) struct Allocations(Mutex<BTreeMap<usize, Layout>, { order::LEAF }>);

impl Allocations {
    pub(crate) fn alloc(&self, size: u64) -> Result<u64> {
        let layout = Layout::from_size_align(size.max(1) as usize, ALIGN);
        // SAFETY: the layout's size is not zero.
        let allocated = layout.map(|layout| (unsafe { alloc(layout) } as usize, layout));
        let Some((at, layout)) = allocated.ok().filter(|(at, _)| *at != 0) else {
            return Err(Error::new(format!("no room for {size} bytes on the host")));
        };
        self.0.lock().insert(at, layout);
        Ok(at as u64)
    }

    /// Frees what [`Allocations::alloc`] returned; false for any other address.
    pub(crate) fn free(&self, at: u64) -> bool {
        let Some(layout) = self.0.lock().remove(&(at as usize)) else { return false };
        // SAFETY: `alloc` allocated it with this layout, and its entry is removed.
        unsafe { dealloc(at as *mut u8, layout) };
        true
    }

    /// The allocation that contains the `len` bytes at an address.
    pub(crate) fn around(&self, at: u64, len: u64) -> Option<Range<u64>> {
        let allocations = self.0.lock();
        let (&start, layout) = allocations.range(..=at as usize).next_back()?;
        let end = start as u64 + layout.size() as u64;
        (at.saturating_add(len) <= end).then_some(start as u64..end)
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/addresses/host_allocations.rs"]
mod tests;
