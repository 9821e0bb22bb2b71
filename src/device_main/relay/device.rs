// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! One worker as its rank sees it, with its sleeping copy and what is kept to bring that to where
//! the worker is. It speaks to the worker and not to MPI.

use super::hold::{Hold, Verdict};
use super::journal::{Journal, Terms};
use super::process::{Copy, Started, kill};
use crate::base::{Error, Result, log};
use crate::debug;
use crate::device_main::supervise::Kills;
use crate::device_main::worker::{order, send};
use crate::wire::command::{Command, Commands};
use crate::wire::packet::{PACKET_MAX, Packet};
use crate::wire::reply::{self, Failure};
use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};
use xxhash_rust::xxh3::xxh3_64;

/// How long a worker is not copied again when there was no memory for it.
const NO_MEMORY: Duration = Duration::from_secs(1);
/// How long a rank answers for a worker that is copied or made: one that takes longer hangs, and
/// the host shall notice.
const MOVE_PATIENCE: Duration = Duration::from_secs(60);

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
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

/// A worker and what is known of it.
pub struct Device {
    pub name: String,
    pub it: Started,
    pub generation: u32,
    pub copy: Option<Copy>,
    pub stage: Stage,
    pub journal: Journal,
    /// Questions whether it is there that it has not answered.
    asked: Vec<u64>,
    /// Packets for which there was no room.
    unsent: VecDeque<Vec<u8>>,
    /// Replies that wait for a copy ([`super::journal::Answer::Later`]), and those that the host gets next.
    later: Vec<(u64, Vec<u8>)>,
    pub due: Vec<Vec<u8>>,
    spares: u32,
    /// Where it crashed last: message and kernel.
    crash: Option<(u64, u64)>,
    /// Why everything fails.
    pub failure: Option<Failure>,
    /// The message that told it to end.
    pub ends: Option<u64>,
    hold: Hold,
    /// Until when it is not to be copied.
    no_copy_until: Option<Instant>,
    /// The user knows that it can't always be replaced.
    warned: bool,
}

impl Device {
    /// A worker that was just started, for the program at rank `host`; bulk data goes in pieces of
    /// `fragment` bytes.
    pub fn new(name: String, it: Started, spares: Spares, host: u32, fragment: u64) -> Device {
        let terms = Terms { keeps: spares.count > 0, limit: spares.journal, host, fragment };
        Device {
            name,
            it,
            generation: 0,
            copy: None,
            stage: Stage::Works,
            journal: Journal::new(terms),
            asked: Vec::new(),
            unsent: VecDeque::new(),
            later: Vec::new(),
            due: Vec::new(),
            spares: spares.count,
            crash: None,
            failure: None,
            ends: None,
            hold: Hold::default(),
            no_copy_until: None,
            warned: false,
        }
    }

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
    pub fn tell(&mut self, packet: &Packet<'_>) -> Result<()> {
        let mut bytes = Vec::new();
        packet.write(self.generation, &mut bytes);
        if !self.unsent.is_empty() || !self.try_send(&bytes)? {
            self.unsent.push_back(bytes);
        }
        Ok(())
    }

    /// The host asks whether it is there. A worker that is copied or made can't answer.
    pub fn ask(&mut self, seq: u64, question: &[u8]) -> Result<()> {
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

    /// It has answered: true if that was to a question.
    pub fn was_asked(&mut self, seq: u64) -> bool {
        let open = self.asked.len();
        self.asked.retain(|&asked| asked != seq);
        self.asked.len() < open
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
    pub fn ask_for_copy(&mut self) -> Result<()> {
        debug!("{}: is copied", self.name);
        self.stage = Stage::Copies(Instant::now());
        self.tell(&Packet::Copy)
    }

    /// It has left a copy behind, or could not.
    pub fn copied(&mut self, pid: u32) {
        self.stage = Stage::Works;
        self.vouch();
        if pid == 0 {
            log::warning(format_args!("{} can't be copied: there is no memory for another process", self.name));
            let now = Instant::now();
            self.no_copy_until = Some(now + NO_MEMORY);
            self.hold.go_on(&self.journal, now);
            return self.release();
        }
        if let Some(old) = self.copy.replace(Copy::of(pid as i32)) {
            old.kill();
        }
        self.hold = Hold::default();
        self.journal.forget();
        self.due.extend(self.later.drain(..).map(|(_, reply)| reply));
    }

    /// A reply waits for a copy, if there is to be one soon.
    pub fn postpone(&mut self, seq: u64, reply: &[u8]) {
        self.later.push((seq, reply.to_vec()));
        if self.failure.is_some() || self.hold.is_free(Instant::now()) {
            self.release();
        }
    }

    /// The host gets the replies that wait for a copy.
    fn release(&mut self) {
        for (seq, reply) in self.later.drain(..) {
            self.journal.commit(seq, xxh3_64(&reply));
            self.due.push(reply);
        }
    }

    /// True if it shall get nothing more before it is quiet, and can be copied.
    fn holds(&mut self) -> bool {
        if !self.journal.wants_copy() && !self.hold.is_held() {
            return false;
        }
        match self.hold.judge(&self.journal, Instant::now()) {
            Verdict::Wait => return true,
            Verdict::Pass => {}
            Verdict::GoOn => self.release(),
            Verdict::GiveUp => {
                self.release();
                self.journal.give_up();
                if !std::mem::replace(&mut self.warned, true) {
                    log::warning(format_args!(
                        "{} can't be copied while its regions overlap without a pause, and more than \
                         OMPTARGET_MPI_JOURNAL bytes were sent to it: from here to the next pause it is not replaced \
                         if it is lost",
                        self.name
                    ));
                }
            }
        }
        false
    }

    /// True if something for it waits for nobody's ring.
    pub fn waits(&self) -> bool {
        !self.unsent.is_empty() || self.hold.is_held()
    }

    /// Passes on what there is room for; true if that was anything.
    pub fn feed(&mut self) -> Result<bool> {
        while let Some(bytes) = self.unsent.front() {
            if !self.try_send(bytes)? {
                return Ok(false);
            }
            self.unsent.pop_front();
        }
        if self.stage != Stage::Works {
            return Ok(false);
        }
        let is_quiet = self.journal.is_quiet() && self.asked.is_empty();
        if is_quiet && self.ends.is_none() && (self.copy.is_none() || self.journal.wants_copy()) {
            let now = Instant::now();
            if self.no_copy_until.is_none_or(|until| now >= until) {
                self.ask_for_copy()?;
                return Ok(true);
            }
        }
        let mut moved = false;
        if self.journal.next_message().is_none() && !self.later.is_empty() {
            self.holds();
        }
        while self.journal.next_message().is_some() && !self.holds() {
            let Some(message) = self.journal.next_message() else { break };
            if !self.try_tell(&Packet::Message(message))? {
                break;
            }
            self.ends = self.ends.or(ends(message));
            self.journal.message_sent(Instant::now());
            moved = true;
        }
        Ok(moved)
    }

    /// The worker is lost: its copy makes another one. That does again what the worker has done
    /// since the copy was made, if it may; else everything fails for that reason. `seq` is the
    /// message that it crashed in, if it was by itself.
    pub fn replace(&mut self, mut failure: Failure, seq: Option<u64>, may: bool) -> Result<()> {
        self.kill();
        if self.failure.is_some() {
            return Err(Error::new(format!("{} is lost: {}", self.name, failure.text)));
        }
        let crash = seq.filter(|_| failure.kernel != 0).map(|seq| (seq, failure.kernel));
        let again = crash.is_some() && self.crash == crash;
        self.crash = crash;
        let gave_up = self.journal.gave_up();
        self.unsent.clear();
        self.later.clear();
        self.vouch();
        (self.hold, self.ends) = (Hold::default(), None);
        if may && self.spares > 0 && !again && !gave_up {
            self.spares -= 1;
            let messages = self.journal.restart();
            log::warning(format_args!(
                "{}: {}; its spare takes over and does {messages} messages again ({} spares are left)",
                self.name, failure.text, self.spares
            ));
        } else {
            if again {
                failure.text += ", and so it did when a spare did the same again";
            } else if may && gave_up {
                failure.text += ", and no spare can take over: its regions have overlapped for so long that not \
                                 everything since it was last copied is kept (OMPTARGET_MPI_JOURNAL)";
            }
            self.failure = Some(failure);
            self.journal.give_up_for_good();
            self.journal.restart();
        }
        self.wake()
    }

    /// The system does not copy from or to the worker. One that has ended is no news.
    pub fn unreachable(&mut self, why: &std::io::Error) -> Result<()> {
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
    pub fn wake(&mut self) -> Result<()> {
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
    pub fn copy_ended(&mut self, kills: &Kills) -> Result<()> {
        self.copy = None;
        if matches!(self.stage, Stage::Wakes(_)) {
            return Err(self.both_lost());
        }
        log::warning(format_args!("the spare of {} was killed{}", self.name, kills.since()));
        Ok(())
    }

    /// The copy has made a worker.
    pub fn awake(&mut self, pid: u32) -> Result<()> {
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
    pub fn has_ended(&mut self, waits: bool) -> bool {
        let flags = if waits { 0 } else { libc::WNOHANG };
        // SAFETY: the process is a child of this one; no status is asked for.
        if self.it.pid != 0 && unsafe { libc::waitpid(self.it.pid, std::ptr::null_mut(), flags) } != 0 {
            self.it.pid = 0;
        }
        self.it.pid == 0
    }

    pub fn kill(&mut self) {
        if self.it.pid != 0 {
            kill(self.it.pid);
            self.has_ended(true);
        }
    }
}

/// What a socket's end that nobody has any more comes to.
pub fn unless_closed<T>(closed: T) -> impl FnOnce(Error) -> Result<T> {
    |e| if e == Error::Told { Ok(closed) } else { Err(e) }
}

/// The number of a message that tells a worker to end, if it does.
fn ends(message: &[u8]) -> Option<u64> {
    let (head, mut commands) = Commands::open(message).ok()?;
    (head.queue == 0 && matches!(commands.take(), Ok(Some(Command::Shutdown)))).then_some(head.seq)
}
