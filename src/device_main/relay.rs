// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A rank whose devices are processes of their own (workers): it speaks MPI for them, and
//! outlives them.
//!
//! Messages and replies are passed on as they are. Bulk data goes through the rank's memory,
//! from which and to which the worker's is copied by the system. When a worker is lost, its
//! sleeping copy, which it has from the start, takes its place: with spares left it is given
//! again what the worker has got since the copy was made, and the program notices nothing
//! but the time; else it tells the host of each message that it failed.
//!
//! Invariants:
//! - A copy is made only while the worker has nothing to do, or nothing yet: what it has
//!   done before is in the copy, what comes after is in the [`Journal`].
//! - What the program was told once stays: a replay that gives something else fails.

use super::board::Board;
use super::journal::{Answer, Asked, Journal, Lane};
use super::serve::{forget_libomp, has_ended, process_handle, quit};
use super::supervise::{self, Kills};
use super::worker::{order, receive, send};
use crate::base::{Error, Result, log, network};
use crate::debug;
use crate::link::bell::Bell;
use crate::link::idle::Pace;
use crate::link::{Link, OnDone, Peer, Progress, Span};
use crate::wire::command::{Command, Commands, HEAD_LEN, Head};
use crate::wire::packet::{PACKET_MAX, Packet};
use crate::wire::reply::{self, Failure, Reply};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// How often the rank looks whether workers and host still live.
const PULSE: Duration = Duration::from_millis(100);
/// How long a worker is not kept waiting for a point of quiet once that took too long.
const GO_ON: Duration = Duration::from_secs(1);
/// Packets of one worker that are read before another one's turn.
const TURN: usize = 16;
/// How long a rank answers for a worker that is copied or made: one that takes longer hangs, and
/// the host shall notice.
const MOVE_PATIENCE: Duration = Duration::from_secs(60);
/// How long workers may take to end.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// A worker that was started, as its rank sees it.
pub struct Started {
    /// 0 when it was waited for.
    pid: i32,
    socket: OwnedFd,
    wake: File,
    bell: Bell,
    board: &'static Board,
}

/// What a worker has been started with.
pub struct Birth {
    /// See [`super::worker::Worker`].
    pub socket: OwnedFd,
    /// See [`super::worker::Worker`].
    pub wake: File,
    /// The bell of its own.
    pub bell: Bell,
    /// Where it writes down what it runs.
    pub board: &'static Board,
}

/// Starts workers, each of which calls `main` and ends with it. To be called before there is
/// any thread, and before MPI is started: workers have none.
///
/// # Errors
/// The system's.
pub fn start(workers: u32, main: impl Fn(Birth)) -> Result<Vec<Started>> {
    // SAFETY: a plain number. Copies of workers become children of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let mut started = Vec::new();
    for _ in 0..workers {
        let (ours, theirs) = pair()?;
        let (read, write) = pipe()?;
        let (bell, board) = (Bell::new()?, Board::new()?);
        // SAFETY: the only thread of this process; the child goes on as a program of its own.
        match unsafe { libc::fork() } {
            -1 => return Err(Error::from(std::io::Error::last_os_error()).context("can't start a worker process")),
            0 => {
                // Its rank's end, and all of the other workers.
                drop((ours, write, started));
                main(Birth { socket: theirs, wake: read, bell, board });
                quit(1)
            }
            pid => started.push(Started { pid, socket: ours, wake: write, bell, board }),
        }
    }
    Ok(started)
}

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for two descriptors, which are ours alone then.
    unsafe {
        match libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) {
            0 => Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))),
            _ => Err(Error::from(std::io::Error::last_os_error()).context("socketpair")),
        }
    }
}

fn pipe() -> Result<(File, File)> {
    let mut fds = [0; 2];
    // SAFETY: as in `pair`.
    unsafe {
        match libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) {
            0 => Ok((File::from_raw_fd(fds[0]), File::from_raw_fd(fds[1]))),
            _ => Err(Error::from(std::io::Error::last_os_error()).context("pipe")),
        }
    }
}

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// It makes a copy of itself, since then.
    Copies(Instant),
    /// Its copy makes it, since then.
    Wakes(Instant),
    /// It does what it is told.
    Works,
    /// It was told to end, and has answered.
    Ended,
}

/// What workers of a rank may do after a loss.
#[derive(Clone, Copy, Debug)]
pub struct Spares {
    /// How often each may be replaced.
    pub count: u32,
    /// Bytes that are kept of each before it is copied.
    pub journal: u64,
}

/// A sleeping copy of a worker.
struct Copy {
    pid: i32,
    /// Tells when it has ended, where the system has such handles (Linux 5.3): it is a child of
    /// the worker's.
    handle: Option<OwnedFd>,
}

impl Copy {
    fn of(pid: i32) -> Copy {
        Copy { pid, handle: process_handle(pid) }
    }

    fn kill(&self) {
        match &self.handle {
            // SAFETY: plain numbers.
            Some(handle) => unsafe {
                libc::syscall(libc::SYS_pidfd_send_signal, handle.as_raw_fd(), libc::SIGKILL, 0, 0);
            },
            None => kill(self.pid),
        }
    }
}

/// A worker and what is known of it.
struct Device {
    name: String,
    it: Started,
    generation: u32,
    copy: Option<Copy>,
    stage: Stage,
    journal: Journal,
    /// Questions whether it is there that it has not answered.
    asked: Vec<u64>,
    /// Packets for which there was no room.
    unsent: VecDeque<Vec<u8>>,
    /// Replies that wait for a copy ([`Answer::Later`]), and those that the host gets next.
    later: Vec<(u64, Vec<u8>)>,
    due: Vec<Vec<u8>>,
    spares: u32,
    /// Where it crashed last: message and kernel.
    crash: Option<(u64, u64)>,
    /// Why everything fails.
    failure: Option<Failure>,
    /// The message that told it to end.
    ends: Option<u64>,
    /// Since when it is kept waiting, and until when it is not to be.
    held: Option<Instant>,
    free_until: Option<Instant>,
}

impl Device {
    /// Sends a packet; false if there is no room now.
    fn try_tell(&self, packet: &Packet<'_>) -> Result<bool> {
        let mut bytes = Vec::with_capacity(PACKET_MAX);
        packet.write(self.generation, &mut bytes);
        self.try_send(&bytes)
    }

    fn try_send(&self, bytes: &[u8]) -> Result<bool> {
        // Where worker and copy are gone, their end tells why.
        let sent = send(&self.it.socket, bytes, false).or_else(unless_closed(true))?;
        self.it.bell.ring();
        Ok(sent)
    }

    /// Sends a packet, now or when there is room.
    fn tell(&mut self, packet: &Packet<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        packet.write(self.generation, &mut bytes);
        if !self.unsent.is_empty() || !self.try_send(&bytes)? {
            self.unsent.push_back(bytes);
        }
        Ok(())
    }

    /// The host asks whether it is there. A worker that is copied or made can't answer.
    fn ask(&mut self, seq: u64, question: &[u8]) -> Result<()> {
        self.journal.push_question();
        self.asked.push(seq);
        match self.stage {
            Stage::Works => self.tell(&Packet::Message(question)),
            Stage::Copies(since) | Stage::Wakes(since) if since.elapsed() > MOVE_PATIENCE => Ok(()),
            _ => {
                self.vouch();
                Ok(())
            }
        }
    }

    /// Answers the host's questions in the worker's place.
    fn vouch(&mut self) {
        for seq in self.asked.drain(..) {
            let mut reply = Vec::new();
            reply::begin_done(&mut reply, seq);
            self.due.push(reply);
        }
    }

    /// Has it leave a copy behind.
    fn ask_for_copy(&mut self) -> Result<()> {
        debug!("{}: is copied", self.name);
        self.stage = Stage::Copies(Instant::now());
        self.tell(&Packet::Copy)
    }

    /// It has left a copy behind, or could not.
    fn copied(&mut self, pid: u32) {
        self.stage = Stage::Works;
        self.held = None;
        self.vouch();
        if pid == 0 {
            log::warning(format_args!("{} can't be copied: there is no memory for another process", self.name));
            return self.go_on();
        }
        if let Some(old) = self.copy.replace(Copy::of(pid as i32)) {
            old.kill();
        }
        self.journal.forget();
        self.due.extend(self.later.drain(..).map(|(_, reply)| reply));
    }

    /// Does not wait for a copy, for some time.
    fn go_on(&mut self) {
        self.held = None;
        self.free_until = Some(Instant::now() + GO_ON);
        self.release();
    }

    /// The host gets the replies that wait for a copy.
    fn release(&mut self) {
        for (seq, reply) in self.later.drain(..) {
            self.journal.commit(seq, xxh3_64(&reply));
            self.due.push(reply);
        }
    }

    fn is_free(&self) -> bool {
        self.failure.is_some() || self.free_until.is_some_and(|until| Instant::now() < until)
    }

    /// True if it shall get nothing more before it is quiet, and can be copied.
    fn hold(&mut self) -> bool {
        if !self.journal.wants_copy() || self.is_free() {
            self.held = None;
        } else if self.held.get_or_insert_with(Instant::now).elapsed() > self.journal.patience() {
            self.go_on();
        }
        self.held.is_some()
    }

    /// Passes on what there is room for; true if that was anything. `keeps` is true if the
    /// worker may be replaced.
    fn feed(&mut self, keeps: bool, prints: bool) -> Result<bool> {
        while let Some(bytes) = self.unsent.front() {
            if !self.try_send(bytes)? {
                return Ok(false);
            }
            self.unsent.pop_front();
        }
        if self.stage != Stage::Works {
            return Ok(false);
        }
        let keeps = keeps && self.failure.is_none();
        if self.journal.is_quiet() && self.asked.is_empty() && !prints {
            let wants_copy = self.copy.is_none() || (keeps && self.journal.wants_copy());
            if wants_copy && self.ends.is_none() && !self.is_free() {
                self.ask_for_copy()?;
                return Ok(true);
            }
            if !keeps && self.journal.is_dirty() {
                self.journal.forget();
                self.held = None;
            }
        }
        let mut moved = false;
        let waits = !self.later.is_empty() || self.journal.next_message().is_some();
        let held = waits && self.hold();
        while !held && let Some(message) = self.journal.next_message() {
            if !self.try_tell(&Packet::Message(message))? {
                break;
            }
            self.ends = self.ends.or(ends(message));
            self.journal.message_sent();
            moved = true;
            if self.journal.wants_copy() && !self.is_free() {
                break;
            }
        }
        Ok(moved)
    }

    /// The worker is lost: its copy makes another one. That does again what the worker has done
    /// since the copy was made, if it may; else everything fails for that reason. `seq` is the
    /// message that it crashed in, if it was by itself.
    fn replace(&mut self, mut failure: Failure, seq: Option<u64>, may: bool) -> Result<()> {
        self.kill();
        if self.failure.is_some() {
            return Err(Error::new(format!("{} is lost: {}", self.name, failure.text)));
        }
        let crash = seq.filter(|_| failure.kernel != 0).map(|seq| (seq, failure.kernel));
        let again = crash.is_some() && self.crash == crash;
        self.crash = crash;
        let messages = self.journal.restart();
        self.unsent.clear();
        self.later.clear();
        self.vouch();
        (self.held, self.ends) = (None, None);
        if may && self.spares > 0 && !again {
            self.spares -= 1;
            log::warning(format_args!(
                "{}: {}; its spare takes over and does {messages} messages again ({} spares are left)",
                self.name, failure.text, self.spares
            ));
        } else {
            if again {
                failure.text += ", and so it did when a spare did the same again";
            }
            self.failure = Some(failure);
        }
        self.wake()
    }

    /// The system does not copy from or to the worker. One that has ended is no news.
    fn unreachable(&mut self, why: &std::io::Error) -> Result<()> {
        if why.raw_os_error() == Some(libc::ESRCH) {
            return Ok(());
        }
        let text = format!(
            "the rank can't reach its memory ({why}), which containers and kernel.yama.ptrace_scope may forbid \
             (process_vm_readv, process_vm_writev)"
        );
        self.replace(Failure { lost: true, text, ..Failure::default() }, None, true)
    }

    /// Has the copy make a worker.
    fn wake(&mut self) -> Result<()> {
        let Some(copy) = &self.copy else { return Err(self.both_lost()) };
        self.stage = Stage::Wakes(Instant::now());
        self.generation += 1;
        let told = self.it.wake.write_all(&order(copy.pid, self.generation));
        told.map_err(|_| self.both_lost())
    }

    fn both_lost(&self) -> Error {
        Error::new(format!("{} is lost, and so is its spare", self.name))
    }

    /// The copy has ended, which it does not by itself. Another one is made when there is time.
    fn copy_ended(&mut self, kills: &Kills) -> Result<()> {
        self.copy = None;
        if matches!(self.stage, Stage::Wakes(_)) {
            return Err(self.both_lost());
        }
        log::warning(format_args!("the spare of {} was killed{}", self.name, kills.since()));
        Ok(())
    }

    /// The copy has made a worker.
    fn awake(&mut self, pid: u32) -> Result<()> {
        if pid == 0 {
            let why = "its spare can't take over: there is no memory for another process";
            return Err(Error::new(format!("{} is lost, and {why}", self.name)));
        }
        (self.it.pid, self.stage) = (pid as i32, Stage::Works);
        self.vouch();
        let Some(failure) = &self.failure else { return Ok(()) };
        let mut reply = Vec::new();
        reply::failed(&mut reply, 0, failure);
        self.tell(&Packet::Fail(&reply))
    }

    /// True if the worker has ended; waits for that if it `waits`.
    fn has_ended(&mut self, waits: bool) -> bool {
        let flags = if waits { 0 } else { libc::WNOHANG };
        // SAFETY: the process is a child of this one; no status is asked for.
        if self.it.pid != 0 && unsafe { libc::waitpid(self.it.pid, std::ptr::null_mut(), flags) } != 0 {
            forget_libomp(std::mem::take(&mut self.it.pid));
        }
        self.it.pid == 0
    }

    fn kill(&mut self) {
        if self.it.pid != 0 {
            kill(self.it.pid);
            self.has_ended(true);
        }
    }
}

/// A transfer that is over.
enum Over {
    Received { device: usize, lane: Lane, index: usize, bytes: Vec<u8> },
    Sent { device: usize, generation: u32, id: u32, len: u64 },
}

/// See the module.
pub struct Relay {
    link: Arc<Link>,
    host: usize,
    host_process: Option<OwnedFd>,
    pace: Pace,
    name: String,
    keeps: bool,
    devices: Vec<Device>,
    /// Output that the host has not begun to take: device, generation, and the worker's
    /// number for it.
    printing: VecDeque<(usize, u32, u32)>,
    over: Arc<Mutex<Vec<Over>>>,
    packet: Vec<u8>,
    kills: Kills,
}

impl Relay {
    /// A rank, called `name` in messages, with its workers.
    pub fn new(
        link: Link,
        (host, host_process): (usize, Option<OwnedFd>),
        pace: Pace,
        name: String,
        workers: Vec<Started>,
        spares: Spares,
    ) -> Relay {
        let keeps = spares.count > 0;
        let devices = workers.into_iter().enumerate().map(|(i, it)| Device {
            name: format!("worker {i} of {name}"),
            it,
            generation: 0,
            copy: None,
            stage: Stage::Works,
            journal: Journal::new(keeps, spares.journal),
            asked: Vec::new(),
            unsent: VecDeque::new(),
            later: Vec::new(),
            due: Vec::new(),
            spares: spares.count,
            crash: None,
            failure: None,
            ends: None,
            held: None,
            free_until: None,
        });
        let devices = devices.collect();
        let (link, packet) = (Arc::new(link), vec![0; PACKET_MAX]);
        Relay {
            link,
            host,
            host_process,
            pace,
            name,
            keeps,
            devices,
            printing: VecDeque::new(),
            over: Arc::default(),
            packet,
            kills: Kills::so_far(),
        }
    }

    /// Tells a worker what it has to know before anything else ([`Packet::Begin`]).
    ///
    /// # Errors
    /// It is gone, or the system does not let its memory be copied.
    pub fn begin(&mut self, worker: usize, packet: &Packet<'_>) -> Result<()> {
        /// Lies at the same address in both.
        static PROBE: u8 = 0;
        let device = &mut self.devices[worker];
        if let Err(e) = read(device.it.pid, &raw const PROBE as u64, 1) {
            return Err(Error::from(e).context(
                "a rank can't copy its workers' data by process_vm_readv, which kernel.yama.ptrace_scope above 1 \
                 and containers' seccomp profiles may forbid",
            ));
        }
        device.tell(packet)?;
        device.ask_for_copy()
    }

    /// Passes on until the host has ended all devices.
    pub fn run(mut self) -> ! {
        match self.pass_on() {
            Ok(()) => {
                self.end_workers();
                self.link.finish();
                quit(0)
            }
            Err(e) => {
                if e != Error::Told {
                    log::error(format_args!("{}: {e}", self.name));
                }
                self.kill_all();
                quit(1)
            }
        }
    }

    fn pass_on(&mut self) -> Result<()> {
        let link = self.link.clone();
        let mut idle = link.idle(self.pace);
        let mut pulse = Instant::now();
        loop {
            if self.step()? {
                // Anew: the bell is of use from when all workers can ring it.
                idle = link.idle(self.pace);
            } else if self.devices.iter().all(|d| d.stage == Stage::Ended) && link.is_flushed() {
                return Ok(());
            } else {
                let waits = self.devices.iter().any(|d| !d.unsent.is_empty() || d.held.is_some());
                idle.pause(waits || link.has_bulk());
            }
            if pulse.elapsed() > PULSE {
                pulse = Instant::now();
                self.look_after()?;
            }
        }
    }

    /// Passes on what there is; true if there was anything.
    fn step(&mut self) -> Result<bool> {
        let mut arrived = Vec::new();
        let progress = self.link.drive(&mut |from, message| arrived.push((from, std::mem::take(message))))?;
        let mut moved = progress == Progress::Made;
        for (from, message) in arrived {
            self.arrived(from, message)?;
        }
        let over = std::mem::take(&mut *self.over.lock());
        for transfer in over {
            self.finish(transfer)?;
        }
        while self.printing.len() > self.link.unfinished_synchronous() {
            if let Some((device, generation, id)) = self.printing.pop_front() {
                self.done(device, generation, id, 0)?;
            }
        }
        for device in 0..self.devices.len() {
            moved |= self.listen(device)?;
            let prints = self.printing.iter().any(|p| p.0 == device);
            moved |= self.devices[device].feed(self.keeps, prints)?;
            for reply in std::mem::take(&mut self.devices[device].due) {
                self.forward(device, &reply)?;
            }
        }
        Ok(moved)
    }

    /// A message of the host is for one of the workers.
    fn arrived(&mut self, from: usize, mut message: Vec<u8>) -> Result<()> {
        let index = if self.devices.len() > 1 { message.pop().map_or(usize::MAX, usize::from) } else { 0 };
        match self.devices.get_mut(index) {
            Some(device) if from == self.host => {
                let (Head { seq, queue, .. }, _) = Commands::open(&message)?;
                if queue == 0 && message.len() == HEAD_LEN {
                    device.ask(seq, &message)?;
                } else {
                    device.journal.push(&message);
                }
                self.link.recycle(message);
                Ok(())
            }
            _ => Err(Error::new(format!("rank {from} sent a message that makes no sense"))),
        }
    }

    /// Reads what a worker has sent.
    fn listen(&mut self, index: usize) -> Result<bool> {
        let mut packet = std::mem::take(&mut self.packet);
        let mut moved = false;
        for _ in 0..TURN {
            let received = receive(&self.devices[index].it.socket, &mut packet, false);
            let Some(len) = received.or_else(unless_closed(None))? else { break };
            moved = true;
            let (generation, packet) = Packet::parse(&packet[..len])?;
            if generation == self.devices[index].generation {
                self.obey(index, packet)?;
            } else if let Packet::Awake { pid: pid @ 1.. } | Packet::Copied { pid: pid @ 1.. } = packet {
                // Another worker has its place.
                kill(pid as i32);
            }
        }
        self.packet = packet;
        Ok(moved)
    }

    fn obey(&mut self, index: usize, packet: Packet<'_>) -> Result<()> {
        let device = &mut self.devices[index];
        match packet {
            Packet::Copied { pid } => device.copied(pid),
            Packet::Awake { pid } => return device.awake(pid),
            Packet::Misled if matches!(device.stage, Stage::Wakes(_)) => return device.wake(),
            Packet::Message(reply) => return self.reply(index, reply),
            Packet::Synchronous { id, bytes } => {
                let Reply::Output { stream, bytes } = Reply::parse(bytes)? else {
                    return Err(Error::new(format!("{} prints what is no text", device.name)));
                };
                let new = device.journal.print(stream, bytes);
                if new.is_empty() {
                    return device.tell(&Packet::Done { id, len: 0 });
                }
                self.printing.push_back((index, device.generation, id));
                let mut message = self.link.buffer();
                reply::begin_output(&mut message, stream);
                message.extend_from_slice(new);
                self.address(index, &mut message);
                self.link.send_synchronous(self.host, message)?;
            }
            Packet::Send { id, rank, tag, at, len } => return self.send(index, id, (rank, tag), at, len),
            Packet::Receive { id, rank, tag, at, len } => return self.receive(index, (id, at), (rank, tag), len),
            _ => return Err(Error::new(format!("{} sent what only its rank sends", device.name))),
        }
        Ok(())
    }

    /// Says in a message to the host which worker it is from.
    fn address(&self, index: usize, message: &mut Vec<u8>) {
        if self.devices.len() > 1 {
            message.push(index as u8);
        }
    }

    fn forward(&self, index: usize, reply: &[u8]) -> Result<()> {
        let mut message = self.link.buffer();
        message.extend_from_slice(reply);
        self.address(index, &mut message);
        self.link.send(self.host, message)
    }

    /// A worker has answered.
    fn reply(&mut self, index: usize, bytes: &[u8]) -> Result<()> {
        let device = &mut self.devices[index];
        let seq = match Reply::parse(bytes)? {
            Reply::Done { seq, .. } => seq,
            Reply::Failed { seq, failure } if failure.lost && device.failure.is_none() => {
                return device.replace(failure, Some(seq).filter(|&seq| seq > 0), true);
            }
            // A crash while nothing was asked of it.
            Reply::Failed { seq: 0, .. } => return Ok(()),
            Reply::Failed { seq, .. } => seq,
            // Those of what is done again were told already.
            Reply::Records(_) if device.journal.repeats() => return Ok(()),
            Reply::Records(_) => return self.forward(index, bytes),
            Reply::Output { .. } => return Err(Error::new(format!("{} prints without waiting", device.name))),
        };
        if let Some(i) = device.asked.iter().position(|&asked| asked == seq) {
            device.asked.swap_remove(i);
            return self.forward(index, bytes);
        }
        match device.journal.answer(seq, bytes) {
            Answer::New => self.forward(index, bytes)?,
            Answer::Later => {
                device.later.push((seq, bytes.to_vec()));
                if device.is_free() {
                    device.release();
                }
            }
            Answer::Known => {}
            Answer::Differs if device.failure.is_some() => {}
            Answer::Differs => return device.replace(not_the_same(), None, false),
            Answer::Unknown => return Err(Error::new(format!("{} answers what nobody asked", device.name))),
        }
        let device = &mut self.devices[index];
        if device.ends == Some(seq) {
            device.stage = Stage::Ended;
        }
        Ok(())
    }

    /// A worker sends a piece of bulk data.
    fn send(&mut self, index: usize, id: u32, lane: Lane, at: u64, len: u64) -> Result<()> {
        let device = &mut self.devices[index];
        let bytes = match read(device.it.pid, at, len) {
            Ok(bytes) => bytes,
            Err(e) => return device.unreachable(&e),
        };
        let hash = if self.keeps { xxh3_64(&bytes) } else { 0 };
        match device.journal.send(lane, hash) {
            Asked::Done(before) if before != hash && device.failure.is_none() => {
                device.replace(not_the_same(), None, false)
            }
            Asked::Done(_) | Asked::UnderWay => device.tell(&Packet::Done { id, len }),
            Asked::New(_) => {
                let (over, generation) = (self.over.clone(), device.generation);
                let peer = Peer { rank: lane.0 as usize, tag: lane.1 };
                // SAFETY: the heap block does not move with the vector, which the completion
                // keeps until the transfer is done.
                let span = unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) };
                let done: OnDone = Box::new(move |_| {
                    drop(bytes);
                    over.lock().push(Over::Sent { device: index, generation, id, len });
                });
                // An empty piece tells that there is no data.
                if len == 0 { self.link.refuse_bulk(peer, 1, done) } else { self.link.send_bulk(peer, span, done) }
            }
        }
    }

    /// A worker receives a piece of bulk data.
    fn receive(&mut self, device: usize, (id, at): (u32, u64), lane: Lane, len: u64) -> Result<()> {
        let it = &mut self.devices[device];
        match it.journal.receive(lane, (id, at)) {
            Asked::UnderWay => Ok(()),
            Asked::Done(bytes) => {
                let (len, written) = (bytes.len() as u64, write(it.it.pid, at, bytes));
                match written {
                    Ok(()) => it.tell(&Packet::Done { id, len }),
                    Err(e) => it.unreachable(&e),
                }
            }
            Asked::New(index) => {
                let mut bytes: Vec<u8> = Vec::with_capacity(len as usize);
                let over = self.over.clone();
                // SAFETY: as in `send`; the vector has that capacity.
                let span = unsafe { Span::new(bytes.as_mut_ptr(), len as usize) };
                let done: OnDone = Box::new(move |result| {
                    if result.is_ok() {
                        // SAFETY: the transfer has filled the capacity.
                        unsafe { bytes.set_len(len as usize) };
                    }
                    over.lock().push(Over::Received { device, lane, index, bytes });
                });
                self.link.receive_bulk(Peer { rank: lane.0 as usize, tag: lane.1 }, span, done)
            }
        }
    }

    fn finish(&mut self, transfer: Over) -> Result<()> {
        match transfer {
            Over::Sent { device, generation, id, len } => {
                self.devices[device].journal.sent();
                self.done(device, generation, id, len)
            }
            Over::Received { device, lane, index, bytes } => {
                let device = &mut self.devices[device];
                let waiter = device.journal.waiter(lane, index);
                let written = waiter.map_or(Ok(()), |(_, at)| write(device.it.pid, at, &bytes));
                let len = bytes.len() as u64;
                device.journal.received(lane, index, bytes);
                match (waiter, written) {
                    (Some((id, _)), Ok(())) => device.tell(&Packet::Done { id, len }),
                    (_, Err(e)) => device.unreachable(&e),
                    (None, Ok(())) => Ok(()),
                }
            }
        }
    }

    fn done(&mut self, device: usize, generation: u32, id: u32, len: u64) -> Result<()> {
        let device = &mut self.devices[device];
        if device.generation == generation { device.tell(&Packet::Done { id, len }) } else { Ok(()) }
    }

    /// Looks whether all still live.
    fn look_after(&mut self) -> Result<()> {
        if has_ended(self.host_process.as_ref()) {
            self.kill_all();
            quit(0);
        }
        network::check()?;
        for device in &mut self.devices {
            if has_ended(device.copy.as_ref().and_then(|copy| copy.handle.as_ref())) {
                device.copy_ended(&self.kills)?;
                self.kills = Kills::so_far();
            }
        }
        loop {
            let mut status = 0;
            // SAFETY: the status outlives the call.
            let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
            if pid <= 0 {
                return Ok(());
            }
            forget_libomp(pid);
            for index in 0..self.devices.len() {
                if matches!(self.devices[index].stage, Stage::Wakes(_)) {
                    // It may be one of which the rank has still to read that it was made.
                    while self.listen(index)? {}
                }
                if self.devices[index].it.pid == pid {
                    self.ended(index, status)?;
                    break;
                }
            }
        }
    }

    /// A worker has ended.
    fn ended(&mut self, index: usize, status: i32) -> Result<()> {
        self.devices[index].it.pid = 0;
        let generation = self.devices[index].generation;
        // What it has sent before.
        while self.listen(index)? {}
        let device = &mut self.devices[index];
        if device.stage == Stage::Ended || device.generation != generation {
            return Ok(());
        }
        if let Some(seq) = device.ends {
            device.stage = Stage::Ended;
            let mut reply = Vec::new();
            reply::begin_done(&mut reply, seq);
            return self.forward(index, &reply);
        }
        let kernel = device.it.board.only_kernel();
        let text = format!("its process {}", supervise::cause(status, &self.kills));
        self.kills = Kills::so_far();
        let failure = Failure { lost: true, kernel, text, ..Failure::default() };
        // Who was killed from outside may have bad luck twice.
        let killed = libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGKILL;
        let crashed_in = device.journal.unanswered().next().filter(|_| !killed);
        device.replace(failure, crashed_in, true)
    }

    /// The workers end by themselves; their copies do not.
    fn end_workers(&mut self) {
        let since = Instant::now();
        for device in &mut self.devices {
            while !device.has_ended(false) {
                if since.elapsed() > END_PATIENCE {
                    device.kill();
                }
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        self.kill_all();
    }

    fn kill_all(&mut self) {
        for device in &mut self.devices {
            device.kill();
            if let Some(copy) = device.copy.take() {
                copy.kill();
                // SAFETY: its worker has ended, so that it is a child of this process; no status
                // is asked for.
                unsafe { libc::waitpid(copy.pid, std::ptr::null_mut(), 0) };
            }
        }
    }
}

fn not_the_same() -> Failure {
    let text = "its kernels do not give the same result each time (they may depend on the order of threads, on time, \
                or on what is outside of the device), so that what was lost can't be done again; a smaller \
                OMPTARGET_MPI_JOURNAL leaves less to be done again";
    Failure { lost: true, text: text.into(), ..Failure::default() }
}

/// What a socket's end that nobody has any more comes to.
fn unless_closed<T>(closed: T) -> impl FnOnce(Error) -> Result<T> {
    |e| if e == Error::Told { Ok(closed) } else { Err(e) }
}

/// The number of a message that tells a worker to end, if it does.
fn ends(message: &[u8]) -> Option<u64> {
    let (head, mut commands) = Commands::open(message).ok()?;
    (head.queue == 0 && matches!(commands.take(), Ok(Some(Command::Shutdown)))).then_some(head.seq)
}

fn kill(pid: i32) {
    // SAFETY: plain numbers; the process is one that descends from this.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Copies from another process.
fn read(pid: i32, at: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes: Vec<u8> = Vec::with_capacity(len as usize);
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len as usize };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: len as usize };
    // SAFETY: the capacity was reserved; the system checks the other process's range.
    let n = if len == 0 { 0 } else { unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) } };
    whole(n, len as usize)?;
    // SAFETY: so many bytes were written.
    unsafe { bytes.set_len(len as usize) };
    Ok(bytes)
}

/// Copies to another process.
fn write(pid: i32, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: bytes.len() };
    // SAFETY: the bytes are only read; the system checks the other process's range.
    let n = if bytes.is_empty() { 0 } else { unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) } };
    whole(n, bytes.len())
}

/// What a system call that has copied `n` bytes of `len` comes to.
fn whole(n: isize, len: usize) -> std::io::Result<()> {
    match usize::try_from(n) {
        Ok(n) if n == len => Ok(()),
        Ok(n) => Err(std::io::Error::other(format!("only {n} of {len} bytes"))),
        Err(_) => Err(std::io::Error::last_os_error()),
    }
}
