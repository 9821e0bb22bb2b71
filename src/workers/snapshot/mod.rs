// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The sources of a lost worker's successor: a snapshot, which is a sleeping process, and the log of
//! the messages since.
//!
//! Invariants:
//! - A worker is checkpointed only while it is quiescent: the snapshot has the effects of all earlier
//!   messages, the log has all later messages.
//! - A replay must repeat each answer that the host has; otherwise it fails.

mod bulk_log;
mod hold;
mod messages;
mod replay_log;
#[cfg(test)]
#[path = "../../../test/rust/unit/workers/snapshot.rs"]
mod tests;

use super::uplink::Uplink;
use super::worker::wake_order;
use crate::base::{Result, log};
use crate::sys::process;
pub(crate) use bulk_log::Asked;
use hold::{Hold, Verdict};
pub(crate) use messages::Terms;
pub(crate) use replay_log::{Answer, ReplayLog};
use rustix::process::{Pid, Signal, kill_process, pidfd_send_signal};
use std::io::{PipeWriter, Write};
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// How long to wait after a checkpoint that failed for lack of memory.
const NO_MEMORY: Duration = Duration::from_secs(1);

/// A sleeping copy of a worker: a child of the worker until the worker exits, then of the rank.
struct Snapshot {
    pid: Pid,
    /// `None` where the system has no pidfds (before Linux 5.3).
    handle: Option<process::Handle>,
}

impl Snapshot {
    fn kill(&self) {
        let _ = match &self.handle {
            Some(handle) => pidfd_send_signal(handle, Signal::KILL),
            None => kill_process(self.pid, Signal::KILL),
        };
    }

    /// Waits for the end of this snapshot, which was killed. The worker must have been reaped.
    fn wait_for_end(&self) {
        match &self.handle {
            Some(handle) => process::wait_for_end(handle),
            None => drop(process::reap(self.pid.as_raw_pid(), true)),
        }
    }
}

/// The last checkpoint of a worker, the log since then, and the schedule of the next checkpoint.
pub(crate) struct Checkpoints {
    pub(crate) log: ReplayLog,
    snapshot: Option<Snapshot>,
    /// Earlier snapshots, which were killed and may not have ended yet.
    killed: Vec<Snapshot>,
    /// Carries orders to the snapshots.
    wake: PipeWriter,
    hold: Hold,
    /// Replies that wait for a checkpoint ([`Answer::Postpone`]), with the numbers of their messages.
    pub(super) postponed: Vec<(u64, Vec<u8>)>,
    /// The next checkpoint waits until this time, for lack of memory.
    not_before: Option<Instant>,
    /// The user was warned that the worker can't always be replaced.
    warned: bool,
}

impl Checkpoints {
    pub(crate) fn new(terms: Terms, wake: PipeWriter) -> Checkpoints {
        Checkpoints {
            log: ReplayLog::new(terms),
            snapshot: None,
            killed: Vec::new(),
            wake,
            hold: Hold::default(),
            postponed: Vec::new(),
            not_before: None,
            warned: false,
        }
    }

    /// True if the worker must be checkpointed now.
    pub(crate) fn is_due(&self) -> bool {
        self.log.is_quiescent()
            && (self.snapshot.is_none() || self.log.wants_checkpoint())
            && self.not_before.is_none_or(|time| Instant::now() >= time)
    }

    /// Records the snapshot that the worker called `name` made, or failed to make (0).
    pub(crate) fn taken(&mut self, pid: u32, name: &str, uplink: &Uplink) -> Result<()> {
        let Some(pid) = Pid::from_raw(pid as i32) else {
            log::warning(format_args!("{name} can't be copied: there is no memory for another process"));
            let now = Instant::now();
            self.not_before = Some(now + NO_MEMORY);
            self.hold.go_on(&self.log, now);
            return self.release(uplink);
        };
        self.replace(pid);
        self.hold = Hold::default();
        self.log.checkpointed();
        self.postponed.drain(..).try_for_each(|(_, reply)| uplink.reply(&reply))
    }

    /// Makes a process the snapshot, and kills the earlier one.
    fn replace(&mut self, pid: Pid) {
        let handle = process::handle(pid.as_raw_pid());
        if let Some(old) = self.snapshot.replace(Snapshot { pid, handle }) {
            old.kill();
            // Without a handle, assume that all earlier ones have ended: they have had the time of a checkpoint.
            self.killed.retain(|killed| killed.handle.is_some() && !process::has_ended(killed.handle.as_ref()));
            self.killed.push(old);
        }
    }

    /// Keeps a reply until the next checkpoint, unless none will come soon.
    pub(crate) fn postpone(&mut self, seq: u64, reply: &[u8], is_lost: bool, uplink: &Uplink) -> Result<()> {
        self.postponed.push((seq, reply.to_vec()));
        if is_lost || self.hold.is_free(Instant::now()) { self.release(uplink) } else { Ok(()) }
    }

    /// Sends the host the replies that wait for a checkpoint.
    fn release(&mut self, uplink: &Uplink) -> Result<()> {
        self.postponed.drain(..).try_for_each(|(seq, reply)| {
            self.log.commit(seq, xxh3_64(&reply));
            uplink.reply(&reply)
        })
    }

    /// True if no message may be sent to the worker called `name` before it is checkpointed.
    pub(crate) fn holds_back(&mut self, name: &str, uplink: &Uplink) -> Result<bool> {
        if !self.log.wants_checkpoint() && !self.hold.is_held() {
            return Ok(false);
        }
        let verdict = self.hold.decide(&self.log, Instant::now());
        if matches!(verdict, Verdict::GoOn | Verdict::GiveUp) {
            self.release(uplink)?;
        }
        if verdict == Verdict::GiveUp {
            self.log.give_up();
            if !std::mem::replace(&mut self.warned, true) {
                log::warning(format_args!(
                    "{name} can't be copied while its regions overlap without a pause, and more than \
                     OMPTARGET_MPI_JOURNAL bytes were sent to it: until the next pause it is not replaced if it is lost"
                ));
            }
        }
        Ok(verdict == Verdict::Wait)
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.hold.is_held()
    }

    /// Prepares the log for the successor of a lost worker, which gets all messages again or, unless it
    /// `replays`, only those that must fail. Returns the number of these messages.
    pub(crate) fn restart(&mut self, replays: bool) -> usize {
        self.hold = Hold::default();
        self.postponed.clear();
        if !replays {
            self.log.give_up_for_good();
        }
        self.log.restart()
    }

    /// Orders the snapshot to start a worker of this generation; false if there is no snapshot.
    pub(crate) fn wake(&mut self, generation: u32) -> bool {
        let Some(Snapshot { pid, .. }) = self.snapshot else { return false };
        // Killed snapshots read from the same pipe: one that has not ended yet could take the order.
        self.killed.drain(..).for_each(|killed| killed.wait_for_end());
        self.wake.write_all(&wake_order(pid.as_raw_pid(), generation)).is_ok()
    }

    /// True if the snapshot was killed since the last call; it never exits by itself. The worker makes another
    /// snapshot when it is next quiescent.
    pub(crate) fn snapshot_was_killed(&mut self) -> bool {
        let handle = self.snapshot.as_ref().and_then(|snapshot| snapshot.handle.as_ref());
        process::has_ended(handle) && self.snapshot.take().is_some()
    }

    /// Kills the snapshot, whose worker has exited.
    pub(crate) fn end(&mut self) {
        if let Some(snapshot) = self.snapshot.take() {
            snapshot.kill();
            let _ = process::reap(snapshot.pid.as_raw_pid(), true);
        }
    }

    #[cfg(test)]
    pub(crate) fn pretend(&mut self) {
        // No process has this process id.
        self.snapshot = Pid::from_raw(i32::MAX).map(|pid| Snapshot { pid, handle: None });
    }
}
