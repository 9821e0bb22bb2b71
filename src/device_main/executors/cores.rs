// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Executes commands on the processor's own cores, which access the device's memory themselves.

use super::{no_kernel, no_room};
use crate::base::limits::LONG_COPY;
use crate::base::{Error, Result, clock};
use crate::device_main::backend::cpu::Cpu;
use crate::device_main::backend::{Backend, Launch};
use crate::device_main::messages::interpreter::{Execute, Interpreter, Step};
use crate::device_main::messages::work::{Work, take_up};
use crate::device_main::shared_state::SharedState;
use crate::device_main::threads::pool::Me;
use crate::device_main::transfers::completion::Completion;
use crate::device_main::transfers::transfer::Transfer;
use crate::wire::command::{Args, Command};
use crate::wire::record::Kind;
use crate::wire::{Bytes, MESSAGE_MAX};
use std::collections::VecDeque;

/// Up to this many arguments of a kernel are copied without a heap allocation.
const FEW_ARGS: usize = 16;

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

impl Execute for Cpu {
    const KEEPS_ROOTS: bool = true;

    #[inline]
    fn step(interpreter: &Interpreter<Cpu>, me: &mut Me, mut work: Box<Work>) -> Result<Step> {
        let shared = &*interpreter.shared;
        let SharedState { backend, trace, .. } = shared;
        let w = &mut *work;
        let message = w.head.seq;
        let (_, command) = take_up((&w.message, &mut w.position), &mut w.trace, trace)?;
        let outcome = match command {
            None => return Ok(Step::End(work)),
            Some(Command::Receive { to, len, rank, tag }) => {
                let transfer = Transfer::new(shared, work, (rank, tag));
                return transfer.receive((to, len), true, Completion::Write).map(|()| Step::Away);
            }
            Some(Command::Send { from, len, rank, tag }) => {
                return Transfer::new(shared, work, (rank, tag)).send(from, len, None).map(|()| Step::Away);
            }
            Some(Command::Image { image, rank, tag, len, libraries, to }) => {
                let transfer = Transfer::new(shared, work, (rank, tag));
                return transfer.receive_image(image, (len, libraries), to).map(|()| Step::Away);
            }
            _ if w.failure.is_some() => Ok(()),
            Some(Command::Write { to, bytes: Bytes(bytes) }) => backend.write(to, bytes),
            Some(Command::Read { from, len }) if w.reply.len() + len as usize <= MESSAGE_MAX => {
                backend.read(from, len as usize, &mut w.reply)
            }
            Some(Command::Read { .. }) => return Err(no_room()),
            Some(Command::Launch { kernel, .. }) if !backend.has_kernel(kernel) => Err(no_kernel(kernel)),
            Some(Command::Launch { kernel, args, array }) => {
                let (mut few, mut many) = ([0; FEW_ARGS], Vec::new());
                let args = copied(args, &mut few, &mut many);
                let launch = Launch { message, kernel, args, array, shape: None };
                return Ok(Step::Next(interpreter.launch(me, work, &launch)));
            }
            Some(Command::Wait { seq }) => return Ok(interpreter.wait(work, seq)),
            Some(Command::Copy { to, from, len }) => {
                return Ok(Step::Next(interpreter.copy(me, work, (to, from, len))));
            }
            Some(Command::Load { image }) => return Ok(Step::Next(interpreter.load(me, work, image))),
            Some(Command::Move { image }) => return Ok(Step::Next(interpreter.relocate(me, work, image))),
            Some(Command::Unload { image }) => return Ok(Step::Next(interpreter.unload(me, work, image))),
            Some(Command::Redirect { from, to }) => backend.redirect(from, to),
            Some(_) => return Err(Error::new("this device is no accelerator")),
        };
        if let Err(e) = outcome {
            work.fail_with(&e);
        }
        Ok(Step::Next(work))
    }

    #[inline]
    fn look_ahead(_: &Interpreter<Cpu>, _: u32) {}

    #[inline]
    fn keep_next(_: &Me, _: &mut VecDeque<Box<Work>>) -> Option<Box<Work>> {
        None
    }
}

impl Interpreter<Cpu> {
    #[inline]
    fn launch(&self, me: &mut Me, work: Box<Work>, launch: &Launch<'_>) -> Box<Work> {
        let SharedState { backend, pool, trace, .. } = &*self.shared;
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

    /// Copies within the device.
    fn copy(&self, me: &mut Me, mut work: Box<Work>, (to, from, len): (u64, u64, u64)) -> Box<Work> {
        let SharedState { backend, pool, trace, .. } = &*self.shared;
        let begin = work.trace.as_mut().map(|message| message.start());
        let copy = || backend.copy(to, from, len);
        if let Err(e) = if len < LONG_COPY { copy() } else { pool.long(me, copy) } {
            work.fail_with(&e);
        }
        let (head, is_sound) = (work.head, work.failure.is_none());
        if let (Some(message), Some(begin)) = (&mut work.trace, begin.filter(|_| is_sound)) {
            message.copied(trace, head, (Kind::Copy, len), (begin, clock::now()));
        }
        work
    }
}
