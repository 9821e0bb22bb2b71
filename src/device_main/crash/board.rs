// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The crash board: memory that a device process shares with its parent. After the process has exited,
//! the parent reads the device's number and rank there, and the running kernels and their names.

use crate::base::limits::{NAMES, THREADS};
use crate::base::{Error, Result, name};
use crate::sys::node;
use memmap2::MmapRaw;
use std::collections::BTreeMap;
use std::fs::File;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// In place of a kernel: an image's own code, which runs when the image is loaded and unloaded.
pub(crate) const IMAGE_CODE: u64 = 1;
/// In place of a kernel: a libomptarget, which an accelerator's device calls.
pub(crate) const RUNTIME_CODE: u64 = 2;
/// In place of a kernel: a copy to or from an accelerator, outside of a launch.
pub(crate) const COPY_CODE: u64 = 3;
/// In place of a kernel: MPI's first access to an accelerator's memory. If it crashes, the process exits, because MPI
/// can't be called any more.
pub(crate) const MPI_CODE: u64 = 4;
/// The last number that stands in place of a kernel.
pub(crate) const LAST_CODE: u64 = MPI_CODE;
/// Bytes of the address and the length before each name.
const HEAD: usize = 12;

/// A word in its own cache line, because a thread writes it at every launch.
#[repr(align(64))]
struct Apart(AtomicU64);

/// A device's identity and its running kernels.
#[repr(C)]
pub(crate) struct CrashBoard {
    /// The address of each thread's running kernel, or 0.
    kernels: [Apart; THREADS],
    /// The device is exiting by itself.
    ending: AtomicBool,
    /// A kernel crashed, and the device reports that.
    faulted: AtomicBool,
    /// MPI accesses an accelerator's memory.
    is_direct: AtomicBool,
    /// Device number and rank, each plus one; 0 if unknown.
    number: AtomicU32,
    rank: AtomicU32,
    used: AtomicUsize,
    /// Atomic, because another process reads them, and the device may crash while it writes.
    names: [AtomicU8; NAMES],
}

impl CrashBoard {
    /// An empty board for forked children; it is never unmapped.
    pub fn new() -> Result<&'static CrashBoard> {
        CrashBoard::in_file().map(|(board, _)| board)
    }

    /// A board with its file, for a child that becomes another program.
    pub fn in_file() -> Result<(&'static CrashBoard, File)> {
        let file = node::memfd(c"omptarget-mpi-board", 0)?;
        file.set_len(size_of::<CrashBoard>() as u64)?;
        Ok((CrashBoard::of(&file)?, file))
    }

    /// The board in a file from [`CrashBoard::in_file`].
    pub fn of(file: &File) -> Result<&'static CrashBoard> {
        if file.metadata()?.len() != size_of::<CrashBoard>() as u64 {
            return Err(Error::new("the memory shared with the supervisor has another size"));
        }
        let mapping =
            MmapRaw::map_raw(file).map_err(|e| Error::from(e).context("memory shared with the supervisor"))?;
        // SAFETY: the mapping is large enough, page-aligned and never unmapped. Zeros are valid in each
        // field, and only processes of this executable write there, valid values.
        Ok(unsafe { &*ManuallyDrop::new(mapping).as_mut_ptr().cast::<CrashBoard>() })
    }

    pub fn introduce(&self, number: usize, rank: usize) {
        self.number.store(number as u32 + 1, Ordering::Relaxed);
        self.rank.store(rank as u32 + 1, Ordering::Relaxed);
    }

    /// Device number and rank, once they are known.
    pub fn identity(&self) -> Option<(u32, u32)> {
        let [number, rank] = [&self.number, &self.rank].map(|n| n.load(Ordering::Relaxed));
        Some((number.checked_sub(1)?, rank.checked_sub(1)?))
    }

    /// The device's name for messages, as far as known.
    pub fn device(&self) -> String {
        let host = node::host_name();
        match self.identity() {
            Some((number, rank)) => format!("device {number} (rank {rank} on host {host})"),
            None => format!("a device on host {host}"),
        }
    }

    /// The kernel that the thread of a slot runs, or the number in place of one.
    #[inline]
    pub fn kernel(&self, slot: usize) -> &AtomicU64 {
        &self.kernels[slot].0
    }

    /// Notes that the device is exiting by itself.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// Resets the board for a process that takes over: it runs no kernel, has no fault, and is not exiting.
    pub fn start_anew(&self) {
        self.kernels.iter().for_each(|kernel| kernel.0.store(0, Ordering::Relaxed));
        self.ending.store(false, Ordering::Relaxed);
        self.faulted.store(false, Ordering::Relaxed);
    }

    /// Notes that a kernel crashed, and that the device reports it.
    pub fn fault(&self) {
        self.faulted.store(true, Ordering::Relaxed);
    }

    /// True if the device's exit needs no report.
    pub fn is_exit_known(&self) -> bool {
        self.is_ending() || self.faulted.load(Ordering::Relaxed)
    }

    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// True if a thread was in [`MPI_CODE`].
    pub fn was_in_mpi(&self) -> bool {
        self.kernels.iter().any(|k| k.0.load(Ordering::Acquire) == MPI_CODE)
    }

    /// Notes whether MPI accesses an accelerator's memory.
    pub fn set_direct(&self, is_direct: bool) {
        self.is_direct.store(is_direct, Ordering::Relaxed);
    }

    pub fn is_direct(&self) -> bool {
        self.is_direct.load(Ordering::Relaxed)
    }

    /// Adds the symbols of kernels. Concurrent calls garble names, but do no other harm.
    pub fn add_names<'a>(&self, kernels: impl Iterator<Item = (u64, &'a str)>) {
        for (address, symbol) in kernels {
            let used = self.used.load(Ordering::Relaxed);
            let Some(len) = u32::try_from(symbol.len()).ok().filter(|&n| used + HEAD + n as usize <= NAMES) else {
                continue;
            };
            let record = address.to_le_bytes().into_iter().chain(len.to_le_bytes()).chain(symbol.bytes());
            self.names[used..].iter().zip(record).for_each(|(to, byte)| to.store(byte, Ordering::Relaxed));
            self.used.store(used + HEAD + len as usize, Ordering::Release);
        }
    }

    pub fn forget_names(&self) {
        self.used.store(0, Ordering::Release);
    }

    /// The address of the running kernel if there is exactly one; 0 otherwise.
    pub fn only_kernel(&self) -> u64 {
        let mut running = self.kernels();
        running.next().filter(|_| running.next().is_none()).unwrap_or(0)
    }

    fn kernels(&self) -> impl Iterator<Item = u64> {
        self.kernels.iter().map(|k| k.0.load(Ordering::Acquire)).filter(|&k| k > LAST_CODE)
    }

    /// The names of the running kernels for the user, without repetition. For use after the device has exited.
    pub fn running(&self) -> Vec<String> {
        let names = self.names();
        let mut running: Vec<String> = Vec::new();
        for kernel in self.kernels() {
            let known = names.get(&kernel).map(|symbol| name::of_kernel(symbol));
            let name = known.unwrap_or_else(|| format!("at {kernel:#x}"));
            if !running.contains(&name) {
                running.push(name);
            }
        }
        running
    }

    /// Symbols by address. A device that crashed may have written anything.
    fn names(&self) -> BTreeMap<u64, String> {
        let used = self.used.load(Ordering::Acquire).min(NAMES);
        let bytes: Vec<u8> = self.names[..used].iter().map(|byte| byte.load(Ordering::Relaxed)).collect();
        let mut rest = bytes.as_slice();
        let mut names = BTreeMap::new();
        while let Some((head, tail)) = rest.split_first_chunk::<HEAD>() {
            let (address, len) = head.split_at(8);
            let address = u64::from_le_bytes(address.try_into().unwrap_or_default());
            let len = u32::from_le_bytes(len.try_into().unwrap_or_default()) as usize;
            let Some((symbol, tail)) = tail.split_at_checked(len) else { break };
            names.insert(address, String::from_utf8_lossy(symbol).into_owned());
            rest = tail;
        }
        names
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/crash/board.rs"]
mod tests;
