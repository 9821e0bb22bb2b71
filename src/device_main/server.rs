// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The main loop of a device: receives messages, executes at once those that concern the whole device, schedules the
//! others, and exits when the host requests it.
//!
//! The thread that holds the inbox schedules messages one by one as they arrive.

use super::checkpoint::{self, Checkpoint};
use super::host::Host;
use super::images::loader::Loader;
use super::messages::interpreter::{Execute, Interpreter};
use super::messages::schedule::Item as _;
use super::messages::trace::Trace;
use super::messages::work::Work;
use super::output::capture::{self, Output};
use super::shared_state::SharedState;
use super::threads::pool::{self, Me, Pool, Serve};
use super::transfers::completion::Completion;
use super::transfers::staging::Staging;
use super::transfers::transfer;
use super::upcalls::asker::{Answers, Asker};
use super::upcalls::interface::{Function, Piece, Upcalls, Wanted};
use crate::base::limits::OUTPUT_BEFORE_REPLY;
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, clock};
use crate::debug;
use crate::link::backoff::Backoff;
use crate::link::{Inbox, Progress};
use crate::sys::deadline::end_after;
use crate::wire::Bytes;
use crate::wire::command::{CONTROL, Operations, SharedFile};
use crate::wire::control::Control;
use crate::wire::reply;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often an idle device checks whether its host is alive.
const HEARTBEAT: Duration = Duration::from_millis(250);
/// How long the end of MPI may take on a device that lost a thread in the loader, which MPI needs.
const LOST_PATIENCE: Duration = Duration::from_secs(2);
/// The number of polls by the receiver between calls of `poll_housekeeping`.
const POLLS: u32 = 16;

pub(crate) struct Server<B> {
    shared: Arc<SharedState<B>>,
    inbox: Mutex<Inbox<Completion>, { order::INBOX }>,
    interpreter: Interpreter<B>,
    /// The reply to [`Control::Shutdown`].
    shutdown_reply: Mutex<Option<Vec<u8>>, { order::LEAF }>,
    /// Set if this process can be checkpointed.
    checkpoint: Option<Arc<dyn Checkpoint>>,
}

impl<B: Execute> Server<B> {
    /// Creates the device. `kernel_time` limits how long a kernel may run.
    pub fn new(
        host: Host,
        backend: B,
        output: Output,
        kernel_time: Option<Duration>,
        checkpoint: Option<Arc<dyn Checkpoint>>,
    ) -> Arc<Server<B>> {
        debug!("this device executes images for {}", backend.target());
        let (loader, pool, staging, trace) = (Loader::default(), Pool::new(), Staging::default(), Trace::default());
        let answers = Answers::default();
        let shared = Arc::new(SharedState { host, backend, loader, output, pool, staging, trace, answers });
        let interpreter = Interpreter::new(shared.clone(), kernel_time, checkpoint.is_some());
        let (inbox, shutdown_reply) = Default::default();
        let server = Arc::new(Server { shared, inbox, interpreter, shutdown_reply, checkpoint });
        server.shared.backend.connect(server.clone());
        server
    }

    #[cfg(test)]
    pub fn backend(&self) -> &B {
        &self.shared.backend
    }

    /// The received bytes of an image that is not loaded.
    #[cfg(test)]
    pub fn pending_image(&self, image: u32) -> Option<Vec<u8>> {
        self.shared.loader.pending(image).map(|image| image.bytes().to_vec())
    }

    /// From now on a panic of any thread exits this process: otherwise other threads might wait for that thread
    /// forever.
    pub fn exit_on_panic(&self) {
        let shared = self.shared.clone();
        std::panic::set_hook(Box::new(move |panic| {
            shared.host.die(&Error::new(format!("internal error: {}", panic.to_string().replace('\n', " "))))
        }));
    }

    /// Serves until the host ends the device.
    pub fn run(self: Arc<Server<B>>) -> ! {
        pool::serve(&self)
    }

    /// Asks the program; `drive` makes progress.
    fn asker<'a>(&'a self, drive: &'a dyn Fn()) -> Asker<'a> {
        let SharedState { host, answers, staging, .. } = &*self.shared;
        Asker { host, answers, staging, drive }
    }

    /// Handles rare events: reports faults, sends output, exits.
    fn poll_housekeeping(&self, backoff: &Backoff<'_>) {
        let drive = || self.drive_only();
        self.interpreter.poll_faults(drive);
        if self.shutdown_reply.lock().is_some() {
            self.end();
        }
        let output = &self.shared.output;
        if self.checkpoint.as_ref().is_some_and(|checkpoint| !checkpoint.replays()) {
            output.limit();
        }
        output.poll(&self.shared.host, backoff.is_long(), drive);
        self.interpreter.settle_faults();
    }

    /// Makes progress, and schedules a message that has arrived. Returns the message if it can be executed now.
    #[inline]
    fn drive(&self) -> (Progress, Option<Box<Work>>) {
        let host = &self.shared.host;
        let Some(mut inbox) = self.inbox.try_lock() else { return (Progress::Elsewhere, None) };
        let progress = host.require(host.link().drive(&mut inbox));
        let completed = inbox.completed.drain(..);
        completed.for_each(|(completion, result)| transfer::complete(&self.shared, completion, result));
        let Some((from, message)) = inbox.take_message() else { return (progress, None) };
        match self.arrived(from, message) {
            Ok(work) => (progress, work),
            Err(e) => host.die(&e.context(format_args!("rank {from} sent a message that makes no sense"))),
        }
    }

    /// Calls [`Server::drive`] until it makes no progress, for a thread that cannot execute messages now.
    fn drive_only(&self) {
        let pool = &self.shared.pool;
        loop {
            let (progress, arrived) = self.drive();
            arrived.into_iter().for_each(|work| pool.push(work));
            if pool.hand_out()
                && let Some(doorbell) = self.shared.host.link().doorbells().mine()
            {
                doorbell.ring();
            }
            if progress != Progress::Made {
                return;
            }
        }
    }

    /// Schedules a message, or executes it if it concerns the whole device.
    fn arrived(&self, from: usize, message: Vec<u8>) -> Result<Option<Box<Work>>> {
        let SharedState { host, trace, .. } = &*self.shared;
        if !host.is(from) {
            return Err(Error::new("it is not this device's host"));
        }
        let mut work = Work::new(message, host.link().buffer(), trace.message())?;
        host.note_merged(work.head.merged);
        if work.head.queue != CONTROL {
            if let Some(failure) = self.checkpoint.as_ref().and_then(|c| c.failure()) {
                work.fail(failure.clone());
            }
            return Ok(self.interpreter.arrive(work));
        }
        self.execute_control(*work).map(|()| None)
    }

    /// Executes a control message at once: before any later message, even if earlier messages of queues are
    /// unfinished.
    fn execute_control(&self, mut work: Work) -> Result<()> {
        let SharedState { host, backend, loader, output, trace, answers, .. } = &*self.shared;
        let mut outcome = Ok(());
        let mut ends = false;
        let mut rest = Operations::resume(&work.message, work.position);
        while let Some(operation) = rest.take()? {
            match operation {
                Control::Start { at, len, beginning, shared } if self.interpreter.is_unused() => {
                    // SAFETY: only messages of queues use the arena. None has arrived, and none can arrive now:
                    // this thread holds the inbox.
                    let started = unsafe { backend.start(at, len, (beginning, shared)) };
                    outcome = started.and_then(|()| backend.read(at, size_of::<u64>(), &mut work.reply));
                }
                Control::Start { .. } => return Err(Error::new("the device's memory is in use already")),
                Control::Share { at, len, offset } => {
                    // SAFETY: all messages of queues are finished, and none can arrive while this thread holds the
                    // inbox. Threads that regions have left running must not use mapped data (docs/user/limits.md).
                    let share = || unsafe { backend.share(at, len, offset) };
                    let is_done = self.interpreter.is_idle() && share().unwrap_or_else(|e| self.die(&e));
                    work.reply.extend_from_slice(&u64::from(is_done).to_le_bytes());
                }
                Control::Number { device } => backend.use_number(device),
                Control::Streams { input, output, errors } => backend.use_streams([input, output, errors]),
                Control::Preload { libraries: Bytes(libraries) } => loader.preload_later(libraries),
                Control::Discard { at, len } => backend.discard(at, len),
                Control::Trace { events } => {
                    backend.begin_trace();
                    trace.begin(events);
                }
                Control::Clock => work.reply.extend_from_slice(&clock::now().to_le_bytes()),
                Control::Recall => {
                    let mut message = host.link().buffer();
                    reply::begin_records(&mut message);
                    let left = trace.recall(&mut message);
                    host.send(message);
                    work.reply.extend_from_slice(&left.to_le_bytes());
                }
                Control::Shutdown => ends = true,
                Control::Printed { bytes } => output.acknowledge(bytes),
                Control::Answer(answer) => answers.arrive(answer.into()),
            }
        }
        if let Err(e) = outcome {
            work.fail_with(&e);
        }
        let reply = work.take_reply();
        match ends {
            true => *self.shutdown_reply.lock() = Some(reply),
            false => host.send(reply),
        }
        Ok(())
    }

    /// Executes a message on the receiver, or passes it to another thread. If neither is possible now, the message
    /// stays ready, and the result is false.
    #[inline]
    fn take_up(&self, me: &mut Me, mut work: Box<Work>, backoff: &mut Backoff<'_>) -> bool {
        let pool = &self.shared.pool;
        if pool.is_claimed() && work.may_take_long() {
            match pool.pass_on(me, Some(work)) {
                Some(back) => work = back,
                None => return true,
            }
        }
        if Self::KEEPS_ROOTS && pool.leaves_to_root(me) && work.may_take_long() && !self.interpreter.is_lost() {
            backoff.reset();
            match pool.hand_over(work) {
                Some(back) => work = back,
                None => return true,
            }
        }
        // Without an idle thread, a long kernel would stop all receiving, and the kernel may itself wait for data.
        // A lost device runs no kernels, and may have no idle thread left.
        if !pool.has_idle_thread() && work.may_take_long() && !self.interpreter.is_lost() {
            pool.push(work);
            return false;
        }
        // Before the kernel: no doorbell may ring for a thread that runs one.
        backoff.reset();
        let is_long = self.execute_placed(me, work);
        if std::mem::take(&mut me.was_long) || is_long {
            // The team of a kernel still spins on the other cores.
            backoff.give_way();
        }
        true
    }

    /// Executes a message on a core that suits the host's core; true if messages take long.
    #[inline]
    fn execute_placed(&self, me: &mut Me, work: Box<Work>) -> bool {
        if !self.shared.host.is_near() {
            self.execute(me, work);
            return false;
        }
        let core = work.head.core;
        let begin = me.place.begin(core);
        self.execute(me, work);
        me.place.end(core, begin)
    }

    fn end(&self) -> ! {
        let SharedState { host, backend, loader, output, .. } = &*self.shared;
        capture::try_flush_stdio();
        output.send(host, OUTPUT_BEFORE_REPLY, || self.drive_only());
        output.pass_on_held(host, || self.drive_only());
        let shutdown_reply = std::mem::take(&mut *self.shutdown_reply.lock());
        shutdown_reply.into_iter().for_each(|reply| host.send(reply));
        let mut backoff = host.backoff();
        while !host.link().is_flushed() {
            host.check();
            self.drive_only();
            backoff.pause(None);
        }
        if backend.fault().is_some_and(|fault| fault.keeps_loader) {
            end_after(LOST_PATIENCE, 0);
        }
        // MPI unloads libraries when it ends; no other thread may be loading one then.
        let _loading = loader.hold_loading();
        host.leave()
    }
}

impl<B: Execute> Upcalls for Server<B> {
    fn process(&self) -> Option<i32> {
        self.shared.host.process()
    }

    fn fetch(&self, ranges: &[Wanted<'_>], piece: &mut dyn FnMut(Piece<'_>) -> Result<()>) -> Result<()> {
        self.asker(&|| self.drive_only()).fetch(ranges, piece)
    }

    fn function(&self, at: u64) -> Result<Option<Function>> {
        self.asker(&|| self.drive_only()).function(at)
    }

    fn offer_changes(&self, seq: u64, at: u64, new: &[u8], old: SharedFile) -> Result<bool> {
        self.asker(&|| self.drive_only()).offer_changes(seq, at, new, old)
    }

    fn unmerged(&self) -> u32 {
        self.shared.host.unmerged()
    }

    fn send_changes(&self, seq: u64, write: &mut dyn FnMut(&mut Vec<u8>)) {
        self.asker(&|| self.drive_only()).send_changes(seq, write)
    }

    fn send_range(&self, seq: u64, at: u64, new: &[u8], old: &[u8]) -> Result<Vec<Range<u64>>> {
        self.asker(&|| self.drive_only()).send_range(seq, at, new, old)
    }
}

impl<B: Execute> Serve for Server<B> {
    const KEEPS_ROOTS: bool = B::KEEPS_ROOTS;

    fn pool(&self) -> &Pool {
        &self.shared.pool
    }

    fn receive(self: &Arc<Self>, me: &mut Me) {
        let SharedState { host, backend, loader, pool, .. } = &*self.shared;
        pool.begin_receiving(me, host.link().doorbells().mine().is_some());
        let mut backoff = host.backoff();
        let mut last_check = Instant::now();
        let mut polls = 0u32;
        if std::mem::take(&mut me.was_long) {
            backoff.give_way();
        } else {
            me.place.interrupt();
        }
        if let Some(work) = pool.passed_on() {
            self.execute(me, work);
        }
        while me.receiving {
            let (progress, arrived) = self.drive();
            if let Some(work) = pool.next(arrived)
                && self.take_up(me, work, &mut backoff)
            {
                continue;
            }
            match progress {
                Progress::Made => {
                    backoff.reset();
                    continue;
                }
                // Do not sleep: another thread handles the inbox, and more may arrive.
                Progress::Elsewhere => {
                    std::thread::yield_now();
                    continue;
                }
                Progress::None => {}
            }
            if pool.is_claimed() {
                pool.pass_on(me, None);
                continue;
            }
            if pool.stands_in() {
                // The other thread's kernel may use all cores.
                backoff.give_way();
            }
            if backoff.will_sleep(host.link().bulk_patience()) {
                me.place.interrupt();
            }
            pool.pause(me, || backoff.pause(host.link().bulk_patience()));
            if !me.receiving {
                return;
            }
            polls = polls.wrapping_add(1);
            if polls.is_multiple_of(POLLS) || backoff.is_long() {
                self.poll_housekeeping(&backoff);
                loader.preload(backend, pool, me);
                if !me.receiving {
                    return;
                }
                if let Some(checkpoint) = self.checkpoint.as_deref().filter(|c| c.is_wanted()) {
                    // The copy does not sleep on this process's doorbell.
                    backoff.reset();
                    if checkpoint::take(&self.shared, checkpoint, me) {
                        pool::add_thread(self);
                    }
                }
                if backoff.elapsed() > HEARTBEAT && last_check.elapsed() > HEARTBEAT {
                    last_check = Instant::now();
                    host.check();
                }
            }
        }
    }

    #[inline]
    fn execute(&self, me: &mut Me, work: Box<Work>) {
        self.interpreter.execute(me, work, || self.drive_only());
    }

    fn die(&self, why: &Error) -> ! {
        self.shared.host.die(why)
    }
}
