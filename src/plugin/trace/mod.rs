// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Statistics and traces of the program and the devices.
//!
//! Queues record the program's requests (see [`crate::plugin::messages::queue_trace`]), devices their operations. Both
//! identify kernels by address, so records are collected before an image is unloaded, and at the
//! end. At the start and at the end, the devices' clocks are compared with the program's.
//!
//! | file | contents |
//! | --- | --- |
//! | this one | collects the records |
//! | `file` | writes the trace, which Perfetto opens |
//! | `stats` | writes the statistics of a device, as a table |
//! | `view` | the records of one device, from both sides, with kernels by name |

mod file;
mod stats;
mod view;

use crate::base::clock::{self, Line};
use crate::base::lock::{Mutex, order};
use crate::base::settings::Settings;
use crate::base::{Error, Result, log, name};
use crate::plugin::devices::device::Device;
use crate::plugin::messages::queue_trace::Tracing;
use crate::wire::control::Control;
use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use view::{Seen, View};

/// Round trips that compare two clocks: the least number, the time after which no more are made, and the
/// greatest number. The one with the shortest delay counts.
const ROUND_TRIPS: (u32, Duration, u32) = (10, Duration::from_millis(20), 100);
/// How long a device may be silent before it answers a request for the trace.
const PATIENCE: Duration = Duration::from_secs(10);

/// One moment on the clocks of a device and of the program.
#[derive(Clone, Copy, Debug)]
struct Moment {
    there: u64,
    here: u64,
    /// The possible error, in ticks of the program's clock.
    error: u64,
}

impl Moment {
    /// Asks a device for its time, and assigns the answer to the middle of the round trip.
    fn now(device: &Device) -> Result<Moment> {
        let (few, time, many) = ROUND_TRIPS;
        let (since, mut best) = (Instant::now(), None::<Moment>);
        for n in 0..many {
            if n >= few && since.elapsed() > time {
                break;
            }
            let asked = clock::now();
            let there = device.request(Control::Clock, PATIENCE)?;
            let delay = clock::now().saturating_sub(asked);
            if best.is_none_or(|b| delay.div_ceil(2) < b.error) {
                best = Some(Moment { there, here: asked + delay / 2, error: delay.div_ceil(2) });
            }
        }
        best.ok_or_else(|| Error::new("no round trip was made"))
    }
}

struct TracedDevice {
    first: Moment,
    /// Messages (sent, received) before the trace began.
    messages: (u64, u64),
    seen: Mutex<Seen, { order::SEEN }>,
}

/// Collects the records of all devices until the end of the program.
pub(crate) struct Trace {
    program: String,
    stats: bool,
    file: Option<File>,
    tracing: Tracing,
    start: (u64, Instant),
    devices: Vec<TracedDevice>,
}

impl Trace {
    /// Begins to trace the devices if the user requests it.
    pub(crate) fn begin(settings: &Settings, program: String, devices: &[Device]) -> Result<Option<Trace>> {
        let tracing = Tracing::of(settings);
        if !tracing.on {
            return Ok(None);
        }
        let file = settings.trace.as_deref().map(|path| create(&own(path))).transpose()?;
        let start = (clock::now(), Instant::now());
        let traced = devices.iter().map(|device| {
            device.request(Control::Trace { events: tracing.events }, PATIENCE)?;
            let first = Moment::now(device)?;
            Ok(TracedDevice { first, messages: device.port().messages(), seen: Mutex::default() })
        });
        let devices = traced.collect::<Result<_>>()?;
        Ok(Some(Trace { program, stats: settings.stats, file, tracing, start, devices }))
    }

    /// Collects the records of a device so far, while its kernels' names are known.
    pub(crate) fn collect(&self, device: &Device) -> Result<()> {
        let mut seen = self.devices[device.number].seen.lock();
        let host = device.queues.take_trace(self.tracing.events);
        let mut records = Vec::new();
        let result = loop {
            let left = device.request(Control::Recall, PATIENCE);
            seen.asked += 1;
            let some = std::mem::take(&mut *device.port().records.lock());
            match left {
                // Otherwise this loop would never end.
                Ok(1..) if some.is_empty() => break Err(Error::new("it does not send all that it has seen")),
                Ok(1..) => records.extend(some),
                _ => {
                    records.extend(some);
                    break left.map(drop);
                }
            }
        };
        seen.add(records, host, self.tracing.events, |kernel| device.kernel_symbol(kernel));
        result
    }

    pub(crate) fn end(mut self, devices: &[Device]) {
        let mut views = Vec::new();
        for (device, traced) in devices.iter().zip(&self.devices) {
            let (sent, received) = device.port().messages();
            let asked = traced.seen.lock().asked;
            let messages = (sent - traced.messages.0 - asked, received - traced.messages.1 - asked);
            let last = self.collect(device).and_then(|()| Moment::now(device));
            match last {
                Ok(last) => views.push(self.view(device, traced, messages, last)),
                Err(e) => log::warning(format_args!("not known what {} did: {e}", device.name())),
            }
        }
        if self.stats {
            let tables: String = views.iter().map(|v| stats::table(v)).collect();
            log::text(&tables);
        }
        if let Some(file) = self.file.take() {
            if let Err(e) = file::write(file, &self.program, &views) {
                log::error(format_args!("the trace can't be written: {e}"));
            }
            for view in &views {
                let dropped = view.seen.dropped();
                if dropped > 0 {
                    log::warning(format_args!(
                        "the trace lacks {dropped} events of {}: the device and the program keep {} each, the first ones",
                        view.device.name(),
                        self.tracing.events
                    ));
                }
            }
        }
    }

    fn view<'a>(&self, device: &'a Device, traced: &TracedDevice, messages: (u64, u64), last: Moment) -> View<'a> {
        let first = traced.first;
        let now = (clock::now(), self.start.1.elapsed().as_nanos() as i64);
        let to_host = Line::through((first.there, first.here as i64), (last.there, last.here as i64));
        let host = Line::through((self.start.0, 0), now);
        let mut seen = std::mem::take(&mut *traced.seen.lock());
        seen.names = name::of_kernels(&seen.names);
        seen.events.sort_by_key(|e| (e.begin, e.kind as u8));
        View { device, to_host, host, error: host.length(first.error.max(last.error)), messages, seen }
    }
}

/// Replaces each `%p` in a path by the process id, so that several programs can write traces.
fn own(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().as_bytes().to_vec();
    while let Some(at) = name.windows(2).position(|w| w == b"%p") {
        name.splice(at..at + 2, std::process::id().to_string().into_bytes());
    }
    PathBuf::from(OsString::from_vec(name))
}

/// Creates a file that only the user can access.
fn create(path: &Path) -> Result<File> {
    let open = || {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        // It may exist already, and may be no regular file (a pipe).
        if file.metadata()?.is_file() {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(file)
    };
    open().map_err(|e: std::io::Error| {
        Error::new(format!("the trace can't be written to OMPTARGET_MPI_TRACE={}: {e}", path.display()))
    })
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/trace.rs"]
mod tests;
