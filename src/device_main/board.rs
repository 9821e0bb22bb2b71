// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What a device process's parent can still read when the process is gone: who it was, which
//! kernels it ran, and their names. A page of memory that both share.

use crate::base::limits::{NAMES, THREADS};
use crate::base::{Error, Result, name, node};
use std::cell::UnsafeCell;
use std::collections::BTreeMap;
use std::ffi::c_int;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Address and length in front of each name.
const HEAD: usize = 12;

/// A word that no other thread's lies beside: it is written at every launch.
#[repr(align(64))]
struct Apart(AtomicU64);

/// See the module.
#[repr(C)]
pub struct Board {
    /// Of each thread that runs kernels the address of its kernel, or 0.
    kernels: [Apart; THREADS],
    /// The device ends by itself.
    ending: AtomicBool,
    /// Device number and rank, both one more than they are; 0 if not known yet.
    number: AtomicU32,
    rank: AtomicU32,
    used: AtomicUsize,
    names: UnsafeCell<[u8; NAMES]>,
}

// SAFETY: all but `names` is atomic. Names are written by the device process alone, under a
// lock of its own, and read by its parent when it has ended.
unsafe impl Sync for Board {}

impl Board {
    /// An empty board in memory that a child shares; it stays for ever.
    ///
    /// # Errors
    /// No memory for it.
    pub fn new() -> Result<&'static Board> {
        // SAFETY: the descriptor is not used.
        unsafe { Board::map(libc::MAP_ANONYMOUS | libc::MAP_NORESERVE, -1) }
    }

    /// The same in a file, for a child that becomes another program.
    ///
    /// # Errors
    /// No memory for it.
    pub fn in_file() -> Result<(&'static Board, File)> {
        let file = node::memfd(c"omptarget-mpi-board", 0)?;
        file.set_len(size_of::<Board>() as u64)?;
        Ok((Board::of(&file)?, file))
    }

    /// The board in such a file.
    ///
    /// # Errors
    /// The file does not have the size of a board, or can't be mapped.
    pub fn of(file: &File) -> Result<&'static Board> {
        if file.metadata()?.len() != size_of::<Board>() as u64 {
            return Err(Error::new("the memory shared with the supervisor has another size"));
        }
        // SAFETY: the file has that size, and nobody changes it.
        unsafe { Board::map(0, file.as_raw_fd()) }
    }

    /// # Safety
    /// The descriptor is that of a file of a board's size, or the flags say that it is not used.
    unsafe fn map(flags: c_int, file: c_int) -> Result<&'static Board> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of the system's choice; the caller's promise.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), size_of::<Board>(), protection, libc::MAP_SHARED | flags, file, 0)
        };
        if at == libc::MAP_FAILED {
            return Err(Error::from(std::io::Error::last_os_error()).context("memory shared with the supervisor"));
        }
        // SAFETY: large enough, aligned to a page, never unmapped; zeros are a value of each field,
        // and another process of this executable writes no others.
        Ok(unsafe { &*at.cast::<Board>() })
    }

    /// Tells who this device is.
    pub fn introduce(&self, number: usize, rank: usize) {
        self.number.store(number as u32 + 1, Ordering::Relaxed);
        self.rank.store(rank as u32 + 1, Ordering::Relaxed);
    }

    /// Device number and rank, once they are known.
    pub fn identity(&self) -> Option<(u32, u32)> {
        let [number, rank] = [&self.number, &self.rank].map(|n| n.load(Ordering::Relaxed));
        Some((number.checked_sub(1)?, rank.checked_sub(1)?))
    }

    /// What the thread of a slot runs.
    #[inline]
    pub fn kernel(&self, slot: usize) -> &AtomicU64 {
        &self.kernels[slot].0
    }

    /// The device ends by itself from here on.
    pub fn end(&self) {
        self.ending.store(true, Ordering::Relaxed);
    }

    /// True if the device ends by itself.
    pub fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Writes down the symbols of kernels. Calls must not overlap.
    pub fn add_names<'a>(&self, kernels: impl Iterator<Item = (u64, &'a str)>) {
        for (address, symbol) in kernels {
            let used = self.used.load(Ordering::Relaxed);
            let Some(len) = u32::try_from(symbol.len()).ok().filter(|&n| used + HEAD + n as usize <= NAMES) else {
                continue;
            };
            let record = [&address.to_le_bytes(), &len.to_le_bytes()[..], symbol.as_bytes()];
            // SAFETY: the record fits behind what is used; nobody else writes, nobody reads
            // beyond `used`.
            unsafe {
                let mut at = self.names.get().cast::<u8>().add(used);
                for part in record {
                    at.copy_from_nonoverlapping(part.as_ptr(), part.len());
                    at = at.add(part.len());
                }
            }
            self.used.store(used + HEAD + len as usize, Ordering::Release);
        }
    }

    /// Forgets all names. Not to overlap with [`Board::add_names`].
    pub fn forget_names(&self) {
        self.used.store(0, Ordering::Release);
    }

    /// The address of the kernel that runs, if there is only one; 0 otherwise.
    pub fn only_kernel(&self) -> u64 {
        let mut running = self.kernels.iter().map(|k| k.0.load(Ordering::Acquire)).filter(|&k| k != 0);
        running.next().filter(|_| running.next().is_none()).unwrap_or(0)
    }

    /// What runs, as people know it, without repetition; for who has seen the device end.
    pub fn running(&self) -> Vec<String> {
        let names = self.names();
        let mut running: Vec<String> = Vec::new();
        for kernel in self.kernels.iter().map(|k| k.0.load(Ordering::Acquire)).filter(|&k| k != 0) {
            let known = names.get(&kernel).map(|symbol| name::of_kernel(symbol));
            let name = known.unwrap_or_else(|| format!("at {kernel:#x}"));
            if !running.contains(&name) {
                running.push(name);
            }
        }
        running
    }

    /// Symbols by address. The device may have written anything: it has crashed.
    fn names(&self) -> BTreeMap<u64, String> {
        let used = self.used.load(Ordering::Acquire).min(NAMES);
        // SAFETY: within the array; the only writer has ended.
        let mut rest = unsafe { std::slice::from_raw_parts(self.names.get().cast::<u8>(), used) };
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
mod tests {
    use super::*;

    #[test]
    fn kernels_that_run_are_named() {
        let board = Board::new().unwrap();
        assert_eq!((board.identity(), board.running()), (None, vec![]));
        board.introduce(0, 3);
        assert_eq!(board.identity(), Some((0, 3)));
        board.add_names([(0x10, "__omp_offloading_3b_4c_old_l1"), (0x20, "two")].into_iter());
        board.forget_names();
        board.add_names([(0x10, "__omp_offloading_3b_4c_main_l12"), (0x20, "two")].into_iter());
        for (slot, kernel) in [(0, 0x10), (1, 0x30), (THREADS - 1, 0x10)] {
            board.kernel(slot).store(kernel, Ordering::Release);
        }
        assert_eq!(board.running(), ["main, line 12", "at 0x30"]);
        assert_eq!(board.only_kernel(), 0);
        [0, 1].iter().for_each(|&slot| board.kernel(slot).store(0, Ordering::Release));
        assert_eq!(board.only_kernel(), 0x10);
    }

    #[test]
    fn what_has_no_room_has_no_name() {
        let board = Board::new().unwrap();
        let long = "x".repeat(NAMES - 100);
        board.add_names([(1, long.as_str()), (2, long.as_str()), (3, "short")].into_iter());
        assert_eq!(board.names().keys().copied().collect::<Vec<_>>(), [1, 3]);
    }

    #[test]
    fn nonsense_is_safe_to_read() {
        let board = Board::new().unwrap();
        board.add_names([(7, "name")].into_iter());
        // SAFETY: within the array.
        unsafe { board.names.get().cast::<u8>().add(8).write(0xff) };
        board.used.store(usize::MAX, Ordering::Relaxed);
        let _ = board.names();
    }
}
