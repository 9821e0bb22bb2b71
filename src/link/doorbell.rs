// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Doorbells: how processes of one node wake each other. MPI can only be polled, so a process that has long polled in
//! vain sleeps on its own doorbell, and every process that sends to it rings.
//!
//! A doorbell is a page of a shared file. Its owner publishes descriptor and nonce in its
//! [`crate::wire::hello::Hello`]. Between processes that can't share the page, and between nodes, sleeps are timed
//! instead.
//!
//! No wake-up is lost: a sleeper announces itself, polls once more, and sleeps only if the doorbell has not rung since.
//! A sender sends before it looks for sleepers.

use super::sleepers::Sleepers;
use crate::base::Result;
use crate::sys::{node, process, shared_file};
use memmap2::{MmapOptions, MmapRaw};
use rustix::event::Timespec;
use rustix::thread::futex;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// The contents of the page, initially zeros after the nonce.
#[repr(C)]
struct Shared {
    nonce: AtomicU64,
    /// Processes that ring this doorbell.
    ringers: AtomicU32,
    sleepers: Sleepers,
}

/// A doorbell: its owner sleeps on it, other processes ring it.
#[derive(Debug)]
pub struct Doorbell {
    page: MmapRaw,
    file: File,
    owner: u32,
    /// The owner's pidfd, if the owner is another process.
    handle: Option<process::Handle>,
}

impl Doorbell {
    /// Creates this process's doorbell.
    pub fn new() -> Result<Doorbell> {
        let (file, _) = shared_file::create(node::page_size().into())?;
        Doorbell::map(file, std::process::id())
    }

    /// Opens the doorbell of another process of this node.
    ///
    /// # Errors
    /// The file is out of reach, or the pid or descriptor means something else here (containers).
    pub fn of(pid: u32, descriptor: u32, nonce: u64) -> Result<Doorbell> {
        let file = shared_file::open((pid, descriptor, nonce), node::page_size().into())?;
        let doorbell = Doorbell::map(file, pid)?;
        doorbell.shared().ringers.fetch_add(1, Ordering::Relaxed);
        Ok(Doorbell { handle: process::handle(pid as i32), ..doorbell })
    }

    /// Maps the doorbell a second time, for this process and its forks.
    pub fn try_clone(&self) -> Result<Doorbell> {
        Doorbell::map(self.file.try_clone()?, self.owner)
    }

    fn map(file: File, owner: u32) -> Result<Doorbell> {
        Ok(Doorbell {
            page: MmapOptions::new().len(node::page_size() as usize).map_raw(&file)?,
            file,
            owner,
            handle: None,
        })
    }

    /// Descriptor and nonce, for [`Doorbell::of`].
    pub fn name(&self) -> (u32, u64) {
        (self.file.as_raw_fd() as u32, self.shared().nonce.load(Ordering::Relaxed))
    }

    fn shared(&self) -> &Shared {
        // SAFETY: the page stays mapped while the doorbell lives; it is larger than the record and aligned for it,
        // and any bytes are atomic integers.
        unsafe { &*self.page.as_ptr().cast() }
    }

    /// How many processes ring this doorbell.
    pub fn ringers(&self) -> usize {
        self.shared().ringers.load(Ordering::Relaxed) as usize
    }

    /// Wakes every thread that sleeps on the doorbell or is about to. Call it after a send.
    #[inline]
    pub fn ring(&self) {
        self.shared().sleepers.ring(|rings| {
            let _ = futex::wake(rings, futex::Flags::empty(), i32::MAX as u32);
        });
    }

    /// Announces that the calling thread will sleep unless its next poll finds something. Call [`Doorbell::sleep`]
    /// or [`Doorbell::retract`] next.
    pub fn announce(&self) -> u32 {
        self.shared().sleepers.announce()
    }

    /// Withdraws an announcement: the poll has found something.
    pub fn retract(&self) {
        self.shared().sleepers.retract();
    }

    /// Forgets all sleepers: their process is gone.
    pub fn start_anew(&self) {
        self.shared().sleepers.start_anew();
    }

    /// Sleeps until the doorbell rings, at most for `limit`. Returns at once if it has rung since `announced`.
    pub fn sleep(&self, announced: u32, limit: Duration) {
        let limit = Timespec { tv_sec: limit.as_secs() as _, tv_nsec: limit.subsec_nanos() as _ };
        // If the call fails, the sleep ends at once.
        let wait = |rings: &AtomicU32, announced| {
            let _ = futex::wait(rings, futex::Flags::empty(), announced, Some(&limit));
        };
        self.shared().sleepers.sleep(announced, wait);
    }
}

/// The doorbells of a process: its own, and those of the ranks that it sends to.
#[derive(Debug, Default)]
pub struct Doorbells {
    mine: Option<Doorbell>,
    /// By rank.
    others: Vec<Option<Doorbell>>,
    /// Processes that must ring `mine` before it is useful.
    expected: usize,
}

impl Doorbells {
    /// `expected` processes send to the owner of `mine`; `others` is indexed by rank.
    pub fn new(mine: Option<Doorbell>, others: Vec<Option<Doorbell>>, expected: usize) -> Doorbells {
        Doorbells { mine, others, expected }
    }

    /// Expects `more` further processes to ring this process's doorbell.
    pub fn expect(&mut self, more: usize) {
        self.expected += more;
    }

    /// This process's doorbell, if every message to the process rings it.
    pub fn mine(&self) -> Option<&Doorbell> {
        self.mine.as_ref().filter(|b| b.ringers() >= self.expected)
    }

    /// Makes the doorbell usable for a process that replaces a lost one and inherits it.
    pub fn start_anew(&self) {
        if let Some(doorbell) = self.mine() {
            doorbell.start_anew();
        }
    }

    /// True if a rank is on this node and running; see [`process::is_running`].
    pub fn sees_running(&self, rank: usize) -> bool {
        self.others.get(rank).and_then(Option::as_ref).is_some_and(|doorbell| process::is_running(doorbell.owner))
    }

    /// True if a rank was on this node and its process has ended. The pidfd alone is no proof: a program that
    /// closes all descriptors may reuse its number.
    pub fn sees_ended(&self, rank: usize) -> bool {
        let doorbell = self.others.get(rank).and_then(Option::as_ref);
        process::has_ended(doorbell.and_then(|doorbell| doorbell.handle.as_ref())) && !self.sees_running(rank)
    }

    /// Rings another rank's doorbell.
    #[inline]
    pub fn ring(&self, rank: usize) {
        if let Some(Some(doorbell)) = self.others.get(rank) {
            doorbell.ring();
        }
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/link/doorbell.rs"]
mod tests;
