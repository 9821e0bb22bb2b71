// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Tells a device that is stopped, cut off or dead from one that computes for long.
//!
//! Nothing here runs by itself: who has waited for long looks now and then. A device from
//! which an answer is awaited and nothing has come for a while is sent a message with nothing
//! to do, which it answers at once whatever else it does. If no answer comes, it is gone.

use crate::base::lock::{Mutex, order};
use std::time::{Duration, Instant};

/// How often it is looked. A wait that is shorter costs nothing here.
pub const LOOK: Duration = Duration::from_millis(250);

/// What is known of one device.
#[derive(Clone, Copy, Debug, Default)]
struct Beat {
    /// How often it was heard of, see [`Pulse::look`].
    heard: u64,
    /// How long nothing was heard of it.
    silent: Duration,
    asked: bool,
}

/// What is to be done about a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Fine,
    /// It should be asked something.
    Ask,
    /// It does not answer that either; nothing was heard of it for so long.
    Gone(Duration),
}

impl Beat {
    /// Some time has passed. `heard` is none if nothing is awaited.
    fn look(&mut self, heard: Option<u64>, passed: Duration, limit: Duration) -> Verdict {
        if heard != Some(self.heard) {
            *self = Beat { heard: heard.unwrap_or(0), ..Beat::default() };
            return Verdict::Fine;
        }
        self.silent += passed;
        if self.silent < limit {
            return Verdict::Fine;
        }
        if !self.asked {
            self.asked = true;
            return Verdict::Ask;
        }
        if self.silent < 2 * limit { Verdict::Fine } else { Verdict::Gone(self.silent) }
    }
}

/// What the last look has left.
#[derive(Debug)]
struct Looks {
    at: Option<Instant>,
    rounds: u64,
    beats: Vec<Beat>,
}

/// See the module.
#[derive(Debug)]
pub struct Pulse {
    limit: Duration,
    looks: Mutex<Looks, { order::LIVENESS }>,
}

impl Pulse {
    /// The pulse of so many devices, which may be silent for `limit` before they are asked;
    /// 0: for ever.
    pub fn new(devices: usize, limit: Duration) -> Pulse {
        let beats = vec![Beat::default(); devices];
        Pulse { limit, looks: Mutex::new(Looks { at: None, rounds: 0, beats }) }
    }

    /// Looks at all devices, if it is time to. `heard` says of a device how often it was heard
    /// of, or none if nothing is awaited from it; `act` gets what to do.
    ///
    /// `rounds` changes whenever a thread has received what there was. Silence is measured only
    /// while that goes on: if nobody has received anything since the last look, a device can't
    /// be blamed. Of time in which nobody looked only a moment counts: the program may have been
    /// stopped itself, and what the devices sent meanwhile has yet to be received.
    #[cold]
    pub fn look(&self, rounds: u64, heard: impl Fn(usize) -> Option<u64>, act: impl Fn(usize, Verdict)) {
        // Another thread that looks does so for all.
        let Some(mut looks) = self.looks.try_lock() else { return };
        let passed = looks.at.map_or(Duration::ZERO, |at| at.elapsed());
        if self.limit.is_zero() || (looks.at.is_some() && passed < LOOK) {
            return;
        }
        looks.at = Some(Instant::now());
        if std::mem::replace(&mut looks.rounds, rounds) == rounds {
            return;
        }
        for (device, beat) in looks.beats.iter_mut().enumerate() {
            match beat.look(heard(device), passed.min(2 * LOOK), self.limit) {
                Verdict::Fine => {}
                verdict => act(device, verdict),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(1);

    fn looks(beat: &mut Beat, heard: Option<u64>, n: usize) -> Vec<Verdict> {
        (0..n).map(|_| beat.look(heard, LOOK, LIMIT)).filter(|v| *v != Verdict::Fine).collect()
    }

    #[test]
    fn who_answers_when_asked_is_fine_for_ever() {
        let mut beat = Beat::default();
        for heard in 1..100 {
            assert_eq!(looks(&mut beat, Some(heard), 5), [Verdict::Ask]);
        }
    }

    #[test]
    fn who_does_not_answer_is_gone() {
        let mut beat = Beat::default();
        assert_eq!(looks(&mut beat, Some(7), 9), [Verdict::Ask, Verdict::Gone(2 * LIMIT)]);
    }

    #[test]
    fn nobody_is_asked_of_whom_nothing_is_awaited() {
        let mut beat = Beat::default();
        assert_eq!(looks(&mut beat, None, 100), []);
        assert_eq!(looks(&mut beat, Some(7), 4), []);
        assert_eq!(looks(&mut beat, None, 1), []);
        assert_eq!(looks(&mut beat, Some(7), 4), []);
    }

    #[test]
    fn a_pause_of_the_program_is_no_silence() {
        // Two looks count for 1 s at most, however long they take; 1.25 s pass in any case.
        let pulse = Pulse::new(1, Duration::from_millis(1100));
        for (round, pause) in [Duration::ZERO, LOOK, LOOK * 4].into_iter().enumerate() {
            std::thread::sleep(pause);
            pulse.look(round as u64 + 1, |_| Some(0), |_, verdict| panic!("{verdict:?} at a look behind a pause"));
        }
    }
}
