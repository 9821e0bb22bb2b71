// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Watches memory that devices have used more than once, so that they need not ask again whether it has changed.
//!
//! A device asks for it ([`Watch::want`]). With its next kernel it learns that the memory is watched, and what it fetches of
//! it from then on stays valid until a later kernel comes without it ([`Watch::look`]).

use crate::base::limits::{MEMORY_KEPT, WATCHED_MIN, WATCHED_PARTS};
use crate::base::lock::{Mutex, order};
use crate::base::ranges::Ranges;
use crate::base::{Result, log};
use crate::sys::process::Mappings;
use crate::sys::write_watch::{WriteWatch, open_writer};
use std::mem;
use std::ops::Range;

pub(super) struct Watch(Mutex<State, { order::LEAF }>);

struct State {
    /// None if memory may change without a trace.
    writes: Option<WriteWatch>,
    devices: Vec<Device>,
}

#[derive(Default)]
struct Device {
    looks: u64,
    /// Watched since before the device has fetched it, and as far as was seen unchanged since.
    ranges: Ranges,
    wanted: Vec<Range<u64>>,
}

/// What a device learns with a kernel.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Looked {
    /// Counts these for each device: kernels may overtake each other.
    pub number: u64,
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
        Ok(Watch(Mutex::new(State { writes: Some(WriteWatch::new()?), devices })))
    }

    /// A device wants this memory watched.
    pub fn want(&self, device: usize, ranges: impl Iterator<Item = Range<u64>>) {
        self.0.lock().devices[device].wanted = ranges.take(WATCHED_PARTS).collect();
    }

    /// A device is about to get a kernel.
    pub fn look(&self, device: usize) -> Looked {
        let mut state = self.0.lock();
        let State { writes, devices } = &mut *state;
        devices[device].looks += 1;
        let (number, wanted) = (devices[device].looks, mem::take(&mut devices[device].wanted));
        let Some(watched) = writes else { return Looked { number, ..Looked::default() } };
        let mut unchanged = Vec::new();
        for range in devices[device].ranges.iter() {
            // After an error the rest counts as changed.
            let _ = watched.unchanged(&range, &mut |part| push(&mut unchanged, part));
        }
        devices[device].ranges = unchanged.iter().cloned().collect();
        let more = if wanted.is_empty() { Vec::new() } else { watch(watched, devices, device, wanted) };
        // Such a file may have been used before the memory was watched, and change it now.
        let Some(file) = (!more.is_empty()).then(open_writer).flatten() else {
            return Looked { number, unchanged, more };
        };
        *writes = None;
        drop(state);
        log::warning(format_args!(
            "OMPTARGET_MPI_USM_CHANGES=scan has no effect any more: the program may change memory without a trace by way of \
             {file}"
        ));
        Looked { number, ..Looked::default() }
    }
}

/// Watches memory for a device; returns what of it can be.
fn watch(writes: &WriteWatch, devices: &mut [Device], device: usize, wanted: Vec<Range<u64>>) -> Vec<Range<u64>> {
    let (mappings, mut more) = (Mappings::now(), Vec::new());
    for range in wanted {
        for own in mappings.own_memory(&range) {
            let part = own.start.max(range.start)..own.end.min(range.end);
            if devices[device].ranges.bytes() + (part.end - part.start) > MEMORY_KEPT {
                continue;
            }
            // What is watched already, and unchanged, stays so: other devices rely on it.
            writes.watch(&mappings, &part, &mut |written| {
                devices.iter_mut().for_each(|device| device.ranges.remove(&written));
            });
            devices[device].ranges.insert(part.clone());
            push(&mut more, part);
        }
    }
    more
}

/// Adds a range, if it is worth a line.
fn push(list: &mut Vec<Range<u64>>, range: Range<u64>) {
    if range.end - range.start >= WATCHED_MIN && list.len() < WATCHED_PARTS {
        list.push(range);
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/unified/watch.rs"]
mod tests;
