// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Waiting for devices.
//!
//! A waiting thread makes progress itself. One waiting thread at a time drives the link; the others
//! sleep until their wait is over, or until they get the lock.

use super::connection::Connection;
use super::heartbeat::{self, Heartbeat};
use super::progress_lock::{ProgressLock, Watch};
use crate::base::Result;
use crate::base::limits::IN_FLIGHT;
use crate::link::Progress;
use crate::link::backoff::{Backoff, BackoffPolicy};
use crate::plugin::messages::pending::Pending;
use crate::plugin::messages::port::Port;
use crate::plugin::messages::queue::Queue;
use crate::plugin::program::ending;
use std::cell::LazyCell;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// How long a message waits at most while [`IN_FLIGHT`] others are not answered. Their kernels may
/// depend on this message.
const CROWDED_PATIENCE: Duration = Duration::from_millis(10);
/// How long such a thread sleeps between its looks.
const ROOM_SLEEP: Duration = Duration::from_micros(200);
/// How often a thread checks its own queue before it sleeps while another one drives.
const SPINS: u32 = 500;
/// A longer wait is not a wait for a short region.
const SHORT: Duration = Duration::from_micros(200);

/// When a wait began, by its first reading: short waits never read the clock.
type Start = LazyCell<Instant>;

/// What a thread that has driven does next, without the lock, if its wait is not over.
enum Then {
    /// It pauses, and drives again.
    Pause,
    /// It leaves the lock to another thread.
    GiveWay,
    /// It sleeps for a moment: another thread is inside MPI.
    Nap,
}

pub(crate) struct Waiting {
    pub(crate) heartbeat: Heartbeat,
    pub(crate) policy: BackoffPolicy,
    progress: ProgressLock,
}

impl Waiting {
    pub(crate) fn new(policy: BackoffPolicy, heartbeat: Heartbeat) -> Waiting {
        Waiting { heartbeat, policy, progress: ProgressLock::new(SPINS) }
    }

    /// Waits until a reply makes `done` true; the completion of `queue` wakes the caller early.
    pub(crate) fn wait_until(
        &self,
        connection: &Connection,
        queue: Option<&Queue>,
        done: &dyn Fn() -> bool,
    ) -> Result<()> {
        let mut backoff = connection.link.backoff(self.policy);
        let since = Start::new(Instant::now);
        // When it had the lock last, and how often the lock had been taken then.
        let (mut last, mut watch) = (None, None);
        if queue.is_some_and(|queue| queue.waited_long.load(Relaxed)) {
            backoff.give_way();
        }
        let pending = queue.map(|queue| &queue.pending);
        while !done() {
            let Some(nth) = self.progress.try_lock() else {
                if since.elapsed() > SHORT {
                    self.check_liveness(connection, &since);
                    self.stand_by(&mut watch, pending, done);
                } else {
                    self.progress.sleep(pending, done);
                }
                continue;
            };
            // The doorbell rings for the replies of all waiting threads: while others drive often, this one must not sleep
            // on it.
            let is_one_of_several = last.is_some_and(|(last, since): (u64, Instant)| {
                let others = (nth - last - 1).min(u32::MAX.into()) as u32;
                since.elapsed() < SHORT.saturating_mul(others)
            });
            let driven = self.drive_until(connection, done, &mut backoff, &since);
            if backoff.was_long() && done() {
                // For another thread that has waited as long, and sleeps. It finds an error itself, once it drives.
                let _ = connection.drive();
            }
            self.progress.unlock();
            let then = driven?;
            if connection.has_output() {
                // That may take long, or block: another thread has the watch meanwhile.
                watch = None;
                connection.write_output();
            }
            if done() {
                break;
            }
            self.check_liveness(connection, &since);
            last = Some((nth, Instant::now()));
            let is_patient = since.elapsed() > SHORT;
            match then {
                Then::Nap => backoff.nap(),
                Then::Pause if !is_patient || (!is_one_of_several && self.has_watch(&mut watch)) => {
                    backoff.pause(connection.link.bulk_patience());
                }
                Then::Pause | Then::GiveWay => {
                    backoff.retract();
                    self.stand_by(&mut watch, pending, done);
                }
            }
        }
        drop(watch);
        if let Some(queue) = queue.filter(|queue| queue.waited_long.load(Relaxed) != backoff.was_long()) {
            queue.waited_long.store(backoff.was_long(), Relaxed);
        }
        if ending::has_begun() {
            ending::hold();
        }
        Ok(())
    }

    /// True if a patient thread has the watch, or now gets it.
    fn has_watch<'a>(&'a self, watch: &mut Option<Watch<'a>>) -> bool {
        *watch = watch.take().or_else(|| self.progress.watch());
        watch.is_some()
    }

    /// A patient thread sleeps while others drive, or one of them has the watch.
    fn stand_by<'a>(&'a self, watch: &mut Option<Watch<'a>>, pending: Option<&Pending>, done: &dyn Fn() -> bool) {
        self.has_watch(watch);
        self.progress.rest(watch, pending, done);
    }

    /// Drives the link, whose lock this thread holds, until the wait is over, there is output to write,
    /// or another thread should drive. Returns how this thread waits from there.
    #[inline]
    fn drive_until(
        &self,
        connection: &Connection,
        done: &dyn Fn() -> bool,
        backoff: &mut Backoff<'_>,
        since: &Start,
    ) -> Result<Then> {
        while !done() {
            match connection.drive()? {
                Progress::Made if connection.has_output() => {
                    // More may have arrived: this thread polls again before it sleeps.
                    backoff.retract();
                    return Ok(Then::Pause);
                }
                Progress::Made => backoff.reset(),
                _ if backoff.is_long() && connection.has_output() => return Ok(Then::Pause),
                _ if self.progress.is_wanted() && since.elapsed() > SHORT => return Ok(Then::GiveWay),
                // That thread may have polled before this one announced its sleep; it may also be inside MPI for long.
                Progress::Elsewhere if backoff.will_sleep(connection.link.bulk_patience()) => return Ok(Then::Nap),
                // A sleeping thread does not drive, and another one may be in more of a hurry.
                _ if backoff.will_sleep(connection.link.bulk_patience()) => return Ok(Then::Pause),
                _ => {
                    if self.progress.is_wanted() {
                        backoff.crowd();
                    }
                    backoff.pause(connection.link.bulk_patience());
                }
            }
        }
        Ok(Then::Pause)
    }

    /// Waits a moment for answers of a device that has many messages. Unlike other waits, this one
    /// writes no output: the caller has locked its queue, which must not wait for a program's streams.
    #[cold]
    pub(crate) fn wait_for_room(&self, connection: &Connection, port: &Port) -> Result<()> {
        let (mut backoff, since) = (connection.link.backoff(self.policy), Instant::now());
        while port.in_flight() >= IN_FLIGHT && since.elapsed() < CROWDED_PATIENCE {
            match connection.drive()? {
                Progress::Made => backoff.reset(),
                Progress::None if !backoff.is_long() || connection.link.bulk_patience().is_some() => {
                    backoff.pause(connection.link.bulk_patience());
                }
                // Many threads may wait for room.
                Progress::None | Progress::Elsewhere => {
                    backoff.retract();
                    std::thread::sleep(ROOM_SLEEP);
                }
            }
        }
        Ok(())
    }

    /// Checks the heartbeat if a wait has taken long.
    fn check_liveness(&self, connection: &Connection, since: &Start) {
        if since.elapsed() >= heartbeat::INTERVAL {
            self.heartbeat.check(connection);
        }
    }
}
