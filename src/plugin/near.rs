// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The memory of a device on this node, as far as this process can access it by itself: all of it by system calls, and
//! the beginning of the arena, where small data is, by a mapping that both processes share.

use super::batch::Target;
use super::engine::Engine;
use super::start;
use crate::base::Result;
use crate::base::limits::SHARED_MEMORY;
use crate::base::settings::Backend;
use crate::sys::process::{read_memory, write_memory};
use crate::sys::shared_file;
use crate::wire::command::SharedFile;
use crate::wire::hello::Hello;
use memmap2::{Advice, MmapOptions, MmapRaw};
use std::fmt;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;

/// Sizes of the copies by system calls: smaller ones cost less in a message, which is sent anyway; MPI is as fast for
/// larger ones, and the device touches its memory first (NUMA).
const BY_CALL: Range<u64> = (8 << 10) + 1..(64 << 10) + 1;
/// The largest copy by the mapping.
const MAPPED_MAX: u64 = 64 << 10;

/// A file in memory that a device may map as the beginning of its arena.
pub(crate) struct Offer {
    /// Open until the device has had the time to open it, too.
    file: File,
    nonce: u64,
    map: MmapRaw,
}

/// The beginning of a device's arena, which this process has mapped elsewhere.
pub(crate) struct SharedPart {
    /// Where the arena begins.
    at: u64,
    map: MmapRaw,
}

impl Offer {
    /// For an arena of so many bytes.
    pub(crate) fn new(capacity: u64) -> Result<Offer> {
        let len = SHARED_MEMORY.min(capacity);
        let (file, nonce) = shared_file::create(len)?;
        let map = MmapOptions::new().len(len as usize).map_raw(&file)?;
        // A fork of this process has no devices.
        let _ = map.advise(Advice::DontFork);
        Ok(Offer { file, nonce, map })
    }

    pub(crate) fn to_send(&self) -> SharedFile {
        let (descriptor, len) = (self.file.as_raw_fd() as u32, self.map.len() as u64);
        SharedFile { pid: std::process::id(), descriptor, nonce: self.nonce, len }
    }

    /// The device has these first bytes in its arena at this address: if they are the file's, it has mapped the file.
    pub(crate) fn accepted(self, at: u64, first: u64) -> Option<SharedPart> {
        let shared = SharedPart { at, map: self.map };
        if first != self.nonce {
            return None;
        }
        // SAFETY: the program has not got this memory yet, and it is at least a page.
        unsafe { shared.map.as_mut_ptr().cast::<u64>().write(0) };
        Some(shared)
    }
}

impl SharedPart {
    /// Where this process has the device's memory at an address.
    fn here(&self, at: u64, len: u64) -> Option<*mut u8> {
        let offset = at.checked_sub(self.at)?;
        let is_inside = offset <= self.map.len() as u64 && len <= self.map.len() as u64 - offset;
        is_inside.then(|| self.map.as_mut_ptr().wrapping_add(offset as usize))
    }
}

/// How this process accesses some memory of a device.
#[derive(Clone, Copy)]
pub(crate) enum Access {
    Mapped(*mut u8),
    /// By the process's number, and the address there.
    ByCall(i32, u64),
}

/// True if this process may copy from and to a device's memory by itself, if that is possible: a device that is traced
/// records all copies, and one that may be replaced or has several processes sees all of them in messages.
pub(crate) fn is_near(engine: &Engine, device: usize, hello: &Hello) -> bool {
    let is_plain = hello.processes == 1 && hello.backend == Backend::Cpu && !engine.tracing().on;
    // Another node may have a process of that number.
    is_plain && engine.connection.link.doorbells().sees_running(engine.port(device).rank)
}

/// A copy to the program that this process makes itself once its queue is idle.
pub(crate) struct Late {
    /// The device's address, and where this process has that.
    pub(super) device: u64,
    here: *const u8,
    pub(super) to: Target,
}

// SAFETY: the mapping lives as long as the device's queues, and libomptarget keeps the program's memory until it has
// synchronized.
unsafe impl Send for Late {}

impl Late {
    pub(crate) fn copy(&self) {
        // SAFETY: `Near::late` has checked one end, and its caller has promised the other.
        unsafe { self.to.at.copy_from(self.here, self.to.len) };
    }
}

/// What this process can access of a device's memory.
#[derive(Default)]
pub(crate) struct Near {
    /// The device's process, if the system lets this one access its memory.
    process: Option<i32>,
    shared: Option<SharedPart>,
    /// Only one thread at a time uses a queue.
    has_own_queues: bool,
}

impl Near {
    /// The memory of `process`, whose arena is at `at`.
    pub(crate) fn new(process: i32, at: u64, shared: Option<SharedPart>) -> Near {
        let mut byte = 0;
        // SAFETY: the byte is writable.
        let is_readable = |&pid: &i32| unsafe { read_memory(pid, at, &mut byte, 1) == 1 };
        Near { process: Some(process).filter(is_readable), shared, has_own_queues: !start::uses_offload_api() }
    }

    /// A copy for later of these bytes to the program's memory at `to`, if this process has them mapped.
    pub(crate) fn late(&self, device: u64, to: *mut u8, len: u64) -> Option<Late> {
        let Some(Access::Mapped(here)) = self.access(device, len).filter(|_| self.has_own_queues) else { return None };
        Some(Late { device, here, to: Target { at: to, len: len as usize } })
    }

    /// How to access these bytes, if that is faster than a message.
    #[inline]
    pub(crate) fn access(&self, at: u64, len: u64) -> Option<Access> {
        if len <= MAPPED_MAX
            && let Some(here) = self.shared.as_ref().and_then(|shared| shared.here(at, len))
        {
            return Some(Access::Mapped(here));
        }
        BY_CALL.contains(&len).then_some(Access::ByCall(self.process?, at))
    }
}

impl fmt::Display for Near {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by_call = if self.process.is_some() { "within" } else { "out of" };
        let mapped = if self.shared.is_some() { "mapped" } else { "not mapped" };
        write!(f, "{by_call} reach, its beginning {mapped}")
    }
}

impl Access {
    /// Copies to the device's memory; false if that is not possible.
    #[inline]
    pub(crate) fn write(self, bytes: &[u8]) -> bool {
        match self {
            // SAFETY: `SharedPart::here` has checked the range. What the device does there meanwhile is up to the
            // program, and neither end of the copy is in Rust's hands.
            Access::Mapped(to) => unsafe { to.copy_from(bytes.as_ptr(), bytes.len()) },
            Access::ByCall(pid, at) => return write_memory(pid, at, bytes) == bytes.len() as isize,
        }
        true
    }

    /// Copies from the device's memory; false if that is not possible.
    ///
    /// # Safety
    /// `to[..len]` is writable.
    #[inline]
    pub(crate) unsafe fn read(self, to: *mut u8, len: usize) -> bool {
        match self {
            // SAFETY: as in `write`, and the caller's promise.
            Access::Mapped(from) => unsafe { to.copy_from(from, len) },
            // SAFETY: the caller's promise.
            Access::ByCall(pid, at) => return unsafe { read_memory(pid, at, to, len) == len as isize },
        }
        true
    }
}
