// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/messages/schedule.rs`.

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
    Message { head: Head { seq, queue, fresh, core: 0, merged: 0 }, wait: None, failed: false }
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

#[test]
fn a_queue_goes_on_before_its_message_is_over() {
    let mut s = Schedule::default();
    let mut ready = VecDeque::new();
    let first = s.arrive(message(1, 7, true)).unwrap();
    assert!(s.arrive(message(2, 7, false)).is_none() && s.arrive(message(3, 7, false)).is_none());
    let other = s.arrive(message(4, 8, true)).unwrap();
    assert_eq!(s.waiting_in(7).map(|m| m.head.seq).collect::<Vec<_>>(), [2, 3]);
    assert_eq!(s.executing(), 2);
    s.go_on(first.head, None, &mut ready);
    assert_eq!(ready.pop_front().unwrap().head.seq, 2);
    assert_eq!((s.waiting_in(7).count(), s.executing()), (1, 3));
    // It is not over for other queues.
    assert!(s.wait(other, 1).is_none());
    assert_eq!(s.executing(), 2);
    s.end(first.head, &mut ready);
    assert_eq!(s.executing(), 2);
    assert_eq!(ready.pop_front().unwrap().head.seq, 4);
    assert!(ready.is_empty());
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
