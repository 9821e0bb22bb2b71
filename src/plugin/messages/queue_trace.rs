// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What the program requested of queues, and when, for statistics and traces.
//!
//! Each queue keeps its own list of notes, so that threads do not wait for each other. A long list moves
//! to the device's; at the end, every list does.

use crate::base::clock;
use crate::base::limits::TRACE_EVENTS;
use crate::base::settings::Settings;
use crate::wire::record::Sum;
use std::collections::BTreeMap;

/// The number of notes that a queue keeps before it passes them on.
const PAGE: usize = 1024;

/// What the user wants to be recorded.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tracing {
    /// Anything at all.
    pub(crate) on: bool,
    /// Every event, for a trace.
    pub(crate) trace: bool,
    /// The number of events of one process that are kept.
    pub(crate) events: u64,
}

impl Tracing {
    pub(crate) fn of(settings: &Settings) -> Tracing {
        let trace = settings.trace.is_some();
        Tracing { on: settings.stats || trace, trace, events: if trace { TRACE_EVENTS } else { 0 } }
    }

    /// The time in ticks; 0 without a trace.
    #[inline]
    pub(crate) fn stamp(&self) -> u64 {
        if self.trace { clock::now() } else { 0 }
    }
}

/// Something that the program requested of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Note {
    /// In ticks.
    pub(crate) at: u64,
    pub(crate) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    /// Copy this many bytes to the device.
    Submit(u64),
    /// Run the kernel at this address; in a collected note, the kernel with this number.
    Launch(u64),
    /// Copy this many bytes from the device.
    Retrieve(u64),
    /// Copy this many bytes from device to device.
    Exchange(u64),
    /// Load an image.
    Load,
    /// Not a request: this message contains the requests since the last such note.
    Sent(u64),
    /// Wait, until `end` (in ticks), for everything that was sent up to message `seq`. If no reply ended the wait, the
    /// program waited only until it could reuse its memory.
    Wait { end: u64, seq: u64, by_reply: bool },
}

/// The notes of one queue.
#[derive(Debug, Default)]
pub(crate) struct QueueTrace {
    notes: Vec<Note>,
    waits: Sum,
    /// The last message that the program waited for.
    waited_for: u64,
}

impl QueueTrace {
    #[cold]
    #[inline(never)]
    pub(crate) fn asked(&mut self, at: u64, what: What) {
        self.notes.push(Note { at, what });
    }

    /// Notes that message `seq` contains everything requested so far.
    #[cold]
    #[inline(never)]
    pub(crate) fn sent(&mut self, seq: u64) {
        if !matches!(self.notes.last(), None | Some(Note { what: What::Sent(_) | What::Wait { .. }, .. })) {
            self.notes.push(Note { at: 0, what: What::Sent(seq) });
        }
    }

    /// Notes a wait for message `seq`, the queue's last one. `by_reply`: its reply ended the wait. `counts`: the
    /// program requested the wait.
    pub(crate) fn waited(
        &mut self,
        (at, end): (u64, u64),
        (seq, by_reply): (u64, bool),
        counts: bool,
        tracing: &Tracing,
    ) {
        // The queue may have sent nothing since the last wait.
        if seq == 0 || std::mem::replace(&mut self.waited_for, seq) == seq {
            return;
        }
        if counts {
            self.waits.add(Sum { count: 1, bytes: 0, time: end.saturating_sub(at) });
        }
        if tracing.trace {
            self.notes.push(Note { at, what: What::Wait { end, seq, by_reply } });
        }
    }

    pub(crate) fn is_long(&self) -> bool {
        self.notes.len() >= PAGE
    }
}

/// The notes of all queues of a device.
#[derive(Debug, Default)]
pub(crate) struct DeviceTrace {
    /// By queue.
    pub(crate) notes: BTreeMap<u32, Vec<Note>>,
    /// Notes that were not kept.
    pub(crate) dropped: u64,
    /// Waits of the program.
    pub(crate) waits: Sum,
    kept: u64,
}

impl DeviceTrace {
    /// Takes the notes of a queue; keeps at most `limit` notes in all.
    pub(crate) fn take(&mut self, queue: u32, trace: &mut QueueTrace, limit: u64) {
        self.waits.add(std::mem::take(&mut trace.waits));
        let room = limit.saturating_sub(self.kept).min(trace.notes.len() as u64);
        self.kept += room;
        self.dropped += trace.notes.len() as u64 - room;
        self.notes.entry(queue).or_default().extend(trace.notes.drain(..).take(room as usize));
    }

    /// Takes everything; notes that were taken still count towards the limit.
    pub(crate) fn take_all(&mut self) -> DeviceTrace {
        let kept = self.kept;
        std::mem::replace(self, DeviceTrace { kept, ..DeviceTrace::default() })
    }

    /// Appends a later trace. `place` returns the number of the kernel at an address.
    pub(crate) fn append(&mut self, later: DeviceTrace, mut place: impl FnMut(u64) -> u64) {
        for (queue, mut notes) in later.notes {
            for note in &mut notes {
                if let What::Launch(kernel) = &mut note.what {
                    *kernel = place(*kernel);
                }
            }
            self.notes.entry(queue).or_default().append(&mut notes);
        }
        self.dropped += later.dropped;
        self.waits.add(later.waits);
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/messages/queue_trace.rs"]
pub(crate) mod tests;
