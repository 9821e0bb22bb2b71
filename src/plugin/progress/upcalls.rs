// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Serves the upcalls of devices: writes the output of their regions, and answers their requests. The driving thread
//! only notes these; threads that hold no lock of this library serve them.

use super::connection::{Completion, Connection};
use crate::base::Result;
use crate::base::limits::OUTPUT_STEP;
use crate::debug;
use crate::link::Span;
use crate::plugin::unified::Post;
use crate::wire::control::{Answer, Control};
use crate::wire::memory_piece;
use std::time::Duration;

/// How often to retry writing the output of regions while another thread holds the stream.
const OUTPUT_RETRY: Duration = Duration::from_micros(100);

/// The upcalls of a connection's devices.
#[derive(Clone, Copy)]
pub(crate) struct Upcalls<'a>(pub(crate) &'a Connection);

impl Upcalls<'_> {
    /// True if output of regions is not written yet, or a device has made a request.
    #[inline]
    pub(crate) fn are_waiting(self) -> bool {
        self.0.console.is_waiting() || self.0.unified.is_asked()
    }

    /// Answers the requests of devices, and writes the output of regions unless another thread holds the program's
    /// streams. May block forever: the caller must hold no lock of this library.
    #[inline]
    pub(crate) fn serve(self) {
        if self.0.unified.is_asked() {
            self.0.unified.answer(&self.0.ports, &self);
        }
        if self.0.console.is_waiting() {
            self.write_output();
        }
    }

    #[cold]
    fn write_output(self) {
        self.0.console.write(&|device| self.0.ports[device].in_flight() > 0);
        for (device, queue) in self.0.housekeeping.iter().enumerate() {
            if let Some(bytes) = self.0.console.acknowledge(device, OUTPUT_STEP as u64) {
                // If the link is broken, the waiting threads find out.
                let _ = self.0.control(queue, |batch| batch.control(Control::Printed { bytes }));
            }
        }
    }

    /// Waits until all output of a device is written, or cannot be.
    #[inline]
    pub(crate) fn finish_output(self, port: usize) {
        while self.0.console.owes(port) {
            let before = self.0.console.is_waiting();
            self.serve();
            if before && self.0.console.is_waiting() {
                std::thread::sleep(OUTPUT_RETRY);
            }
        }
    }

    /// Fails if the device has failed before. Writes the reason first.
    #[inline]
    pub(crate) fn check_alive(self, port: usize) -> Result<()> {
        let failures = &self.0.ports[port].failures;
        let alive = failures.alive();
        if alive.is_err() {
            failures.note_failed_call();
            self.finish_output(port);
        }
        alive
    }
}

impl Post for Upcalls<'_> {
    fn answer(&self, port: usize, answer: Answer<'_>) -> Result<()> {
        self.0.control(&self.0.housekeeping[port], |batch| batch.control(Control::Answer(answer)))
    }

    fn piece(&self, port: usize, mut bytes: Vec<u8>) -> Result<()> {
        debug!("bulk data to rank {}: {} bytes", self.0.ports[port].rank, bytes.len());
        // SAFETY: the heap block does not move with the vector, which the link returns when the transfer is done.
        let span = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
        self.0.link.send_bulk(self.0.memory_of(port), span, Completion::Sent(bytes)).map_err(|e| self.0.broken(e))?;
        // The earlier pieces move while the next one is read.
        self.0.drive().map(drop)
    }

    fn piece_len(&self) -> Option<usize> {
        memory_piece(self.0.link.fragment())
    }
}
