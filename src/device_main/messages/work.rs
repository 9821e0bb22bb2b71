// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A command message in execution.

use super::schedule::Item;
use super::trace::{MessageTrace, Trace};
use crate::base::limits::{LONG_COPY, LONG_STAGED_COPY, STAGED, THREADS};
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::device_main::backend::Copies;
use crate::device_main::transfers::buffer::Buffer;
use crate::link::Peer;
use crate::wire::command::{Command, Head, Operations};
use crate::wire::record::TraceEvent;
use crate::wire::reply::{self, Failure};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A message from its arrival to its reply. At any time it is in one place: on a thread, ready in the
/// pool, in the schedule, in a transfer, or in the slot of a running kernel.
pub(crate) struct Work {
    pub head: Head,
    pub message: Vec<u8>,
    /// The offset up to which the message was executed.
    pub position: usize,
    pub reply: Vec<u8>,
    /// Copies that a launch may take along; only with an accelerator.
    pub copies: Option<Box<Copies>>,
    /// The bulk data of its first command, if that arrives before the message's turn; only with an accelerator.
    pub early: Option<Arc<Early>>,
    /// Its queue has continued with the next message, although this one is not finished.
    pub is_passed: bool,
    /// If set, the rest of the message is not executed.
    pub failure: Option<Failure>,
    /// The message's trace, if it is traced. Boxed because a message is moved several times.
    pub trace: Option<Box<MessageTrace>>,
}

impl Work {
    /// Begins to execute a message; `reply` is an empty buffer.
    pub fn new(message: Vec<u8>, mut reply: Vec<u8>, trace: Option<Box<MessageTrace>>) -> Result<Box<Work>> {
        let (head, rest) = Operations::open(&message)?;
        let position = rest.position(&message);
        reply::begin_done(&mut reply, head.seq);
        Ok(Box::new(Work {
            head,
            message,
            position,
            reply,
            copies: None,
            early: None,
            is_passed: false,
            failure: None,
            trace,
        }))
    }

    /// True if the rest of the message may take long.
    pub fn may_take_long(&self) -> bool {
        if self.copies.as_ref().is_some_and(|copies| copies.bytes.len() as u64 >= LONG_STAGED_COPY) {
            return true;
        }
        let mut rest = Operations::resume(&self.message, self.position);
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

    /// The next command, if any.
    pub fn next(&self) -> Option<Command<'_>> {
        Operations::resume(&self.message, self.position).take().ok().flatten()
    }

    /// True if a long copy to, from or within an accelerator comes next, outside a launch. `is_direct` says whether MPI
    /// sends directly from an address.
    pub fn copies_long(&self, is_direct: impl Fn(u64, u64) -> bool) -> bool {
        match (&self.copies, self.next()) {
            (Some(_), Some(Command::LaunchShaped { .. })) => false,
            (Some(copies), _) => copies.bytes.len() as u64 >= LONG_STAGED_COPY,
            (None, Some(Command::Send { from, len, .. })) => len >= LONG_STAGED_COPY && !is_direct(from, len),
            (None, Some(Command::Copy { len, .. })) => len >= LONG_COPY,
            (None, _) => false,
        }
    }

    /// The peer, address and length of the bulk data with which the message begins, if it may be received before the
    /// message's turn and is not being received yet.
    pub fn early_data(&self) -> Option<(Peer, u64, u64)> {
        match self.next()? {
            Command::Receive { to, len, rank, tag } if self.early.is_none() && len <= STAGED => {
                Some((Peer { rank: rank as usize, tag }, to, len))
            }
            _ => None,
        }
    }

    /// True if the next command moves bulk data.
    pub fn moves_bulk(&self) -> bool {
        matches!(self.next(), Some(Command::Receive { .. } | Command::Send { .. }))
    }

    /// True if no command is left.
    pub fn is_over(&self) -> bool {
        self.next().is_none()
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

/// Takes the next command of a message that was executed up to `position`. Also returns the command's offset.
#[inline]
pub(crate) fn take_up<'a>(
    (message, position): (&'a [u8], &mut usize),
    traced: &mut Option<Box<MessageTrace>>,
    trace: &Trace,
) -> Result<(usize, Option<Command<'a>>)> {
    let mut rest = Operations::resume(message, *position);
    let command = rest.take()?;
    let start = std::mem::replace(position, rest.position(message));
    if let (Some(traced), Some(command)) = (traced, &command) {
        traced.take_up(trace, command);
    }
    Ok((start, command))
}

/// The result of a transfer, and its buffer.
type Data = (Result<()>, Buffer);

/// Bulk data that is received before its message's turn.
pub(crate) struct Early {
    pub(crate) peer: Peer,
    pub(crate) len: u64,
    /// The transfer's trace event, if it is traced.
    pub(crate) event: Option<TraceEvent>,
    state: Mutex<EarlyState, { order::LEAF }>,
}

enum EarlyState {
    InFlight,
    Arrived(Data),
    /// It is the turn of this message, which writes the data to this address.
    Awaited(Box<Work>, u64),
}

impl Early {
    pub(crate) fn new(peer: Peer, len: u64, event: Option<TraceEvent>) -> Arc<Early> {
        Arc::new(Early { peer, len, event, state: Mutex::new(EarlyState::InFlight) })
    }

    /// The data has arrived, or the peer has none. If it is the message's turn, returns the message, the address to
    /// write to, and the data.
    pub(crate) fn arrived(&self, data: Data) -> Option<(Box<Work>, u64, Data)> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, EarlyState::InFlight) {
            EarlyState::Awaited(work, to) => Some((work, to, data)),
            _ => {
                *state = EarlyState::Arrived(data);
                None
            }
        }
    }

    /// It is the message's turn. Returns the message with the data if the data has arrived; otherwise
    /// [`Early::arrived`] returns them later.
    pub(crate) fn take(&self, work: Box<Work>, to: u64) -> Option<(Box<Work>, Data)> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, EarlyState::InFlight) {
            EarlyState::Arrived(data) => Some((work, data)),
            _ => {
                *state = EarlyState::Awaited(work, to);
                None
            }
        }
    }
}

/// The messages whose kernels run, by slot. A swap with null takes a message out, so that only one thread
/// gets it: the kernel's thread, or the thread that fails all messages after a crash.
pub(crate) struct Running([AtomicPtr<Work>; THREADS]);

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
