// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The memory of a device on this node, as far as this process can access it by itself: all of it by system calls, and
//! the beginning of the arena, where small data is, by a mapping that both processes share.

use super::batch::Target;
use super::libraries;
use crate::base::Result;
use crate::base::limits::SHARED_MEMORY;
use crate::sys::mapping::Guarded;
use crate::sys::process::{read_memory, write_memory};
use crate::sys::{node, shared_file};
use crate::wire::command::SharedFile;
use std::fmt;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// The largest copy that this process makes itself: MPI is as fast for larger ones, and the device touches its memory
/// first (NUMA).
const COPY_MAX: u64 = 64 << 10;
/// The smallest copy from or to the program that is made by a system call: a smaller one costs less in a message, which is
/// sent anyway.
pub(crate) const BY_CALL_MIN: u64 = (8 << 10) + 1;
/// After this many copies, which a device does not see, it must answer a message.
const COPIES_UNNOTICED: u32 = 256;

/// A file in memory that a device may map as the beginning of its arena.
pub(crate) struct Offer {
    /// Open until the device has answered.
    file: File,
    nonce: u64,
    map: Guarded,
}

/// The beginning of a device's arena, which this process has mapped elsewhere.
pub(crate) struct SharedPart {
    /// Where the arena begins.
    at: u64,
    map: Guarded,
}

impl Offer {
    /// For an arena of `capacity` bytes, most of which keeps its large pages.
    pub(crate) fn new(capacity: u64) -> Result<Offer> {
        let page = u64::from(node::page_size());
        let len = SHARED_MEMORY.min((capacity / 4).next_multiple_of(page));
        let (file, nonce) = shared_file::create(len)?;
        // A fork of this process has no devices, and a region that reads the program's memory ahead does not need this.
        let map = Guarded::new(&file, len as usize)?;
        Ok(Offer { file, nonce, map })
    }

    pub(crate) fn to_send(&self) -> SharedFile {
        let (descriptor, len) = (self.file.as_raw_fd() as u32, self.map.len() as u64);
        SharedFile { pid: std::process::id(), descriptor, nonce: self.nonce, len }
    }

    /// The device's arena is at `at` and begins with these bytes: if they are the file's, the device has mapped the file.
    pub(crate) fn accepted(self, at: u64, first: u64) -> Option<SharedPart> {
        let shared = SharedPart { at, map: self.map };
        if first != self.nonce || first == 0 {
            return None;
        }
        // SAFETY: the program has not got this memory yet, and it is at least a page.
        unsafe { shared.map.as_mut_ptr().cast::<u64>().write(0) };
        Some(shared)
    }
}

impl SharedPart {
    /// The address here of the device's memory at `at`.
    fn here(&self, at: u64, len: u64) -> Option<*mut u8> {
        let offset = at.checked_sub(self.at)?;
        let is_inside = offset <= self.map.len() as u64 && len <= self.map.len() as u64 - offset;
        is_inside.then(|| self.map.as_mut_ptr().wrapping_add(offset as usize))
    }
}

/// What this process can access of a device's memory.
#[derive(Default)]
pub(crate) struct Near {
    /// The device's process, if the system lets this one access its memory.
    process: Option<i32>,
    shared: Option<SharedPart>,
    /// One thread at a time uses a queue.
    queues_are_private: bool,
    /// Copies since the device was asked for an answer.
    copies: AtomicU32,
}

impl Near {
    /// The memory of `process`, whose arena is at `at`.
    pub(crate) fn new(process: i32, at: u64, shared: Option<SharedPart>) -> Near {
        let mut byte = 0;
        // SAFETY: the byte is writable.
        let is_readable = |&pid: &i32| unsafe { read_memory(pid, at, &mut byte, 1) == 1 };
        let process = Some(process).filter(is_readable);
        Near { process, shared, queues_are_private: !libraries::uses_offload_api(), copies: AtomicU32::new(0) }
    }

    /// The address here of a few bytes of the device's memory, if this process has mapped them.
    #[inline]
    fn mapped(&self, at: u64, len: u64) -> Option<*mut u8> {
        self.shared.as_ref().filter(|_| len <= COPY_MAX)?.here(at, len)
    }

    /// How to access these bytes; by a system call only from `by_call` bytes on.
    #[inline]
    pub(crate) fn access(&self, at: u64, len: u64, by_call: u64) -> Option<Access> {
        let mapped = self.mapped(at, len).map(Access::Mapped);
        mapped.or_else(|| (by_call..=COPY_MAX).contains(&len).then_some(Access::ByCall(self.process?, at)))
    }

    /// Counts a copy; true if the device is to be asked for an answer before it.
    #[inline]
    pub(crate) fn is_answer_due(&self) -> bool {
        let is_due = self.copies.fetch_add(1, Ordering::Relaxed) >= COPIES_UNNOTICED;
        if is_due {
            self.copies.store(0, Ordering::Relaxed);
        }
        is_due
    }

    /// A copy of these bytes to the program's memory at `to` for later, if this process has them mapped.
    ///
    /// # Safety
    /// `to[..len]` is writable until the copy is made or dropped.
    pub(crate) unsafe fn defer(&self, from: u64, to: *mut u8, len: u64) -> Option<Deferred> {
        let here = self.mapped(from, len).filter(|_| self.queues_are_private)?;
        Some(Deferred { from, here, to: Target { at: to, len: len as usize } })
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_call = if self.process.is_some() { "within" } else { "out of" };
        let mapped = if self.shared.is_some() { "mapped" } else { "not mapped" };
        write!(f, "{by_call} reach, its beginning {mapped}")
    }
}

/// How this process accesses some memory of a device.
#[derive(Clone, Copy)]
pub(crate) enum Access {
    Mapped(*mut u8),
    /// By the process's number, and the address there.
    ByCall(i32, u64),
}

impl Access {
    /// Copies to the device's memory; false if that is not possible.
    ///
    /// # Safety
    /// `from[..len]` is readable, and [`Near::access`] gave this access for `len` bytes.
    #[inline]
    pub(crate) unsafe fn write(self, from: *const u8, len: usize) -> bool {
        match self {
            // SAFETY: the caller's promise. What the device does there meanwhile is up to the program.
            Access::Mapped(to) => unsafe { to.copy_from(from, len) },
            Access::ByCall(pid, at) => {
                // SAFETY: the caller's promise.
                let bytes = unsafe { std::slice::from_raw_parts(from, len) };
                return write_memory(pid, at, bytes) == len as isize;
            }
        }
        true
    }

    /// Copies from the device's memory; false if that is not possible.
    ///
    /// # Safety
    /// `to[..len]` is writable, and [`Near::access`] gave this access for `len` bytes.
    #[inline]
    pub(crate) unsafe fn read(self, to: *mut u8, len: usize) -> bool {
        match self {
            // SAFETY: as in `write`.
            Access::Mapped(from) => unsafe { to.copy_from(from, len) },
            // SAFETY: the caller's promise.
            Access::ByCall(pid, at) => return unsafe { read_memory(pid, at, to, len) == len as isize },
        }
        true
    }
}

/// A copy to the program that this process makes once the copy's queue is idle.
pub(crate) struct Deferred {
    /// The device's address, and where this process has that.
    pub(super) from: u64,
    here: *const u8,
    pub(super) to: Target,
}

// SAFETY: any thread may make the copy: the plugin, and with it the mapping, is never dropped, and the program's memory is
// there by the promise of `Near::defer`'s caller.
unsafe impl Send for Deferred {}

impl Deferred {
    pub(crate) fn copy(&self) {
        // SAFETY: see above.
        unsafe { self.to.at.copy_from(self.here, self.to.len) };
    }
}
