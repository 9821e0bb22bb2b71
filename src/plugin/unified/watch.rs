// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Watches memory that devices have used more than once, so that they need not ask again whether it has changed.
//!
//! A device asks for it ([`Watch::want`]). With its next kernel it learns that the memory is watched, and what it fetches of
//! it from then on stays valid until a later kernel comes without it ([`Watch::look`]).

use crate::base::Result;
use crate::base::limits::{MEMORY_KEPT, WATCHED_MIN, WATCHED_PARTS};
use crate::base::lock::{Mutex, order};
use crate::base::ranges::Ranges;
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
    /// A file by which memory may change without a trace: nothing is watched any more.
    pub writer: Option<String>,
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
        if wanted.is_empty() {
            return Looked { number, unchanged, ..Looked::default() };
        }
        let (more, written) = watch(watched, devices, device, wanted);
        drop(state);
        // Such a file may have been used before the memory was watched, and change it now.
        if let Some(file) = open_writer() {
            let is_first = self.0.lock().writes.take().is_some();
            return Looked { number, writer: is_first.then_some(file), ..Looked::default() };
        }
        // It may have been written after the scan.
        let mut unchanged: Ranges = unchanged.into_iter().collect();
        written.iter().for_each(|range| unchanged.remove(&range));
        Looked { number, unchanged: unchanged.iter().take(WATCHED_PARTS).collect(), more, writer: None }
    }
}

/// Watches memory for a device. Returns what of it can be watched, and what of that was written before.
fn watch(
    writes: &WriteWatch,
    devices: &mut [Device],
    device: usize,
    wanted: Vec<Range<u64>>,
) -> (Vec<Range<u64>>, Ranges) {
    let (mappings, mut more, mut written) = (Mappings::now(), Vec::new(), Ranges::default());
    for range in wanted {
        for own in mappings.own_memory(&range) {
            let part = own.start.max(range.start)..own.end.min(range.end);
            let known: u64 = devices[device].ranges.within(&part).map(|range| range.end - range.start).sum();
            let room = (MEMORY_KEPT + known).saturating_sub(devices[device].ranges.bytes());
            let part = part.start..part.end.min(part.start + room);
            if part.is_empty() {
                continue;
            }
            // What is watched already, and unchanged, stays so: other devices rely on it.
            writes.watch(&mappings, &part, &mut |range| {
                devices.iter_mut().for_each(|device| device.ranges.remove(&range));
                written.insert(range);
            });
            devices[device].ranges.insert(part.clone());
            push(&mut more, part);
        }
    }
    (more, written)
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
