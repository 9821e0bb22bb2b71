// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! How to wait for something that only polling shows: spin, then yield, then sleep.

use std::time::{Duration, Instant};

/// Polls before the core is offered to others; about as long as a short region takes.
const SPINS: u32 = 1000;
/// The same where there are more processes than cores: the one awaited may need this core.
const SPINS_CROWDED: u32 = 150;
/// How long to yield before sleeping.
const YIELD: Duration = Duration::from_micros(500);
/// Shortest and longest sleep. An idle device wakes this often.
const SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(1));

/// One wait, from its beginning to the event.
#[derive(Debug)]
pub struct Idle {
    spins: u32,
    limit: u32,
    since: Option<Instant>,
}

impl Idle {
    /// A wait that begins now.
    pub fn new(crowded: bool) -> Idle {
        Idle { spins: 0, limit: if crowded { SPINS_CROWDED } else { SPINS }, since: None }
    }

    /// The event came: the next wait begins.
    #[inline]
    pub fn reset(&mut self) {
        self.spins = 0;
        self.since = None;
    }

    /// Other threads of this process wait too: their cores may be needed here.
    #[inline]
    pub fn crowd(&mut self) {
        self.limit = SPINS_CROWDED;
    }

    /// True once spinning has not helped.
    pub fn is_long(&self) -> bool {
        self.since.is_some()
    }

    /// True if the next [`Idle::pause`] may sleep.
    pub fn will_sleep(&self) -> bool {
        self.elapsed() >= YIELD
    }

    /// How long this wait has gone on, not counting its spinning.
    pub fn elapsed(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Passes a moment; `may_sleep` is false while something is known to be under way.
    #[inline]
    pub fn pause(&mut self, may_sleep: bool) {
        if self.spins < self.limit {
            self.spins += 1;
            std::hint::spin_loop();
        } else {
            self.pause_long(may_sleep);
        }
    }

    #[cold]
    fn pause_long(&mut self, may_sleep: bool) {
        let waited = self.since.get_or_insert_with(Instant::now).elapsed();
        if waited < YIELD || !may_sleep {
            std::thread::yield_now();
        } else {
            // A sleep in proportion costs a wait that ends now at most 3 %.
            std::thread::sleep((waited / 32).clamp(SLEEP.0, SLEEP.1));
        }
    }
}
