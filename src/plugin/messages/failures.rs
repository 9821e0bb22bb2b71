// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What has failed on one device: the device itself, messages that nobody waits for, and queues.

use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::plugin::program::ending;
use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Default)]
pub(crate) struct Failures {
    lost: AtomicBool,
    unseen: AtomicBool,
    /// `queues` is not empty; readable without the lock.
    has_queues: AtomicBool,
    /// Failures of queues, by the queues' numbers.
    queues: Mutex<Vec<(u32, Error)>, { order::LEAF }>,
}

impl Failures {
    /// Fails if the device was lost.
    pub(crate) fn alive(&self) -> Result<()> {
        if self.lost.load(Ordering::Acquire) { Err(Error::Reported) } else { Ok(()) }
    }

    /// See [`super::port::Port::lose`].
    pub(super) fn lose(&self) -> bool {
        // AcqRel: who finds the device lost also sees an earlier `fail_unseen`.
        !self.lost.swap(true, Ordering::AcqRel)
    }

    /// Notes the failure of an unawaited message.
    pub(crate) fn fail_unseen(&self) {
        self.unseen.store(true, Ordering::Relaxed);
    }

    /// True if an unawaited message failed, and no call has failed since.
    pub(crate) fn has_unseen(&self) -> bool {
        self.unseen.load(Ordering::Relaxed)
    }

    /// Notes that a call on the device fails. Ignored during process exit, when nobody looks at results.
    #[cold]
    pub(crate) fn note_failed_call(&self) {
        if ending::status().is_none() {
            self.unseen.store(false, Ordering::Relaxed);
        }
    }

    /// Stores a failure of a queue, unless one with a text is stored already.
    #[cold]
    pub(crate) fn fail(&self, queue: u32, error: Error) {
        let mut queues = self.queues.lock();
        match queues.iter_mut().find(|(id, _)| *id == queue) {
            Some((_, Error::Text(_))) => {}
            Some((_, first)) => *first = error,
            None => queues.push((queue, error)),
        }
        self.has_queues.store(true, Ordering::Relaxed);
    }

    /// Takes the first failure of a queue since the last call.
    #[inline]
    pub(crate) fn take(&self, queue: u32) -> Option<Error> {
        if !self.has_queues.load(Ordering::Relaxed) {
            return None;
        }
        let mut queues = self.queues.lock();
        let (_, error) = queues.extract_if(.., |(id, _)| *id == queue).next()?;
        self.has_queues.store(!queues.is_empty(), Ordering::Relaxed);
        Some(error)
    }

    /// Why the end of a queue fails, if it does: an unawaited message fails any queue of its device.
    pub(crate) fn take_any(&self, queue: u32) -> Option<Error> {
        self.take(queue).or_else(|| self.has_unseen().then_some(Error::Reported))
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/messages/failures.rs"]
mod tests;
