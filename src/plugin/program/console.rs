// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The output of regions, from its arrival until it is written to the program's own streams.
//!
//! The driving thread only collects output here. Threads that hold no lock of this library write
//! it: the program's stdout may be a pipe that nobody reads for an hour, or another thread of the
//! program may have locked it (`flockfile`).
//!
//! Lines of several devices do not mix: while one device is within a line, the text of the others
//! waits for the end of that line, within limits.

use crate::base::lock::{Mutex, order};
use crate::base::log;
use crate::wire::MESSAGE_MAX;
use crate::wire::reply::{OUTPUT_LEN, Stream};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How long the text of other devices waits for the end of a line: usually, and if the rest of the line is
/// known to be on its way.
const LINE_PATIENCE: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// How long a construct waits for its device's text while another thread has the stream.
const STREAM_PATIENCE: Duration = Duration::from_secs(1);
/// A longer partial line is written before it ends.
const LINE_MAX: usize = 64 << 10;

/// Keeps the output of regions until it is written.
pub(crate) struct Console {
    streams: [Mutex<Pending, { order::LEAF }>; 2],
    /// Bytes of all devices that are not written yet.
    waiting: AtomicUsize,
    devices: Vec<Counts>,
    /// A write has failed, and the user was warned.
    has_failed: AtomicBool,
}

#[derive(Default)]
struct Counts {
    arrived: AtomicU64,
    written: AtomicU64,
    /// Written bytes that the device was told of.
    acknowledged: AtomicU64,
}

/// The text that waits to be written to one stream.
struct Pending {
    /// By device.
    texts: Vec<Text>,
    /// The device whose line was begun and not ended.
    within_line: Option<usize>,
    patience: [Duration; 2],
}

#[derive(Default)]
struct Text {
    bytes: Vec<u8>,
    /// When the oldest byte arrived.
    since: Option<Instant>,
    /// The last piece filled a message, so more follows.
    goes_on: bool,
}

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    static stderr: *mut libc::FILE;
    fn ftrylockfile(file: *mut libc::FILE) -> std::ffi::c_int;
    fn funlockfile(file: *mut libc::FILE);
}

impl Console {
    pub(crate) fn new(devices: usize) -> Console {
        let streams = [(); 2].map(|()| Mutex::new(Pending::new(devices, LINE_PATIENCE)));
        Console {
            streams,
            waiting: AtomicUsize::new(0),
            devices: (0..devices).map(|_| Counts::default()).collect(),
            has_failed: AtomicBool::new(false),
        }
    }

    #[cold]
    pub(crate) fn push(&self, device: usize, stream: Stream, bytes: &[u8]) {
        self.streams[stream as usize - 1].lock().push(device, bytes);
        self.devices[device].arrived.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.waiting.fetch_add(bytes.len(), Ordering::Relaxed);
    }

    /// Adds a line about a device, behind the device's own output.
    #[cold]
    pub(crate) fn say(&self, device: usize, line: &str) {
        self.push(device, Stream::Err, format!("{line}\n").as_bytes());
        // The device must not count these bytes as its own.
        self.devices[device].acknowledged.fetch_add(line.len() as u64 + 1, Ordering::Relaxed);
    }

    pub(crate) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// True if text of a device must be written before a construct that ran there returns.
    #[inline]
    pub(crate) fn owes(&self, device: usize) -> bool {
        let counts = &self.devices[device];
        counts.written.load(Ordering::Acquire) != counts.arrived.load(Ordering::Relaxed) && !self.is_stuck(device)
    }

    /// True if another thread's use of a stream has delayed a device's text for long.
    #[cold]
    fn is_stuck(&self, device: usize) -> bool {
        let since = self.streams.iter().filter_map(|s| s.lock().texts[device].since).min();
        since.is_some_and(|since| since.elapsed() > STREAM_PATIENCE)
    }

    /// Writes the text that can be written now. `goes_on` returns whether a device may continue its line.
    #[cold]
    pub(crate) fn write(&self, goes_on: &dyn Fn(usize) -> bool) {
        for stream in [Stream::Out, Stream::Err] {
            // No need to wait: a thread that is writing also writes the text that is here.
            let Some(file) = StdStream::try_lock(stream) else { continue };
            loop {
                let next = self.streams[stream as usize - 1].lock().take(goes_on);
                let Some((device, bytes)) = next else { break };
                if let Err(e) = file.write(&bytes)
                    && !self.has_failed.swap(true, Ordering::Relaxed)
                {
                    // The region's printf has already returned and can't report this.
                    log::warning(format_args!("what regions print can't be written by the program: {e}"));
                }
                self.devices[device].written.fetch_add(bytes.len() as u64, Ordering::Release);
                self.waiting.fetch_sub(bytes.len(), Ordering::Relaxed);
            }
        }
    }

    /// Acknowledges a device's written bytes if there are at least `step` new ones. The caller sends
    /// the returned number to the device.
    pub(crate) fn acknowledge(&self, device: usize, step: u64) -> Option<u64> {
        let counts = &self.devices[device];
        let known = counts.acknowledged.load(Ordering::Relaxed);
        let new = counts.written.load(Ordering::Relaxed).saturating_sub(known);
        // Only one of several threads may send it.
        let mine = new >= step
            && counts.acknowledged.compare_exchange(known, known + new, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        mine.then_some(new)
    }
}

impl Pending {
    fn new(devices: usize, patience: [Duration; 2]) -> Pending {
        Pending { texts: (0..devices).map(|_| Text::default()).collect(), within_line: None, patience }
    }

    fn push(&mut self, device: usize, bytes: &[u8]) {
        let text = &mut self.texts[device];
        text.bytes.extend_from_slice(bytes);
        text.since.get_or_insert_with(Instant::now);
        text.goes_on = bytes.len() + OUTPUT_LEN >= MESSAGE_MAX;
    }

    /// Takes the text to be written next, and its device.
    fn take(&mut self, goes_on: &dyn Fn(usize) -> bool) -> Option<(usize, Vec<u8>)> {
        let patience = self.patience[usize::from(self.within_line.is_some_and(|d| self.texts[d].goes_on))];
        let waits = |text: &Text| text.since.is_some_and(|since| since.elapsed() > patience);
        let has_text = |device: &usize| !self.texts[*device].bytes.is_empty();
        let mut waiting = (0..self.texts.len()).filter(has_text);
        let others_wait = waiting.clone().count() > 1;
        if let Some(device) = self.within_line {
            if has_text(&device) {
                return Some(self.take_of(device, others_wait));
            }
            if goes_on(device) && !waiting.clone().any(|d| waits(&self.texts[d])) {
                return None;
            }
        }
        let due = waiting.find(|&device| {
            let text = &self.texts[device];
            let is_due = text.bytes.contains(&b'\n') || text.bytes.len() > LINE_MAX;
            is_due || !others_wait || !goes_on(device) || waits(text)
        });
        self.within_line = None;
        due.map(|device| self.take_of(device, others_wait))
    }

    /// Takes a device's text. If others wait, leaves a partial line that follows a whole one.
    fn take_of(&mut self, device: usize, others_wait: bool) -> (usize, Vec<u8>) {
        let text = &mut self.texts[device];
        let line_end = text.bytes.iter().rposition(|b| *b == b'\n').map(|i| i + 1);
        let rest = match line_end {
            Some(end) if others_wait => text.bytes.split_off(end),
            _ => Vec::new(),
        };
        let bytes = std::mem::replace(&mut text.bytes, rest);
        if text.bytes.is_empty() {
            text.since = None;
        }
        self.within_line = (bytes.last() != Some(&b'\n')).then_some(device);
        (device, bytes)
    }
}

/// One of the program's own stdio streams, locked by this thread.
struct StdStream(*mut libc::FILE);

impl StdStream {
    /// `None` if another thread of the program has locked it.
    fn try_lock(stream: Stream) -> Option<StdStream> {
        // SAFETY: libc initializes the streams before any library; the lock is recursive.
        unsafe {
            let file = match stream {
                Stream::Out => stdout,
                Stream::Err => stderr,
            };
            (ftrylockfile(file) == 0).then(|| StdStream(file))
        }
    }

    fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        // SAFETY: the stream is valid, and this thread has locked it; the bytes have that length.
        let written = unsafe {
            libc::fwrite(bytes.as_ptr().cast(), 1, bytes.len(), self.0) == bytes.len() && libc::fflush(self.0) == 0
        };
        if written { Ok(()) } else { Err(std::io::Error::last_os_error()) }
    }
}

impl Drop for StdStream {
    fn drop(&mut self) {
        // SAFETY: this thread has locked it.
        unsafe { funlockfile(self.0) };
    }
}

/// Prints to the program's standard output, in order with the program's own output. Like `printf`
/// with an ignored result, it reports no failure.
pub(crate) fn print(text: &[u8]) {
    // SAFETY: libc initializes the stream before any library; its functions lock it.
    unsafe {
        libc::fwrite(text.as_ptr().cast(), 1, text.len(), stdout);
        libc::fflush(stdout);
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/program/console.rs"]
mod tests;
