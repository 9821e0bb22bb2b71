// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Executes the messages of queues: their order, their replies, and the commands in them that may take long or crash.
//! The device's [`Execute`] implements the commands.
//!
//! Wherever a thread may have to wait here, `drive` makes the link progress.

use super::schedule::{Item as _, Schedule};
use super::work::{Running, Work};
use crate::base::limits::OUTPUT_BEFORE_REPLY;
use crate::base::lock::{Mutex, order};
use crate::base::{Result, clock};
use crate::device_main::backend::Backend;
use crate::device_main::crash::monitor;
use crate::device_main::host::park;
use crate::device_main::output::{capture, libomptarget_errors};
use crate::device_main::shared_state::SharedState;
use crate::device_main::threads::pool::Me;
use crate::wire::record::Kind;
use crate::wire::reply;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

/// All messages of queues that were received and are not answered.
pub(crate) struct Interpreter<B> {
    pub(crate) shared: Arc<SharedState<B>>,
    pub(crate) schedule: Mutex<Schedule<Box<Work>>, { order::SCHEDULE }>,
    /// The messages whose kernels run.
    running: Running,
    /// The time limit of a kernel, if any.
    kernel_time: Option<Duration>,
    /// Set after a fault: nothing is executed from then on.
    lost: AtomicBool,
    /// After a fault another process takes this one's place.
    is_replaced: bool,
}

/// The outcome of one command of a message.
pub(crate) enum Step {
    Next(Box<Work>),
    End(Box<Work>),
    /// The message continues later, elsewhere.
    Away,
}

/// Executes the commands of messages on the device's processors or accelerator.
pub(crate) trait Execute: Backend + Sized {
    /// Kernels run on roots of libomp where one is idle.
    const KEEPS_ROOTS: bool;

    /// Executes the next command. If it fails, the message fails: later commands are skipped except for transfers,
    /// since the other side waits for them. Errors end the device: the host is not correct, or there is no room for an
    /// image that other devices may wait for.
    fn step(interpreter: &Interpreter<Self>, me: &mut Me, work: Box<Work>) -> Result<Step>;

    /// Called when a message begins to wait for its turn in this queue.
    fn look_ahead(interpreter: &Interpreter<Self>, queue: u32);

    /// Takes the ready message that the calling thread should execute at once, if there is one.
    fn keep_next(me: &Me, ready: &mut VecDeque<Box<Work>>) -> Option<Box<Work>>;
}

impl<B: Execute> Interpreter<B> {
    pub(crate) fn new(shared: Arc<SharedState<B>>, kernel_time: Option<Duration>, is_replaced: bool) -> Interpreter<B> {
        let (schedule, running, lost) = Default::default();
        Interpreter { shared, schedule, running, kernel_time, lost, is_replaced }
    }

    /// Schedules a message; returns it if it may be executed now. Threads must not overlap here.
    #[inline]
    pub fn arrive(&self, work: Box<Work>) -> Option<Box<Work>> {
        let queue = work.head.queue;
        let now = self.schedule.lock().arrive(work);
        if now.is_none() {
            B::look_ahead(self, queue);
        }
        now
    }

    pub fn is_unused(&self) -> bool {
        self.schedule.lock().is_unused()
    }

    /// True if no received message of a queue is unfinished.
    pub fn is_idle(&self) -> bool {
        self.schedule.lock().is_idle()
    }

    #[inline]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// Checks for faults. If another process replaces this one, reports them even if no message fails.
    pub fn poll_faults(&self, drive: impl Fn()) {
        let backend = &self.shared.backend;
        if let Some(limit) = self.kernel_time {
            monitor::check_time(limit);
        }
        if backend.fault().is_some() && !self.lost.swap(true, Ordering::AcqRel) {
            self.give_up(drive);
        }
    }

    /// After a fault, cancels its last resort once no message waits for a kernel.
    pub fn settle_faults(&self) {
        if self.is_lost() && self.running.is_empty() {
            monitor::reported();
        }
    }

    /// Fails all pending work after a kernel crashed.
    #[cold]
    fn give_up(&self, drive: impl Fn()) {
        let SharedState { host, backend, output, pool, .. } = &*self.shared;
        let Some(fault) = backend.fault() else { return };
        capture::try_flush_stdio();
        output.send(host, OUTPUT_BEFORE_REPLY, drive);
        // The failure already has these lines.
        output.take_held();
        let mut running = self.running.take_all();
        // The crashed kernel's message is answered first.
        running.sort_by_key(|(_, slot)| *slot != fault.slot);
        let waiting = self.schedule.lock().drain();
        if self.is_replaced && running.is_empty() && waiting.is_empty() {
            // A thread that a kernel had left behind crashed: the rank must not wait for this device.
            let mut message = host.link().buffer();
            reply::failed(&mut message, 0, fault.failure);
            host.send(message);
        }
        for mut work in running.into_iter().map(|(work, _)| work).chain(waiting) {
            work.fail(fault.failure.clone());
            pool.push(work);
        }
    }

    /// Executes a message as far as possible now.
    #[inline]
    pub fn execute(&self, me: &mut Me, mut work: Box<Work>, drive: impl Fn()) {
        if let Some(trace) = &mut work.trace {
            trace.enter();
        }
        loop {
            match self.step(me, work) {
                Ok(Step::Next(next)) => work = next,
                Ok(Step::End(ended)) => match self.finish(me, ended, &drive) {
                    Some(next) => work = next,
                    None => return,
                },
                Ok(Step::Away) => return,
                Err(e) => self.shared.host.die(&e),
            }
        }
    }

    /// Replies to a message. Returns another one that the calling thread should execute.
    fn finish(&self, me: &mut Me, mut work: Box<Work>, drive: impl Fn()) -> Option<Box<Work>> {
        let SharedState { host, output, pool, trace, .. } = &*self.shared;
        if let Some(message) = &mut work.trace {
            message.settle();
        }
        if output.is_pending() {
            // This waits while the host is behind.
            pool.long(me, || output.send(host, OUTPUT_BEFORE_REPLY, &drive));
        }
        if output.holds() {
            pool.long(me, || self.settle_errors(&mut work, &drive));
        }
        let reply = work.take_reply();
        // The record must exist before the host can ask for the trace, which it does after the reply.
        // The receiver would answer that request itself, so it may record after the reply.
        if let Some(message) = work.trace.as_mut().filter(|_| !me.receiving) {
            message.finish(trace, work.head);
        }
        // Held output may have to be passed on below, which may wait for the host.
        if !output.holds() {
            pool.claim(me);
        }
        host.send(reply);
        if let Some(message) = work.trace.as_mut().filter(|_| me.receiving) {
            message.finish(trace, work.head);
        }
        let mut ready = VecDeque::new();
        let (mut schedule, head) = (self.schedule.lock(), work.head());
        match work.is_passed {
            true => schedule.end(head, &mut ready),
            false => schedule.finish(head, work.failure.as_ref(), &mut ready),
        }
        let holds_for_none = output.holds() && schedule.executing() == 0;
        drop(schedule);
        if holds_for_none {
            // Several messages have ended at once, and each has left the errors to the others.
            pool.long(me, || output.pass_on_held(host, &drive));
        }
        let next = B::keep_next(me, &mut ready);
        pool.append(&mut ready);
        host.link().recycle(std::mem::take(&mut work.message));
        if !me.receiving {
            // The receiver may already sleep: it does not know of this reply.
            drive();
        }
        next
    }

    /// Adds the errors that this process's libomptarget printed to the failure of the message that they explain. If no
    /// message in execution fails, the last one passes them on to the program unchanged.
    #[cold]
    fn settle_errors(&self, work: &mut Work, drive: impl Fn()) {
        let SharedState { host, output, .. } = &*self.shared;
        match &mut work.failure {
            // A fault already contains them.
            Some(failure) if failure.lost => drop(output.take_held()),
            Some(failure) => {
                failure.text += &libomptarget_errors::errors_in(&String::from_utf8_lossy(&output.take_held()))
            }
            None if self.schedule.lock().executing() > 1 => {}
            None => output.pass_on_held(host, drive),
        }
    }

    /// Executes the next command, unless another process takes this one's place after a fault: that process does the
    /// transfers, perhaps with data.
    #[inline]
    fn step(&self, me: &mut Me, mut work: Box<Work>) -> Result<Step> {
        if let Some(fault) = self.shared.backend.fault() {
            work.fail(fault.failure.clone());
            if self.is_replaced {
                return Ok(Step::End(work));
            }
        }
        B::step(self, me, work)
    }

    /// Makes a message wait for message `seq` of another queue.
    pub fn wait(&self, work: Box<Work>, seq: u64) -> Step {
        self.schedule.lock().wait(work, seq).map_or(Step::Away, Step::Next)
    }

    /// Runs a kernel, or code that has a number on the crash board, as a part of a message. If the code crashes,
    /// another thread fails the message. Runs nothing if the device is lost. If the message is traced, also returns
    /// when the code ran.
    #[inline]
    pub fn run<R>(
        &self,
        me: &mut Me,
        mut work: Box<Work>,
        kernel: u64,
        code: impl FnOnce() -> R,
    ) -> (Option<R>, Option<(u64, u64)>, Box<Work>) {
        let begin = work.trace.as_mut().map(|message| message.start());
        let slot = me.slot;
        self.running.enter(slot, work);
        monitor::enter(slot, kernel, self.kernel_time.is_some());
        self.shared.pool.long(me, || {
            // Pairs with `give_up`: either `give_up` finds this code, or this thread sees `lost`.
            fence(Ordering::SeqCst);
            let outcome = (!self.is_lost()).then(code);
            let ran = begin.map(|begin| (begin, clock::now()));
            if outcome.is_some() {
                capture::flush_stdio();
            }
            monitor::leave(slot);
            // None if other code crashed: the host then knows that this message failed too. Park inside `long`: the
            // receiver must not stop, and this thread may become the receiver again afterwards.
            let Some(work) = self.running.leave(slot) else { park() };
            (outcome, ran, work)
        })
    }

    pub fn load(&self, me: &mut Me, work: Box<Work>, image: u32) -> Box<Work> {
        let SharedState { backend, loader, trace, .. } = &*self.shared;
        let (base, ran, mut work) = self.run(me, work, B::LOADS_AS, || loader.load(backend, image));
        let head = work.head;
        if let (Some(message), Some(ran)) = (&mut work.trace, ran) {
            message.done(trace, head, Kind::Load, u64::from(image), ran);
        }
        answered(work, base.map(|base| base.map(u64::to_le_bytes)))
    }

    pub fn relocate(&self, me: &mut Me, work: Box<Work>, image: u32) -> Box<Work> {
        let SharedState { backend, loader, .. } = &*self.shared;
        let (base, _, work) = self.run(me, work, B::LOADS_AS, || loader.relocate(backend, image));
        answered(work, base.map(|base| base.map(u64::to_le_bytes)))
    }

    pub fn unload(&self, me: &mut Me, work: Box<Work>, image: u32) -> Box<Work> {
        let SharedState { backend, loader, .. } = &*self.shared;
        self.run(me, work, B::LOADS_AS, || loader.unload(backend, image)).2
    }
}

/// Ends a command whose result goes into the reply, if it was executed.
pub(crate) fn answered(mut work: Box<Work>, result: Option<Result<impl AsRef<[u8]>>>) -> Box<Work> {
    match result {
        Some(Ok(bytes)) => work.reply.extend_from_slice(bytes.as_ref()),
        Some(Err(e)) => work.fail_with(&e),
        None => {}
    }
    work
}
