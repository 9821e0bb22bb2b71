// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! How to wait for something that only polling shows: spin, then yield, then sleep.

use super::bell::Bell;
use std::time::{Duration, Instant};

/// How long each way of waiting is tried. Measured with 1 to 16 devices on 2 cores
/// (docs/performance.md).
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// Polls before the core is offered to others.
    spins: u32,
    /// Time of yielding before sleeping.
    patience: Duration,
}

impl Pace {
    /// A core for every process: spin for about as long as a short region takes.
    pub const ALONE: Pace = Pace { spins: 1000, patience: Duration::from_micros(500) };
    /// The program's, where a node has more processes than cores: the device awaited may
    /// need this core.
    pub const CROWDED_HOST: Pace = Pace { spins: 150, patience: Duration::from_micros(500) };
    /// A device's there: another one may need the core even more.
    pub const CROWDED_DEVICE: Pace = Pace { spins: 25, patience: Duration::from_micros(200) };
    /// That of a rank and its worker there, which wait for each other: two that yield to each
    /// other keep a third one waiting for a whole slice of time, some milliseconds.
    pub const CROWDED_WORKER: Pace = Pace { spins: 25, patience: Duration::from_micros(20) };
}

/// A sleep in proportion to the wait so far costs a wait that ends now at most 3 %.
const PORTION: u32 = 32;
/// Shortest and longest sleep: after it, poll. An idle device wakes this often.
const SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));
/// The same where a bell ends it: what does not ring is no message and not urgent.
const SLEEP_BELL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// Time of yielding while bulk data is under way: many pieces' on a slow network, and
/// yet short for a transfer that waits for a kernel on the other side.
const BULK_PATIENCE: Duration = Duration::from_millis(10);

/// One wait, from its beginning to the event.
#[derive(Debug)]
pub struct Idle<'a> {
    spins: u32,
    pace: Pace,
    since: Option<Instant>,
    bell: Option<&'a Bell>,
    /// What [`Bell::announce`] said.
    announced: Option<u32>,
}

impl<'a> Idle<'a> {
    /// A wait that begins now; what is waited for rings the bell, if there is one.
    pub fn new(pace: Pace, bell: Option<&'a Bell>) -> Idle<'a> {
        Idle { spins: 0, pace, since: None, bell, announced: None }
    }

    /// The event came: the next wait begins.
    #[inline]
    pub fn reset(&mut self) {
        self.spins = 0;
        self.since = None;
        self.retract();
    }

    #[inline]
    fn retract(&mut self) {
        if let (Some(bell), Some(_)) = (self.bell, self.announced.take()) {
            bell.retract();
        }
    }

    /// Other threads of this process wait too: their cores may be needed here.
    #[inline]
    pub fn crowd(&mut self) {
        self.pace.spins = Pace::CROWDED_HOST.spins;
    }

    /// True once spinning has not helped.
    pub fn is_long(&self) -> bool {
        self.since.is_some()
    }

    /// True if the next [`Idle::pause`] may sleep.
    pub fn will_sleep(&self, bulk: bool) -> bool {
        self.elapsed() >= self.patience(bulk)
    }

    fn patience(&self, bulk: bool) -> Duration {
        if bulk { BULK_PATIENCE } else { self.pace.patience }
    }

    /// How long this wait has gone on, not counting its spinning.
    pub fn elapsed(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Passes a moment; `bulk` is true while bulk data is under way, which moves on only
    /// if it is polled for, and does not ring.
    #[inline]
    pub fn pause(&mut self, bulk: bool) {
        if self.spins < self.pace.spins {
            self.spins += 1;
            std::hint::spin_loop();
        } else {
            self.pause_long(bulk);
        }
    }

    #[cold]
    fn pause_long(&mut self, bulk: bool) {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited < self.patience(bulk) {
            self.retract();
            std::thread::yield_now();
            return;
        }
        let (least, most) = if bulk || self.bell.is_none() { SLEEP } else { SLEEP_BELL };
        let sleep = (waited / PORTION).clamp(least, most);
        match (self.bell, self.announced.take()) {
            // One more poll comes first.
            (Some(bell), None) => self.announced = Some(bell.announce()),
            (Some(bell), Some(announced)) => bell.sleep(announced, sleep),
            (None, _) => std::thread::sleep(sleep),
        }
    }
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.retract();
    }
}
