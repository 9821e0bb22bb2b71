// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Runs what may take long or crash as a part of a message: kernels, copies of accelerators, and the loading of images.

use super::backend::{Backend, Copied, Copies, FIRST_COPY, Launch, Wish};
use super::buffer::Buffer;
use super::crash_board::{COPY_CODE, MPI_CODE};
use super::host::park;
use super::output;
use super::parts::Parts;
use super::pool::Me;
use super::schedule::Item as _;
use super::work::{Running, Work};
use crate::base::limits::LONG_COPY;
use crate::base::target::LargeCopies;
use crate::base::{Result, clock};
use crate::wire::MESSAGE_MAX;
use crate::wire::command::{Command, Obtained, Operations};
use crate::wire::record::Kind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::time::Duration;

pub(super) struct Runner<B> {
    parts: Arc<Parts<B>>,
    /// The messages that are here now.
    pub running: Running,
    /// How long a kernel may run, if that is limited.
    pub kernel_time: Option<Duration>,
    /// After a fault, nothing is executed any more.
    lost: AtomicBool,
}

impl<B: Backend> Runner<B> {
    pub fn new(parts: Arc<Parts<B>>, kernel_time: Option<Duration>) -> Runner<B> {
        Runner { parts, running: Running::default(), kernel_time, lost: AtomicBool::new(false) }
    }

    #[inline]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// From now on nothing is executed; returns false if that was so before.
    pub fn lose(&self) -> bool {
        !self.lost.swap(true, Ordering::AcqRel)
    }

    /// Runs a kernel, or what a number of the crash board stands for, as a part of a message; if it crashes, another thread
    /// fails the message. Runs nothing if the device is lost. Returns when the code ran, too, if the message is traced.
    fn run<R>(
        &self,
        me: &mut Me,
        mut work: Box<Work>,
        kernel: u64,
        code: impl FnOnce() -> R,
    ) -> (Option<R>, Option<(u64, u64)>, Box<Work>) {
        let Parts { backend, pool, .. } = &*self.parts;
        let begin = work.trace.as_mut().map(|message| message.start());
        let slot = me.slot;
        self.running.enter(slot, work);
        backend.enter(slot, kernel, self.kernel_time.is_some());
        pool.long(me, || {
            // Pairs with `Interpreter::give_up`: either that finds this code, or this thread sees `lost`.
            fence(Ordering::SeqCst);
            let outcome = (!self.is_lost()).then(code);
            let ran = begin.map(|begin| (begin, clock::now()));
            if outcome.is_some() {
                output::flush_stdio();
            }
            backend.leave(slot);
            // None if other code crashed: the host then knows that this one failed too. The receiver must not
            // stop, and this thread may become the receiver again after this.
            let Some(work) = self.running.leave(slot) else { park() };
            (outcome, ran, work)
        })
    }

    pub fn obtain(&self, me: &mut Me, work: Box<Work>, wish: &Wish, libraries: &[u8]) -> Box<Work> {
        let (Parts { backend, host, staging, .. }, slot) = (&*self.parts, me.slot);
        let obtain = || {
            let accelerator = backend.accelerator()?;
            let arena = accelerator.obtain(wish, libraries)?;
            let copy = |me, to, from| {
                backend.enter(slot, MPI_CODE, false);
                let copied = host.link().copy(me, to, from, FIRST_COPY);
                backend.enter(slot, B::LOADS_AS, false);
                copied
            };
            let is_direct = accelerator.try_direct(&copy)?;
            let large = match (is_direct, staging.pin(accelerator, is_direct)) {
                (true, _) => LargeCopies::Direct,
                (false, true) => LargeCopies::Pinned,
                (false, false) => LargeCopies::Buffered,
            };
            let (target, description) = (backend.target(), accelerator.description());
            Ok(Obtained { arena, target, description, large }.encode())
        };
        let (obtained, _, work) = self.run(me, work, B::LOADS_AS, obtain);
        answered(work, obtained)
    }

    pub fn load(&self, me: &mut Me, work: Box<Work>, image: u32) -> Box<Work> {
        let Parts { backend, loader, trace, .. } = &*self.parts;
        let (base, ran, mut work) = self.run(me, work, B::LOADS_AS, || loader.load(backend, image));
        let head = work.head;
        if let (Some(message), Some(ran)) = (&mut work.trace, ran) {
            message.done(trace, head, Kind::Load, u64::from(image), ran);
        }
        answered(work, base.map(|base| base.map(u64::to_le_bytes)))
    }

    pub fn relocate(&self, me: &mut Me, work: Box<Work>, image: u32) -> Box<Work> {
        let Parts { backend, loader, .. } = &*self.parts;
        let (base, _, work) = self.run(me, work, B::LOADS_AS, || loader.relocate(backend, image));
        answered(work, base.map(|base| base.map(u64::to_le_bytes)))
    }

    pub fn unload(&self, me: &mut Me, work: Box<Work>, image: u32) -> Box<Work> {
        let Parts { backend, loader, .. } = &*self.parts;
        self.run(me, work, B::LOADS_AS, || loader.unload(backend, image)).2
    }

    pub fn launch(&self, me: &mut Me, work: Box<Work>, launch: &Launch<'_>) -> Box<Work> {
        let Parts { backend, pool, trace, .. } = &*self.parts;
        pool.settle(me);
        let (outcome, ran, mut work) = self.run(me, work, launch.kernel, || backend.run(launch));
        let head = work.head;
        if let (Some(message), Some(ran)) = (&mut work.trace, ran) {
            for exchange in backend.exchanges(me.slot) {
                message.exchanged(trace, head, launch.kernel, exchange);
            }
            message.done(trace, head, Kind::Kernel, launch.kernel, ran);
        }
        if let Some(Err(e)) = outcome {
            work.fail_with(&e);
        }
        work
    }

    /// For the copies that a launch takes along.
    pub fn no_copies(&self) -> Box<Copies> {
        Box::new(Copies::within(self.parts.staging.small()))
    }

    /// Launches a kernel with the writes before it, which were collected, and the reads that follow it.
    pub fn launch_with(&self, me: &mut Me, mut work: Box<Work>, launch: &Launch<'_>) -> Result<Box<Work>> {
        let Parts { backend, pool, trace, .. } = &*self.parts;
        pool.settle(me);
        let w = &mut *work;
        let (mut copies, mut room) = (w.copies.take().unwrap_or_else(|| self.no_copies()), MESSAGE_MAX - w.reply.len());
        let mut rest = Operations::resume(&w.message, w.position);
        while let Some(command @ Command::Read { from, len }) = rest.take()?
            && len as usize <= room
        {
            room -= len as usize;
            copies.read(from, len as usize);
            w.position = rest.position(&w.message);
            if let Some(message) = &mut w.trace {
                message.take_up(trace, &command);
            }
        }
        let (outcome, ran, mut work) = self.run(me, work, launch.kernel, || backend.run_with(launch, &mut copies));
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
        self.parts.staging.give(copies.bytes);
        Ok(work)
    }

    /// Copies within the device.
    pub fn copy(&self, me: &mut Me, mut work: Box<Work>, (to, from, len): (u64, u64, u64)) -> Box<Work> {
        let Parts { backend, pool, trace, .. } = &*self.parts;
        let copy = || backend.copy(to, from, len);
        if B::IS_ACCELERATOR {
            return self.attempt(me, work, (Kind::Copy, len), copy).1;
        }
        let begin = work.trace.as_mut().map(|message| message.start());
        if let Err(e) = if len < LONG_COPY { copy() } else { pool.long(me, copy) } {
            work.fail_with(&e);
        }
        let (head, is_sound) = (work.head, work.failure.is_none());
        if let (Some(message), Some(begin)) = (&mut work.trace, begin.filter(|_| is_sound)) {
            message.copied(trace, head, (Kind::Copy, len), (begin, clock::now()));
        }
        work
    }

    /// Reads memory of an accelerator.
    pub fn read(&self, me: &mut Me, work: Box<Work>, from: u64, len: usize) -> Box<Work> {
        let mut bytes = Vec::new();
        let read = || self.parts.backend.read(from, len, &mut bytes).map(|()| bytes);
        let (bytes, mut work) = self.attempt(me, work, (Kind::Read, len as u64), read);
        bytes.into_iter().for_each(|bytes| work.reply.extend_from_slice(&bytes));
        work
    }

    /// Reads memory of an accelerator, to be sent by the command that begins at `start` in the message. After a fault,
    /// another thread takes that command up again, since the other side waits for its data.
    pub fn read_ahead(
        &self,
        me: &mut Me,
        mut work: Box<Work>,
        (start, from, len): (usize, u64, u64),
    ) -> (Option<Buffer>, Box<Work>) {
        let end = std::mem::replace(&mut work.position, start);
        let mut bytes = self.parts.staging.take(len as usize);
        let read = || self.parts.backend.read_to(from, &mut bytes).map(|()| bytes);
        let (bytes, mut work) = self.attempt(me, work, (Kind::Read, len), read);
        work.position = end;
        (bytes, work)
    }

    /// Copies `bytes` bytes to, from or within an accelerator. That may take long and may fault, as a kernel may. Without a
    /// result, the message has failed.
    fn attempt<R>(
        &self,
        me: &mut Me,
        work: Box<Work>,
        (kind, bytes): (Kind, u64),
        copy: impl FnOnce() -> Result<R>,
    ) -> (Option<R>, Box<Work>) {
        let (outcome, ran, mut work) = self.run(me, work, COPY_CODE, copy);
        let head = work.head;
        let result = match outcome {
            Some(Ok(result)) => {
                if let (Some(message), Some(ran)) = (&mut work.trace, ran) {
                    message.copied(&self.parts.trace, head, (kind, bytes), ran);
                }
                Some(result)
            }
            Some(Err(e)) => {
                work.fail_with(&e);
                None
            }
            None => {
                self.parts.backend.fault().into_iter().for_each(|fault| work.fail(fault.failure.clone()));
                None
            }
        };
        (result, work)
    }

    /// Makes the collected writes, unless the next command may take them along.
    pub fn settle_writes(&self, me: &mut Me, mut work: Box<Work>) -> Result<Box<Work>> {
        let next = Operations::resume(&work.message, work.position).take()?;
        if matches!(next, Some(Command::Write { .. } | Command::LaunchShaped { .. })) {
            return Ok(work);
        }
        let Some(copies) = work.copies.take() else { return Ok(work) };
        if work.failure.is_none() {
            let write = |write: &Copied| self.parts.backend.write(write.at, &copies.bytes[write.bytes.clone()]);
            let written = (Kind::Write, copies.bytes.len() as u64);
            (_, work) = self.attempt(me, work, written, || copies.writes.iter().try_for_each(write));
        }
        self.parts.staging.give(copies.bytes);
        Ok(work)
    }
}

/// Ends a command whose result the reply carries, if it was executed.
fn answered(mut work: Box<Work>, result: Option<Result<impl AsRef<[u8]>>>) -> Box<Work> {
    match result {
        Some(Ok(bytes)) => work.reply.extend_from_slice(bytes.as_ref()),
        Some(Err(e)) => work.fail_with(&e),
        None => {}
    }
    work
}
