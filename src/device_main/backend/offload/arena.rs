// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The arena of an accelerator: one block of its memory, at addresses that no other device of the job uses.

use super::runtime::Runtime;
use crate::base::{Error, Result};
use crate::device_main::backend::Wish;
use crate::sys::mapping;
use crate::sys::process::Mappings;
use std::collections::HashSet;
use std::ops::Range;

/// The host's side allocates whole pages.
const PAGE: u64 = 4096;
/// The smallest arena.
const LEAST: u64 = 1 << 20;
/// How often to allocate at other addresses.
const TRIES: usize = 8;

/// The block that contains the arena, and the arena's range.
#[derive(Default)]
pub(super) struct Arena {
    block: Option<u64>,
    pub range: Range<u64>,
}

/// Addresses that this process keeps free, because they have another use in the job: the ranges that it could reserve
/// as a whole.
#[derive(Default)]
pub(super) struct Avoided(HashSet<(u64, u64)>);

impl Avoided {
    /// Reserves the free ones of these addresses, so that the loader takes none of them, and neither does a driver that
    /// uses the process's address space. This process may have something in a range, and unmap it later: the next call
    /// then reserves what has become free.
    pub fn add(&mut self, taken: impl Iterator<Item = Range<u64>>) {
        let reserve = |range: &Range<u64>| mapping::map_at(range.start, range.end - range.start, libc::PROT_NONE, None);
        let is_in_use = |range: &Range<u64>| {
            let name = (range.start, range.end);
            !self.0.contains(&name) && (reserve(range).is_err() || !self.0.insert(name))
        };
        let in_use: Vec<_> = taken.filter(is_in_use).collect();
        if !in_use.is_empty() {
            reserve_free(in_use);
        }
    }
}

/// Reserves the free ones of these addresses.
fn reserve_free(ranges: impl IntoIterator<Item = Range<u64>>) {
    let mappings = Mappings::now();
    for free in ranges.into_iter().flat_map(|range| mappings.free_in(range)) {
        // This fails if another thread maps something there meanwhile.
        let _ = mapping::map_at(free.start, free.end - free.start, libc::PROT_NONE, None);
    }
}

impl Arena {
    /// Allocates another block. If it overlaps taken addresses, tries again while it keeps all earlier blocks or,
    /// without room for that, reserves their addresses. If the driver offers these again, tries a smaller block
    /// elsewhere, unless the size is exact. The host's side judges the result.
    pub fn obtain(&mut self, runtime: &Runtime, wish: &Wish) -> Result<()> {
        let mut len = match self.block {
            Some(_) => self.range.end - self.range.start,
            None if wish.exact => wish.len,
            None => runtime.share().map_or(wish.len, |share| (share & !(PAGE - 1)).max(LEAST)),
        };
        let mut earlier: Vec<(u64, Range<u64>)> =
            self.block.take().map(|block| (block, self.range.clone())).into_iter().collect();
        let (mut tries, mut is_freed) = (1..TRIES, false);
        let obtained = loop {
            let mut obtained = allocate(runtime, len, wish.exact || !earlier.is_empty());
            if obtained.is_err() && !earlier.is_empty() {
                if wish.exact || !std::mem::replace(&mut is_freed, true) {
                    earlier.iter().for_each(|(block, _)| runtime.free(*block));
                    reserve_free(earlier.drain(..).map(|(_, range)| range));
                }
                obtained = allocate(runtime, len, wish.exact);
            }
            let Ok((block, range)) = &obtained else { break obtained };
            let is_taken = wish.taken.iter().any(|taken| taken.start < range.end && range.start < taken.end);
            if !is_taken || tries.next().is_none() {
                break obtained;
            }
            len = range.end - range.start;
            earlier.push((*block, range.clone()));
        };
        earlier.into_iter().for_each(|(block, _)| runtime.free(block));
        let (block, range) = obtained?;
        *self = Arena { block: Some(block), range };
        Ok(())
    }
}

/// A block, and the whole pages in it: `most` bytes or, unless `exact`, fewer.
fn allocate(runtime: &Runtime, most: u64, exact: bool) -> Result<(u64, Range<u64>)> {
    let mut len = most;
    let mut is_reduced = exact;
    loop {
        if let Some(block) = runtime.alloc(len + PAGE) {
            if !std::mem::replace(&mut is_reduced, true) && len < most {
                // This is about all the free memory, and kernels need some of it.
                runtime.free(block);
                len = (len - len / 8) & !(PAGE - 1);
                continue;
            }
            let start = block.next_multiple_of(PAGE);
            return Ok((block, start..start + len));
        }
        let less = (len - len / 8) & !(PAGE - 1);
        if exact || less < LEAST {
            let name = runtime.name();
            return Err(Error::new(match exact {
                true => format!(
                    "{name} has no {most} bytes of memory free in one piece (OMPTARGET_MPI_MEMORY asks for them)"
                ),
                false => format!("{name} has no memory free"),
            }));
        }
        len = less;
    }
}

#[cfg(test)]
#[path = "../../../../test/rust/unit/device_main/backend/offload/arena.rs"]
mod tests;
