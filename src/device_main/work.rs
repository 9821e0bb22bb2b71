// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A command message in execution.

use super::backend::Copies;
use super::schedule::Item;
use super::trace::MessageTrace;
use crate::base::limits::THREADS;
use crate::base::{Error, Result};
use crate::wire::command::{Command, Commands, Head};
use crate::wire::reply::{self, Failure};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// From this size on, copies within the device are long actions.
pub(super) const LONG_COPY: u64 = 1 << 20;

/// A message from its arrival to its reply. At any time it is in one place: on a thread, ready in the
/// pool, in the schedule, in a transfer, or in the slot of a running kernel.
pub(super) struct Work {
    pub head: Head,
    pub message: Vec<u8>,
    /// How much of the message was executed.
    pub position: usize,
    pub reply: Vec<u8>,
    /// Copies that a launch may take along, of an accelerator only.
    pub copies: Option<Box<Copies>>,
    /// If set, no more of the message is executed.
    pub failure: Option<Failure>,
    /// What is recorded of the message, if anything. Boxed because a message is moved several times.
    pub trace: Option<Box<MessageTrace>>,
}

impl Work {
    /// Begins to execute a message; `reply` is an empty buffer.
    pub fn new(message: Vec<u8>, mut reply: Vec<u8>, trace: Option<Box<MessageTrace>>) -> Result<Box<Work>> {
        let (head, rest) = Commands::open(&message)?;
        let position = rest.position(&message);
        reply::begin_done(&mut reply, head.seq);
        Ok(Box::new(Work { head, message, position, reply, copies: None, failure: None, trace }))
    }

    /// True if the rest of the message may take long.
    pub fn may_take_long(&self) -> bool {
        if self.copies.as_ref().is_some_and(|copies| copies.bytes.len() as u64 >= LONG_COPY) {
            return true;
        }
        let mut rest = Commands::resume(&self.message, self.position);
        while let Ok(Some(command)) = rest.take() {
            match command {
                Command::Launch { .. }
                | Command::LaunchShaped { .. }
                | Command::Load { .. }
                | Command::Move { .. }
                | Command::Unload { .. }
                | Command::Obtain { .. } => return true,
                Command::Copy { len, .. } if len >= LONG_COPY => return true,
                _ => {}
            }
        }
        false
    }

    /// Stops the execution of the message; only the first reason counts.
    pub fn fail_with(&mut self, error: &Error) {
        self.failure.get_or_insert_with(|| Failure { text: error.to_string(), ..Failure::default() });
    }

    pub fn take_reply(&mut self) -> Vec<u8> {
        if let Some(failure) = &self.failure {
            reply::failed(&mut self.reply, self.head.seq, failure);
        }
        std::mem::take(&mut self.reply)
    }
}

/// The messages whose kernels run, by slot. A swap with null takes a message out, so that only one thread
/// gets it: the kernel's own, or the one that fails all messages after a crash.
pub(super) struct Running([AtomicPtr<Work>; THREADS]);

impl Default for Running {
    fn default() -> Running {
        Running([const { AtomicPtr::new(ptr::null_mut()) }; THREADS])
    }
}

impl Running {
    #[inline]
    pub fn enter(&self, slot: usize, work: Box<Work>) {
        // Release: `take_all` may take it on another thread.
        self.0[slot].store(Box::into_raw(work), Ordering::Release);
    }

    /// Removes the message of a kernel that has returned; `None` if another thread took it.
    #[inline]
    pub fn leave(&self, slot: usize) -> Option<Box<Work>> {
        let work = self.0[slot].swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: `enter` made it from a box of this type; after the swap only this thread has it.
        (!work.is_null()).then(|| unsafe { Box::from_raw(work) })
    }

    /// Takes all messages away from their threads, with their slots.
    pub fn take_all(&self) -> Vec<(Box<Work>, usize)> {
        (0..THREADS).filter_map(|slot| Some((self.leave(slot)?, slot))).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|work| work.load(Ordering::Relaxed).is_null())
    }
}

impl Item for Box<Work> {
    fn head(&self) -> Head {
        self.head
    }

    fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
    }
}
