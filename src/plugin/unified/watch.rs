// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Watches memory that devices have used more than once, so that they need not ask again whether it has changed.
//!
//! A device asks for it ([`Watch::want`]). With its next kernel it learns that the memory is watched, and what it fetches of
//! it from then on stays valid until a later kernel comes without it ([`Watch::look`]).

use crate::base::limits::{WATCHED_EVER, WATCHED_MIN, WATCHED_PARTS};
use crate::base::lock::{Mutex, order};
use crate::base::ranges::Ranges;
use crate::base::{Result, log};
use crate::sys::write_watch::{WriteWatch, open_writer};
use std::mem;
use std::ops::Range;

pub(super) struct Watch {
    writes: WriteWatch,
    state: Mutex<State, { order::LEAF }>,
}

#[derive(Default)]
struct State {
    devices: Vec<Device>,
    /// Ranges that were ever watched. Each may split mappings, of which a process has 65,530 at most.
    ever: usize,
    /// Memory may change without a trace.
    is_over: bool,
}

#[derive(Default)]
struct Device {
    /// Watched since before the device has fetched it, and as far as was seen unchanged since.
    ranges: Ranges,
    wanted: Vec<Range<u64>>,
}

/// What a device learns with a kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Of what was watched before, this is unchanged, and nothing else.
    pub unchanged: Vec<Range<u64>>,
    /// Watched from now on.
    pub more: Vec<Range<u64>>,
}

impl Watch {
    /// For this many devices.
    ///
    /// # Errors
    /// Linux can't do it here.
    pub fn new(devices: usize) -> Result<Watch> {
        let devices = (0..devices).map(|_| Device::default()).collect();
        Ok(Watch { writes: WriteWatch::new()?, state: Mutex::new(State { devices, ..State::default() }) })
    }

    /// A device wants this memory watched.
    pub fn want(&self, device: usize, ranges: impl Iterator<Item = Range<u64>>) {
        self.state.lock().devices[device].wanted = ranges.take(WATCHED_PARTS).collect();
    }

    /// A device is about to get a kernel.
    pub fn look(&self, device: usize) -> Looked {
        let mut state = self.state.lock();
        let unchanged = self.unchanged(&state.devices[device].ranges);
        state.devices[device].ranges = unchanged.iter().cloned().collect();
        let wanted = mem::take(&mut state.devices[device].wanted);
        let more: Vec<_> = wanted.into_iter().filter(|range| self.add(&mut state, device, range)).collect();
        // Such a file may have been used before the memory was watched, and change it now.
        let Some(file) = (!more.is_empty()).then(open_writer).flatten() else { return Looked { unchanged, more } };
        state.is_over = true;
        state.devices.iter_mut().for_each(|device| device.ranges.clear());
        drop(state);
        log::warning(format_args!(
            "OMPTARGET_MPI_USM_CHANGES=scan has no effect any more: the program may change memory without a trace by way of \
             {file}"
        ));
        Looked::default()
    }

    /// The unchanged parts of these ranges, as far as they are worth a line.
    fn unchanged(&self, ranges: &Ranges) -> Vec<Range<u64>> {
        let mut unchanged = Vec::new();
        for range in ranges.iter() {
            let mut add = |part: Range<u64>| {
                if part.end - part.start >= WATCHED_MIN && unchanged.len() < WATCHED_PARTS {
                    unchanged.push(part);
                }
            };
            // After an error the rest counts as changed.
            let _ = self.writes.unchanged(&range, &mut add);
        }
        unchanged
    }

    /// Watches a range for a device; false if that is not possible.
    fn add(&self, state: &mut State, device: usize, range: &Range<u64>) -> bool {
        if state.is_over || state.ever >= WATCHED_EVER {
            return false;
        }
        // What is watched already stays so: other devices rely on it.
        let mut written: Ranges = std::iter::once(range.clone()).collect();
        let _ = self.writes.unchanged(range, &mut |part| written.remove(&part));
        for part in written.iter() {
            state.devices.iter_mut().for_each(|device| device.ranges.remove(&part));
            state.ever += 1;
            if self.writes.watch(&part).is_err() {
                return false;
            }
        }
        state.devices[device].ranges.insert(range.clone());
        true
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/unified/watch.rs"]
mod tests;
