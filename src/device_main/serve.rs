// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The serve loop: threads that receive messages and execute them.
//!
//! One thread receives, and executes what it receives at once. Before it calls a kernel
//! it says so in its [`Role`]; if it has not come back after some tens of microseconds, the
//! watching thread takes the role over and receives in its place. So a short kernel
//! costs no hand-over, and a long one holds nothing up. A thread that comes back from a
//! kernel and finds its role taken finishes its message and becomes a spare.
//!
//! Invariants:
//! - One thread at a time receives, see [`Role`].
//! - A message that may be executed is in exactly one place: on a thread, in `ready`, in
//!   the schedule, in a transfer's completion, or in the slot of a running kernel.
//! - Messages are scheduled inside `Link::drive`, one after the other as they arrive.

use super::board::Board;
use super::executor::Executor;
use super::fault;
use super::image::{self, Image, Parcel};
use super::memory::Memory;
use super::output::{self, Output};
use super::role::Role;
use super::schedule::{Item, Schedule};
use super::stubs::Stubs;
use super::watch::Watch;
use super::work::{LONG_COPY, Running, Work};
use super::worker::Worker;
use crate::base::limits::{OUTPUT_AHEAD, OUTPUT_BEFORE_REPLY, THREADS};
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, clock, network, node};
use crate::link::idle::{Idle, Pace};
use crate::link::{Link, OnDone, Peer, Progress, Span};
use crate::wire::MESSAGE_MAX;
use crate::wire::command::{Command, Commands, Head, parts};
use crate::wire::record::{Event, Kind};
use crate::wire::reply;
use crate::{debug, mpi};
use memmap2::MmapMut;
use parking_lot::RwLock;
use std::collections::{BTreeMap, VecDeque};
use std::io::Write;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How often the watching thread looks: a receiver seen twice in the same kernel is late.
const WATCH: Duration = Duration::from_micros(50);
/// The watching thread rests when nothing has run for this long.
const REST: Duration = Duration::from_millis(5);
/// How often an idle device looks whether its host still lives.
const PULSE: Duration = Duration::from_millis(250);
/// How often at most a thread leaves the core that it shares with the host.
const LEAVE: Duration = Duration::from_millis(1);
/// Idle polls of the receiver between looks at what is no message.
const LOOKS: u32 = 16;
/// Kernels with no more arguments than this are called without a heap allocation.
const FEW_ARGS: usize = 16;

/// What the threads share.
pub struct Server {
    link: Link,
    host: usize,
    host_process: Option<OwnedFd>,
    limits: Limits,
    memory: Memory,
    images: RwLock<BTreeMap<u32, Image>>,
    /// Images that were received and not loaded.
    parcels: Mutex<BTreeMap<u32, Arc<Parcel>>, { order::LEAF }>,
    /// Libraries to be loaded when there is time.
    preload: Mutex<Option<Vec<u8>>, { order::LEAF }>,
    /// Held while these are loaded: the end of MPI, which unloads libraries, waits for that.
    loading: Mutex<(), { order::LOADING }>,
    stubs: Mutex<Stubs, { order::LEAF }>,
    executor: Box<dyn Executor>,
    /// Ends the device, see [`quit`].
    quit: fn(i32) -> !,
    output: Mutex<Output, { order::OUTPUT }>,
    /// Bytes of it that were sent, and that the host has written.
    printed: AtomicU64,
    written: AtomicU64,
    /// What the process above reads.
    board: &'static Board,
    /// The device's own standard error.
    stderr: std::fs::File,
    schedule: Mutex<Schedule<Box<Work>>, { order::SCHEDULE }>,
    running: Running,
    ready: Mutex<VecDeque<Box<Work>>, { order::LEAF }>,
    /// Of `ready`, for a glance without its lock.
    ready_len: AtomicUsize,
    role: Role,
    threads: AtomicUsize,
    /// Those that have begun.
    begun: AtomicUsize,
    /// Threads that do nothing, the watching one included.
    spares: AtomicUsize,
    resting: Mutex<Vec<Thread>, { order::LEAF }>,
    watched: AtomicBool,
    /// When a thread left the host's core.
    left: Mutex<Instant, { order::LEAF }>,
    /// A kernel crashed: nothing is executed any more.
    lost: AtomicBool,
    /// The reply to the command that ends the device.
    farewell: Mutex<Option<Vec<u8>>, { order::LEAF }>,
    watch: Watch,
    /// What connects it with its rank, if this process is a worker.
    worker: Option<Arc<Worker>>,
}

/// What bounds waiting and running.
#[derive(Clone, Copy)]
pub struct Limits {
    /// How to wait for messages.
    pub pace: Pace,
    /// How long a kernel may run, if there is a limit to that.
    pub kernel_time: Option<Duration>,
}

/// What a step of a message came to.
enum Step {
    /// The next command can follow.
    Next(Box<Work>),
    /// The message is done.
    End(Box<Work>),
    /// The message goes on elsewhere, later.
    Away,
}

/// A thread that serves.
struct Me {
    slot: usize,
    receiving: bool,
}

impl Server {
    /// A device of the program at rank `host`, whose process is `host_process` if it
    /// runs on this node. A worker has no more than its rank. Its executor runs kernels, and
    /// `quit` ends it: a process of its own by [`quit`].
    pub fn new(
        link: Link,
        (host, host_process): (usize, Option<OwnedFd>),
        worker: Option<Arc<Worker>>,
        limits: Limits,
        (executor, quit): (Box<dyn Executor>, fn(i32) -> !),
        (output, stderr): (Output, std::fs::File),
        board: &'static Board,
    ) -> Arc<Server> {
        Arc::new(Server {
            link,
            host,
            host_process,
            limits,
            board,
            memory: Memory::default(),
            images: RwLock::default(),
            parcels: Mutex::default(),
            preload: Mutex::default(),
            loading: Mutex::default(),
            stubs: Mutex::default(),
            executor,
            quit,
            output: Mutex::new(output),
            printed: AtomicU64::new(0),
            written: AtomicU64::new(0),
            stderr,
            schedule: Mutex::default(),
            running: Running::default(),
            ready: Mutex::default(),
            ready_len: AtomicUsize::new(0),
            role: Role::default(),
            threads: AtomicUsize::new(0),
            begun: AtomicUsize::new(1),
            spares: AtomicUsize::new(0),
            resting: Mutex::default(),
            watched: AtomicBool::new(false),
            left: Mutex::new(Instant::now()),
            lost: AtomicBool::new(false),
            farewell: Mutex::default(),
            watch: Watch::default(),
            worker,
        })
    }

    /// Lets kernels of a test be run, as those of an image.
    #[cfg(test)]
    pub fn add_kernels(&self, kernels: &[u64]) {
        self.images.write().insert(0, Image::of_functions(kernels));
    }

    /// What was received of an image that is not loaded.
    #[cfg(test)]
    pub fn parcel(&self, image: u32) -> Option<Vec<u8>> {
        self.parcels.lock().get(&image).map(|parcel| parcel.bytes().to_vec())
    }

    /// Serves until the host ends the device.
    pub fn run(self: Arc<Server>) -> ! {
        let mut me = Me { slot: self.threads.fetch_add(1, Ordering::Relaxed), receiving: true };
        fault::use_slot(me.slot);
        self.add_thread();
        loop {
            self.receive(&mut me);
            self.stand_by(&mut me);
        }
    }

    /// Starts a spare thread; false if there are as many as may be.
    fn add_thread(self: &Arc<Server>) -> bool {
        let slot = self.threads.fetch_add(1, Ordering::Relaxed);
        if slot >= THREADS {
            self.threads.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.spares.fetch_add(1, Ordering::Relaxed);
        let server = self.clone();
        let spawned = std::thread::Builder::new().stack_size(stack_limit()).spawn(move || {
            server.begun.fetch_add(1, Ordering::Release);
            fault::use_slot(slot);
            let mut me = Me { slot, receiving: false };
            server.spares.fetch_sub(1, Ordering::Relaxed);
            loop {
                server.stand_by(&mut me);
                server.receive(&mut me);
            }
        });
        if let Err(e) = spawned {
            self.die(&Error::from(e).context("can't start a thread"));
        }
        true
    }

    /// Ends this process, and with it the job, because it can't go on.
    fn die(&self, why: &Error) -> ! {
        if *why == Error::Told {
            // The link was closed under a kernel that nobody waits for: `end` is near.
            park()
        }
        let line = format!("omptarget-mpi: error: a device on host {}: {why}\n", crate::base::node::host_name());
        let _ = (&self.stderr).write_all(line.as_bytes());
        (self.quit)(1)
    }

    // ---- roles -----------------------------------------------------------------

    /// Marks the start of something that may take long.
    #[inline]
    fn begin_long(&self, me: &Me) -> u64 {
        if me.receiving { self.role.begin_long() } else { 0 }
    }

    /// Marks its end; the calling thread may find that it is no receiver any more.
    #[inline]
    fn end_long(&self, me: &mut Me, role: u64) {
        me.receiving = me.receiving && self.role.end_long(role);
    }

    /// Waits until there is something to do for a thread that does not receive, does
    /// it, and returns when the thread has become the receiver.
    fn stand_by(self: &Arc<Server>, me: &mut Me) {
        self.spares.fetch_add(1, Ordering::Relaxed);
        while !me.receiving {
            if let Some(work) = self.ready_for_spare() {
                self.execute(me, work);
                self.spares.fetch_add(1, Ordering::Relaxed);
            } else if !self.watched.swap(true, Ordering::AcqRel) {
                me.receiving = self.watch();
                self.watched.store(false, Ordering::Release);
                self.wake_one();
            } else {
                self.resting.lock().push(std::thread::current());
                if self.none_ready() && self.watched.load(Ordering::Acquire) {
                    std::thread::park_timeout(Duration::from_millis(100));
                }
                let id = std::thread::current().id();
                self.resting.lock().retain(|t| t.id() != id);
            }
        }
        if self.spares.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.add_thread();
        }
    }

    /// A message for a spare thread to execute, if another spare stays behind the
    /// receiver, which may be in a kernel: the last one must be free to take its role.
    fn ready_for_spare(self: &Arc<Server>) -> Option<Box<Work>> {
        let leave = || {
            let others_stay = |n: usize| (n > 1).then(|| n - 1);
            self.spares.fetch_update(Ordering::AcqRel, Ordering::Relaxed, others_stay).is_ok()
        };
        let work = self.next_ready()?;
        if leave() || (self.add_thread() && leave()) {
            return Some(work);
        }
        self.with_ready(|ready| ready.push_front(work));
        None
    }

    fn wake_one(&self) {
        if let Some(thread) = self.resting.lock().pop() {
            thread.unpark();
        }
    }

    /// Watches the receiver; true if its role was taken over, false if there is
    /// something to execute.
    fn watch(&self) -> bool {
        self.role.begin_watch();
        let (mut last, mut since) = (0, Instant::now());
        loop {
            if !self.none_ready() && self.spares.load(Ordering::Relaxed) > 1 {
                return false;
            }
            let role = self.role.look();
            if role != last {
                (last, since) = (role, Instant::now());
            } else if self.role.take_over(role) {
                return true;
            } else if since.elapsed() > REST {
                self.role.rest(role, || self.none_ready());
                continue;
            }
            std::thread::sleep(WATCH);
        }
    }

    /// Lets a spare thread execute what is ready.
    fn hand_out(&self) {
        self.wake_one();
        self.role.wake_watcher();
    }

    #[inline]
    fn next_ready(&self) -> Option<Box<Work>> {
        if self.ready_len.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.with_ready(VecDeque::pop_front)
    }

    fn none_ready(&self) -> bool {
        self.ready_len.load(Ordering::SeqCst) == 0
    }

    fn push_ready(&self, work: Box<Work>) {
        self.with_ready(|ready| ready.push_back(work));
    }

    fn with_ready<R>(&self, change: impl FnOnce(&mut VecDeque<Box<Work>>) -> R) -> R {
        let mut ready = self.ready.lock();
        let result = change(&mut ready);
        // SeqCst against `Role::rest`, which must not be entered while something is ready.
        self.ready_len.store(ready.len(), Ordering::SeqCst);
        result
    }

    // ---- receiving -------------------------------------------------------------

    /// Receives and executes until the role is taken over.
    fn receive(self: &Arc<Server>, me: &mut Me) {
        let mut idle = self.link.idle(self.limits.pace);
        let mut pulse = Instant::now();
        let mut looks = 0u32;
        while me.receiving {
            let (progress, arrived) = self.drive();
            if let Some(work) = arrived.or_else(|| self.next_ready()) {
                // Without a spare thread a long kernel would end all receiving; but it may wait
                // for data. On a lost device none runs, and there may be no spare left.
                let has_spare = || self.spares.load(Ordering::Relaxed) > 0;
                if has_spare() || !work.may_take_long() || self.lost.load(Ordering::Relaxed) {
                    // Before: nobody shall ring for a thread that is in a kernel.
                    idle.reset();
                    self.execute(me, work);
                    continue;
                }
                self.push_ready(work);
            }
            if progress == Progress::Made {
                idle.reset();
                continue;
            }
            idle.pause(self.link.has_bulk());
            looks = looks.wrapping_add(1);
            if looks.is_multiple_of(LOOKS) || idle.is_long() {
                self.look_around(&idle);
                self.preload(me);
                if let Some(worker) = self.worker.as_ref().filter(|w| w.copy_is_wanted()) {
                    // The copy does not sleep on this process's bell.
                    idle.reset();
                    self.copy(me, worker);
                }
                if idle.elapsed() > PULSE && pulse.elapsed() > PULSE {
                    pulse = Instant::now();
                    self.check_host();
                }
            }
        }
    }

    /// Loads what images will need. Not on a thread that ends: libomp takes it for the
    /// program's.
    fn preload(&self, me: &mut Me) {
        // Another thread may be at it.
        let Some(_loading) = self.loading.try_lock() else { return };
        let libraries = self.preload.lock().take();
        if let Some(list) = libraries {
            let role = self.begin_long(me);
            image::preload(&list);
            self.end_long(me, role);
        }
    }

    /// What is no message and rarely there.
    fn look_around(&self, idle: &Idle<'_>) {
        if let Some(limit) = self.limits.kernel_time {
            fault::look_at_time(limit);
        }
        if fault::happened() && !self.lost.swap(true, Ordering::AcqRel) {
            self.give_up();
        }
        if self.farewell.lock().is_some() {
            self.end();
        }
        let more = |output: &Output| output.is_pending() || (idle.is_long() && output.has_grown());
        if self.output_ahead() < OUTPUT_AHEAD && self.output.try_lock().is_some_and(|o| more(&o)) {
            self.send_output(OUTPUT_AHEAD);
        }
        if self.lost.load(Ordering::Relaxed) && self.running.is_empty() {
            fault::told();
        }
    }

    /// Makes the link's progress and schedules what arrived; returns what can be executed
    /// first of it, the rest is ready.
    #[inline]
    fn drive(&self) -> (Progress, Option<Box<Work>>) {
        let mut first = None;
        let driven = self.link.drive(&mut |from, message| match self.arrived(from, std::mem::take(message)) {
            Ok(Some(work)) if first.is_none() => first = Some(work),
            Ok(Some(work)) => self.push_ready(work),
            Ok(None) => {}
            Err(e) => self.die(&e.context(format_args!("rank {from} sent a message that makes no sense"))),
        });
        (driven.unwrap_or_else(|e| self.die(&e)), first)
    }

    /// The same for who does not execute now.
    fn drive_only(&self) {
        if let (_, Some(work)) = self.drive() {
            self.push_ready(work);
        }
        if !self.none_ready() {
            self.hand_out();
        }
    }

    /// Schedules a message, or obeys it if it concerns the whole device.
    fn arrived(&self, from: usize, message: Vec<u8>) -> Result<Option<Box<Work>>> {
        if from != self.host {
            return Err(Error::new("it is not this device's host"));
        }
        let mut work = Work::new(message, self.link.buffer(), self.watch.notes())?;
        if work.head().core == node::current_core() && self.host_process.is_some() {
            self.leave_core(work.head().core);
        }
        if work.head().queue != 0 {
            if let Some(failure) = self.worker.as_ref().and_then(|w| w.failure()) {
                work.fail(failure.clone());
            }
            return Ok(self.schedule.lock().arrive(work));
        }
        self.obey(*work).map(|()| None)
    }

    /// Leaves the core to the host, which waits there: two that poll for each other on one
    /// core look busy to the system, which may leave them there for seconds.
    #[cold]
    fn leave_core(&self, core: u16) {
        let mut left = self.left.lock();
        if left.elapsed() > LEAVE {
            *left = Instant::now();
            drop(left);
            node::leave_core(core);
        }
    }

    /// Executes a message of the control queue, at once: it comes before whatever is
    /// received later, also if earlier messages of other queues are not finished.
    fn obey(&self, mut work: Work) -> Result<()> {
        let mut outcome = Ok(());
        let mut ends = false;
        let mut rest = Commands::resume(&work.message, work.position);
        while let Some(command) = rest.take()? {
            match command {
                Command::Start { at, len } => outcome = self.memory.start(at, len),
                Command::Preload { libraries } => *self.preload.lock() = Some(libraries.to_vec()),
                Command::Discard { at, len } => self.memory.discard(at, len),
                Command::Watch { events } => self.watch.begin(events),
                Command::Clock => work.reply.extend_from_slice(&clock::now().to_le_bytes()),
                Command::Recall => {
                    let mut message = self.link.buffer();
                    reply::begin_records(&mut message);
                    let left = self.watch.recall(&mut message);
                    self.link.send(self.host, message)?;
                    work.reply.extend_from_slice(&left.to_le_bytes());
                }
                Command::Shutdown => ends = true,
                Command::Printed { bytes } => {
                    self.written.fetch_add(bytes, Ordering::Relaxed);
                }
                _ => return Err(Error::new("a command of a queue in a message for the device")),
            }
        }
        if let Err(e) = outcome {
            work.fail_with(&e);
        }
        let reply = work.take_reply();
        if ends {
            *self.farewell.lock() = Some(reply);
            return Ok(());
        }
        self.link.send(self.host, reply)
    }

    /// A kernel crashed: everything that was to be done fails.
    #[cold]
    fn give_up(&self) {
        output::try_flush_stdio();
        self.send_output(OUTPUT_BEFORE_REPLY);
        let failure = fault::describe();
        let mut running = self.running.take_all();
        // The one that crashed is told first.
        running.sort_by_key(|(_, slot)| *slot != fault::slot());
        let waiting = self.schedule.lock().drain();
        if self.worker.is_some() && running.is_empty() && waiting.is_empty() {
            // A thread that a kernel left behind: the rank must not wait for this device.
            let mut word = self.link.buffer();
            reply::failed(&mut word, 0, failure);
            self.link.send(self.host, word).unwrap_or_else(|e| self.die(&e));
        }
        for mut work in running.into_iter().map(|(work, _)| work).chain(waiting) {
            work.fail(failure.clone());
            self.push_ready(work);
        }
    }

    /// Ends the device because its host said so.
    fn end(&self) -> ! {
        output::try_flush_stdio();
        self.send_output(OUTPUT_BEFORE_REPLY);
        let farewell = self.farewell.lock().take();
        if let Some(reply) = farewell {
            self.link.send(self.host, reply).unwrap_or_else(|e| self.die(&e));
        }
        let mut idle = self.link.idle(self.limits.pace);
        while !self.link.is_flushed() {
            self.check_host();
            self.drive_only();
            idle.pause(false);
        }
        // MPI unloads libraries when it ends: not while another thread loads some.
        let _loading = self.loading.lock();
        self.link.finish();
        mpi::leave_launcher();
        (self.quit)(0)
    }

    /// Ends the device if its host is no more: on this node if its process has ended, on
    /// another one, where the launcher tells that, if the launcher is cut off too.
    fn check_host(&self) {
        if has_ended(self.host_process.as_ref()) {
            mpi::leave_launcher();
            (self.quit)(0);
        }
        network::check().unwrap_or_else(|e| self.die(&e));
    }

    /// Leaves a sleeping copy of this process behind, if no other thread does anything; else
    /// the next look is soon.
    #[cold]
    fn copy(self: &Arc<Server>, me: &mut Me, worker: &Worker) {
        // The rank would answer for these to this process alone: what is passed on of an image is
        // a part of no message that it waits for.
        if self.link.has_bulk() || fault::happened() {
            return;
        }
        // In the copy there is but this thread, and no lock must be one of another's. Whoever has
        // one of these is not at rest.
        let (Some(output), Some(resting), Some(ready)) =
            (self.output.try_lock(), self.resting.try_lock(), self.ready.try_lock())
        else {
            return;
        };
        let watcher = self.role.lock();
        let threads = self.threads.load(Ordering::Relaxed);
        let all_rest =
            self.spares.load(Ordering::Acquire) + 1 == threads && self.begun.load(Ordering::Acquire) == threads;
        if !all_rest || !ready.is_empty() {
            return;
        }
        // SAFETY: what other threads have locked now, and the copy uses, is locked here or by
        // the handlers of libc and libomp for this.
        let pid = unsafe { libc::fork() };
        drop((output, resting, ready, watcher));
        if pid == 0 {
            self.resting.disown();
            self.ready.disown();
            self.output.disown();
        } else if fault::happened() {
            // Also in the copy, perhaps.
            forget_process(pid);
            return;
        } else {
            worker.copied(pid.max(0) as u32).unwrap_or_else(|e| self.die(&e));
            return;
        }
        if worker.sleep().is_err() {
            quit(1);
        }
        self.resting.lock().clear();
        self.role.reset();
        self.watched.store(false, Ordering::Relaxed);
        self.spares.store(0, Ordering::Relaxed);
        self.threads.store(1, Ordering::Relaxed);
        self.begun.store(1, Ordering::Relaxed);
        self.link.start_anew();
        *me = Me { slot: 0, receiving: true };
        fault::start_anew();
        fault::use_slot(me.slot);
        self.output.lock().skip().unwrap_or_else(|e| self.die(&e));
        self.add_thread();
    }

    /// Printed bytes that the host has not written, as far as is known here. (A worker that does
    /// again what it has done may hear that they were written before it prints them.)
    fn output_ahead(&self) -> usize {
        self.printed.load(Ordering::Relaxed).saturating_sub(self.written.load(Ordering::Relaxed)) as usize
    }

    /// Sends what was printed and not sent; with [`OUTPUT_AHEAD`] only as much as the
    /// host takes.
    fn send_output(&self, limit: usize) {
        // Locked throughout: text must not overtake text.
        let mut output = self.output.lock();
        let mut idle = self.link.idle(self.limits.pace);
        loop {
            let mut message = self.link.buffer();
            match output.take(&mut message, reply::begin_output) {
                Ok(true) => {
                    self.printed.fetch_add((message.len() - reply::OUTPUT_LEN) as u64, Ordering::Relaxed);
                    self.link.send(self.host, message).unwrap_or_else(|e| self.die(&e));
                }
                Ok(false) => return self.link.recycle(message),
                Err(e) => self.die(&e.context("reading what a region printed")),
            }
            while self.output_ahead() >= limit {
                if limit == OUTPUT_AHEAD {
                    return;
                }
                self.check_host();
                self.drive_only();
                idle.pause(false);
            }
            idle.reset();
        }
    }

    // ---- executing -------------------------------------------------------------

    /// Executes a message as far as possible now.
    fn execute(self: &Arc<Server>, me: &mut Me, mut work: Box<Work>) {
        if let Some(notes) = &mut work.notes {
            notes.enter();
        }
        loop {
            match self.step(me, work) {
                Ok(Step::Next(next)) => work = next,
                Ok(Step::End(work)) => return self.finish(me, work),
                Ok(Step::Away) => return,
                Err(e) => self.die(&e),
            }
        }
    }

    fn finish(&self, me: &Me, mut work: Box<Work>) {
        if let Some(notes) = &mut work.notes {
            notes.settle();
        }
        if self.output.lock().is_pending() {
            self.send_output(OUTPUT_BEFORE_REPLY);
        }
        let reply = work.take_reply();
        // Behind the reply, if it is this thread that would obey a host that then asks.
        if let Some(notes) = work.notes.as_mut().filter(|_| !me.receiving) {
            notes.finish(&self.watch, work.head);
        }
        self.link.send(self.host, reply).unwrap_or_else(|e| self.die(&e));
        if let Some(notes) = work.notes.as_mut().filter(|_| me.receiving) {
            notes.finish(&self.watch, work.head);
        }
        let mut ready = VecDeque::new();
        self.schedule.lock().finish(work.head(), work.failure.as_ref(), &mut ready);
        if !ready.is_empty() {
            self.with_ready(|all| all.append(&mut ready));
        }
        self.link.recycle(std::mem::take(&mut work.message));
        if !me.receiving {
            // The receiver may sleep, having been busy when the reply was submitted.
            self.drive_only();
        }
    }

    /// Executes the next command. What fails fails the message; the rest of it is then
    /// skipped, but for the transfers: the other side waits for them.
    ///
    /// # Errors
    /// Nothing that a correct host causes: the device can't go on.
    #[inline]
    fn step(self: &Arc<Server>, me: &mut Me, mut work: Box<Work>) -> Result<Step> {
        if self.lost.load(Ordering::Relaxed) || fault::happened() {
            work.fail(fault::describe().clone());
        }
        let w = &mut *work;
        let mut rest = Commands::resume(&w.message, w.position);
        let command = rest.take()?;
        w.position = rest.position(&w.message);
        if let (Some(notes), Some(command)) = (&mut w.notes, &command) {
            notes.take_up(&self.watch, command);
        }
        let sound = w.failure.is_none();
        let outcome = match command {
            None => return Ok(Step::End(work)),
            Some(Command::Receive { to, len, rank, tag }) => {
                let peer = Peer { rank: rank as usize, tag };
                return self.receive_data(work, to, len, peer).map(|()| Step::Away);
            }
            Some(Command::Send { from, len, rank, tag }) => {
                let peer = Peer { rank: rank as usize, tag };
                return self.send_data(work, from, len, peer).map(|()| Step::Away);
            }
            Some(Command::Image { image, rank, tag, len, libraries, to }) => {
                let parcel = Parcel::new(len, libraries)?;
                let peer = Peer { rank: rank as usize, tag };
                return self.receive_image(work, image, parcel, peer, to).map(|()| Step::Away);
            }
            _ if !sound => Ok(()),
            Some(Command::Write { to, bytes }) => self.memory.write(to, bytes),
            Some(Command::Read { from, len }) if w.reply.len() + len as usize <= MESSAGE_MAX => {
                self.memory.read(from, len as usize, &mut w.reply)
            }
            Some(Command::Read { .. }) => return Err(Error::new("the host reads more than a reply holds")),
            Some(Command::Launch { kernel, args, array }) => {
                if !self.images.read().values().any(|i| i.has_code(kernel)) {
                    Err(Error::new(format!("no image has a kernel at {kernel:#x}")))
                } else if args.iter().len() <= FEW_ARGS {
                    let mut few = [0; FEW_ARGS];
                    let n = args.iter().len();
                    few.iter_mut().zip(args.iter()).for_each(|(to, from)| *to = from);
                    return Ok(self.launch(me, work, kernel, &few[..n], array));
                } else {
                    let many: Vec<u64> = args.iter().collect();
                    return Ok(self.launch(me, work, kernel, &many, array));
                }
            }
            Some(Command::Wait { seq }) => {
                let waiting = self.schedule.lock().wait(work, seq);
                return Ok(waiting.map_or(Step::Away, Step::Next));
            }
            Some(Command::Copy { to, from, len }) => {
                let begin = w.notes.as_mut().map(|notes| notes.start());
                let role = if len < LONG_COPY { None } else { Some(self.begin_long(me)) };
                let outcome = self.memory.copy(to, from, len);
                if let Some(role) = role {
                    self.end_long(me, role);
                }
                if let (Some(notes), Some(begin), Ok(())) = (&mut w.notes, begin, &outcome) {
                    notes.copied(&self.watch, w.head, len, begin);
                }
                outcome
            }
            Some(Command::Load { image }) => {
                let begin = w.notes.as_mut().map(|notes| notes.start());
                let role = self.begin_long(me);
                let outcome = self.load(image, &mut w.reply);
                self.end_long(me, role);
                if let (Some(notes), Some(begin)) = (&mut w.notes, begin) {
                    notes.done(&self.watch, w.head, Kind::Load, u64::from(image), (begin, clock::now()));
                }
                outcome
            }
            Some(Command::Move { image }) => {
                let role = self.begin_long(me);
                let outcome = self.relocate(image, &mut w.reply);
                self.end_long(me, role);
                outcome
            }
            Some(Command::Unload { image }) => {
                let role = self.begin_long(me);
                self.parcels.lock().remove(&image);
                let mut images = self.images.write();
                let image = images.remove(&image);
                if image.is_some() {
                    self.name_kernels(&images);
                }
                drop(images);
                if let Some(image) = image {
                    self.memory.remove_data(&image.span());
                    drop(image);
                    // What its destructors printed.
                    output::flush_stdio();
                }
                self.end_long(me, role);
                Ok(())
            }
            Some(Command::Redirect { from, to }) => self.redirect(from, to),
            Some(
                Command::Start { .. }
                | Command::Preload { .. }
                | Command::Discard { .. }
                | Command::Watch { .. }
                | Command::Clock
                | Command::Recall
                | Command::Printed { .. }
                | Command::Shutdown,
            ) => {
                return Err(Error::new("the host put a command for the device into a queue"));
            }
        };
        if let Err(e) = outcome {
            work.fail_with(&e);
        }
        Ok(Step::Next(work))
    }

    fn launch(&self, me: &mut Me, mut work: Box<Work>, kernel: u64, args: &[u64], array: bool) -> Step {
        let begin = work.notes.as_mut().map(|notes| notes.start());
        if self.limits.kernel_time.is_some() {
            fault::limit_time(me.slot);
        }
        self.running.enter(me.slot, work);
        fault::enter(me.slot, kernel);
        let role = self.begin_long(me);
        // Against `give_up`: either it finds this kernel or we find that it was there.
        fence(Ordering::SeqCst);
        if !self.lost.load(Ordering::Relaxed) {
            if array {
                let pointers: Vec<*const u64> = args.iter().map(std::ptr::from_ref).collect();
                self.executor.run(kernel, &[pointers.as_ptr() as u64]);
            } else {
                self.executor.run(kernel, args);
            }
        }
        let ran = begin.map(|begin| (begin, clock::now()));
        output::flush_stdio();
        self.end_long(me, role);
        fault::leave(me.slot);
        match self.running.leave(me.slot) {
            Some(mut work) => {
                let head = work.head;
                if let (Some(notes), Some(ran)) = (&mut work.notes, ran) {
                    notes.done(&self.watch, head, Kind::Kernel, kernel, ran);
                }
                Step::Next(work)
            }
            // Another kernel crashed, and the host was told that this one failed too.
            None => park(),
        }
    }

    /// A bulk transfer begins: what will be written down of it, if anything is.
    fn transfer(work: &mut Work, kind: Kind, bytes: u64, peer: Peer) -> Option<Event> {
        let Head { queue, seq, .. } = work.head;
        let begin = work.notes.as_mut()?.start();
        Some(Event { kind, queue, seq, what: bytes, begin, end: begin, peer: peer.rank as u32, tag: peer.tag })
    }

    /// Goes on with a message whose transfer is over; one that failed is not written down.
    fn resume(&self, mut work: Box<Work>, result: Result<()>, transfer: Option<Event>) {
        if let (Some(notes), Some(event), Ok(())) = (&mut work.notes, transfer, &result) {
            notes.transferred(&self.watch, event, event.peer as usize == self.host);
        }
        if let Err(e) = result {
            work.fail_with(&e);
        }
        // Transfers end inside `drive`: whoever drives looks for it.
        self.push_ready(work);
    }

    fn receive_data(self: &Arc<Server>, mut work: Box<Work>, to: u64, len: u64, peer: Peer) -> Result<()> {
        let server = self.clone();
        let event = Self::transfer(&mut work, Kind::Receive, len, peer);
        if self.memory.is_plain(to, len) {
            // SAFETY: the arena and images' data stay mapped; who else writes there
            // meanwhile is the program's business.
            let span = unsafe { Span::new(to as *mut u8, len as usize) };
            return self.link.receive_bulk(peer, span, Box::new(move |result| server.resume(work, result, event)));
        }
        let mut bytes = vec![0u8; len as usize];
        // SAFETY: the heap block does not move with the vector, which the completion
        // keeps until the transfer is done.
        let span = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
        let done: OnDone = Box::new(move |result| {
            let write = || if work.failure.is_none() { server.memory.write(to, &bytes) } else { Ok(()) };
            let result = result.and_then(|()| write());
            server.resume(work, result, event);
        });
        self.link.receive_bulk(peer, span, done)
    }

    fn send_data(self: &Arc<Server>, mut work: Box<Work>, from: u64, len: u64, peer: Peer) -> Result<()> {
        let server = self.clone();
        let event = Self::transfer(&mut work, Kind::Send, len, peer);
        if work.failure.is_none() && self.memory.is_plain(from, len) {
            // SAFETY: as in `receive_data`.
            let span = unsafe { Span::new(from as *mut u8, len as usize) };
            return self.link.send_bulk(peer, span, Box::new(move |result| server.resume(work, result, event)));
        }
        let mut bytes = Vec::new();
        let read = if work.failure.is_none() { self.memory.read(from, len as usize, &mut bytes) } else { Ok(()) };
        if let Err(e) = read {
            work.fail_with(&e);
        }
        if work.failure.is_some() {
            let done: OnDone = Box::new(move |result| server.resume(work, result, None));
            return self.link.refuse_bulk(peer, len as usize, done);
        }
        // SAFETY: as for the scratch memory of `receive_data`.
        let span = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
        let done: OnDone = Box::new(move |result| {
            drop(bytes);
            server.resume(work, result, event);
        });
        self.link.send_bulk(peer, span, done)
    }

    // ---- images ----------------------------------------------------------------

    /// Receives an image and passes it on, part by part.
    fn receive_image(
        self: &Arc<Server>,
        mut work: Box<Work>,
        image: u32,
        (parcel, mut room): (Parcel, MmapMut),
        from: Peer,
        to: [Option<(u32, u32)>; 2],
    ) -> Result<()> {
        let parcel = Arc::new(parcel);
        let event = Self::transfer(&mut work, Kind::Image, room.len() as u64, from);
        let parts: Vec<_> = parts(room.len() as u64).collect();
        let start = room.as_mut_ptr();
        let left = Arc::new(Mutex::<_, { order::SCHEDULE }>::new((parts.len(), Some((work, room)))));
        for (i, part) in parts.into_iter().enumerate() {
            let (server, parcel, left) = (self.clone(), parcel.clone(), left.clone());
            // SAFETY: the part lies within `room`, which is kept until all parts are there.
            let span = unsafe { Span::new(start.add(part.start), part.len()) };
            let done: OnDone = Box::new(move |result| {
                for (rank, tag) in to.into_iter().flatten() {
                    let peer = Peer { rank: rank as usize, tag }.nth(i);
                    server.pass_on(&parcel, part.clone(), peer, result.is_ok());
                }
                let mut left = left.lock();
                left.0 -= 1;
                if let (Some((work, _)), Err(e)) = (&mut left.1, &result) {
                    work.fail_with(e);
                }
                if left.0 == 0
                    && let Some((work, room)) = left.1.take()
                {
                    drop(room);
                    server.parcels.lock().insert(image, parcel);
                    // It is told why already if a part failed.
                    let event = event.filter(|_| work.failure.is_none());
                    server.resume(work, Ok(()), event);
                }
            });
            self.link.receive_bulk(from.nth(i), span, done)?;
        }
        Ok(())
    }

    /// Sends a part of an image to a rank that waits for it.
    fn pass_on(&self, parcel: &Arc<Parcel>, part: Range<usize>, peer: Peer, sound: bool) {
        let bytes = &parcel.bytes()[part];
        let parcel = parcel.clone();
        let done: OnDone = Box::new(move |_| drop(parcel));
        let sent = if sound {
            // SAFETY: the mapping is not written to, and the completion keeps it.
            let span = unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) };
            self.link.send_bulk(peer, span, done)
        } else {
            self.link.refuse_bulk(peer, bytes.len(), done)
        };
        sent.unwrap_or_else(|e| self.die(&e));
    }

    fn load(&self, id: u32, reply: &mut Vec<u8>) -> Result<()> {
        let parcel = self.parcels.lock().remove(&id);
        let image = parcel.ok_or_else(|| Error::new(format!("image {id} was not received")))?.load()?;
        // Again, to run before the exit handlers of what was just loaded.
        fault::notice_exit();
        fault::notice_exceptions();
        debug!("image {id} is at {:#x}", image.base());
        self.memory.add_data(image.data());
        reply.extend_from_slice(&image.base().to_le_bytes());
        let mut images = self.images.write();
        self.board.add_names(image.kernels());
        images.insert(id, image);
        Ok(())
    }

    /// Makes a function callable at an address of the program.
    fn redirect(&self, from: u64, pointer: u64) -> Result<()> {
        let mut to = Vec::new();
        self.memory.read(pointer, size_of::<u64>(), &mut to)?;
        let to = to.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        if !self.images.read().values().any(|i| i.has_code(to)) {
            return Err(Error::new(format!("an indirect function at {to:#x} is in no image")));
        }
        self.stubs.lock().set(from, to)
    }

    fn relocate(&self, id: u32, reply: &mut Vec<u8>) -> Result<()> {
        // Not among the others meanwhile: loading runs the image's own code.
        let image = self.images.write().remove(&id);
        let mut image = image.ok_or_else(|| Error::new(format!("there is no image {id}")))?;
        self.memory.remove_data(&image.span());
        image.relocate()?;
        self.memory.add_data(image.data());
        reply.extend_from_slice(&image.base().to_le_bytes());
        let mut images = self.images.write();
        images.insert(id, image);
        self.name_kernels(&images);
        Ok(())
    }

    /// Writes the names of all kernels down anew; the images are locked for that.
    fn name_kernels(&self, images: &BTreeMap<u32, Image>) {
        self.board.forget_names();
        images.values().for_each(|image| self.board.add_names(image.kernels()));
    }
}

/// Ends a child of this process, if it is one.
fn forget_process(pid: i32) {
    if pid > 0 {
        // SAFETY: plain numbers; no status is asked for.
        unsafe {
            libc::kill(pid, libc::SIGKILL);
            libc::waitpid(pid, std::ptr::null_mut(), 0);
        }
    }
}

/// A handle of a process of this node that tells when it has ended, where the system has such.
pub fn process_handle(pid: i32) -> Option<OwnedFd> {
    // SAFETY: plain numbers; a descriptor that comes back is ours alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// True if a process of which that is a handle has ended.
pub fn has_ended(process: Option<&OwnedFd>) -> bool {
    let Some(process) = process else { return false };
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one record is passed; a time-out of 0 does not block.
    unsafe { libc::poll(&mut poll, 1, 0) == 1 }
}

/// The parent's end, however it comes, is this process's.
pub fn die_with_parent() {
    // SAFETY: plain numbers.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
}

/// Ends this process at once.
pub fn quit(code: i32) -> ! {
    fault::ending();
    // SAFETY: exit handlers belong to libraries of images whose threads still run.
    unsafe { libc::_exit(code) }
}

/// Stops the calling thread for ever.
fn park() -> ! {
    loop {
        std::thread::park();
    }
}

/// Stack size of threads that run kernels: what a main thread would have.
fn stack_limit() -> usize {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the record outlives the call.
    let known = unsafe { libc::getrlimit(libc::RLIMIT_STACK, &mut limit) } == 0;
    match limit.rlim_cur {
        bytes if known && bytes != libc::RLIM_INFINITY => (bytes as usize).max(8 << 20),
        _ => 64 << 20,
    }
}
