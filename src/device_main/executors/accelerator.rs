// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Executes commands on an accelerator, whose memory this process does not access.
//!
//! Small copies before and after a kernel cost less as a part of its launch. So writes are collected until another
//! command follows, and a launch includes the writes before it and the reads after it. Bulk data goes through buffers
//! unless MPI moves it itself: the bulk data of a queue's next messages is received before their turn, and the queue
//! goes on while a buffer is sent.

use super::{no_kernel, no_room};
use crate::base::limits::STAGED_AHEAD;
use crate::base::{Error, Result};
use crate::device_main::backend::{Accelerator, Copied, Copies, Entry, FIRST_COPY, Launch, Wish};
use crate::device_main::crash::board::{COPY_CODE, MPI_CODE};
use crate::device_main::crash::monitor;
use crate::device_main::messages::interpreter::{Execute, Interpreter, Step, answered};
use crate::device_main::messages::schedule::Item as _;
use crate::device_main::messages::work::{Work, take_up};
use crate::device_main::shared_state::SharedState;
use crate::device_main::threads::pool::Me;
use crate::device_main::transfers::completion::Completion;
use crate::device_main::transfers::transfer::{self, Transfer};
use crate::wire::command::Command;
use crate::wire::record::Kind;
use crate::wire::{Bytes, MESSAGE_MAX};
use std::collections::VecDeque;

impl<A: Accelerator> Execute for A {
    const KEEPS_ROOTS: bool = false;

    fn step(interpreter: &Interpreter<A>, me: &mut Me, work: Box<Work>) -> Result<Step> {
        let step = match interpreter.settle_copies(me, work) {
            Some(work) => interpreter.execute_next(me, work)?,
            None => Step::Away,
        };
        if matches!(step, Step::Away) && !me.receiving {
            // The receiver may sleep: it does not know of the bulk data that this thread has begun to move.
            let _ = interpreter.shared.pool.hand_out();
            interpreter.shared.host.link().wake_driver();
        }
        Ok(step)
    }

    /// Receives bulk data of the queue's next messages before their turn, while there are buffers.
    fn look_ahead(interpreter: &Interpreter<A>, queue: u32) {
        let shared = &*interpreter.shared;
        let mut schedule = interpreter.schedule.lock();
        let waiting = schedule.waiting_in(queue).take(STAGED_AHEAD + 1);
        let announced: Vec<_> = waiting.filter_map(|work| transfer::announce_early(shared, work)).collect();
        drop(schedule);
        announced.into_iter().for_each(|early| transfer::receive_early(shared, early));
    }

    /// A thread that has copied from or to the accelerator goes on with a message that does the same.
    fn keep_next(me: &Me, ready: &mut VecDeque<Box<Work>>) -> Option<Box<Work>> {
        if !me.is_free() || !ready.front().is_some_and(|next| next.moves_bulk()) {
            return None;
        }
        let mut next = ready.pop_front()?;
        if let Some(trace) = &mut next.trace {
            trace.enter();
        }
        Some(next)
    }
}

impl<A: Accelerator> Interpreter<A> {
    fn execute_next(&self, me: &mut Me, mut work: Box<Work>) -> Result<Step> {
        let SharedState { backend, trace, .. } = &*self.shared;
        let w = &mut *work;
        let message = w.head.seq;
        let (start, command) = take_up((&w.message, &mut w.position), &mut w.trace, trace)?;
        let outcome = match command {
            None => return Ok(Step::End(work)),
            Some(Command::Receive { to, len, rank, tag }) => return self.receive(work, (to, len), (rank, tag)),
            Some(Command::Send { from, len, rank, tag }) => {
                return self.send(me, work, (start, from, len), (rank, tag));
            }
            Some(Command::Image { image, rank, tag, len, libraries, to }) => {
                let transfer = Transfer::new(&self.shared, work, (rank, tag));
                return transfer.receive_image(image, (len, libraries), to).map(|()| Step::Away);
            }
            _ if w.failure.is_some() => Ok(()),
            Some(Command::Write { to, bytes: Bytes(bytes) }) => {
                w.copies.get_or_insert_with(|| self.no_copies()).write(to, bytes);
                Ok(())
            }
            Some(Command::Read { from, len }) if w.reply.len() + len as usize <= MESSAGE_MAX => {
                return Ok(Step::Next(self.read(me, work, from, len as usize)));
            }
            Some(Command::Read { .. }) => return Err(no_room()),
            Some(Command::Launch { kernel, .. } | Command::LaunchShaped { kernel, .. })
                if !backend.has_kernel(kernel) =>
            {
                Err(no_kernel(kernel))
            }
            Some(Command::Launch { kernel, args, array }) => {
                let launch = Launch { message, kernel, args: &args.iter().collect::<Vec<_>>(), array, shape: None };
                return Ok(Step::Next(self.launch(me, work, &launch, &mut Copies::default())));
            }
            Some(Command::LaunchShaped { kernel, shape, args }) => {
                let (args, shape): (Vec<_>, _) = (args.iter().collect(), Some(shape));
                let launch = Launch { message, kernel, args: &args, array: false, shape };
                return self.launch_with_copies(me, work, &launch).map(Step::Next);
            }
            Some(Command::Wait { seq }) => return Ok(self.wait(work, seq)),
            Some(Command::Copy { to, from, len }) => {
                let copy = || backend.copy(to, from, len);
                return Ok(Step::Next(self.attempt(me, work, (Kind::Copy, len), copy).1));
            }
            Some(Command::Load { image }) => return Ok(Step::Next(self.load(me, work, image))),
            Some(Command::Move { image }) => return Ok(Step::Next(self.relocate(me, work, image))),
            Some(Command::Unload { image }) => return Ok(Step::Next(self.unload(me, work, image))),
            // No compiler with accelerator support here announces such a function.
            Some(Command::Redirect { from, .. }) => Err(Error::new(format!(
                "{from:#x} can't be called on an accelerator: declare target indirect is not supported there"
            ))),
            Some(Command::Obtain { len, exact, libraries: Bytes(libraries), taken }) => {
                let (wish, libraries) = (Wish { len, exact, taken: taken.iter().collect() }, libraries.to_vec());
                return Ok(Step::Next(self.obtain(me, work, &wish, &libraries)));
            }
            Some(Command::Avoid { taken }) => {
                backend.avoid(&mut taken.iter());
                Ok(())
            }
            Some(Command::Entry { image, size, flags, name }) => {
                backend.announce(image, Entry { name: name.text(), size, flags });
                Ok(())
            }
            Some(Command::Address { image, name }) => {
                let address = backend.address(image, &name.text());
                address.map(|address| w.reply.extend_from_slice(&address.to_le_bytes()))
            }
        };
        if let Err(e) = outcome {
            work.fail_with(&e);
        }
        Ok(Step::Next(work))
    }

    /// Makes the collected writes, unless the next command may include them. `None` if another thread executes the
    /// message, because this one goes on with bulk data.
    fn settle_copies(&self, me: &mut Me, mut work: Box<Work>) -> Option<Box<Work>> {
        let SharedState { host, backend, pool, staging, .. } = &*self.shared;
        let is_direct = |from, len| backend.direct(from, len).is_some();
        if me.receiving && host.link().has_bulk() && work.copies_long(is_direct) {
            work = pool.hand_over(work)?;
        }
        let are_taken = |work: &Work| matches!(work.next(), Some(Command::Write { .. } | Command::LaunchShaped { .. }));
        if work.copies.is_none() || are_taken(&work) {
            return Some(work);
        }
        let copies = work.copies.take()?;
        if work.failure.is_none() {
            let write = |write: &Copied| backend.write(write.at, &copies.bytes[write.bytes.clone()]);
            let written = (Kind::Write, copies.bytes.len() as u64);
            (_, work) = self.attempt(me, work, written, || copies.writes.iter().try_for_each(write));
        }
        staging.give(copies.bytes);
        Some(work)
    }

    /// Receives bulk data, unless it arrived before the message's turn.
    fn receive(&self, mut work: Box<Work>, (to, len): (u64, u64), peer: (u32, u32)) -> Result<Step> {
        let (queue, early) = (work.head.queue, work.early.take());
        let Some(early) = early else {
            // After a failure the accelerator's context may be lost, and nobody reads the data.
            let is_sound = work.failure.is_none();
            Transfer::new(&self.shared, work, peer).receive((to, len), is_sound, Completion::Collect)?;
            A::look_ahead(self, queue);
            return Ok(Step::Away);
        };
        // The message may have a buffer of its own in any case.
        self.shared.staging.end_ahead();
        let arrived = transfer::take_early(&self.shared, work, to, &early);
        A::look_ahead(self, queue);
        Ok(arrived.map_or(Step::Away, Step::Next))
    }

    /// Sends memory, through a buffer unless MPI reads it itself. If there are buffers, the queue goes on meanwhile.
    /// The command begins at `start` in the message.
    fn send(
        &self,
        me: &mut Me,
        mut work: Box<Work>,
        (start, from, len): (usize, u64, u64),
        peer: (u32, u32),
    ) -> Result<Step> {
        let SharedState { host, backend, pool, staging, .. } = &*self.shared;
        if work.failure.is_some() || backend.direct(from, len).is_some() {
            return Transfer::new(&self.shared, work, peer).send(from, len, None).map(|()| Step::Away);
        }
        // After a fault, another thread takes the command up again, since the other side waits for its data.
        let end = std::mem::replace(&mut work.position, start);
        let mut bytes = staging.take(len as usize);
        let read = || backend.read_to(from, &mut bytes).map(|()| bytes);
        let (bytes, mut work) = self.attempt(me, work, (Kind::Read, len), read);
        work.position = end;
        let mut ready = VecDeque::new();
        work.is_passed = bytes.is_some() && work.is_over() && staging.begin_ahead();
        if work.is_passed {
            self.schedule.lock().go_on(work.head, None, &mut ready);
        }
        Transfer::new(&self.shared, work, peer).send(from, len, bytes)?;
        let next = A::keep_next(me, &mut ready);
        pool.append(&mut ready);
        if next.is_some() {
            // The receiver may sleep: it does not know of this send.
            host.link().wake_driver();
        }
        Ok(next.map_or(Step::Away, Step::Next))
    }

    fn obtain(&self, me: &mut Me, work: Box<Work>, wish: &Wish, libraries: &[u8]) -> Box<Work> {
        let (SharedState { backend, host, staging, .. }, slot) = (&*self.shared, me.slot);
        let copy = |me, to, from| {
            monitor::enter(slot, MPI_CODE, false);
            let copied = host.link().copy(me, to, from, FIRST_COPY);
            monitor::enter(slot, A::LOADS_AS, false);
            copied
        };
        let obtain = || backend.obtain(wish, libraries, &copy, staging).map(|obtained| obtained.encode());
        let (obtained, _, work) = self.run(me, work, A::LOADS_AS, obtain);
        answered(work, obtained)
    }

    /// An empty list for the copies of a launch.
    fn no_copies(&self) -> Box<Copies> {
        Box::new(Copies::within(self.shared.staging.small()))
    }

    /// Launches a kernel with the collected writes before it and the reads that follow it.
    fn launch_with_copies(&self, me: &mut Me, mut work: Box<Work>, launch: &Launch<'_>) -> Result<Box<Work>> {
        let w = &mut *work;
        let mut copies = w.copies.take().unwrap_or_else(|| self.no_copies());
        let mut room = MESSAGE_MAX - w.reply.len();
        while let Some(Command::Read { from, len }) = w.next()
            && len as usize <= room
        {
            take_up((&w.message, &mut w.position), &mut w.trace, &self.shared.trace)?;
            room -= len as usize;
            copies.read(from, len as usize);
        }
        let work = self.launch(me, work, launch, &mut copies);
        self.shared.staging.give(copies.bytes);
        Ok(work)
    }

    fn launch(&self, me: &mut Me, work: Box<Work>, launch: &Launch<'_>, copies: &mut Copies) -> Box<Work> {
        let SharedState { backend, pool, trace, .. } = &*self.shared;
        pool.settle(me);
        let (outcome, ran, mut work) = self.run(me, work, launch.kernel, || backend.run(launch, copies));
        let head = work.head;
        if let (Some(message), Some(ran)) = (&mut work.trace, ran) {
            message.done(trace, head, Kind::Kernel, launch.kernel, ran);
        }
        match outcome {
            Some(Ok(())) => {
                copies.reads.iter().for_each(|r| work.reply.extend_from_slice(&copies.bytes[r.bytes.clone()]))
            }
            Some(Err(e)) => work.fail_with(&e),
            None => {}
        }
        work
    }

    fn read(&self, me: &mut Me, work: Box<Work>, from: u64, len: usize) -> Box<Work> {
        let mut bytes = Vec::new();
        let read = || self.shared.backend.read(from, len, &mut bytes).map(|()| bytes);
        let (bytes, mut work) = self.attempt(me, work, (Kind::Read, len as u64), read);
        bytes.into_iter().for_each(|bytes| work.reply.extend_from_slice(&bytes));
        work
    }

    /// Copies `bytes` bytes to, from or within the accelerator. Like a kernel, this may take long and may fault.
    /// Without a result, the message has failed.
    fn attempt<R>(
        &self,
        me: &mut Me,
        work: Box<Work>,
        (kind, bytes): (Kind, u64),
        copy: impl FnOnce() -> Result<R>,
    ) -> (Option<R>, Box<Work>) {
        let (outcome, ran, mut work) = self.run(me, work, COPY_CODE, copy);
        let head = work.head;
        match outcome {
            Some(Ok(result)) => {
                if let (Some(message), Some(ran)) = (&mut work.trace, ran) {
                    message.copied(&self.shared.trace, head, (kind, bytes), ran);
                }
                return (Some(result), work);
            }
            Some(Err(e)) => work.fail_with(&e),
            None => self.shared.backend.fault().into_iter().for_each(|fault| work.fail(fault.failure.clone())),
        }
        (None, work)
    }
}
