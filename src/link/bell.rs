// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! How processes of one node wake each other: MPI can only be polled, so whoever has
//! polled for long in vain sleeps on a bell of its own, and whoever sends to it rings.
//!
//! A bell is a page of a file in memory without a name. Its owner tells descriptor and
//! nonce in its [`crate::wire::hello::Hello`]; the others reach the file through
//! `/proc`. Where they can't, and between nodes, sleeps are timed instead.
//!
//! No wake-up is lost: a sleeper announces itself, polls once more, and sleeps only if
//! nothing has rung since; who rings has sent before it looks for sleepers.

use super::sleepers::Sleepers;
use crate::base::{Error, Result, node};
use memmap2::{MmapOptions, MmapRaw};
use std::ffi::CStr;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// What the file is called, and what `/proc` makes of that.
const NAME: &CStr = c"omptarget-mpi-bell";
const LINK: &[u8] = b"/memfd:omptarget-mpi-bell";

/// What the page holds. A file starts as zeros.
#[repr(C)]
struct Shared {
    nonce: AtomicU64,
    /// Processes that will ring.
    ringers: AtomicU32,
    sleepers: Sleepers,
}

/// See the module.
#[derive(Debug)]
pub struct Bell {
    page: MmapRaw,
    file: File,
}

impl Bell {
    /// A bell for this process.
    ///
    /// # Errors
    /// The system's.
    pub fn new() -> Result<Bell> {
        let file = node::memfd(NAME, libc::MFD_ALLOW_SEALING)?;
        file.set_len(u64::from(node::page_size()))?;
        // Whoever maps it relies on its size.
        let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
        // SAFETY: the descriptor is open; the call takes plain numbers.
        unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) };
        let bell = Bell::map(file)?;
        let mut nonce = [0u8; 8];
        // SAFETY: the buffer has the size that is passed. Without luck it is all zeros.
        unsafe { libc::getrandom(nonce.as_mut_ptr().cast(), nonce.len(), 0) };
        bell.shared().nonce.store(u64::from_ne_bytes(nonce), Ordering::Relaxed);
        Ok(bell)
    }

    /// The bell of another process of this node.
    ///
    /// # Errors
    /// It can't be reached, or its numbers mean something else here (containers).
    pub fn of(pid: u32, descriptor: u32, nonce: u64) -> Result<Bell> {
        // Of any thread: the main one shows no files after its `pthread_exit`.
        let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?.filter_map(|thread| Some(thread.ok()?.path()));
        let mut paths = threads.map(|thread| thread.join(format!("fd/{descriptor}")));
        // Looked at before it is opened: by mistake it could be anything of anybody.
        let is_bell = |path: &PathBuf| {
            std::fs::read_link(path).is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(LINK))
        };
        let path = paths.find(is_bell).ok_or_else(no_bell)?;
        let file = File::options().read(true).write(true).open(path)?;
        if file.metadata()?.len() != u64::from(node::page_size()) {
            return Err(no_bell());
        }
        let bell = Bell::map(file)?;
        if bell.shared().nonce.load(Ordering::Relaxed) != nonce {
            return Err(Error::new("it is another bell"));
        }
        bell.shared().ringers.fetch_add(1, Ordering::Relaxed);
        Ok(bell)
    }

    /// The same bell once more, for this process and those that it forks.
    ///
    /// # Errors
    /// The system's.
    pub fn try_clone(&self) -> Result<Bell> {
        Bell::map(self.file.try_clone()?)
    }

    fn map(file: File) -> Result<Bell> {
        Ok(Bell { page: MmapOptions::new().len(node::page_size() as usize).map_raw(&file)?, file })
    }

    /// Descriptor and nonce, for [`Bell::of`].
    pub fn name(&self) -> (u32, u64) {
        (self.file.as_raw_fd() as u32, self.shared().nonce.load(Ordering::Relaxed))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the page is mapped as long as the bell lives, is larger than the record
        // and aligned for it, and any bytes are atomic integers.
        unsafe { &*self.page.as_ptr().cast() }
    }

    /// Processes that will ring this bell.
    pub fn ringers(&self) -> usize {
        self.shared().ringers.load(Ordering::Relaxed) as usize
    }

    /// Wakes whoever sleeps on the bell, or is about to: to be called after a send.
    #[inline]
    pub fn ring(&self) {
        self.shared().sleepers.ring(|rings| futex(rings, libc::FUTEX_WAKE, i32::MAX as u32, ptr::null()));
    }

    /// A thread will sleep unless its next poll finds something; to be followed by
    /// [`Bell::sleep`] or [`Bell::retract`].
    pub fn announce(&self) -> u32 {
        self.shared().sleepers.announce()
    }

    /// The poll has found something.
    pub fn retract(&self) {
        self.shared().sleepers.retract();
    }

    /// Nobody sleeps on it: the process that did is gone.
    pub fn start_anew(&self) {
        self.shared().sleepers.start_anew();
    }

    /// Sleeps until the bell rings or time is up; not at all if it rang since `announced`.
    pub fn sleep(&self, announced: u32, limit: Duration) {
        let limit = libc::timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
        let wait = |rings: &AtomicU32, announced| futex(rings, libc::FUTEX_WAIT, announced, &limit);
        self.shared().sleepers.sleep(announced, wait);
    }
}

#[cold]
fn no_bell() -> Error {
    Error::new("it has no bell")
}

fn futex(word: &AtomicU32, operation: libc::c_int, value: u32, limit: *const libc::timespec) {
    // SAFETY: the word outlives the call; the time is null or valid. A refusal is a sleep
    // that ends at once, or a wake-up that waits for the sleeper's limit.
    unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), operation, value, limit) };
}

/// The bells of a process: its own, and those of other ranks that it sends to.
#[derive(Debug, Default)]
pub struct Bells {
    mine: Option<Bell>,
    /// By rank.
    others: Vec<Option<Bell>>,
    /// Processes that must ring mine for it to be of use.
    expected: usize,
}

impl Bells {
    /// `mine`, which `expected` processes send to, and `others` by rank.
    pub fn new(mine: Option<Bell>, others: Vec<Option<Bell>>, expected: usize) -> Bells {
        Bells { mine, others, expected }
    }

    /// So many processes more will ring mine.
    pub fn expect(&mut self, more: usize) {
        self.expected += more;
    }

    /// The bell that every message to this process rings, if there is one.
    pub fn mine(&self) -> Option<&Bell> {
        self.mine.as_ref().filter(|b| b.ringers() >= self.expected)
    }

    /// Rings another rank's bell.
    #[inline]
    pub fn ring(&self, rank: usize) {
        if let Some(Some(bell)) = self.others.get(rank) {
            bell.ring();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicUsize;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    fn both_ends() -> (Bell, Bell) {
        let mine = Bell::new().unwrap();
        let (descriptor, nonce) = mine.name();
        let theirs = Bell::of(std::process::id(), descriptor, nonce).unwrap();
        (mine, theirs)
    }

    #[test]
    fn only_the_right_file_is_a_bell() {
        let (mine, _theirs) = both_ends();
        assert_eq!(mine.ringers(), 1);
        let (descriptor, nonce) = mine.name();
        assert!(Bell::of(std::process::id(), descriptor, nonce ^ 1).is_err());
        assert!(Bell::of(std::process::id(), 1_000_000, nonce).is_err());
        let other = node::memfd(c"other", 0).unwrap();
        other.set_len(node::page_size().into()).unwrap();
        assert!(Bell::of(std::process::id(), other.as_raw_fd() as u32, 0).is_err());
        assert_eq!(mine.ringers(), 1);
    }

    #[test]
    fn a_ring_after_the_announcement_is_not_slept_through() {
        let (mine, theirs) = both_ends();
        let announced = mine.announce();
        theirs.ring();
        mine.sleep(announced, LONG);
        assert!(mine.shared().sleepers.is_empty());
    }

    #[test]
    fn every_message_is_seen_without_waiting_for_the_limit() {
        const MESSAGES: usize = 20_000;
        let (mine, theirs) = both_ends();
        let (sent, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let begin = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=MESSAGES {
                    sent.store(n, Ordering::Release);
                    theirs.ring();
                    while seen.load(Ordering::Acquire) < n {
                        std::thread::yield_now();
                    }
                }
            });
            while seen.load(Ordering::Relaxed) < MESSAGES {
                let announced = mine.announce();
                let n = sent.load(Ordering::Acquire);
                if n > seen.load(Ordering::Relaxed) {
                    mine.retract();
                    seen.store(n, Ordering::Release);
                } else {
                    mine.sleep(announced, LONG);
                }
            }
        });
        assert!(begin.elapsed() < LONG, "a ring was lost");
    }
}
