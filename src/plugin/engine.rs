// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Sends the messages of queues, hands replies to whom they belong, and waits.
//!
//! The thread that waits makes the progress. One waiting thread at a time drives the
//! link; the others sleep until they are served, or until it is their turn to drive.

use super::arena::Arena;
use super::console::Console;
use super::ending;
use super::flight::{Flight, Sent};
use super::pulse::{self, Pulse, Verdict};
use super::queue::{Event, Open, Position, Queue};
use super::space::{self, Space};
use super::tags::{Lease, Tags};
use super::turn::Turn;
use super::watch::Watching;
use crate::base::deadline::{Deadline, flush_streams};
use crate::base::limits::{IN_FLIGHT, OUTPUT_STEP};
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, log, name, node};
use crate::link::idle::Pace;
use crate::link::meet::{Launcher, launcher};
use crate::link::{Link, Peer, Progress, Span};
use crate::wire::command::{Command, Head, Writer};
use crate::wire::record::{Record, Records};
use crate::wire::reply::{Failure, Reply};
use crate::{debug, mpi};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::{Duration, Instant};

/// How long a message waits at most while [`IN_FLIGHT`] others are not answered. The kernels of
/// these may wait for what it brings.
const CROWDED_PATIENCE: Duration = Duration::from_millis(10);
/// The queue of what concerns the whole device; its messages are not held back.
const CONTROL: u32 = 0;
/// Looks at its own queue before a thread sleeps because another one drives.
const GLANCES: u32 = 500;
/// How long threads that still wait are kept from failing when the program ends MPI.
const GRACE: Duration = Duration::from_secs(3);
/// How long a process that leaves its devices takes what regions have printed.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(20);
/// How long another thread may have the link locked while the process ends.
const LINK_PATIENCE: Duration = Duration::from_secs(2);

/// How long a message waits for what it could tell besides.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);

/// Between attempts to write what regions printed while another thread has the stream.
const OUTPUT_NAP: Duration = Duration::from_micros(100);

/// A wait that has taken this long is one for something long.
const PATIENT: Duration = Duration::from_micros(200);

/// True if a wait has taken long; it began when this was first asked.
fn is_patient(begun: &mut Option<Instant>) -> bool {
    begun.get_or_insert_with(Instant::now).elapsed() > PATIENT
}

/// Of so many looks in vain one looks at the devices' pulse too.
const VAIN: usize = 256;

/// Where the bytes of a read go when the reply is there.
#[derive(Debug)]
pub struct Target {
    /// Memory of the program, or of a caller that waits.
    pub at: *mut u8,
    /// Bytes.
    pub len: usize,
}

// SAFETY: libomptarget keeps the memory until it has synchronized, whichever thread
// receives the reply; a queue is complete only when all its targets were written.
unsafe impl Send for Target {}

/// The host's end of one device.
pub struct Port {
    /// The device's rank.
    pub rank: usize,
    /// Which device of its rank it is, if that has several.
    pub worker: Option<u8>,
    /// "device 0 (rank 0 on host a)", for messages.
    pub name: String,
    flight: Mutex<Flight, { order::FLIGHT }>,
    in_flight: AtomicUsize,
    lost: AtomicBool,
    /// What of its memory is handed out.
    pub arena: Mutex<Arena, { order::ARENA }>,
    /// Names of its kernels by address, for messages.
    pub kernels: Mutex<BTreeMap<u64, String>, { order::LEAF }>,
    /// Messages that came and are no answer.
    unasked: AtomicU64,
    records: Mutex<Vec<Record>, { order::LEAF }>,
}

impl Port {
    /// A port to a device that has got no message yet.
    pub fn new(rank: usize, worker: Option<u8>, name: String) -> Port {
        Port {
            rank,
            worker,
            name,
            flight: Mutex::default(),
            in_flight: AtomicUsize::new(0),
            lost: AtomicBool::new(false),
            arena: Mutex::new(Arena::new(0..0)),
            kernels: Mutex::default(),
            unasked: AtomicU64::new(0),
            records: Mutex::default(),
        }
    }

    /// How many messages were sent to the device, and how many came.
    pub fn messages(&self) -> (u64, u64) {
        let (sent, answered) = self.flight.lock().counts();
        (sent, answered + self.unasked.load(Ordering::Relaxed))
    }

    /// What is awaited, for messages.
    fn awaited(&self) -> String {
        let kernel = self.flight.lock().kernel();
        kernel.map_or("data or an image".into(), |kernel| format!("kernel {}", self.kernel_name(kernel)))
    }

    /// What the device told of what happened there, and was not taken before.
    pub fn take_records(&self) -> Vec<Record> {
        std::mem::take(&mut *self.records.lock())
    }

    #[cold]
    #[inline(never)]
    fn keep(&self, mut records: Records<'_>) -> Result<()> {
        let mut kept = self.records.lock();
        while let Some(record) = records.take()? {
            kept.push(record);
        }
        Ok(())
    }

    /// The name of the kernel at an address.
    #[cold]
    pub fn kernel_name(&self, kernel: u64) -> String {
        self.kernels.lock().get(&kernel).cloned().unwrap_or_else(|| format!("at {kernel:#x}"))
    }

    /// Fails if this device failed before.
    ///
    /// # Errors
    /// [`Error::Told`].
    #[inline]
    pub fn alive(&self) -> Result<()> {
        if self.lost.load(Ordering::Relaxed) { Err(Error::Told) } else { Ok(()) }
    }

    /// Gives the device up: what it holds can't be trusted any more.
    pub fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// True if message `seq`, which was sent, is complete: with its answer and all its data.
    pub fn is_complete(&self, seq: u64) -> bool {
        self.flight.lock().is_complete(seq)
    }

    /// True if message `seq` is not complete and another device has a part in it.
    pub fn is_split(&self, seq: u64) -> bool {
        self.flight.lock().is_split(seq)
    }

    /// Messages that are not complete.
    fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// See the module.
pub struct Engine {
    /// The link to all devices.
    pub link: Link,
    /// The devices in the order of their numbers.
    pub ports: Arc<[Port]>,
    /// The first device of each rank; others of that rank follow.
    by_rank: Vec<Option<usize>>,
    /// This process's rank.
    pub rank: usize,
    /// Which device has which addresses, for messages.
    pub space: OnceLock<Arc<Space>>,
    /// What is written down.
    pub watching: Watching,
    pace: Pace,
    turn: Turn,
    tags: Arc<Tags>,
    console: Console,
    pulse: Pulse,
    /// For questions to the devices whether they are there, by device.
    questions: Vec<Arc<Queue>>,
    /// Looks for something that was not done yet.
    vain: AtomicUsize,
    /// The thread that ends the process.
    ended_by: OnceLock<ThreadId>,
    /// No other program and no other's devices are in the job.
    is_alone: bool,
}

impl Engine {
    /// An engine over a started link. `ranks` are all ranks of the job; `pace` is that of
    /// waiting for devices; one that is silent for `heartbeat` is asked whether it is there.
    pub fn new(
        link: Link,
        (rank, ranks): (usize, usize),
        ports: Vec<Port>,
        (pace, heartbeat): (Pace, Duration),
        watching: Watching,
    ) -> Engine {
        let mut by_rank = vec![None; ranks];
        for (i, port) in ports.iter().enumerate() {
            by_rank[port.rank].get_or_insert(i);
        }
        let is_alone = by_rank.iter().flatten().count() + 1 == ranks;
        Engine {
            link,
            is_alone,
            pulse: Pulse::new(ports.len(), heartbeat),
            questions: (0..ports.len()).map(Queue::control).collect(),
            vain: AtomicUsize::new(0),
            tags: Arc::default(),
            console: Console::new(ports.len()),
            ports: ports.into(),
            by_rank,
            rank,
            space: OnceLock::new(),
            watching,
            pace,
            turn: Turn::new(GLANCES),
            ended_by: OnceLock::new(),
        }
    }

    /// Sends the open message of a queue, if there is one.
    ///
    /// # Errors
    /// The link is broken.
    #[inline]
    pub fn close(&self, queue: &Arc<Queue>, open: &mut Open) -> Result<()> {
        if open.message.is_empty() {
            return Ok(());
        }
        let port = &self.ports[queue.port];
        if port.in_flight() >= IN_FLIGHT && queue.id != CONTROL {
            self.wait_for_room(port)?;
        }
        self.close_for(queue, open, queue, None)
    }

    /// Waits a moment for answers of a device that has many messages. Not as other waits do: the
    /// caller has locked its queue, which must not wait for a program's streams.
    #[cold]
    fn wait_for_room(&self, port: &Port) -> Result<()> {
        let (mut idle, since) = (self.link.idle(self.pace), Instant::now());
        while port.in_flight() >= IN_FLIGHT && since.elapsed() < CROWDED_PATIENCE {
            match self.drive()? {
                Progress::Made => idle.reset(),
                _ => idle.pause(self.link.has_bulk()),
            }
        }
        Ok(())
    }

    /// The same as [`Engine::close`], but at once: what another device sends waits for it. The message is a part of
    /// the message `part_of` (its port and number), and its failure one of `owner`'s.
    ///
    /// # Errors
    /// The link is broken.
    pub fn close_for(
        &self,
        queue: &Arc<Queue>,
        open: &mut Open,
        owner: &Arc<Queue>,
        part_of: Option<(usize, u64)>,
    ) -> Result<()> {
        let port = &self.ports[queue.port];
        let mut message = std::mem::take(&mut open.message);
        open.reply = 0;
        open.fresh = false;
        owner.pending.begin();
        port.in_flight.fetch_add(1, Ordering::Relaxed);
        // Numbers are given and messages handed on under one lock: they arrive in order.
        let mut flight = port.flight.lock();
        let empty = flight.targets();
        let targets = std::mem::replace(&mut open.targets, empty);
        let kernel = std::mem::take(&mut open.kernel);
        let bulk = (open.lease.take(), std::mem::take(&mut open.extra));
        open.last = flight.push(owner.clone(), targets, kernel, bulk, part_of);
        Head::patch(&mut message, open.last, node::current_core());
        message.extend(port.worker);
        debug!("to {}: message {} of {} bytes", port.name, open.last, message.len());
        self.link.send(port.rank, message).map_err(|e| self.broken(e))?;
        drop(flight);
        if self.watching.trace {
            open.notes.sent(open.last);
        }
        for (event, stamp) in open.events.drain(..) {
            event.sent(queue, stamp, open.last);
        }
        Ok(())
    }

    /// Makes an event's position known to its device and returns its port and message,
    /// or none if it is complete or `waiting` comes behind it anyway.
    ///
    /// # Errors
    /// The link is broken.
    pub fn settle(&self, event: &Event, waiting: Option<&Arc<Queue>>) -> Result<Option<(usize, u64)>> {
        loop {
            match event.position() {
                Position::Complete => return Ok(None),
                Position::Open(queue) if waiting.is_some_and(|w| Arc::ptr_eq(w, &queue)) => return Ok(None),
                Position::Open(queue) => {
                    // A lost device, or a broken link, leaves an event where it was.
                    self.check_alive(queue.port)?;
                    self.close(&queue, &mut queue.open.lock())?;
                }
                Position::Sent { port, seq } if self.ports[port].is_complete(seq) => return Ok(None),
                Position::Sent { port, seq } => return Ok(Some((port, seq))),
            }
        }
    }

    /// The commands that `write` appends, as a message of their own that the device
    /// obeys on receipt; `queue` is told when they are done.
    ///
    /// # Errors
    /// The link is broken.
    pub fn control(&self, queue: &Arc<Queue>, write: impl FnOnce(&mut Writer<'_>)) -> Result<()> {
        let open = &mut *queue.open.lock();
        open.message = self.link.buffer();
        Head::begin(&mut open.message, queue.id, open.fresh);
        write(&mut Writer(&mut open.message));
        self.close(queue, open)
    }

    /// Tags for `n` transfers from one rank to another, which are theirs until the last clone of
    /// the lease is gone. Waits where all are in use.
    ///
    /// # Errors
    /// The link is broken.
    pub fn lease(&self, from: usize, to: usize, n: usize) -> Result<Arc<Lease>> {
        if let Some(lease) = self.tags.lease(from, to, n) {
            return Ok(lease);
        }
        let lease = Cell::new(None);
        self.wait_until(None, &|| {
            lease.set(self.tags.lease(from, to, n));
            let found = lease.take();
            let is_found = found.is_some();
            lease.set(found);
            is_found
        })?;
        Ok(lease.take().expect("it was waited for"))
    }

    /// Starts moving bulk data to or from the device: a transfer that the message sent last on
    /// `queue` has named, and counted as one of its parts.
    ///
    /// # Errors
    /// The link is broken.
    pub fn bulk(
        &self,
        (queue, message): (&Queue, u64),
        (peer, lease): (Peer, Arc<Lease>),
        span: Span,
        to_device: bool,
    ) -> Result<()> {
        debug!("bulk data {} rank {}", if to_device { "to" } else { "from" }, peer.rank);
        let (ports, port) = (self.ports.clone(), queue.port);
        // A transfer that fails does so because its command failed, which tells more.
        let done = Box::new(move |_: Result<()>| {
            drop(lease);
            let complete = ports[port].flight.lock().end_part(message);
            if let Some(sent) = complete {
                completed(&ports, port, sent);
            }
        });
        let started = match to_device {
            true => self.link.send_bulk(peer, span, done),
            false => self.link.receive_bulk(peer, span, done),
        };
        started.map_err(|e| self.broken(e))
    }

    /// Makes progress if no other thread does.
    ///
    /// # Errors
    /// The link is broken.
    #[inline]
    pub fn poll(&self) -> Result<Progress> {
        let progress = self.drive()?;
        self.write_output();
        Ok(progress)
    }

    #[inline]
    fn drive(&self) -> Result<Progress> {
        self.link.drive(&mut |from, message| self.receive(from, message)).map_err(|e| self.broken(e))
    }

    /// Waits until all that was sent of a queue is done.
    ///
    /// # Errors
    /// The link is broken.
    #[inline]
    pub fn wait(&self, queue: &Arc<Queue>) -> Result<()> {
        self.wait_until(Some(queue), &|| queue.is_idle())?;
        self.finish_output(queue.port);
        Ok(())
    }

    /// True if all that was sent of a queue is done.
    pub fn is_done(&self, queue: &Queue) -> bool {
        queue.is_idle() && !self.console.owes(queue.port)
    }

    /// Writes what regions have printed, or lets the thread do so that is at it.
    #[cold]
    fn wait_for_output(&self) {
        let before = self.console.is_waiting();
        self.write_output();
        if before && self.console.is_waiting() {
            std::thread::sleep(OUTPUT_NAP);
        }
    }

    /// Fails if a device failed before, once the reason is written.
    ///
    /// # Errors
    /// [`Error::Told`].
    #[inline]
    pub fn check_alive(&self, port: usize) -> Result<()> {
        let alive = self.ports[port].alive();
        if alive.is_err() {
            self.finish_output(port);
        }
        alive
    }

    /// Waits until what a device has printed is written, or can't be.
    #[inline]
    fn finish_output(&self, port: usize) {
        while self.console.owes(port) {
            self.wait_for_output();
        }
    }

    /// Writes what regions have printed, unless another thread has the program's streams. No
    /// lock of this library may be held, nor the turn: it may take for ever.
    #[inline]
    fn write_output(&self) {
        if self.console.is_waiting() {
            self.write_output_now();
        }
    }

    #[cold]
    fn write_output_now(&self) {
        self.console.write(&|device| self.ports[device].in_flight() > 0);
        for (device, queue) in self.questions.iter().enumerate() {
            if let Some(bytes) = self.console.acknowledge(device, OUTPUT_STEP as u64) {
                // If the link is broken, whoever waits hears of it.
                let _ = self.control(queue, |w| w.push(Command::Printed { bytes }));
            }
        }
    }

    /// Waits for a condition that a reply brings about; `queue` is the one whose
    /// completion wakes the caller early.
    ///
    /// # Errors
    /// The link is broken.
    pub fn wait_until(&self, queue: Option<&Queue>, done: &dyn Fn() -> bool) -> Result<()> {
        let mut idle = self.link.idle(self.pace);
        let (mut begun, mut last_turn) = (None, 0);
        let pending = queue.map(|q| &q.pending);
        while !done() {
            let Some(turn) = self.turn.take() else {
                let patient = is_patient(&mut begun);
                if patient {
                    self.look_after(&mut begun);
                }
                self.turn.nap(pending, done, patient);
                continue;
            };
            let (result, gave_way) = loop {
                if done() {
                    break (Ok(()), false);
                }
                match self.drive() {
                    Ok(Progress::Made) if self.console.is_waiting() => break (Ok(()), false),
                    Ok(Progress::Made) => idle.reset(),
                    Ok(_) if idle.is_long() && self.console.is_waiting() => break (Ok(()), false),
                    Ok(_) if self.turn.is_wanted() && is_patient(&mut begun) => {
                        break (Ok(()), true);
                    }
                    // Who sleeps does not drive: another waiter may be more in a hurry.
                    Ok(_) if idle.will_sleep(self.link.has_bulk()) => break (Ok(()), false),
                    Ok(_) => {
                        if self.turn.is_wanted() {
                            idle.crowd();
                        }
                        idle.pause(self.link.has_bulk());
                    }
                    Err(e) => break (Err(e), false),
                }
            };
            self.turn.pass();
            result?;
            self.write_output();
            if done() {
                break;
            }
            self.look_after(&mut begun);
            // The bell rings for every waiter's replies: not for who waits among others.
            if gave_way || (last_turn != 0 && turn != last_turn + 1 && is_patient(&mut begun)) {
                self.turn.nap(pending, done, true);
            } else {
                idle.pause(self.link.has_bulk());
            }
            last_turn = turn;
        }
        if ending::has_begun() {
            ending::hold();
        }
        Ok(())
    }

    /// Looks whether the devices live, if a wait has taken long; it began when this was
    /// first asked.
    fn look_after(&self, begun: &mut Option<Instant>) {
        if begun.get_or_insert_with(Instant::now).elapsed() >= pulse::LOOK {
            self.feel_pulse();
        }
    }

    /// The same for who does not wait but has looked in vain for what is not done yet.
    pub fn looked_in_vain(&self) {
        if self.vain.fetch_add(1, Ordering::Relaxed) % VAIN == VAIN - 1 {
            self.feel_pulse();
        }
    }

    #[cold]
    fn feel_pulse(&self) {
        let heard = |port: usize| {
            let port = &self.ports[port];
            let (moved, unfinished) = self.link.bulk_with(port.rank);
            let awaited = port.in_flight() > 0 || unfinished > 0;
            awaited.then(|| port.messages().1 + moved)
        };
        self.pulse.look(self.link.rounds(), heard, |port, verdict| match verdict {
            // If the link is broken, whoever waits is told so.
            // A message without commands is answered like any other, and at once.
            Verdict::Ask => drop(self.control(&self.questions[port], |_| {})),
            Verdict::Gone(silent) => self.give_up(&self.ports[port], silent),
            Verdict::Fine => {}
        });
    }

    /// Ends the job because a device does not answer. The program can't go on without it:
    /// MPI may yet write into memory that was given to it for results.
    fn give_up(&self, port: &Port, silent: Duration) -> ! {
        log::error(format_args!(
            "{} has not answered for {:.0} s, not even whether it is there, while the program waited for {}: \
             it is stopped, dead or cut off from here, or MPI keeps it waiting for one that is; ending the job (OMPTARGET_MPI_HEARTBEAT sets after how many \
             silent seconds a device is asked, 0 never)",
            port.name,
            silent.as_secs_f64(),
            port.awaited()
        ));
        self.link.abort(1)
    }

    fn receive(&self, from: usize, message: &mut [u8]) {
        debug!("from rank {from}: message of {} bytes", message.len());
        let Some((port, message)) = self.sender(from, message) else {
            self.protocol_error(from, "it is no device of this program");
        };
        let reply = match Reply::parse(message) {
            Ok(reply) => reply,
            Err(e) => self.protocol_error(from, &e.to_string()),
        };
        match reply {
            Reply::Done { seq, bytes } => {
                if !self.answer(port, seq, bytes, None) {
                    self.protocol_error(from, "a reply does not fit its message");
                }
            }
            Reply::Failed { seq, failure } => {
                let error = self.describe(port, &failure);
                if !self.answer(port, seq, &[], Some(error)) {
                    self.protocol_error(from, "a reply without a message");
                }
            }
            Reply::Output { stream, bytes } => {
                self.ports[port].unasked.fetch_add(1, Ordering::Relaxed);
                self.console.push(port, stream, bytes);
            }
            Reply::Records(_) if !self.watching.on => {
                self.protocol_error(from, "it tells what it has seen, which nobody asked for")
            }
            Reply::Records(records) => {
                if let Err(e) = self.ports[port].keep(records) {
                    self.protocol_error(from, &e.to_string());
                }
            }
        }
    }

    /// Which device sent a message, and what is left of that.
    #[inline]
    fn sender<'a>(&self, from: usize, message: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let first = (*self.by_rank.get(from)?)?;
        if self.ports[first].worker.is_none() {
            return Some((first, message));
        }
        let (&worker, message) = message.split_last()?;
        let port = first + usize::from(worker);
        (self.ports.get(port)?.rank == from).then_some((port, message))
    }

    /// Hands a reply to its queue; false if there is no such message.
    fn answer(&self, port: usize, seq: u64, bytes: &[u8], error: Option<Error>) -> bool {
        let mut flight = self.ports[port].flight.lock();
        let Some(sent) = flight.unanswered(seq) else { return false };
        match error {
            Some(error) => sent.queue.fail(error),
            None => {
                let mut rest = bytes;
                for t in &sent.targets {
                    let Some((piece, tail)) = rest.split_at_checked(t.len) else { return false };
                    // SAFETY: the target is valid until its queue is complete, which it is
                    // not before `completed` below.
                    unsafe { std::ptr::copy_nonoverlapping(piece.as_ptr(), t.at, t.len) };
                    rest = tail;
                }
                if !rest.is_empty() {
                    return false;
                }
            }
        }
        let complete = flight.answer(seq);
        drop(flight);
        if let Some(sent) = complete {
            completed(&self.ports, port, sent);
        }
        true
    }

    #[cold]
    fn describe(&self, port: usize, failure: &Failure) -> Error {
        let Port { name, .. } = &self.ports[port];
        if failure.lost && self.ports[port].lost.swap(true, Ordering::Relaxed) {
            return Error::Told;
        }
        let error = self.describe_first(port, name, failure);
        if failure.lost {
            // Whoever fails because of this writes it first: another thread may end the process over
            // the same loss before the one that waits for this kernel gets to say it.
            self.console.say(port, &log::error_text(&error));
            return Error::Told;
        }
        error
    }

    fn describe_first(&self, port: usize, name: &str, failure: &Failure) -> Error {
        let mut text = failure.text.clone();
        if failure.address != 0 {
            text += &self.place(port, failure.address);
        }
        if failure.kernel == 0 {
            return Error::new(format!("{name}: {text}"));
        }
        let kernel = name::of_kernel(&self.ports[port].kernel_name(failure.kernel));
        Error::new(format!("kernel {kernel} failed on {name}: {text}"))
    }

    /// What lies at an address that a kernel of a device could not use.
    fn place(&self, port: usize, address: u64) -> String {
        // Who drives may hold the lock already.
        let arena = self.ports[port].arena.try_lock_for(LOCK_PATIENCE);
        if let Some(place) = arena.and_then(|arena| arena.place(address)) {
            return format!(", {place}");
        }
        let owner = self.space.get().and_then(|space| space.owner(address));
        match owner {
            Some(owner) if owner == port => ", which is the device's, but nothing is allocated there".into(),
            Some(owner) => format!(", which is an address of device {owner}: a device reaches its own memory only"),
            None => match space::host_mapping(address) {
                Some(what) => format!(
                    ", which is an address of the host program ({what}): a device can't reach the host's memory; \
                     map the data instead (unified shared memory is not supported)"
                ),
                None => ", where nothing is mapped".into(),
            },
        }
    }

    #[cold]
    fn protocol_error(&self, from: usize, what: &str) -> ! {
        log::error(format_args!("rank {from} sent a message that makes no sense ({what}); ending the job"));
        // The lock of the link is held by this very thread: no MPI call is possible.
        std::process::abort()
    }

    #[cold]
    fn broken(&self, e: Error) -> Error {
        if self.ended_by.get().is_some_and(|&t| t != std::thread::current().id()) {
            // A failure now would make libomptarget abort the process and lose its status.
            if ending::has_begun() {
                ending::hold();
            } else {
                std::thread::sleep(GRACE);
            }
        }
        let first = !self.ports.iter().fold(false, |lost, p| lost | p.lost.swap(true, Ordering::Relaxed));
        let Error::Text(text) = e else { return Error::Told };
        if !first {
            return Error::Told;
        }
        let awaited = self.ports.iter().filter(|p| p.in_flight() > 0);
        let awaited = awaited.map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
        Error::new(format!(
            "the connection to the devices is broken: {text}; most likely a device, its node or the network to it \
             is gone (answers were awaited from: {})",
            if awaited.is_empty() { "none" } else { &awaited }
        ))
    }

    /// True while a device has something to do.
    pub fn is_busy(&self) -> bool {
        self.ports.iter().any(|p| p.in_flight.load(Ordering::Relaxed) > 0)
    }

    /// True if the process may end without waiting for devices and MPI, and better does: other
    /// threads may go on, and libomptarget aborts when one starts a region from here on. The
    /// launcher ends the job with the program's status then; not all launchers do so if that is 0.
    pub fn may_leave(&self) -> bool {
        if !self.is_alone || !ending::has_begun() || !ending::has_other_users() {
            return false;
        }
        ending::status() != Some(0) || ((ending::holds() || self.is_busy()) && mpi::leaves_with_success())
    }

    /// Ends the use of the devices; they end when this process does.
    pub fn leave(&self) {
        let _ = self.ended_by.set(std::thread::current().id());
        // What regions have printed and is there already.
        let since = Instant::now();
        while since.elapsed() < OUTPUT_PATIENCE && matches!(self.poll(), Ok(Progress::Made)) {}
        self.link.leave(LINK_PATIENCE);
        self.leave_job();
    }

    /// Ends the use of the devices while this thread, or one that does not return, may have
    /// anything locked. The process is about to end, without `MPI_Finalize`. Open MPI's launcher
    /// makes a failure of that, but not of an abort with the status 0.
    pub fn leave_job(&self) {
        if ending::status() == Some(0) && matches!(launcher(), Some((Launcher::OpenMpi, _))) {
            flush_streams();
            mpi::abort_job(0);
        }
        mpi::leave_launcher();
    }

    /// Ends all devices, then MPI.
    pub fn shut_down(&self, queues: &[Arc<Queue>], patience: Duration) {
        let _ = self.ended_by.set(std::thread::current().id());
        // If a link is broken, the poll below says so.
        let asked = queues.iter().try_for_each(|q| self.control(q, |w| w.push(Command::Shutdown)));
        let (mut idle, mut since) = (self.link.idle(self.pace), Instant::now());
        let mut driven = since;
        while asked.is_err() || !(queues.iter().all(|q| q.is_idle()) && self.link.is_flushed()) {
            if since.elapsed() > patience {
                let silent = queues.iter().filter(|q| !q.is_idle()).map(|q| self.ports[q.port].name.as_str());
                let silent = silent.collect::<Vec<_>>().join(", ");
                log::error(format_args!("no answer at the end of the program from {silent}; ending the job"));
                self.link.abort(1);
            }
            let polled = self.poll();
            if !matches!(polled, Ok(Progress::Elsewhere)) {
                driven = Instant::now();
            } else if driven.elapsed() > LINK_PATIENCE {
                // The thread that drives does not return: a signal handler keeps it, for instance.
                return self.leave_job();
            }
            match polled {
                Ok(Progress::Made) => {
                    // Behind the writing of what came, which may take for ever.
                    since = Instant::now();
                    idle.reset();
                }
                Ok(_) => idle.pause(false),
                Err(Error::Told) => self.link.abort(1),
                Err(e) => {
                    log::error(e);
                    self.link.abort(1)
                }
            }
        }
        (0..self.ports.len()).for_each(|port| self.finish_output(port));
        // Nothing is lost any more but time: MPI waits for every rank, also one that is gone. For
        // other programs of the job it waits as long as they run.
        let late = move || {
            log::error(format_args!(
                "MPI has not ended within {} s: a device is stopped, dead or cut off; ending the job",
                3 * patience.as_secs()
            ));
        };
        let deadline = self.is_alone.then(|| Deadline::start(3 * patience, 1, late));
        self.link.finish();
        drop(deadline);
    }
}

/// A message of a port is complete, and with it perhaps the one that it is a part of.
#[inline]
fn completed(ports: &[Port], port: usize, sent: Sent) {
    ports[port].in_flight.fetch_sub(1, Ordering::Relaxed);
    let whole = sent.part_of.and_then(|(port, seq)| Some((port, ports[port].flight.lock().end_part(seq)?)));
    sent.queue.pending.end();
    if let Some((port, sent)) = whole {
        completed(ports, port, sent);
    }
}
