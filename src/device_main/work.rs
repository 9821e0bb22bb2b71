// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! One command message being executed.

use super::schedule::Item;
use super::watch::Notes;
use crate::base::limits::THREADS;
use crate::base::{Error, Result};
use crate::wire::command::{Command, Commands, Head};
use crate::wire::reply::{self, Failure};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Copies within the device from this size on are something long.
pub const LONG_COPY: u64 = 1 << 20;

/// See the module.
pub struct Work {
    /// What stands in front of the message.
    pub head: Head,
    /// The message.
    pub message: Vec<u8>,
    /// How far it was executed.
    pub position: usize,
    /// The reply so far.
    pub reply: Vec<u8>,
    /// Why it failed: nothing more of it is executed.
    pub failure: Option<Failure>,
    /// What is written down of it, if anything is. Boxed: a message is moved several times.
    pub notes: Option<Box<Notes>>,
}

impl Work {
    /// Begins to execute a message; `reply` is an empty buffer.
    ///
    /// # Errors
    /// No command message.
    pub fn new(message: Vec<u8>, mut reply: Vec<u8>, notes: Option<Box<Notes>>) -> Result<Box<Work>> {
        let (head, rest) = Commands::open(&message)?;
        let position = rest.position(&message);
        reply::begin_done(&mut reply, head.seq);
        Ok(Box::new(Work { head, message, position, reply, failure: None, notes }))
    }

    /// True if what is left of the message may take long.
    pub fn may_take_long(&self) -> bool {
        let mut rest = Commands::resume(&self.message, self.position);
        while let Ok(Some(command)) = rest.take() {
            match command {
                Command::Launch { .. } | Command::Load { .. } | Command::Move { .. } | Command::Unload { .. } => {
                    return true;
                }
                Command::Copy { len, .. } if len >= LONG_COPY => return true,
                _ => {}
            }
        }
        false
    }

    /// Nothing more of the message is executed; the first reason stays.
    pub fn fail_with(&mut self, error: &Error) {
        self.failure.get_or_insert_with(|| Failure { text: error.to_string(), ..Failure::default() });
    }

    /// The message to answer with.
    pub fn take_reply(&mut self) -> Vec<u8> {
        if let Some(failure) = &self.failure {
            reply::failed(&mut self.reply, self.head.seq, failure);
        }
        std::mem::take(&mut self.reply)
    }
}

/// The messages whose kernels run, by the slots of their threads.
pub struct Running([AtomicPtr<Work>; THREADS]);

impl Default for Running {
    fn default() -> Running {
        Running([const { AtomicPtr::new(ptr::null_mut()) }; THREADS])
    }
}

impl Running {
    /// A kernel of `work` starts in this slot.
    #[inline]
    pub fn enter(&self, slot: usize, work: Box<Work>) {
        self.0[slot].store(Box::into_raw(work), Ordering::Relaxed);
    }

    /// It has returned; none if it was taken away meanwhile.
    #[inline]
    pub fn leave(&self, slot: usize) -> Option<Box<Work>> {
        let work = self.0[slot].swap(ptr::null_mut(), Ordering::AcqRel);
        // SAFETY: made by `enter` from a box; the swap makes it ours alone.
        (!work.is_null()).then(|| unsafe { Box::from_raw(work) })
    }

    /// Takes all of them away from their threads, with their slots.
    pub fn take_all(&self) -> Vec<(Box<Work>, usize)> {
        (0..THREADS).filter_map(|slot| Some((self.leave(slot)?, slot))).collect()
    }

    /// True if there is none.
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
