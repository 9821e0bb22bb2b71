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
//!   done before is in the copy, what comes after is in the [`journal`].
//! - What the program was told once stays: a replay that gives something else fails.

mod device;
mod hold;
mod journal;
mod process;

use super::serve::{has_ended, quit};
use super::supervise::{self, Kills};
use super::worker::receive;
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, log, network};
use crate::link::idle::Pace;
use crate::link::{Link, OnDone, Peer, Progress, Span};
use crate::mpi;
use crate::wire::command::{Commands, HEAD_LEN, Head};
use crate::wire::packet::{PACKET_MAX, Packet};
use crate::wire::reply::{self, Failure, Reply};
pub use device::Spares;
use device::{Device, Stage, unless_closed};
use journal::{Answer, Asked, Lane};
#[cfg(test)]
pub use process::connect;
pub use process::{Birth, Started, start};
use process::{kill, read, write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// How often the rank looks whether workers and host still live.
const PULSE: Duration = Duration::from_millis(100);
/// Packets of one worker that are read before another one's turn.
const TURN: usize = 16;
/// How long workers may take to end.
const END_PATIENCE: Duration = Duration::from_secs(5);

/// A transfer that is over.
enum Over {
    Received { device: usize, lane: Lane, index: usize, bytes: Vec<u8> },
    Sent { device: usize, lane: Lane, generation: u32, id: u64, len: u64 },
}

/// See the module.
pub struct Relay {
    link: Arc<Link>,
    host: usize,
    host_process: Option<OwnedFd>,
    pace: Pace,
    name: String,
    devices: Vec<Device>,
    over: Arc<Mutex<Vec<Over>, { order::LEAF }>>,
    packet: Vec<u8>,
    kills: Kills,
}

impl Relay {
    /// A rank, called `name` in messages, with its workers, which cut bulk data into pieces of
    /// `fragment` bytes.
    pub fn new(
        link: Link,
        (host, host_process): (usize, Option<OwnedFd>),
        pace: Pace,
        name: String,
        workers: Vec<Started>,
        spares: Spares,
        fragment: u64,
    ) -> Relay {
        let device = |(i, it)| Device::new(format!("worker {i} of {name}"), it, spares, host as u32, fragment);
        let devices = workers.into_iter().enumerate().map(device).collect();
        let (link, packet) = (Arc::new(link), vec![0; PACKET_MAX]);
        Relay { link, host, host_process, pace, name, devices, over: Arc::default(), packet, kills: Kills::so_far() }
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
            if e.raw_os_error() == Some(libc::ESRCH) {
                return Err(Error::new(format!("{} has ended before it was given anything to do", device.name)));
            }
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
                mpi::leave_launcher();
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

    /// The same for a test, in which workers are threads of this process: they are not copied,
    /// and nothing is looked after. `wait` returns when they have ended.
    #[cfg(test)]
    pub fn simulate(mut self, wait: impl FnOnce()) {
        for device in &mut self.devices {
            device.copy = Some(process::Copy { pid: i32::MAX, handle: None });
        }
        match self.simulated() {
            Ok(()) => {
                wait();
                self.link.finish();
            }
            // Workers that found their rank gone would end this process.
            Err(_) => std::mem::forget(self),
        }
    }

    #[cfg(test)]
    fn simulated(&mut self) -> Result<()> {
        let link = self.link.clone();
        let mut idle = link.idle(self.pace);
        while self.devices.iter().any(|d| d.stage != Stage::Ended) || !link.is_flushed() {
            if self.step()? {
                idle = link.idle(self.pace);
            } else {
                let waits = self.devices.iter().any(Device::waits);
                idle.pause(waits || link.has_bulk());
            }
        }
        Ok(())
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
                let waits = self.devices.iter().any(Device::waits);
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
        for device in 0..self.devices.len() {
            moved |= self.listen(device)?;
            moved |= self.devices[device].feed()?;
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
                    device.journal.push(seq, &message);
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
            Reply::Output { stream, bytes } => {
                let new = device.journal.print(stream, bytes);
                if new.is_empty() {
                    return Ok(());
                }
                let mut message = self.link.buffer();
                reply::begin_output(&mut message, stream);
                message.extend_from_slice(new);
                self.address(index, &mut message);
                return self.link.send(self.host, message);
            }
        };
        if device.was_asked(seq) {
            return self.forward(index, bytes);
        }
        match device.journal.answer(seq, bytes) {
            Answer::New => self.forward(index, bytes)?,
            Answer::Later => device.postpone(seq, bytes),
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
    fn send(&mut self, index: usize, id: u64, lane: Lane, at: u64, len: u64) -> Result<()> {
        let device = &mut self.devices[index];
        let bytes = match read(device.it.pid, at, len) {
            Ok(bytes) => bytes,
            Err(e) => return device.unreachable(&e),
        };
        let hash = if device.journal.keeps() { xxh3_64(&bytes) } else { 0 };
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
                    over.lock().push(Over::Sent { device: index, lane, generation, id, len });
                });
                // An empty piece tells that there is no data.
                if len == 0 { self.link.refuse_bulk(peer, 1, done) } else { self.link.send_bulk(peer, span, done) }
            }
        }
    }

    /// A worker receives a piece of bulk data.
    fn receive(&mut self, device: usize, (id, at): (u64, u64), lane: Lane, len: u64) -> Result<()> {
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
            Over::Sent { device, lane, generation, id, len } => {
                self.devices[device].journal.sent(lane);
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

    fn done(&mut self, device: usize, generation: u32, id: u64, len: u64) -> Result<()> {
        let device = &mut self.devices[device];
        if device.generation == generation { device.tell(&Packet::Done { id, len }) } else { Ok(()) }
    }

    /// Looks whether all still live.
    fn look_after(&mut self) -> Result<()> {
        if has_ended(self.host_process.as_ref()) {
            self.kill_all();
            mpi::leave_launcher();
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
