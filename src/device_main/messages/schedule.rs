// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The order of messages: sequential within a queue; messages of different queues are independent unless one
//! waits for another. No I/O and no threads here.

use crate::wire::command::Head;
use crate::wire::reply::Failure;
use std::collections::{HashMap, VecDeque};

/// A message that the schedule can order.
pub(crate) trait Item {
    fn head(&self) -> Head;
    /// Makes the message do nothing, because an earlier one of its queue failed.
    fn fail(&mut self, failure: Failure);
}

/// Received, unfinished messages.
pub(crate) struct Schedule<T> {
    /// Queues that are busy, or that failed and have not been used afresh since. They are few.
    lanes: Vec<Lane<T>>,
    /// Numbers of unfinished messages, ascending.
    live: VecDeque<u64>,
    /// Items that wait for the message with this number.
    waiting: HashMap<u64, Vec<T>>,
    /// A message has arrived.
    used: bool,
}

struct Lane<T> {
    queue: u32,
    /// One message of the queue is being executed.
    busy: bool,
    todo: VecDeque<T>,
    failure: Option<Failure>,
}

impl<T: Item> Default for Schedule<T> {
    fn default() -> Self {
        Schedule { lanes: Vec::new(), live: VecDeque::new(), waiting: HashMap::new(), used: false }
    }
}

impl<T: Item> Schedule<T> {
    /// Adds a message; returns it if it may be executed now.
    pub fn arrive(&mut self, mut item: T) -> Option<T> {
        let Head { seq, queue, fresh, .. } = item.head();
        self.live.push_back(seq);
        self.used = true;
        let Some(lane) = self.lanes.iter_mut().find(|l| l.queue == queue) else {
            self.lanes.push(Lane { queue, busy: true, todo: VecDeque::new(), failure: None });
            return Some(item);
        };
        if lane.busy {
            lane.todo.push_back(item);
            return None;
        }
        // The queue of an idle lane has failed.
        lane.busy = true;
        if fresh {
            lane.failure = None;
        } else if let Some(failure) = &lane.failure {
            item.fail(failure.clone());
        }
        Some(item)
    }

    pub fn is_unused(&self) -> bool {
        !self.used
    }

    /// True if no received message is unfinished.
    pub fn is_idle(&self) -> bool {
        self.live.is_empty()
    }

    /// The number of messages that are being executed, or are ready.
    pub fn executing(&self) -> usize {
        let queued: usize = self.lanes.iter().map(|lane| lane.todo.len()).sum();
        let waiting: usize = self.waiting.values().map(Vec::len).sum();
        self.live.len() - queued - waiting
    }

    /// The messages of a queue that wait for their turn, the next one first.
    pub fn waiting_in(&mut self, queue: u32) -> impl Iterator<Item = &mut T> {
        self.lanes.iter_mut().filter(move |l| l.queue == queue).flat_map(|l| &mut l.todo)
    }

    /// Removes an executed message; appends messages that may now be executed to `ready`.
    pub fn finish(&mut self, head: Head, failure: Option<&Failure>, ready: &mut VecDeque<T>) {
        self.go_on(head, failure, ready);
        self.end(head, ready);
    }

    /// Lets the queue of a message go on: appends the next message to `ready`. Messages that wait for this one go on
    /// waiting until [`Schedule::end`].
    pub fn go_on(&mut self, head: Head, failure: Option<&Failure>, ready: &mut VecDeque<T>) {
        if let Some(i) = self.lanes.iter().position(|l| l.queue == head.queue) {
            let lane = &mut self.lanes[i];
            if lane.failure.is_none() {
                lane.failure = failure.cloned();
            }
            match lane.todo.pop_front() {
                Some(mut next) => {
                    match &lane.failure {
                        Some(_) if next.head().fresh => lane.failure = None,
                        Some(failure) => next.fail(failure.clone()),
                        None => {}
                    }
                    ready.push_back(next);
                }
                None if lane.failure.is_some() => lane.busy = false,
                None => {
                    self.lanes.swap_remove(i);
                }
            }
        }
    }

    /// Removes a message whose queue has gone on; appends messages that waited for it to `ready`.
    pub fn end(&mut self, head: Head, ready: &mut VecDeque<T>) {
        if let Ok(i) = self.live.binary_search(&head.seq) {
            self.live.remove(i);
        }
        if !self.waiting.is_empty()
            && let Some(items) = self.waiting.remove(&head.seq)
        {
            ready.extend(items);
        }
    }

    /// Makes a message wait for message `seq`; returns it if there is nothing to wait for.
    pub fn wait(&mut self, item: T, seq: u64) -> Option<T> {
        if self.live.binary_search(&seq).is_err() || seq >= item.head().seq {
            return Some(item);
        }
        self.waiting.entry(seq).or_default().push(item);
        None
    }

    /// Takes all waiting items, because the device is lost.
    pub fn drain(&mut self) -> Vec<T> {
        let waiting = self.waiting.drain().flat_map(|(_, items)| items);
        waiting.chain(self.lanes.drain(..).flat_map(|l| l.todo)).collect()
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/messages/schedule.rs"]
mod tests;
