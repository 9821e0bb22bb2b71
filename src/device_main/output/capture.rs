// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Output of regions, kept in memory until the host takes it.
//!
//! Standard output and error are files in memory instead of pipes. A print never blocks, and output from before a crash
//! survives. The check for new output after each region is a load from a mapped page instead of a system call: beyond
//! the end of the file that page holds zeros, so a non-zero byte is new output. (Output that begins with a NUL byte is
//! noticed when the device idles for some microseconds.)
//!
//! On a device with an accelerator, libomptarget prints errors. Those lines are held back: they become part of the
//! error message of the failure that they explain, or are sent later.
//!
//! The host acknowledges output that it has written. The amount of unacknowledged output is bounded, except in a
//! process that repeats another process's work: there an acknowledgement may wait for an answer, which waits for the
//! output.

use super::libomptarget_errors;
use crate::base::limits::{OUTPUT_AHEAD, OUTPUT_BEFORE_REPLY};
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::device_main::crash::monitor;
use crate::device_main::host::Host;
use crate::sys::node::memfd;
use crate::wire::MESSAGE_MAX;
use crate::wire::reply::{self, Stream};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_setfl};
use rustix::stdio::{dup2_stderr, dup2_stdout};
use std::fs::File;
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const PAGE: u64 = 4096;
/// A line of at most this many bytes is written at once.
const LINE_MAX: usize = 64 << 10;
/// The maximum number of bytes that are held back.
const HELD_MAX: usize = 8 << 10;
/// The memory of bytes that were taken is returned to the system in steps of this size.
const STEP: u64 = 1 << 20;

unsafe extern "C" {
    static stdout: *mut libc::FILE;
    fn ftrylockfile(file: *mut libc::FILE) -> std::ffi::c_int;
    fn funlockfile(file: *mut libc::FILE);
}

/// What regions print, and how much of it the host has not written yet.
pub(crate) struct Output {
    sinks: Mutex<[Sink; 2], { order::OUTPUT }>,
    /// The number of bytes that were sent, and the number that the host has written.
    printed: AtomicU64,
    written: AtomicU64,
    /// Lines are held back.
    holds: AtomicBool,
    /// Output does not wait for acknowledgements.
    is_unlimited: AtomicBool,
}

struct Sink {
    stream: Stream,
    file: File,
    /// The page that holds the byte at `taken`, and its number.
    page: MmapRaw,
    page_number: u64,
    taken: u64,
    given_back: u64,
    /// For standard error beside a libomptarget.
    filter: Option<Filter>,
}

/// Holds back lines of libomptarget's errors.
#[derive(Default)]
struct Filter {
    held: Vec<u8>,
    /// Lines that were held back and are to be sent now.
    released: Vec<u8>,
    /// The last line that was passed on has not ended.
    within_line: bool,
    /// The next [`Filter::sort`] passes on an unfinished line, too.
    passes: bool,
}

impl Output {
    /// Creates the files in memory, but redirects nothing to them.
    pub fn empty() -> Result<Output> {
        let sinks = Mutex::new([Sink::new(Stream::Out)?, Sink::new(Stream::Err)?]);
        let (printed, written, holds, is_unlimited) = Default::default();
        Ok(Output { sinks, printed, written, holds, is_unlimited })
    }

    /// Redirects stdout and stderr to files in memory; returns the former stderr, for the device's own messages.
    /// `filters`: see [`Output::take_held`].
    pub fn capture(filters: bool) -> Result<(Output, File)> {
        let stderr = std::io::stderr().as_fd().try_clone_to_owned();
        let stderr = stderr.map_err(|e| Error::from(e).context("standard error"))?;
        let output = Output::empty()?;
        output.sinks.lock()[1].filter = filters.then(Filter::default);
        let redirect = |[out, err]: &[Sink; 2]| dup2_stdout(&out.file).and_then(|()| dup2_stderr(&err.file));
        redirect(&output.sinks.lock()).map_err(|e| Error::from(e).context("standard output"))?;
        // Buffer lines, as on a terminal: a long region's output is seen at once, and a crash loses only part of a
        // line.
        let buffer = Box::leak(vec![0u8; LINE_MAX].into_boxed_slice());
        // SAFETY: nothing was printed yet, and the buffer is never freed.
        unsafe { libc::setvbuf(stdout, buffer.as_mut_ptr().cast(), libc::_IOLBF, buffer.len()) };
        Ok((output, stderr.into()))
    }

    /// True if there is output, or if another thread is sending some.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.sinks.try_lock().is_none_or(|sinks| sinks.iter().any(Sink::is_pending))
    }

    /// True if lines of libomptarget's errors are held back, among the output that [`Output::send`] has read.
    #[inline]
    pub fn holds(&self) -> bool {
        self.holds.load(Ordering::Relaxed)
    }

    /// Takes the lines that are held back.
    pub fn take_held(&self) -> Vec<u8> {
        self.holds.store(false, Ordering::Relaxed);
        self.sinks
            .lock()
            .iter_mut()
            .filter_map(|sink| sink.filter.as_mut())
            .flat_map(|f| std::mem::take(&mut f.held))
            .collect()
    }

    /// Sends all output, including lines that are held back; drives while the host is behind.
    pub fn pass_on_held(&self, host: &Host, drive: impl Fn()) {
        self.release(&self.take_held());
        self.send(host, OUTPUT_BEFORE_REPLY, drive);
    }

    /// Lets the next send include these lines, which were held back, and an unfinished line that may have to be held
    /// back.
    fn release(&self, lines: &[u8]) {
        for filter in self.sinks.lock().iter_mut().filter_map(|sink| sink.filter.as_mut()) {
            filter.released.extend_from_slice(lines);
            filter.passes = true;
        }
    }

    pub fn acknowledge(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Relaxed);
    }

    /// True if at least this many bytes were sent that the host has not acknowledged. (A worker that repeats work may
    /// get the acknowledgement before it prints.)
    fn is_ahead(&self, limit: usize) -> bool {
        let (printed, written) = (self.printed.load(Ordering::Relaxed), self.written.load(Ordering::Relaxed));
        printed.saturating_sub(written) >= limit as u64 && !self.is_unlimited.load(Ordering::Relaxed)
    }

    /// Sends output if the host accepts more. `is_idle`: also looks beyond a NUL byte, by system calls.
    pub fn poll(&self, host: &Host, is_idle: bool, drive: impl Fn()) {
        let grown = |sink: &Sink| sink.is_pending() || (is_idle && sink.has_grown());
        if !self.is_ahead(OUTPUT_AHEAD)
            && let Some(mut sinks) = self.sinks.try_lock()
            && sinks.iter().any(grown)
        {
            self.send_all(&mut *sinks, host, OUTPUT_AHEAD, drive);
        }
    }

    /// Sends all output, and drives while the host is behind; with [`OUTPUT_AHEAD`], sends only what the host accepts.
    pub fn send(&self, host: &Host, limit: usize, drive: impl Fn()) {
        self.send_all(&mut *self.sinks.lock(), host, limit, drive);
    }

    /// The caller keeps the sinks locked, to preserve the order of the output.
    fn send_all(&self, sinks: &mut [Sink], host: &Host, limit: usize, drive: impl Fn()) {
        let mut backoff = host.backoff();
        let mut sent = 0;
        loop {
            let mut message = host.link().buffer();
            let taken = take(sinks, &mut message).map_err(|e| e.context("reading what a region printed"));
            let is_held = |sink: &Sink| sink.filter.as_ref().is_some_and(|filter| !filter.held.is_empty());
            self.holds.store(sinks.iter().any(is_held), Ordering::Relaxed);
            if !host.require(taken) {
                return host.link().recycle(message);
            }
            let len = message.len() - reply::OUTPUT_LEN;
            self.printed.fetch_add(len as u64, Ordering::Relaxed);
            host.send(message);
            sent += len;
            // While its output is not bounded, a region may print endlessly.
            if limit == OUTPUT_AHEAD && (sent >= OUTPUT_AHEAD || self.is_ahead(limit)) {
                return;
            }
            while self.is_ahead(limit) {
                host.check();
                monitor::put_off_last_resort();
                drive();
                backoff.pause(None);
            }
            backoff.reset();
        }
    }

    /// Prevents sending while the returned value lives; `None` if another thread sends.
    pub fn try_hold(&self) -> Option<impl Sized> {
        self.sinks.try_hold()
    }

    /// From now on the amount of unacknowledged output is bounded.
    pub fn limit(&self) {
        self.is_unlimited.store(false, Ordering::Relaxed);
    }

    /// For a process that was forked under [`Output::try_hold`] to repeat work: earlier output belongs to the other
    /// process.
    pub fn start_anew(&self) -> Result<()> {
        self.is_unlimited.store(true, Ordering::Relaxed);
        self.sinks.lock().iter_mut().try_for_each(|sink| {
            let end = sink.file.metadata()?.len();
            sink.advance(end)
        })
    }
}

/// Fills a message with output; false if nothing is left.
fn take(sinks: &mut [Sink], out: &mut Vec<u8>) -> Result<bool> {
    for sink in sinks {
        reply::begin_output(out, sink.stream);
        if sink.take(out)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Flushes C's stdout to the file. (stderr has no buffer.)
#[inline]
pub(crate) fn flush_stdio() {
    // SAFETY: the stream is initialized, and locks itself.
    unsafe { libc::fflush(stdout) };
}

/// [`flush_stdio`] after a crash: the crashed thread may hold the stream's lock forever.
pub(crate) fn try_flush_stdio() {
    // SAFETY: the stream is initialized; its lock is recursive.
    unsafe {
        if ftrylockfile(stdout) == 0 {
            libc::fflush(stdout);
            funlockfile(stdout);
        }
    }
}

impl Sink {
    fn new(stream: Stream) -> Result<Sink> {
        let mut file = memfd(c"omptarget-mpi-output", 0)?;
        // One byte, to make the first page exist.
        file.write_all(b"\n")?;
        // Every write goes to the end, even through a shared descriptor.
        fcntl_setfl(&file, OFlags::APPEND)?;
        Ok(Sink { stream, page: map(&file, 0)?, page_number: 0, file, taken: 1, given_back: 0, filter: None })
    }

    #[inline]
    fn is_pending(&self) -> bool {
        let offset = self.taken % PAGE;
        if offset == 0 {
            // The next page may not exist yet; reading it would raise SIGBUS.
            return self.has_grown();
        }
        // SAFETY: the page is mapped and holds the byte before this one, so it exists.
        unsafe { self.page.as_ptr().add(offset as usize).read_volatile() != 0 }
    }

    fn has_grown(&self) -> bool {
        self.file.metadata().is_ok_and(|m| m.len() > self.taken)
    }

    /// Appends output. Returns false if there was none.
    fn take(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let start = out.len();
        if let Some(filter) = self.filter.as_mut().filter(|filter| !filter.released.is_empty()) {
            let len = filter.released.len().min(MESSAGE_MAX - start);
            out.extend(filter.released.drain(..len));
            return Ok(true);
        }
        loop {
            out.resize(MESSAGE_MAX, 0);
            let got = self.file.read_at(&mut out[start..], self.taken)?;
            out.truncate(start + got);
            // If more follows, the message ends with a complete line, if there is one.
            let is_full = out.len() == MESSAGE_MAX;
            if let Some(end) = out[start..].iter().rposition(|b| *b == b'\n').filter(|_| is_full) {
                out.truncate(start + end + 1);
            }
            let mut looked_at = out.len() - start;
            if let Some(filter) = &mut self.filter {
                let (passed_on, len) = filter.sort(&out[start..], is_full);
                out.truncate(start);
                out.extend(passed_on);
                looked_at = len;
            }
            if looked_at == 0 {
                return Ok(false);
            }
            self.advance(self.taken + looked_at as u64)?;
            self.give_back();
            if out.len() > start {
                return Ok(true);
            }
        }
    }

    /// Returns the memory of the bytes that were taken to the system.
    fn give_back(&mut self) {
        if self.taken - self.given_back > 2 * STEP {
            let len = (self.taken - self.given_back) / STEP * STEP - STEP;
            // If this fails, the memory stays in use.
            let _ = fallocate(&self.file, FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE, self.given_back, len);
            self.given_back += len;
        }
    }

    /// Marks the bytes before `end` as taken.
    fn advance(&mut self, end: u64) -> Result<()> {
        self.taken = end;
        let number = self.taken / PAGE;
        if number != self.page_number && !self.taken.is_multiple_of(PAGE) {
            self.page = map(&self.file, number * PAGE)?;
            self.page_number = number;
        }
        Ok(())
    }
}

impl Filter {
    /// Decides which lines to hold back. Returns the bytes to pass on, and how many bytes it processed; the others are
    /// the beginning of a line that may have to be held back. `is_full`: there is no room for more of that line.
    fn sort(&mut self, bytes: &[u8], is_full: bool) -> (Vec<u8>, usize) {
        let (mut passed_on, mut looked_at) = (Vec::new(), 0);
        for line in bytes.split_inclusive(|b| *b == b'\n') {
            let has_ended = line.ends_with(b"\n");
            let may_be_held = !self.within_line && libomptarget_errors::is_error(line);
            if may_be_held && !has_ended && !is_full && !self.passes {
                break;
            }
            if may_be_held && has_ended && self.held.len() < HELD_MAX {
                self.held.extend_from_slice(line);
            } else {
                passed_on.extend_from_slice(line);
                self.within_line = !has_ended;
            }
            looked_at += line.len();
        }
        self.passes = false;
        (passed_on, looked_at)
    }
}

fn map(file: &File, offset: u64) -> Result<MmapRaw> {
    Ok(MmapOptions::new().offset(offset).len(PAGE as usize).map_raw_read_only(file)?)
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/output/capture.rs"]
mod tests;
