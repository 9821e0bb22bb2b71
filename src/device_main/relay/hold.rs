// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! When a rank keeps a worker from new messages, so that it can be copied. No I/O here.
//!
//! A worker is copied while it has nothing to do. Where its regions overlap that moment never comes
//! by itself: the rank holds new messages back, but only while what the worker is at will be over
//! soon. If that takes too long the rank passes messages on, for a time that doubles with each
//! try in vain. What is kept meanwhile is bounded: the worker is then no longer replaceable.
//! A point of quiet that comes by itself makes a copy at any time.

use super::journal::Journal;
use std::time::{Duration, Instant};

/// How long nothing is held back after the first try in vain, and after many.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// Bytes that are kept beyond those at the first try in vain.
const MORE: u64 = 16 << 20;

/// See the module.
#[derive(Default)]
pub struct Hold {
    /// Since when messages are held back, and until when they are not to be.
    since: Option<Instant>,
    free_until: Option<Instant>,
    pause: Option<Duration>,
    /// The journal is given up above so many bytes.
    most: Option<u64>,
}

/// What to do with what waits for a worker to be copied.
#[derive(Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Pass it on.
    Pass,
    /// It waits.
    Wait,
    /// The wait was in vain: pass it on, and everything in the near future.
    GoOn,
    /// The same, and the journal is too long to be kept.
    GiveUp,
}

impl Hold {
    /// To be asked before each message that is passed on.
    pub fn judge(&mut self, journal: &Journal, now: Instant) -> Verdict {
        if !journal.wants_copy() {
            self.since = None;
            return Verdict::Pass;
        }
        if self.is_free(now) {
            let too_long = journal.keeps() && self.most.is_some_and(|most| journal.bytes() > most);
            return if too_long { Verdict::GiveUp } else { Verdict::Pass };
        }
        let since = *self.since.get_or_insert(now);
        if journal.is_nearly_quiet(since, now) {
            return Verdict::Wait;
        }
        self.go_on(journal, now);
        Verdict::GoOn
    }

    /// Holds nothing back for some time: the worker can't be copied.
    pub fn go_on(&mut self, journal: &Journal, now: Instant) {
        let pause = self.pause.map_or(PAUSE, |pause| (2 * pause).min(LONGEST_PAUSE));
        self.most.get_or_insert(journal.bytes() + MORE);
        (self.since, self.free_until, self.pause) = (None, Some(now + pause), Some(pause));
    }

    /// True while messages wait.
    pub fn is_held(&self) -> bool {
        self.since.is_some()
    }

    /// True while nothing is to wait.
    pub fn is_free(&self, now: Instant) -> bool {
        self.free_until.is_some_and(|until| now < until)
    }
}
