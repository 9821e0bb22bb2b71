// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Executes the messages of queues, command by command.
//!
//! `drive` makes the link's progress wherever a thread may have to wait here.

use super::backend::{Backend, Entry, Launch, Wish};
use super::output;
use super::parts::Parts;
use super::pending_image::PendingImage;
use super::pool::Me;
use super::runner::Runner;
use super::said;
use super::schedule::{Item as _, Schedule};
use super::transfer::{self, Transfer};
use super::work::Work;
use crate::base::limits::{OUTPUT_BEFORE_REPLY, STAGED_AHEAD};
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::wire::command::{Args, Command, Operations, Ranges};
use crate::wire::{Bytes, MESSAGE_MAX, reply};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Up to this number, arguments of kernels are copied without a heap allocation.
const FEW_ARGS: usize = 16;

/// All messages of queues that were received and not answered.
pub(super) struct Interpreter<B> {
    parts: Arc<Parts<B>>,
    schedule: Mutex<Schedule<Box<Work>>, { order::SCHEDULE }>,
    runner: Runner<B>,
    /// After a fault another process takes this one's place.
    is_replaced: bool,
}

/// The outcome of one command of a message.
enum Step {
    Next(Box<Work>),
    End(Box<Work>),
    /// The message continues later, elsewhere.
    Away,
}

/// Copies a kernel's arguments out of its message.
#[inline]
fn copied<'a>(args: Args<'_>, few: &'a mut [u64; FEW_ARGS], many: &'a mut Vec<u64>) -> &'a [u64] {
    let n = args.iter().len();
    if n <= FEW_ARGS {
        few.iter_mut().zip(args.iter()).for_each(|(to, from)| *to = from);
        return &few[..n];
    }
    many.extend(args.iter());
    many
}

impl<B: Backend> Interpreter<B> {
    pub fn new(parts: Arc<Parts<B>>, kernel_time: Option<Duration>, is_replaced: bool) -> Interpreter<B> {
        let runner = Runner::new(parts.clone(), kernel_time);
        Interpreter { parts, schedule: Mutex::default(), runner, is_replaced }
    }

    /// Schedules a message; returns it if it may be executed now. Threads must not overlap here.
    #[inline]
    pub fn arrive(&self, work: Box<Work>) -> Option<Box<Work>> {
        let queue = work.head.queue;
        let now = self.schedule.lock().arrive(work);
        if now.is_none() {
            self.receive_early(queue);
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
        self.runner.is_lost()
    }

    /// Looks for faults. If another process replaces this one, they are reported even if no message fails.
    pub fn poll_faults(&self, drive: impl Fn()) {
        let backend = &self.parts.backend;
        if let Some(limit) = self.runner.kernel_time {
            backend.check_time(limit);
        }
        if backend.fault().is_some() && self.runner.lose() {
            self.give_up(drive);
        }
    }

    /// After a fault, informs the backend once no message waits for a kernel any more.
    pub fn settle_faults(&self) {
        if self.is_lost() && self.runner.running.is_empty() {
            self.parts.backend.fault_reported();
        }
    }

    /// A kernel crashed: all pending work fails.
    #[cold]
    fn give_up(&self, drive: impl Fn()) {
        let Parts { host, backend, output, pool, .. } = &*self.parts;
        let Some(fault) = backend.fault() else { return };
        output::try_flush_stdio();
        output.send(host, OUTPUT_BEFORE_REPLY, drive);
        // The failure has these lines.
        output.take_held();
        let mut running = self.runner.running.take_all();
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

    /// Executes a message as far as is possible now.
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
                Ok(Step::Away) => {
                    if B::IS_ACCELERATOR && !me.receiving {
                        // The receiver may sleep: it does not know of bulk data that this thread has begun to move.
                        let _ = self.parts.pool.hand_out();
                        self.parts.host.link().wake_driver();
                    }
                    return;
                }
                Err(e) => self.parts.host.die(&e),
            }
        }
    }

    /// Replies to a message. Returns another one that the calling thread should execute.
    fn finish(&self, me: &mut Me, mut work: Box<Work>, drive: impl Fn()) -> Option<Box<Work>> {
        let Parts { host, output, pool, trace, .. } = &*self.parts;
        if let Some(message) = &mut work.trace {
            message.settle();
        }
        if output.is_pending() {
            // It waits while the host is behind.
            pool.long(me, || output.send(host, OUTPUT_BEFORE_REPLY, &drive));
        }
        if B::IS_ACCELERATOR && output.holds() {
            pool.long(me, || self.settle_errors(&mut work, &drive));
        }
        let reply = work.take_reply();
        // The record must exist before the host can ask for the trace, which it does after the reply.
        // The receiver would answer that request itself, so it may record after the reply.
        if let Some(message) = work.trace.as_mut().filter(|_| !me.receiving) {
            message.finish(trace, work.head);
        }
        // What is held back may have to be passed on below, which may wait for the host.
        if !(B::IS_ACCELERATOR && output.holds()) {
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
        let holds_for_none = B::IS_ACCELERATOR && output.holds() && schedule.executing() == 0;
        drop(schedule);
        if holds_for_none {
            // Several messages have ended at once, and each has left them to the others.
            pool.long(me, || output.pass_on_held(host, &drive));
        }
        let next = self.keep_next(me, &mut ready);
        pool.append(&mut ready);
        host.link().recycle(std::mem::take(&mut work.message));
        if !me.receiving {
            // The receiver may sleep already: it does not know of this reply.
            drive();
        }
        next
    }

    /// The next one of messages that are ready, if the thread that has copied from or to an accelerator should execute it at
    /// once: it copies too.
    fn keep_next(&self, me: &Me, ready: &mut VecDeque<Box<Work>>) -> Option<Box<Work>> {
        if !B::IS_ACCELERATOR || !me.is_free() || !ready.front().is_some_and(|next| next.moves_bulk()) {
            return None;
        }
        let mut next = ready.pop_front()?;
        if let Some(trace) = &mut next.trace {
            trace.enter();
        }
        Some(next)
    }

    /// Lets bulk data of the queue's next messages arrive before their turn, while there are buffers.
    fn receive_early(&self, queue: u32) {
        if !B::IS_ACCELERATOR {
            return;
        }
        let mut schedule = self.schedule.lock();
        let waiting = schedule.waiting_in(queue).take(STAGED_AHEAD + 1);
        let announced: Vec<_> = waiting.filter_map(|work| transfer::announce_early(&self.parts, work)).collect();
        drop(schedule);
        announced.into_iter().for_each(|early| transfer::receive_early(&self.parts, early));
    }

    /// Adds the errors that this process's libomptarget has printed to the failure of the message that they explain. If no
    /// message that is being executed fails, the last one passes them on to the program as they are.
    #[cold]
    fn settle_errors(&self, work: &mut Work, drive: impl Fn()) {
        let Parts { host, output, .. } = &*self.parts;
        match &mut work.failure {
            // A fault has it already.
            Some(failure) if failure.lost => drop(output.take_held()),
            Some(failure) => failure.text += &said::errors_in(&String::from_utf8_lossy(&output.take_held())),
            None if self.schedule.lock().executing() > 1 => {}
            None => output.pass_on_held(host, drive),
        }
    }

    /// Executes the next command. If it fails, the message fails: later commands are skipped except for
    /// transfers, since the other side waits for them. Errors end the device: the host is not correct, or there is no room
    /// for an image that other devices may wait for.
    #[inline]
    fn step(&self, me: &mut Me, mut work: Box<Work>) -> Result<Step> {
        let Parts { backend, trace, .. } = &*self.parts;
        if let Some(fault) = backend.fault() {
            work.fail(fault.failure.clone());
            if self.is_replaced {
                // The next process does the transfers, perhaps with data.
                return Ok(Step::End(work));
            }
        }
        if B::IS_ACCELERATOR {
            match self.settle_copies(me, work)? {
                Some(back) => work = back,
                None => return Ok(Step::Away),
            }
        }
        let w = &mut *work;
        let message = w.head.seq;
        let mut rest = Operations::resume(&w.message, w.position);
        let command = rest.take()?;
        let start = std::mem::replace(&mut w.position, rest.position(&w.message));
        if let (Some(message), Some(command)) = (&mut w.trace, &command) {
            message.take_up(trace, command);
        }
        let outcome = match command {
            None => return Ok(Step::End(work)),
            Some(Command::Receive { to, len, rank, tag }) => {
                return self.receive(work, (to, len), (rank, tag));
            }
            Some(Command::Send { from, len, rank, tag })
                if B::IS_ACCELERATOR && w.failure.is_none() && backend.direct(from, len).is_none() =>
            {
                return self.send_staged(me, work, (start, from, len), (rank, tag));
            }
            Some(Command::Send { from, len, rank, tag }) => {
                return Transfer::new(&self.parts, work, (rank, tag)).send(from, len, None).map(|()| Step::Away);
            }
            Some(Command::Image { image, rank, tag, len, libraries, to }) => {
                let pending = PendingImage::new(len, libraries);
                let pending = pending.map_err(|e| e.context(format_args!("no room for an image of {len} bytes")))?;
                let transfer = Transfer::new(&self.parts, work, (rank, tag));
                return transfer.receive_image(image, pending, to).map(|()| Step::Away);
            }
            _ if w.failure.is_some() => Ok(()),
            Some(Command::Write { to, bytes: Bytes(bytes) }) if B::IS_ACCELERATOR => {
                w.copies.get_or_insert_with(|| self.runner.no_copies()).write(to, bytes);
                Ok(())
            }
            Some(Command::Write { to, bytes: Bytes(bytes) }) => backend.write(to, bytes),
            Some(Command::Read { from, len }) if w.reply.len() + len as usize <= MESSAGE_MAX => {
                if B::IS_ACCELERATOR {
                    return Ok(Step::Next(self.runner.read(me, work, from, len as usize)));
                }
                backend.read(from, len as usize, &mut w.reply)
            }
            Some(Command::Read { .. }) => return Err(Error::new("the host reads more than a reply holds")),
            Some(Command::Launch { kernel, .. } | Command::LaunchShaped { kernel, .. })
                if !backend.has_kernel(kernel) =>
            {
                Err(Error::new(format!("no image has a kernel at {kernel:#x}")))
            }
            Some(Command::Launch { kernel, args, array }) => {
                let (mut few, mut many) = ([0; FEW_ARGS], Vec::new());
                let args = copied(args, &mut few, &mut many);
                let launch = Launch { message, kernel, args, array, shape: None };
                return Ok(Step::Next(self.runner.launch(me, work, &launch)));
            }
            Some(Command::LaunchShaped { kernel, shape, args }) => {
                let (mut few, mut many) = ([0; FEW_ARGS], Vec::new());
                let args = copied(args, &mut few, &mut many);
                let launch = Launch { message, kernel, args, array: false, shape: Some(shape) };
                return self.runner.launch_with(me, work, &launch).map(Step::Next);
            }
            Some(Command::Wait { seq }) => {
                let waiting = self.schedule.lock().wait(work, seq);
                return Ok(waiting.map_or(Step::Away, Step::Next));
            }
            Some(Command::Copy { to, from, len }) => {
                return Ok(Step::Next(self.runner.copy(me, work, (to, from, len))));
            }
            Some(Command::Load { image }) => return Ok(Step::Next(self.runner.load(me, work, image))),
            Some(Command::Move { image }) => return Ok(Step::Next(self.runner.relocate(me, work, image))),
            Some(Command::Unload { image }) => return Ok(Step::Next(self.runner.unload(me, work, image))),
            Some(Command::Redirect { from, to }) => backend.redirect(from, to),
            Some(Command::Obtain { len, exact, libraries: Bytes(libraries), taken }) => {
                let (wish, libraries) = (Wish { len, exact, taken: taken.iter().collect() }, libraries.to_vec());
                return Ok(Step::Next(self.runner.obtain(me, work, &wish, &libraries)));
            }
            Some(Command::Avoid { taken }) => self.avoid(taken)?,
            Some(Command::Entry { image, size, flags, name }) => self.announce(image, (name, size, flags))?,
            Some(Command::Address { image, name }) => self.look_up(image, name, &mut w.reply)?,
        };
        if let Err(e) = outcome {
            work.fail_with(&e);
        }
        Ok(Step::Next(work))
    }

    /// Before the next command for an accelerator: makes the writes that it does not take along. `None` if another thread
    /// executes the message, because this one goes on with the bulk data.
    fn settle_copies(&self, me: &mut Me, mut work: Box<Work>) -> Result<Option<Box<Work>>> {
        let is_direct = |from, len| self.parts.backend.direct(from, len).is_some();
        if me.receiving && self.parts.host.link().has_bulk() && work.copies_long(is_direct) {
            match self.parts.pool.hand_over(work) {
                Some(back) => work = back,
                None => return Ok(None),
            }
        }
        match work.copies {
            Some(_) => self.runner.settle_writes(me, work).map(Some),
            None => Ok(Some(work)),
        }
    }

    /// Receives bulk data, unless that has come before the message's turn.
    fn receive(&self, mut work: Box<Work>, (to, len): (u64, u64), peer: (u32, u32)) -> Result<Step> {
        let (queue, early) = (work.head.queue, work.early.take());
        let Some(early) = early else {
            Transfer::new(&self.parts, work, peer).receive(to, len)?;
            self.receive_early(queue);
            return Ok(Step::Away);
        };
        // The message may have one in any case.
        self.parts.staging.end_ahead();
        let arrived = transfer::take_early(&self.parts, work, to, &early);
        self.receive_early(queue);
        Ok(arrived.map_or(Step::Away, Step::Next))
    }

    /// Reads memory of an accelerator into a buffer and sends it. If there are buffers, the queue goes on meanwhile.
    fn send_staged(
        &self,
        me: &mut Me,
        work: Box<Work>,
        (start, from, len): (usize, u64, u64),
        peer: (u32, u32),
    ) -> Result<Step> {
        let (bytes, mut work) = self.runner.read_ahead(me, work, (start, from, len));
        let mut ready = VecDeque::new();
        work.is_passed = bytes.is_some() && work.is_over() && self.parts.staging.begin_ahead();
        if work.is_passed {
            self.schedule.lock().go_on(work.head, None, &mut ready);
        }
        Transfer::new(&self.parts, work, peer).send(from, len, bytes)?;
        let next = self.keep_next(me, &mut ready);
        self.parts.pool.append(&mut ready);
        if next.is_some() {
            // The receiver may sleep: it does not know of this send.
            self.parts.host.link().wake_driver();
        }
        Ok(next.map_or(Step::Away, Step::Next))
    }

    // Of these three, the outer error ends the device, which has no accelerator; the inner one fails the message.

    #[cold]
    fn avoid(&self, taken: Ranges<'_>) -> Result<Result<()>> {
        self.parts.backend.accelerator()?.avoid(&mut taken.iter());
        Ok(Ok(()))
    }

    #[cold]
    fn announce(&self, image: u32, (name, size, flags): (Bytes<'_>, u64, u32)) -> Result<Result<()>> {
        self.parts.backend.accelerator()?.announce(image, Entry { name: name.text(), size, flags });
        Ok(Ok(()))
    }

    #[cold]
    fn look_up(&self, image: u32, name: Bytes<'_>, reply: &mut Vec<u8>) -> Result<Result<()>> {
        let address = self.parts.backend.accelerator()?.address(image, &name.text());
        Ok(address.map(|address| reply.extend_from_slice(&address.to_le_bytes())))
    }
}
