// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The order of messages: sequential within a queue; those of different queues are independent unless
//! one waits for another. No I/O and no threads here.

use crate::wire::command::Head;
use crate::wire::reply::Failure;
use std::collections::{HashMap, VecDeque};

/// A message that the schedule can order.
pub(super) trait Item {
    fn head(&self) -> Head;
    /// The message must do nothing, because an earlier one of its queue failed.
    fn fail(&mut self, failure: Failure);
}

/// Received, unfinished messages.
pub(super) struct Schedule<T> {
    /// Queues that are busy, or that failed and were not used afresh since. They are few.
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
        // An idle lane is one whose queue failed.
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

    /// Removes an executed message; appends to `ready` those that may be executed now.
    pub fn finish(&mut self, head: Head, failure: Option<&Failure>, ready: &mut VecDeque<T>) {
        if let Ok(i) = self.live.binary_search(&head.seq) {
            self.live.remove(i);
        }
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
        if !self.waiting.is_empty()
            && let Some(items) = self.waiting.remove(&head.seq)
        {
            ready.extend(items);
        }
    }

    /// Has a message wait for message `seq`; returns it if there is nothing to wait for.
    pub fn wait(&mut self, item: T, seq: u64) -> Option<T> {
        if self.live.binary_search(&seq).is_err() || seq >= item.head().seq {
            return Some(item);
        }
        self.waiting.entry(seq).or_default().push(item);
        None
    }

    /// Takes all items that wait: the device is lost.
    pub fn drain(&mut self) -> Vec<T> {
        let waiting = self.waiting.drain().flat_map(|(_, items)| items);
        waiting.chain(self.lanes.drain(..).flat_map(|l| l.todo)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Debug)]
    struct Message {
        head: Head,
        wait: Option<u64>,
        failed: bool,
    }

    impl Item for Message {
        fn head(&self) -> Head {
            self.head
        }
        fn fail(&mut self, _: Failure) {
            self.failed = true;
        }
    }

    fn message(seq: u64, queue: u32, fresh: bool) -> Message {
        Message { head: Head { seq, queue, fresh, core: 0 }, wait: None, failed: false }
    }

    #[test]
    fn a_failed_queue_stays_failed_until_it_is_used_anew() {
        let mut s = Schedule::default();
        let mut ready = VecDeque::new();
        let failure = Failure::default();
        let first = s.arrive(message(1, 7, true)).unwrap();
        assert!(s.arrive(message(2, 7, false)).is_none());
        s.finish(first.head, Some(&failure), &mut ready);
        let second = ready.pop_front().unwrap();
        assert!(second.failed);
        s.finish(second.head, Some(&failure), &mut ready);
        let third = s.arrive(message(3, 7, false)).unwrap();
        assert!(third.failed);
        s.finish(third.head, Some(&failure), &mut ready);
        assert!(!s.arrive(message(4, 7, true)).unwrap().failed);
        assert!(!s.arrive(message(5, 8, true)).unwrap().failed);
    }

    #[test]
    fn waiting_for_what_is_over_or_to_come_does_not_wait() {
        let mut s = Schedule::default();
        let m = s.arrive(message(5, 1, true)).unwrap();
        let m = s.wait(m, 4).unwrap();
        let m = s.wait(m, 5).unwrap();
        assert!(s.wait(m, 6).is_some());
    }

    proptest! {
        /// Every message is executed exactly once, after its predecessor and after what it waits for.
        #[test]
        fn everything_is_executed_once_and_in_order(
            plan in prop::collection::vec((0u32..5, prop::option::of(1u64..40)), 1..60),
            picks in prop::collection::vec(any::<prop::sample::Index>(), 400),
        ) {
            let mut picks = picks.into_iter().cycle();
            let mut s = Schedule::default();
            let mut ready: VecDeque<Message> = VecDeque::new();
            let mut done: Vec<Head> = Vec::new();
            let mut arrivals = plan.iter().enumerate().map(|(i, &(queue, back))| {
                let seq = i as u64 + 1;
                Message { wait: back.map(|b| seq.saturating_sub(b)), ..message(seq, queue, false) }
            }).peekable();
            let total = plan.len();
            while done.len() < total {
                let n = ready.len() + usize::from(arrivals.peek().is_some());
                prop_assert!(n > 0, "stuck after {:?}", done);
                let pick = picks.next().unwrap().index(n);
                if pick == ready.len() {
                    ready.extend(s.arrive(arrivals.next().unwrap()));
                    continue;
                }
                let mut m = ready.remove(pick).unwrap();
                if let Some(seq) = m.wait.take() {
                    let Some(back) = s.wait(m, seq) else { continue };
                    prop_assert!(seq == 0 || done.iter().any(|h| h.seq == seq));
                    m = back;
                }
                let earlier = plan.iter().enumerate().filter(|(i, p)| p.0 == m.head.queue && (*i as u64) + 1 < m.head.seq);
                prop_assert_eq!(earlier.count(), done.iter().filter(|h| h.queue == m.head.queue).count());
                s.finish(m.head, None, &mut ready);
                done.push(m.head);
            }
            prop_assert!(s.lanes.is_empty() && s.live.is_empty() && s.waiting.is_empty());
        }
    }
}
