// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The records of one device, from both sides, with kernels by name.

use crate::base::clock::Line;
use crate::plugin::devices::device::Device;
use crate::plugin::messages::queue_trace::DeviceTrace;
use crate::wire::record::{Direction, Kind, Record, Sum, TraceEvent};
use std::collections::HashMap;

/// The records collected from a device. Times are ticks of its clock, except those of notes.
#[derive(Default)]
pub(super) struct Seen {
    /// Symbols of kernels; at the end, their names. The other fields refer to a kernel by its index here.
    pub(super) names: Vec<String>,
    places: HashMap<String, usize>,
    pub(super) kernels: Vec<Sum>,
    /// By kernel, the program's memory that it fetched, found unchanged, and changed.
    pub(super) memory: Vec<[Sum; 3]>,
    pub(super) moved: [Sum; Direction::ALL.len()],
    pub(super) events: Vec<TraceEvent>,
    pub(super) dropped: u64,
    pub(super) host: DeviceTrace,
    /// The number of messages sent to collect these records.
    pub(super) asked: u64,
}

impl Seen {
    /// Events that the device and the program did not keep.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.saturating_add(self.host.dropped)
    }

    fn place(&mut self, name: String) -> usize {
        *self.places.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.kernels.push(Sum::default());
            self.memory.push(Default::default());
            self.names.len() - 1
        })
    }

    /// Adds records of a device; keeps at most `limit` events in the whole run. `name` returns the name
    /// of the kernel at an address.
    pub(super) fn add(&mut self, records: Vec<Record>, host: DeviceTrace, limit: u64, name: impl Fn(u64) -> String) {
        let mut known = HashMap::new();
        let mut place = |seen: &mut Seen, kernel| *known.entry(kernel).or_insert_with(|| seen.place(name(kernel)));
        // Devices send the last events first.
        for record in records.into_iter().rev() {
            match record {
                Record::Event(_) if self.events.len() as u64 >= limit => {
                    self.dropped = self.dropped.saturating_add(1);
                }
                Record::Event(mut event) => {
                    if event.kind == Kind::Kernel {
                        event.what = place(self, event.what) as u64;
                    }
                    self.events.push(event);
                }
                Record::Kernel(kernel, sum) => {
                    let place = place(self, kernel);
                    self.kernels[place].add(sum);
                }
                Record::Memory(kernel, fetched, unchanged, changed) => {
                    let place = place(self, kernel);
                    let sums = [fetched, unchanged, changed];
                    self.memory[place].iter_mut().zip(sums).for_each(|(all, sum)| all.add(sum));
                }
                Record::Moved(way, sum) => self.moved[way as usize - 1].add(sum),
                Record::Dropped(events) => self.dropped = self.dropped.saturating_add(events),
            }
        }
        let mut trace = std::mem::take(&mut self.host);
        trace.append(host, |kernel| place(self, kernel) as u64);
        self.host = trace;
    }
}

/// A device at the end of the trace.
pub(super) struct View<'a> {
    pub(super) device: &'a Device,
    /// Converts ticks of the device's clock to ticks of the host's.
    pub(super) to_host: Line,
    /// Converts ticks of the host's clock to nanoseconds since the start.
    pub(super) host: Line,
    /// The possible error of the device's times against those of the host, in nanoseconds.
    pub(super) error: u64,
    /// Messages (sent, received).
    pub(super) messages: (u64, u64),
    pub(super) seen: Seen,
}

impl View<'_> {
    /// Converts a time of the device's clock to nanoseconds since the start.
    pub(super) fn at(&self, time: u64) -> i64 {
        self.host.at(self.to_host.at(time) as u64)
    }

    /// Converts a duration of the device's clock to nanoseconds.
    pub(super) fn length(&self, time: u64) -> u64 {
        self.host.length(self.to_host.length(time))
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/trace/view.rs"]
mod tests;
