// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A queue of messages between the threads of a device, whose length is known without its lock.

use crate::base::lock::{Mutex, order};
use crate::device_main::messages::work::Work;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Default)]
pub(super) struct WorkQueue {
    works: Mutex<VecDeque<Box<Work>>, { order::LEAF }>,
    len: AtomicUsize,
}

impl WorkQueue {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::SeqCst) == 0
    }

    pub fn push(&self, work: Box<Work>) {
        self.change(|works| works.push_back(work));
    }

    pub fn pop(&self) -> Option<Box<Work>> {
        if self.is_empty() { None } else { self.change(VecDeque::pop_front) }
    }

    pub fn change<R>(&self, change: impl FnOnce(&mut VecDeque<Box<Work>>) -> R) -> R {
        let mut works = self.works.lock();
        let result = change(&mut works);
        // SeqCst pairs with `ReceiverToken::rest`: the watching thread must not sleep while there is work.
        self.len.store(works.len(), Ordering::SeqCst);
        result
    }

    /// Keeps the queue empty while the value lives; `None` if it is not empty, or in use.
    pub fn hold_empty(&self) -> Option<impl Sized> {
        self.works.try_hold().filter(|works| works.is_empty())
    }
}
