// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The memory of a device on this node that this process can access itself. A file that both processes map holds the
//! beginning of the arena, where small data is, and windows: parts of large data that the program often copies.

use crate::base::Result;
use crate::base::limits::{COPIES_TO_SHARE, SHARED_MEMORY, SHARED_WINDOWS};
use crate::base::lock::{Mutex, order};
use crate::base::sync::RwLock;
use crate::plugin::messages::batch::{PendingRead, Source};
use crate::plugin::program::libraries;
use crate::sys::mapping::Guarded;
use crate::sys::{node, shared_file};
use crate::wire::command::SharedFile;
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::sync::RwLockWriteGuard;
use std::sync::atomic::{AtomicU32, Ordering};

/// The largest copy that this process makes itself. MPI is as fast for larger ones, and lets the device touch its
/// memory first (NUMA).
const COPY_MAX: u64 = 64 << 10;
/// After this many copies, which the device does not notice, it must answer a message.
const COPIES_UNNOTICED: u32 = 256;
/// The number of pages whose copies are counted. When a further page needs a count, all counts are halved, and those
/// that become 0 are dropped.
const COUNTED: usize = 1024;

/// A file in memory that a device may map as the beginning of its arena and as windows.
pub(crate) struct Offer {
    /// Open until the device has answered.
    file: File,
    nonce: u64,
    map: Guarded,
    /// Bytes of the file before the windows.
    beginning: u64,
    /// The size of the arena.
    capacity: u64,
}

/// The parts of a device's arena that this process has mapped.
pub(crate) struct SharedPart {
    arena: Range<u64>,
    map: Guarded,
    /// Bytes of the arena's beginning, at the start of the mapping.
    beginning: u64,
    /// Locked with `try_read` and `try_write` only: while a window is made, copies go by message.
    windows: RwLock<Windows>,
    /// The number of copies outside of the mapped parts, by first page.
    counts: Mutex<FxHashMap<u64, u32>, { order::LEAF }>,
}

/// Whole pages of an arena behind its beginning that this process has mapped. They stay mapped when data there is
/// freed: the next allocation is often at the same place.
#[derive(Default)]
pub(crate) struct Windows {
    /// By address: its end, and its offset in the mapping.
    by_address: BTreeMap<u64, (u64, u64)>,
    bytes: u64,
}

impl Offer {
    /// For an arena of `capacity` bytes. Most of the arena stays outside of the file and keeps its large pages.
    pub(crate) fn new(capacity: u64) -> Result<Offer> {
        let page = u64::from(node::page_size());
        let beginning = SHARED_MEMORY.min((capacity / 4).next_multiple_of(page));
        let len = beginning + SHARED_WINDOWS;
        let (file, nonce) = shared_file::create(len)?;
        // Guarded keeps it out of forks, which have no devices, and out of what devices prefetch of the program's
        // memory.
        let map = Guarded::new(&file, len as usize)?;
        Ok(Offer { file, nonce, map, beginning, capacity })
    }

    /// The bytes that are the arena's beginning, and the file.
    pub(crate) fn to_send(&self) -> (u64, SharedFile) {
        let (descriptor, len) = (self.file.as_raw_fd() as u32, self.map.len() as u64);
        (self.beginning, SharedFile { pid: std::process::id(), descriptor, nonce: self.nonce, len })
    }

    /// Notes that the device's arena is at `at` and begins with the bytes `first`. If they are the file's nonce, the
    /// device has mapped the file.
    pub(crate) fn accepted(self, at: u64, first: u64) -> Option<SharedPart> {
        let Offer { nonce, map, beginning, capacity, .. } = self;
        if first != nonce || first == 0 {
            return None;
        }
        let (windows, counts) = Default::default();
        let shared = SharedPart { arena: at..at + capacity, map, beginning, windows, counts };
        // SAFETY: the program does not have this memory yet, and it is at least a page.
        unsafe { shared.map.as_mut_ptr().cast::<u64>().write(0) };
        Some(shared)
    }
}

impl SharedPart {
    /// The address in this process of the device's memory at `at`.
    #[inline]
    fn here(&self, at: u64, len: u64) -> Option<*mut u8> {
        let from_start = at.checked_sub(self.arena.start)?;
        let is_beginning = from_start <= self.beginning && len <= self.beginning - from_start;
        let offset = if is_beginning { from_start } else { self.windows.try_read()?.offset(at, len)? };
        Some(self.map.as_mut_ptr().wrapping_add(offset as usize))
    }

    /// Counts a copy that begins at `at`; true if a window is due there.
    fn is_window_due(&self, at: u64) -> bool {
        let (mut counts, page) = (self.counts.lock(), at / u64::from(node::page_size()));
        if counts.len() >= COUNTED && !counts.contains_key(&page) {
            counts.retain(|_, count| {
                *count /= 2;
                *count > 0
            });
        }
        let count = counts.entry(page).or_default();
        *count = count.wrapping_add(1);
        count.is_multiple_of(COPIES_TO_SHARE)
    }

    /// A window for copies that begin at `at`, if there is room.
    fn new_window(&self, at: u64) -> Option<NewWindow<'_>> {
        let windows = self.windows.try_write()?;
        let page = u64::from(node::page_size());
        let before = windows.by_address.range(..=at).next_back().map_or(0, |(_, &(end, _))| end);
        let start = before.max(at - at % page);
        if !(self.arena.start + self.beginning..self.arena.end).contains(&start) {
            // The beginning, or an image.
            return None;
        }
        let limit = windows.by_address.range(start..).next().map_or(self.arena.end, |(&next, _)| next);
        let end = limit.min(at - at % page + COPY_MAX.next_multiple_of(page) + page);
        let len = end.saturating_sub(start).min(SHARED_WINDOWS - windows.bytes);
        let offset = self.beginning + windows.bytes;
        (len > 0).then_some(NewWindow { windows, at: start, len, offset })
    }
}

impl Windows {
    /// The offset of these bytes in the mapping.
    fn offset(&self, at: u64, len: u64) -> Option<u64> {
        let (&start, &(end, offset)) = self.by_address.range(..=at).next_back()?;
        (at <= end && len <= end - at).then(|| offset + (at - start))
    }
}

/// Pages that the device is to move to the shared file.
pub(crate) struct NewWindow<'a> {
    windows: RwLockWriteGuard<'a, Windows>,
    pub(crate) at: u64,
    pub(crate) len: u64,
    /// Its offset in the file.
    pub(crate) offset: u64,
}

impl NewWindow<'_> {
    /// Adds the window, once the device has moved its pages.
    pub(crate) fn add(mut self) {
        let (windows, end) = (&mut *self.windows, self.at + self.len);
        windows.bytes += self.len;
        if let Some((&start, before)) = windows.by_address.range_mut(..self.at).next_back()
            && before.0 == self.at
            && before.1 + (self.at - start) == self.offset
        {
            // Extend the window before, so that a copy may begin there and end here.
            before.0 = end;
            return;
        }
        windows.by_address.insert(self.at, (end, self.offset));
    }
}

/// What this process can access of a device's memory.
#[derive(Default)]
pub(crate) struct SharedMemory {
    shared: Option<SharedPart>,
    /// Only one thread at a time uses a queue.
    queues_are_private: bool,
    /// Copies since the device was asked for an answer.
    copies: AtomicU32,
}

impl SharedMemory {
    /// The memory of a device on this node, with the part that it shares.
    pub(crate) fn new(shared: Option<SharedPart>) -> SharedMemory {
        SharedMemory { shared, queues_are_private: !libraries::uses_offload_api(), copies: AtomicU32::new(0) }
    }

    /// The address in this process of at most [`COPY_MAX`] bytes of the device's memory, if they are mapped.
    #[inline]
    pub(crate) fn mapped(&self, at: u64, len: u64) -> Option<*mut u8> {
        self.shared.as_ref().filter(|_| len <= COPY_MAX)?.here(at, len)
    }

    /// True if this process may have mapped `len` bytes in one piece.
    #[inline]
    pub(crate) fn is_possible(&self, len: u64) -> bool {
        len <= COPY_MAX && self.shared.is_some()
    }

    /// Counts a copy that begins at `at`, outside of shared memory. Returns a window for further ones if it is due and
    /// possible.
    pub(crate) fn new_window(&self, at: u64) -> Option<NewWindow<'_>> {
        self.shared.as_ref().filter(|shared| shared.is_window_due(at))?.new_window(at)
    }

    /// Counts a copy; true if the device must answer a message before it.
    #[inline]
    pub(crate) fn is_answer_due(&self) -> bool {
        let is_due = self.copies.fetch_add(1, Ordering::Relaxed) >= COPIES_UNNOTICED;
        if is_due {
            self.copies.store(0, Ordering::Relaxed);
        }
        is_due
    }

    /// A read of these bytes to the program's memory at `to`, if this process has them mapped.
    pub(crate) fn read(&self, device: u64, to: *mut u8, len: u64) -> Option<PendingRead> {
        let here = self.mapped(device, len).filter(|_| self.queues_are_private)?;
        Some(PendingRead { to, len: len as usize, source: Source::Shared { here, device } })
    }
}

impl fmt::Display for SharedMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", if self.shared.is_some() { "shared with this process" } else { "not shared" })
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/devices/shared_memory.rs"]
mod tests;
