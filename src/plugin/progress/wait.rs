// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Waiting for devices.
//!
//! A waiting thread makes progress itself. One waiting thread at a time drives the link; the others
//! sleep until their wait is over, or until they get the lock.

use super::connection::Connection;
use super::heartbeat::{self, Heartbeat};
use super::progress_lock::{ProgressLock, Watch};
use super::upcalls::Upcalls;
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

/// How long a message waits at most while [`IN_FLIGHT`] others are incomplete, whose kernels may depend on it.
const CROWDED_PATIENCE: Duration = Duration::from_millis(10);
/// How long a thread sleeps between its checks for room.
const ROOM_SLEEP: Duration = Duration::from_micros(200);
/// How often a thread checks its own queue before it sleeps while another one drives.
const SPINS: u32 = 500;
/// The longest wait for a short region. A thread that has waited longer is patient.
const SHORT: Duration = Duration::from_micros(200);

/// When a wait began. The first use reads the clock, so short waits never do.
type Start = LazyCell<Instant>;

/// What a thread does after driving, without the lock, if its wait is not over.
enum Then {
    /// Pause, and drive again.
    Pause,
    /// Leave the lock to another thread.
    GiveWay,
    /// Sleep for a moment, because another thread is inside MPI.
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
        // How often the lock had been taken when this thread last took it, and when it released it.
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
            // The doorbell rings for the replies of all waiting threads: while others drive often, this thread must not
            // sleep on it.
            let is_one_of_several = last.is_some_and(|(last, since): (u64, Instant)| {
                let others = (nth - last - 1).min(u32::MAX.into()) as u32;
                since.elapsed() < SHORT.saturating_mul(others)
            });
            let driven = self.drive_until(connection, done, &mut backoff, &since);
            if backoff.was_long() && done() {
                // Another thread may have waited as long and be asleep: handle its reply too. It finds an error itself
                // once it drives.
                let _ = connection.drive();
            }
            self.progress.unlock();
            let then = driven?;
            if Upcalls(connection).are_waiting() {
                // Writing may take long, or block: let another thread have the watch meanwhile.
                watch = None;
                Upcalls(connection).serve();
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

    /// Lets a patient thread sleep while others drive or one of them has the watch.
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
                Progress::Made if Upcalls(connection).are_waiting() => {
                    // More may have arrived: this thread polls again before it sleeps.
                    backoff.retract();
                    return Ok(Then::Pause);
                }
                Progress::Made => backoff.reset(),
                _ if backoff.is_long() && Upcalls(connection).are_waiting() => return Ok(Then::Pause),
                _ if self.progress.is_wanted() && since.elapsed() > SHORT => return Ok(Then::GiveWay),
                // The driving thread may have polled before this one announced its sleep; it may also be inside MPI for
                // long.
                Progress::Elsewhere if backoff.will_sleep(connection.link.bulk_patience()) => return Ok(Then::Nap),
                // A sleeping thread does not drive, and another thread may be more urgent.
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

    /// Waits a moment for answers of a device with many incomplete messages. Unlike other waits, this one
    /// writes no output: the caller has locked its queue, which must not wait for the program's streams.
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

    /// Checks the devices if a wait has taken long.
    fn check_liveness(&self, connection: &Connection, since: &Start) {
        if since.elapsed() >= heartbeat::INTERVAL {
            self.heartbeat.check(connection);
        }
    }
}
