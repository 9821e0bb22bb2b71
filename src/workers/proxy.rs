// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A rank's side of one worker: forwards messages, replies and bulk data, checkpoints the worker, and
//! replaces it when it is lost.

use super::packet::{self, Packet, Transfer};
use super::process::{Started, WorkerProcess};
use super::snapshot::{Answer, Asked, Checkpoints, Terms};
use super::uplink::{Direction, Piece, Uplink};
use crate::base::{Error, Result, log};
use crate::debug;
use crate::device_main::crash::supervisor::{Kills, cause};
use crate::link::doorbell::Doorbell;
use crate::sys::process;
use crate::wire::command::{CONTROL, HEAD_LEN, Head, Operations};
use crate::wire::control::Control;
use crate::wire::reply::{self, Failure, Reply};
use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// How long a rank answers heartbeats for a worker that is being checkpointed or replaced. If that takes
/// longer, the worker hangs, and the host must notice.
const MOVE_PATIENCE: Duration = Duration::from_secs(60);
/// How many packets of one worker to read before the next worker's turn.
const TURN: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Since this time the worker has been making a snapshot.
    Checkpointing(Instant),
    /// Since this time the worker's snapshot has been starting the successor.
    Replacing(Instant),
    Working,
    /// The worker was shut down, and the host has the reply.
    Ended,
}

/// The socket to a worker, and packets that wait for room in it.
struct WorkerLink {
    socket: OwnedFd,
    doorbell: Doorbell,
    /// How often the worker was replaced. Packets of other generations are ignored.
    generation: u32,
    unsent: VecDeque<Vec<u8>>,
}

impl WorkerLink {
    fn bytes_of(&self, packet: &Packet<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        packet.write(self.generation, &mut bytes);
        bytes
    }

    /// Sends the bytes of a packet; false if there is no room for them now.
    fn try_send(&self, bytes: &[u8]) -> Result<bool> {
        // If the socket is closed, the exit status of the worker or snapshot gives the reason.
        let sent = packet::send(&self.socket, bytes, false).or_else(unless_closed(true))?;
        self.doorbell.ring();
        Ok(sent)
    }

    /// Sends a packet now or as soon as there is room.
    fn send(&mut self, packet: &Packet<'_>) -> Result<()> {
        let bytes = self.bytes_of(packet);
        if !self.unsent.is_empty() || !self.try_send(&bytes)? {
            self.unsent.push_back(bytes);
        }
        Ok(())
    }

    /// Sends packets that wait for room; false if some still wait.
    fn flush(&mut self) -> Result<bool> {
        while let Some(bytes) = self.unsent.front() {
            if !self.try_send(bytes)? {
                return Ok(false);
            }
            self.unsent.pop_front();
        }
        Ok(true)
    }

    fn receive<'a>(&self, buffer: &'a mut [u8]) -> Result<Option<(u32, Packet<'a>)>> {
        let len = packet::receive(&self.socket, buffer, false).or_else(unless_closed(None))?;
        len.map(|len| Packet::parse(&buffer[..len])).transpose()
    }
}

/// Replaces [`Error::Closed`] by this value.
fn unless_closed<T>(closed: T) -> impl FnOnce(Error) -> Result<T> {
    |e| if e == Error::Closed { Ok(closed) } else { Err(e) }
}

/// Whether a lost worker may be replaced.
struct Replacement {
    /// How often it may still be replaced.
    spares: u32,
    /// The message and the kernel of the last crash.
    last_crash: Option<(u64, u64)>,
    /// Why every message fails, once the worker is lost permanently.
    failure: Option<Failure>,
}

impl Replacement {
    /// True if the worker is lost permanently.
    fn is_over(&self) -> bool {
        self.failure.is_some()
    }

    /// Decides what follows a loss (see [`WorkerProxy::replace`]). Returns the cause of the loss if a spare
    /// takes over; otherwise the worker is lost permanently. `log_is_whole`: a replay is possible.
    fn take_spare(&mut self, mut failure: Failure, crashed_in: Option<u64>, log_is_whole: bool) -> Option<String> {
        let crash = crashed_in.filter(|_| failure.kernel != 0).map(|seq| (seq, failure.kernel));
        let again = crash.is_some() && self.last_crash == crash;
        self.last_crash = crash;
        if self.spares > 0 && !again && log_is_whole {
            self.spares -= 1;
            return Some(failure.text);
        }
        if again {
            failure.text += ", and so it did when a spare did the same again";
        } else if self.spares > 0 && !log_is_whole {
            failure.text += ", and no spare can take over: its regions have overlapped for so long that not everything \
                             since it was last copied is kept (OMPTARGET_MPI_JOURNAL)";
        }
        self.failure = Some(failure);
        None
    }
}

pub(crate) struct WorkerProxy {
    name: String,
    uplink: Uplink,
    process: WorkerProcess,
    link: WorkerLink,
    stage: Stage,
    /// The host's heartbeat requests that the worker has not answered yet.
    heartbeats: Vec<u64>,
    /// The message that shuts the worker down, once the rank has sent it.
    shutdown: Option<u64>,
    pub(super) checkpoints: Checkpoints,
    replacement: Replacement,
    /// The worker has not been told yet that its replay is over.
    replays: bool,
    /// The worker's trace records. The host gets them together with the answer to its request, which follows: a
    /// successor that answers in this worker's place has made the same records.
    records: Option<Vec<u8>>,
}

impl WorkerProxy {
    /// The proxy of a new worker, which may be replaced `spares` times.
    pub(crate) fn new(name: String, started: Started, uplink: Uplink, terms: Terms, spares: u32) -> WorkerProxy {
        let Started { pid, socket, wake, doorbell, board } = started;
        WorkerProxy {
            name,
            uplink,
            process: WorkerProcess { pid, board },
            link: WorkerLink { socket, doorbell, generation: 0, unsent: VecDeque::new() },
            stage: Stage::Working,
            heartbeats: Vec::new(),
            shutdown: None,
            checkpoints: Checkpoints::new(terms, wake),
            replacement: Replacement { spares, last_crash: None, failure: None },
            replays: false,
            records: None,
        }
    }

    /// Sends the worker [`Packet::Begin`], and requests its first snapshot.
    pub(crate) fn begin(&mut self, packet: &Packet<'_>) -> Result<()> {
        /// Has the same address in both processes.
        static PROBE: u8 = 0;
        if let Err(e) = self.process.read(&raw const PROBE as u64, 1) {
            if e.raw_os_error() == Some(libc::ESRCH) {
                return Err(Error::new(format!("{} has ended before it was given anything to do", self.name)));
            }
            return Err(Error::from(e).context(
                "a rank can't copy its workers' data by process_vm_readv, which kernel.yama.ptrace_scope above 1 \
                 and containers' seccomp profiles may forbid",
            ));
        }
        self.link.send(packet)?;
        self.take_snapshot()
    }

    pub(crate) fn on_host_message(&mut self, message: &[u8]) -> Result<()> {
        let (Head { seq, queue, .. }, _) = Operations::open(message)?;
        if queue != CONTROL || message.len() != HEAD_LEN {
            self.checkpoints.log.push(seq, message);
            return Ok(());
        }
        self.heartbeats.push(seq);
        match self.stage {
            Stage::Working => self.link.send(&Packet::Message(message)),
            Stage::Checkpointing(since) | Stage::Replacing(since) if since.elapsed() > MOVE_PATIENCE => Ok(()),
            _ => self.answer_heartbeats(),
        }
    }

    /// Answers heartbeat requests on behalf of the worker.
    fn answer_heartbeats(&mut self) -> Result<()> {
        self.heartbeats.drain(..).try_for_each(|seq| self.uplink.reply_done(seq))
    }

    /// True if messages wait for room in the socket or for a checkpoint: no doorbell announces these.
    pub(crate) fn waits(&self) -> bool {
        !self.link.unsent.is_empty() || self.checkpoints.is_holding()
    }

    /// Makes progress; true if there was any.
    pub(crate) fn poll(&mut self, buffer: &mut [u8]) -> Result<bool> {
        Ok(self.listen(buffer)? | self.pump()?)
    }

    /// Forwards messages while there is room; true if it forwarded any.
    fn pump(&mut self) -> Result<bool> {
        if !self.link.flush()? || self.stage != Stage::Working {
            return Ok(false);
        }
        if self.replays && !self.checkpoints.log.messages.are_replayed() {
            self.replays = false;
            self.link.send(&Packet::Replayed)?;
        }
        if self.heartbeats.is_empty() && self.shutdown.is_none() && self.checkpoints.is_due() {
            self.take_snapshot()?;
            return Ok(true);
        }
        let mut moved = false;
        if self.checkpoints.log.messages.next().is_none() && !self.checkpoints.postponed.is_empty() {
            self.checkpoints.holds_back(&self.name, &self.uplink)?;
        }
        while self.checkpoints.log.messages.next().is_some()
            && !self.checkpoints.holds_back(&self.name, &self.uplink)?
        {
            let Some(message) = self.checkpoints.log.messages.next() else { break };
            if !self.link.try_send(&self.link.bytes_of(&Packet::Message(message)))? {
                break;
            }
            self.shutdown = self.shutdown.or(shutdown_in(message));
            self.checkpoints.log.message_sent(Instant::now());
            moved = true;
        }
        Ok(moved)
    }

    /// Reads packets of the worker; true if there were any.
    fn listen(&mut self, buffer: &mut [u8]) -> Result<bool> {
        for n in 0..TURN {
            let Some((generation, packet)) = self.link.receive(buffer)? else { return Ok(n > 0) };
            if generation == self.link.generation {
                self.execute(packet)?;
            } else if let Packet::Awake { pid: pid @ 1.. } | Packet::SnapshotTaken { pid: pid @ 1.. } = packet {
                // This process is of an earlier generation, and obsolete.
                process::kill(pid as i32);
            }
        }
        Ok(true)
    }

    fn execute(&mut self, packet: Packet<'_>) -> Result<()> {
        match packet {
            Packet::Message(reply) => self.on_reply(reply),
            Packet::Send(transfer) => self.send(transfer),
            Packet::Receive(transfer) => self.receive(transfer),
            Packet::SnapshotTaken { pid } => {
                self.stage = Stage::Working;
                self.answer_heartbeats()?;
                self.checkpoints.taken(pid, &self.name, &self.uplink)
            }
            Packet::Awake { pid } => self.on_awake(pid),
            Packet::WrongSnapshot if matches!(self.stage, Stage::Replacing(_)) => self.wake_snapshot(),
            _ => Err(Error::new(format!("{} sent what only its rank sends", self.name))),
        }
    }

    fn on_reply(&mut self, bytes: &[u8]) -> Result<()> {
        let log = &mut self.checkpoints.log;
        let seq = match Reply::parse(bytes)? {
            Reply::Done { seq, .. } => seq,
            Reply::Failed { seq, failure } if failure.lost && !self.replacement.is_over() => {
                return self.replace(failure, Some(seq).filter(|&seq| seq > 0));
            }
            // The worker crashed while idle.
            Reply::Failed { seq: 0, .. } => return Ok(()),
            Reply::Failed { seq, .. } => seq,
            Reply::Records(_) => {
                self.records = Some(bytes.to_vec());
                return Ok(());
            }
            // Workers do not keep the program's addresses free.
            Reply::Fetch { .. }
            | Reply::Changed { .. }
            | Reply::ChangedThere { .. }
            | Reply::ChangedAside { .. }
            | Reply::Find { .. } => {
                return Err(Error::new(format!("{} asks for the program's memory", self.name)));
            }
            Reply::Output { stream, bytes } => {
                let new = log.print(stream, bytes);
                if new.is_empty() {
                    return Ok(());
                }
                return self.uplink.reply_with(|message| {
                    reply::begin_output(message, stream);
                    message.extend_from_slice(new);
                });
            }
        };
        if let Some(request) = self.heartbeats.iter().position(|&request| request == seq) {
            self.heartbeats.remove(request);
            return self.uplink.reply(bytes);
        }
        // The worker executes control messages in order, so this answers the request for the records.
        let records = self.records.take_if(|_| log.messages.is_control(seq));
        match log.answer(seq, bytes) {
            Answer::New => {
                records.map_or(Ok(()), |records| self.uplink.reply(&records))?;
                self.uplink.reply(bytes)?;
            }
            Answer::Postpone => self.checkpoints.postpone(seq, bytes, self.replacement.is_over(), &self.uplink)?,
            Answer::Known => {}
            Answer::Differs if self.replacement.is_over() => {}
            Answer::Differs => return self.on_difference(),
            Answer::Unknown => return Err(Error::new(format!("{} answers what nobody asked", self.name))),
        }
        if self.shutdown == Some(seq) {
            self.stage = Stage::Ended;
        }
        Ok(())
    }

    fn send(&mut self, transfer: Transfer) -> Result<()> {
        let Transfer { id, route, at, len } = transfer;
        let bytes = match self.process.read(at, len) {
            Ok(bytes) => bytes,
            Err(e) => return self.on_copied(id, len, Err(e)),
        };
        let log = &mut self.checkpoints.log;
        let hash = if log.keeps { xxh3_64(&bytes) } else { 0 };
        match log.send(route, hash) {
            Some(before) if before != hash && !self.replacement.is_over() => self.on_difference(),
            Some(_) => self.link.send(&Packet::Done { id, len }),
            None => self.uplink.send(transfer, bytes, self.link.generation),
        }
    }

    fn receive(&mut self, transfer: Transfer) -> Result<()> {
        let Transfer { id, route, at, .. } = transfer;
        match self.checkpoints.log.bulk.receive(route, (id, at)) {
            Asked::UnderWay => Ok(()),
            Asked::New(index) => self.uplink.receive(transfer, index),
            Asked::Done(bytes) => {
                let (len, written) = (bytes.len() as u64, self.process.write(at, bytes));
                self.on_copied(id, len, written)
            }
        }
    }

    /// Handles the end of a piece's transfer.
    pub(crate) fn finish(&mut self, piece: Piece, result: Result<()>) -> Result<()> {
        let log = &mut self.checkpoints.log;
        let Transfer { id, route, len, .. } = piece.transfer;
        match piece.direction {
            Direction::Out { generation } => {
                log.sent(route);
                if generation == self.link.generation { self.link.send(&Packet::Done { id, len }) } else { Ok(()) }
            }
            Direction::In { index } => {
                let bytes = piece.received(result);
                let written = log.bulk.waiter(route, index).map(|(id, at)| (id, self.process.write(at, &bytes)));
                let len = bytes.len() as u64;
                log.received(route, index, bytes);
                written.map_or(Ok(()), |(id, written)| self.on_copied(id, len, written))
            }
        }
    }

    /// Handles the result of copying a piece from or to the worker's memory.
    fn on_copied(&mut self, id: u64, len: u64, result: io::Result<()>) -> Result<()> {
        let why = match result {
            Ok(()) => return self.link.send(&Packet::Done { id, len }),
            // The worker has exited. Its exit status will tell why.
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
            Err(e) => e,
        };
        let text = format!(
            "the rank can't reach its memory ({why}), which containers and kernel.yama.ptrace_scope may forbid \
             (process_vm_readv, process_vm_writev)"
        );
        self.replace(Failure { lost: true, text, ..Failure::default() }, None)
    }

    fn take_snapshot(&mut self) -> Result<()> {
        debug!("{}: is copied", self.name);
        self.stage = Stage::Checkpointing(Instant::now());
        self.link.send(&Packet::TakeSnapshot)
    }

    /// Handles a replay with a different result. A further replay might differ too, so the worker is lost permanently.
    fn on_difference(&mut self) -> Result<()> {
        let text = "its kernels do not give the same result each time (they may depend on the order of threads, on \
                    time, or on what is outside of the device), so that what was lost can't be done again; a smaller \
                    OMPTARGET_MPI_JOURNAL leaves less to be done again";
        self.replacement.spares = 0;
        self.replace(Failure { lost: true, text: text.into(), ..Failure::default() }, None)
    }

    /// Replaces a lost worker by a successor that its snapshot starts. The successor replays the messages
    /// since the snapshot, or fails all of them if no spare is left. `crashed_in` is the message in which the
    /// worker crashed.
    fn replace(&mut self, failure: Failure, crashed_in: Option<u64>) -> Result<()> {
        self.process.kill();
        if self.replacement.is_over() {
            return Err(Error::new(format!("{} is lost: {}", self.name, failure.text)));
        }
        self.link.unsent.clear();
        self.records = None;
        self.answer_heartbeats()?;
        self.shutdown = None;
        let cause = self.replacement.take_spare(failure, crashed_in, !self.checkpoints.log.gave_up());
        let messages = self.checkpoints.restart(cause.is_some());
        if let Some(cause) = cause {
            log::warning(format_args!(
                "{}: {cause}; its spare takes over and does {messages} messages again ({} spares are left)",
                self.name, self.replacement.spares
            ));
        }
        self.wake_snapshot()
    }

    fn wake_snapshot(&mut self) -> Result<()> {
        self.stage = Stage::Replacing(Instant::now());
        self.link.generation += 1;
        if self.checkpoints.wake(self.link.generation) { Ok(()) } else { Err(lost(&self.name, "so is its spare")) }
    }

    /// Handles the snapshot's report that it has started a worker, or failed to (0).
    fn on_awake(&mut self, pid: u32) -> Result<()> {
        if pid == 0 {
            return Err(lost(&self.name, "its spare can't take over: there is no memory for another process"));
        }
        (self.process.pid, self.stage, self.replays) = (pid as i32, Stage::Working, true);
        self.answer_heartbeats()?;
        let Some(failure) = &self.replacement.failure else { return Ok(()) };
        let mut reply = Vec::new();
        reply::failed(&mut reply, 0, failure);
        self.link.send(&Packet::FailAll(&reply))
    }

    /// Checks whether the snapshot was killed. `kills` is the state at the last loss.
    pub(crate) fn check_snapshot(&mut self, kills: &mut Kills) -> Result<()> {
        if !self.checkpoints.snapshot_was_killed() {
            return Ok(());
        }
        if matches!(self.stage, Stage::Replacing(_)) {
            return Err(lost(&self.name, "so is its spare"));
        }
        log::warning(format_args!("the spare of {} was killed{}", self.name, kills.since()));
        *kills = Kills::so_far();
        Ok(())
    }

    /// True if `pid`, a child that has exited, is this worker's process.
    pub(crate) fn is_process(&mut self, pid: i32, buffer: &mut [u8]) -> Result<bool> {
        if matches!(self.stage, Stage::Replacing(_)) {
            // The child may be the successor, whose process id is still in the socket.
            while self.listen(buffer)? {}
        }
        Ok(self.process.pid == pid)
    }

    /// Handles the exit of the worker's process; `kills` as in [`Self::check_snapshot`].
    pub(crate) fn on_exit(&mut self, status: i32, kills: &mut Kills, buffer: &mut [u8]) -> Result<()> {
        self.process.pid = 0;
        let generation = self.link.generation;
        // Read what the worker sent before it exited.
        while self.listen(buffer)? {}
        if self.is_ended() || self.link.generation != generation {
            return Ok(());
        }
        if let Some(seq) = self.shutdown {
            self.stage = Stage::Ended;
            return self.uplink.reply_done(seq);
        }
        let text = format!("its process {}", cause(status, kills));
        *kills = Kills::so_far();
        let failure = Failure { lost: true, kernel: self.process.board.only_kernel(), text, ..Failure::default() };
        // A kill from outside does not blame the message that it interrupts.
        let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        let crashed_in = self.checkpoints.log.messages.oldest_open().filter(|_| !killed);
        self.replace(failure, crashed_in)
    }

    pub(crate) fn is_ended(&self) -> bool {
        self.stage == Stage::Ended
    }

    /// True if the worker's process has exited.
    pub(crate) fn has_exited(&mut self) -> bool {
        self.process.has_exited(false)
    }

    pub(crate) fn kill(&mut self) {
        self.process.kill();
        self.checkpoints.end();
    }
}

/// The number of a message if it shuts the worker down.
fn shutdown_in(message: &[u8]) -> Option<u64> {
    let (head, mut operations) = Operations::open(message).ok()?;
    (head.queue == CONTROL && matches!(operations.take(), Ok(Some(Control::Shutdown)))).then_some(head.seq)
}

fn lost(name: &str, why: &str) -> Error {
    Error::new(format!("{name} is lost, and {why}"))
}

#[cfg(test)]
#[path = "../../test/rust/unit/workers/proxy.rs"]
mod tests;
