// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Decides when a rank holds back messages for a worker so that the worker becomes quiescent and can
//! be checkpointed. No I/O here.
//!
//! A worker is checkpointed while it is idle. If its regions overlap, it is never idle by itself. The
//! rank then holds new messages back, but only while it expects the worker to finish soon. If the
//! worker does not, the rank forwards messages for a time that doubles with each failure. The log is
//! bounded during that time: beyond the bound the worker can't be replaced. A worker that becomes
//! quiescent by itself is checkpointed at any time.

use super::replay_log::ReplayLog;
use std::time::{Duration, Instant};

/// How long no message is held back after the first failure, and after later ones at most.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(64);
/// How much the log may grow after the first failure.
const MORE: u64 = 16 << 20;

/// The attempts to make a worker quiescent since its last checkpoint.
#[derive(Default)]
pub(super) struct Hold {
    /// Messages have been held back since this time.
    since: Option<Instant>,
    /// No message is held back until this time.
    free_until: Option<Instant>,
    pause: Option<Duration>,
    /// The log is given up when it exceeds this size.
    most: Option<u64>,
}

/// What to do with the messages and replies that wait for a checkpoint.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Forward the next message.
    Pass,
    Wait,
    /// The attempt has failed: forward everything, now and in the near future.
    GoOn,
    /// As `GoOn`, and give up the log, which is too long.
    GiveUp,
}

impl Hold {
    /// Decides about the next message.
    pub(super) fn decide(&mut self, log: &ReplayLog, now: Instant) -> Verdict {
        if !log.wants_checkpoint() {
            self.since = None;
            return Verdict::Pass;
        }
        if self.is_free(now) {
            let too_long = log.keeps && self.most.is_some_and(|most| log.bytes > most);
            return if too_long { Verdict::GiveUp } else { Verdict::Pass };
        }
        let since = *self.since.get_or_insert(now);
        if log.messages.are_nearly_answered(since, now, log.loads) {
            return Verdict::Wait;
        }
        self.go_on(log, now);
        Verdict::GoOn
    }

    /// Holds no message back for some time, because the worker can't be checkpointed.
    pub(super) fn go_on(&mut self, log: &ReplayLog, now: Instant) {
        let pause = self.pause.map_or(PAUSE, |pause| (2 * pause).min(LONGEST_PAUSE));
        self.most.get_or_insert(log.bytes + MORE);
        (self.since, self.free_until, self.pause) = (None, Some(now + pause), Some(pause));
    }

    pub(super) fn is_held(&self) -> bool {
        self.since.is_some()
    }

    /// True while no message may be held back.
    pub(super) fn is_free(&self, now: Instant) -> bool {
        self.free_until.is_some_and(|until| now < until)
    }
}
