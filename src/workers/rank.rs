// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A rank whose devices are separate processes (workers): it uses MPI for them, and outlives them.
//!
//! The rank forwards messages and replies unchanged. Bulk data passes through the rank's memory; system calls copy it
//! from and to the worker's. When a worker is lost, its last snapshot, made at the start or later, takes its place.
//! If spares are left, the rank replays the messages since the snapshot, and the program notices only the delay.
//! Otherwise the rank reports to the host that each message has failed.

use super::packet::{PACKET_MAX, Packet};
#[cfg(test)]
pub(crate) use super::process::connect;
pub(crate) use super::process::{Birth, Started, start};
use super::proxy::WorkerProxy;
use super::snapshot::Terms;
use super::uplink::{Piece, Uplink};
use crate::base::{Error, Result, log};
use crate::device_main::crash::exit::quit;
use crate::device_main::crash::supervisor::Kills;
use crate::link::backoff::{BULK_PATIENCE, BackoffPolicy};
use crate::link::{Inbox, Link, Progress};
use crate::mpi::pmi;
use crate::sys::{process, tcp_liveness};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often the rank checks whether workers, snapshots and host are alive.
const LIVENESS_PERIOD: Duration = Duration::from_millis(100);
/// How long workers may take to exit, while they transfer nothing.
const EXIT_PATIENCE: Duration = Duration::from_secs(5);

/// How workers recover from a loss.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spares {
    /// How often each worker may be replaced.
    pub(crate) count: u32,
    /// Bytes to log for each worker before it is checkpointed.
    pub(crate) replay_log: u64,
}

/// A rank with workers.
pub(crate) struct WorkerRank {
    link: Arc<Link<Piece>>,
    inbox: Inbox<Piece>,
    host: usize,
    /// The host's process, if it is on this node.
    host_process: Option<process::Handle>,
    policy: BackoffPolicy,
    name: String,
    workers: Vec<WorkerProxy>,
    /// A buffer for one packet.
    buffer: Vec<u8>,
    /// The OOM killer's counts at the last loss.
    kills: Kills,
}

impl WorkerRank {
    /// `name` names the rank in messages. Its workers cut bulk data into pieces of `fragment` bytes.
    pub(crate) fn new(
        link: Link<Piece>,
        (host, host_process): (usize, Option<process::Handle>),
        policy: BackoffPolicy,
        name: String,
        workers: Vec<Started>,
        spares: Spares,
        fragment: u64,
    ) -> WorkerRank {
        let link = Arc::new(link);
        let several = workers.len() > 1;
        let terms = Terms { keeps: spares.count > 0, limit: spares.replay_log, host: host as u32, fragment };
        let proxy = |(i, started)| {
            let uplink = Uplink::new(link.clone(), host, i, several);
            WorkerProxy::new(format!("worker {i} of {name}"), started, uplink, terms, spares.count)
        };
        let workers = workers.into_iter().enumerate().map(proxy).collect();
        let (buffer, kills) = (vec![0; PACKET_MAX], Kills::so_far());
        WorkerRank { link, inbox: Inbox::default(), host, host_process, policy, name, workers, buffer, kills }
    }

    /// Sends a worker its first packet; see [`WorkerProxy::begin`].
    pub(crate) fn begin(&mut self, worker: usize, packet: &Packet<'_>) -> Result<()> {
        self.workers[worker].begin(packet)
    }

    /// Forwards everything until the host has shut all devices down, then exits.
    pub(crate) fn run(mut self) -> ! {
        match self.pass_on(true) {
            Ok(()) => {
                // Workers exit by themselves; their snapshots do not.
                self.kill_all();
                self.link.finish();
                pmi::leave();
                quit(0)
            }
            Err(e) => {
                if e != Error::Closed {
                    log::error(format_args!("{}: {e}", self.name));
                }
                self.kill_all();
                quit(1)
            }
        }
    }

    /// [`WorkerRank::run`] for a test, whose workers are threads of this process and leave no snapshots. `wait` returns
    /// when they have ended.
    #[cfg(test)]
    pub(crate) fn simulate(mut self, wait: impl FnOnce()) {
        self.workers.iter_mut().for_each(|worker| worker.checkpoints.pretend());
        match self.pass_on(false) {
            Ok(()) => {
                wait();
                self.link.finish();
            }
            // Keep the sockets open: workers that find their rank gone would end this process.
            Err(_) => std::mem::forget(self),
        }
    }

    fn pass_on(&mut self, checks_liveness: bool) -> Result<()> {
        let link = self.link.clone();
        let mut backoff = link.backoff(self.policy);
        let (mut checked, mut ended) = (Instant::now(), None);
        loop {
            if self.step()? {
                // Create a new backoff: the doorbell becomes usable once all workers can ring it.
                backoff = link.backoff(self.policy);
                ended = None;
            } else if self.workers.iter().all(WorkerProxy::is_ended) && link.is_flushed() {
                // A worker may forward an image until it exits.
                let since = ended.get_or_insert_with(Instant::now);
                if self.workers.iter_mut().all(WorkerProxy::has_exited) || since.elapsed() > EXIT_PATIENCE {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_micros(200));
            } else {
                let waits = self.workers.iter().any(WorkerProxy::waits);
                backoff.pause(link.bulk_patience().or(waits.then_some(BULK_PATIENCE)));
            }
            if checks_liveness && checked.elapsed() > LIVENESS_PERIOD {
                checked = Instant::now();
                self.check_liveness()?;
            }
        }
    }

    /// Forwards all that has arrived; true if there was anything.
    fn step(&mut self) -> Result<bool> {
        let mut moved = false;
        loop {
            let progress = self.link.drive(&mut self.inbox)?;
            for (piece, result) in self.inbox.completed.drain(..) {
                self.workers[piece.worker].finish(piece, result)?;
            }
            if let Some((from, message)) = self.inbox.take_message() {
                self.arrived(from, message)?;
            }
            if progress != Progress::Made {
                break;
            }
            moved = true;
        }
        for worker in &mut self.workers {
            moved |= worker.poll(&mut self.buffer)?;
        }
        Ok(moved)
    }

    /// Passes a message from the host to its worker.
    fn arrived(&mut self, from: usize, mut message: Vec<u8>) -> Result<()> {
        let index = if self.workers.len() > 1 { message.pop().map_or(usize::MAX, usize::from) } else { 0 };
        let Some(worker) = self.workers.get_mut(index).filter(|_| from == self.host) else {
            return Err(Error::new(format!("rank {from} sent a message that makes no sense")));
        };
        worker.on_host_message(&message)?;
        self.inbox.recycle(message);
        Ok(())
    }

    fn check_liveness(&mut self) -> Result<()> {
        if process::has_ended(self.host_process.as_ref()) {
            self.kill_all();
            pmi::follow();
            quit(0);
        }
        tcp_liveness::check()?;
        for worker in &mut self.workers {
            worker.check_snapshot(&mut self.kills)?;
        }
        loop {
            let Some((pid, status)) = process::reap_any() else { return Ok(()) };
            for worker in &mut self.workers {
                if worker.is_process(pid, &mut self.buffer)? {
                    worker.on_exit(status, &mut self.kills, &mut self.buffer)?;
                    break;
                }
            }
        }
    }

    fn kill_all(&mut self) {
        self.workers.iter_mut().for_each(WorkerProxy::kill);
    }
}
