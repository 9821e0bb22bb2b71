// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The host, as its device sees it: the link to the host, the host's liveness, and the device's exit, with the host or
//! after an error.

use super::crash::board::CrashBoard;
use super::transfers::completion::Completion;
use crate::base::{Error, Result};
use crate::link::Link;
use crate::link::backoff::{Backoff, BackoffPolicy};
use crate::mpi::pmi;
use crate::sys::{process, tcp_liveness};
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) struct Host {
    link: Link<Completion>,
    rank: usize,
    /// The host's process, if it runs on this node and this process is not a worker.
    process: Option<process::Handle>,
    policy: BackoffPolicy,
    /// The number of `Changed` messages that were sent, and how many of them the host had merged when it sent its last
    /// message.
    changes: AtomicU32,
    merged: AtomicU32,
    /// Has the device's name for messages.
    board: &'static CrashBoard,
    /// The device's own standard error.
    stderr: File,
    quit: fn(i32) -> !,
}

impl Host {
    /// `policy` is the backoff of waits for the host's messages; `quit` exits the device.
    pub fn new(
        link: Link<Completion>,
        (rank, process): (usize, Option<process::Handle>),
        policy: BackoffPolicy,
        (board, stderr): (&'static CrashBoard, File),
        quit: fn(i32) -> !,
    ) -> Host {
        let (changes, merged) = Default::default();
        Host { link, rank, process, policy, changes, merged, board, stderr, quit }
    }

    /// The link to the host and to other devices.
    #[inline]
    pub fn link(&self) -> &Link<Completion> {
        &self.link
    }

    /// True if the host has this rank.
    #[inline]
    pub fn is(&self, rank: usize) -> bool {
        self.rank == rank
    }

    /// The host's rank.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// True if the host runs on this node, and this process is not a worker.
    #[inline]
    pub fn is_near(&self) -> bool {
        self.process.is_some()
    }

    /// The host's process, if it is on this node.
    pub fn process(&self) -> Option<i32> {
        self.process.as_ref().map(|process| process.pid)
    }

    pub fn backoff(&self) -> Backoff<'_> {
        self.link.backoff(self.policy)
    }

    #[inline]
    pub fn send(&self, message: Vec<u8>) {
        self.require(self.link.send(self.rank, message));
    }

    /// Counts a `Changed` message that is about to be sent.
    pub fn count_changes(&self) {
        self.changes.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes how many `Changed` messages the host had merged when it sent a message.
    #[inline]
    pub fn note_merged(&self, merged: u32) {
        self.merged.store(merged, Ordering::Relaxed);
    }

    /// How many `Changed` messages the host had not merged when it sent its last message.
    pub fn unmerged(&self) -> u32 {
        self.changes.load(Ordering::Relaxed).wrapping_sub(self.merged.load(Ordering::Relaxed))
    }

    /// Returns the value, or exits: the device cannot continue without it.
    #[inline]
    pub fn require<T>(&self, result: Result<T>) -> T {
        result.unwrap_or_else(|e| self.die(&e))
    }

    /// Exits if the host is gone: on this node, if its process has ended; on another node, where the launcher reports
    /// the end of the host, if the network is gone.
    pub fn check(&self) {
        if process::has_ended(self.process.as_ref()) {
            pmi::follow();
            (self.quit)(0);
        }
        self.require(tcp_liveness::check());
    }

    /// Ends MPI and exits, as the host requested.
    pub fn leave(&self) -> ! {
        self.link.finish();
        pmi::leave();
        (self.quit)(0)
    }

    /// Exits because of an error, which ends the job.
    pub fn die(&self, why: &Error) -> ! {
        if *why == Error::Closed {
            // The link was closed while an unawaited kernel ran: the device is about to exit.
            park()
        }
        let line = format!("omptarget-mpi: error: {}: {why}\n", self.board.device());
        let _ = (&self.stderr).write_all(line.as_bytes());
        (self.quit)(1)
    }
}

/// Stops the calling thread forever.
pub(crate) fn park() -> ! {
    loop {
        std::thread::park();
    }
}
