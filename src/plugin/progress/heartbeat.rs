// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Distinguishes a device that is stopped, cut off or dead from one that computes for a long time.
//!
//! No thread runs for this: a thread whose wait takes long checks the devices at intervals. If a
//! device owes an answer and has been silent for a while, the check sends it an empty message.
//! A device answers that at once, whatever else it does; one that does not answer is lost.

use super::connection::Connection;
use crate::base::lock::{Mutex, order};
use crate::base::log;
use crate::plugin::messages::diagnose;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How often the devices are checked. Shorter waits check nothing.
pub(crate) const INTERVAL: Duration = Duration::from_millis(250);
/// One in this many unsuccessful polls also checks the devices.
const IDLE_POLLS: usize = 256;
/// How long a device may be silent after its process has ended: its last messages may be on their way.
const LAST_WORDS: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug, Default)]
struct Silence {
    /// Messages and pieces that had arrived from the device by the last check.
    heard: u64,
    silent: Duration,
    /// How long nothing has arrived since the device's process was found to have ended.
    ended: Duration,
    asked: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    None,
    /// Send the device an empty message, which it must answer.
    Ask,
    /// Give the device up unless its process is seen to run: it did not answer the empty message either, and has
    /// been silent for this time.
    GiveUp(Duration),
    /// End the job: the device's process has ended, and nothing more arrives from it.
    End,
}

impl Silence {
    /// Updates the state after the time `passed`. `heard` is `None` if no answer is awaited; `ended`
    /// returns whether the device's process is known to have ended.
    fn check(&mut self, heard: Option<u64>, ended: impl FnOnce() -> bool, passed: Duration, limit: Duration) -> Action {
        if heard != Some(self.heard) {
            *self = Silence { heard: heard.unwrap_or(0), ..Silence::default() };
            return Action::None;
        }
        if ended() {
            self.ended += passed;
            return if self.ended < LAST_WORDS { Action::None } else { Action::End };
        }
        self.silent += passed;
        if limit.is_zero() || self.silent < limit {
            return Action::None;
        }
        if !self.asked {
            self.asked = true;
            return Action::Ask;
        }
        if self.silent < 2 * limit { Action::None } else { Action::GiveUp(self.silent) }
    }
}

#[derive(Debug)]
struct Checks {
    at: Option<Instant>,
    rounds: u64,
    devices: Vec<Silence>,
}

/// Checks whether devices that owe an answer are alive.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    limit: Duration,
    checks: Mutex<Checks, { order::LIVENESS }>,
    idle_polls: AtomicUsize,
}

impl Heartbeat {
    /// Devices may be silent for `limit` before they are asked to answer; 0 means forever.
    pub(crate) fn new(devices: usize, limit: Duration) -> Heartbeat {
        let checks = Checks { at: None, rounds: 0, devices: vec![Silence::default(); devices] };
        Heartbeat { limit, checks: Mutex::new(checks), idle_polls: AtomicUsize::new(0) }
    }

    /// Counts an unsuccessful poll, and checks the devices every [`IDLE_POLLS`] of them.
    pub(crate) fn note_idle_poll(&self, connection: &Connection) {
        if self.idle_polls.fetch_add(1, Ordering::Relaxed) % IDLE_POLLS == IDLE_POLLS - 1 {
            self.check(connection);
        }
    }

    /// Checks all devices if a check is due, and ends the job if one is lost: the program can't go on without
    /// that device, because MPI may still write into the memory for its results.
    #[cold]
    pub(crate) fn check(&self, connection: &Connection) {
        let (link, ports) = (&connection.link, &connection.ports);
        let heard = |port: usize| {
            let port = &ports[port];
            let (moved, unfinished) = link.bulk_with(port.rank);
            let awaited = port.in_flight() > 0 || unfinished > 0;
            awaited.then(|| port.messages().1 + moved)
        };
        let ended = |port: usize| link.doorbells().sees_ended(ports[port].rank);
        self.check_all(link.rounds(), heard, ended, |number, action| {
            let port = &ports[number];
            match action {
                Action::None => {}
                Action::Ask => connection.ask_for_answer(number),
                Action::GiveUp(silent) => {
                    // A rank may run while its worker is stopped.
                    let runs = port.worker.is_none() && link.doorbells().sees_running(port.rank);
                    // A running device gets more time: on an oversubscribed node the device, or the
                    // threads here that receive, may have to wait long for a core.
                    if !runs || silent >= self.limit * 12 {
                        log::error(diagnose::silent_device(port, silent));
                        connection.abort(1)
                    }
                }
                Action::End => {
                    log::error(diagnose::ended_device(port));
                    connection.abort(1)
                }
            }
        });
    }

    /// Checks all devices if a check is due. `heard` returns how much has arrived from a device, or
    /// `None` if nothing is awaited from it; `ended` returns whether its process is seen to have ended.
    ///
    /// `rounds` changes whenever a thread has polled for arrivals. If it has not changed since the last check,
    /// nobody received anything, so silence is not the devices' fault. Of a time without checks only a moment
    /// counts: the program itself may have been stopped, and arrivals of that time are not yet received.
    fn check_all(
        &self,
        rounds: u64,
        heard: impl Fn(usize) -> Option<u64>,
        ended: impl Fn(usize) -> bool,
        act: impl Fn(usize, Action),
    ) {
        // One thread checks for all.
        let Some(mut checks) = self.checks.try_lock() else { return };
        let passed = checks.at.map_or(Duration::ZERO, |at| at.elapsed());
        if checks.at.is_some() && passed < INTERVAL {
            return;
        }
        checks.at = Some(Instant::now());
        if std::mem::replace(&mut checks.rounds, rounds) == rounds {
            return;
        }
        for (device, silence) in checks.devices.iter_mut().enumerate() {
            let passed = passed.min(2 * INTERVAL);
            act(device, silence.check(heard(device), || ended(device), passed, self.limit));
        }
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/progress/heartbeat.rs"]
mod tests;
