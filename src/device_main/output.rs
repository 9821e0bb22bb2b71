// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What regions print: kept in memory until the host takes it.
//!
//! Standard output and error are files in memory, not pipes: a print never blocks, what
//! was printed before a crash is still there, and whether there is anything new costs a
//! load from a mapped page instead of a system call after every region. Behind the end
//! of the file that page holds zeros; a byte that is not zero is new output. (Text that
//! begins with a NUL byte is noticed when the device is idle for some microseconds.)

use crate::base::node::memfd;
use crate::base::{Error, Result};
use crate::wire::MESSAGE_MAX;
use crate::wire::reply::Stream;
use memmap2::{MmapOptions, MmapRaw};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
/// A line of no more than this many bytes is written at once.
const LINE_MAX: usize = 64 << 10;
/// Bytes that were taken are given back to the system in steps of this.
const STEP: u64 = 1 << 20;

/// The two streams of this process.
pub struct Output {
    sinks: [Sink; 2],
}

/// One of the standard streams.
struct Sink {
    stream: Stream,
    file: File,
    /// The page that holds the byte at `taken`, and its number.
    page: MmapRaw,
    page_number: u64,
    taken: u64,
    given_back: u64,
}

impl Output {
    /// Files in memory that nobody prints to yet.
    ///
    /// # Errors
    /// The system's.
    pub fn empty() -> Result<Output> {
        Ok(Output { sinks: [Sink::new(Stream::Out)?, Sink::new(Stream::Err)?] })
    }

    /// Puts files in memory in the place of descriptors 1 and 2; returns the old
    /// standard error, for messages of the device itself.
    ///
    /// # Errors
    /// The system's.
    pub fn capture() -> Result<(Output, File)> {
        // SAFETY: dup of an open descriptor; the copy is ours alone.
        let stderr = unsafe {
            match libc::fcntl(2, libc::F_DUPFD_CLOEXEC, 3) {
                -1 => return Err(Error::from(std::io::Error::last_os_error()).context("standard error")),
                fd => File::from_raw_fd(fd),
            }
        };
        let output = Output::empty()?;
        unsafe extern "C" {
            static stdout: *mut libc::FILE;
        }
        for sink in &output.sinks {
            // SAFETY: both descriptors are open.
            if unsafe { libc::dup2(sink.file.as_raw_fd(), sink.stream as i32) } == -1 {
                return Err(Error::from(std::io::Error::last_os_error()).context("standard output"));
            }
        }
        // By lines, as on a terminal: a long region's output is seen while it runs, and
        // a crash loses nothing but an unfinished line.
        let buffer = Box::leak(vec![0u8; LINE_MAX].into_boxed_slice());
        // SAFETY: nothing was printed yet; the buffer stays for ever.
        unsafe { libc::setvbuf(stdout, buffer.as_mut_ptr().cast(), libc::_IOLBF, buffer.len()) };
        Ok((output, stderr))
    }

    /// True if something was printed that was not taken.
    #[inline]
    pub fn is_pending(&self) -> bool {
        self.sinks.iter().any(Sink::is_pending)
    }

    /// True if the files are longer than what was taken: also sees a NUL byte, at the
    /// price of system calls.
    pub fn has_grown(&self) -> bool {
        self.sinks.iter().any(Sink::has_grown)
    }

    /// Takes no notice of what was printed so far.
    ///
    /// # Errors
    /// The system's.
    pub fn skip(&mut self) -> Result<()> {
        self.sinks.iter_mut().try_for_each(|sink| {
            let end = sink.file.metadata()?.len();
            sink.advance(end)
        })
    }

    /// Fills a message that `begin` starts with printed bytes; false if nothing is left.
    ///
    /// # Errors
    /// The system's.
    pub fn take(&mut self, out: &mut Vec<u8>, begin: impl Fn(&mut Vec<u8>, Stream)) -> Result<bool> {
        for sink in &mut self.sinks {
            begin(out, sink.stream);
            if sink.take(out)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// Hands what C stdio still buffers to the file.
#[inline]
pub fn flush_stdio() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
    }
    // SAFETY: the stream is initialised; it locks itself. (stderr has no buffer.)
    unsafe { libc::fflush(stdout) };
}

/// The same after a crash, when the stream may be locked for ever by who crashed in it.
pub fn try_flush_stdio() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
        fn ftrylockfile(file: *mut libc::FILE) -> std::ffi::c_int;
        fn funlockfile(file: *mut libc::FILE);
    }
    // SAFETY: the stream is initialised; its lock can be taken again by its holder.
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
        // One byte, so that the first page exists.
        file.write_all(b"\n")?;
        // SAFETY: the descriptor is open. O_APPEND: every write goes to the end, whoever
        // shares the descriptor.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_APPEND) } == -1 {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(Sink { stream, page: map(&file, 0)?, page_number: 0, file, taken: 1, given_back: 0 })
    }

    #[inline]
    fn is_pending(&self) -> bool {
        let offset = self.taken % PAGE;
        if offset == 0 {
            // The next page may not exist yet; to look at it would be a bus error.
            return self.has_grown();
        }
        // SAFETY: the page is mapped and holds the byte before this one, so it exists.
        unsafe { self.page.as_ptr().add(offset as usize).read_volatile() != 0 }
    }

    fn has_grown(&self) -> bool {
        self.file.metadata().is_ok_and(|m| m.len() > self.taken)
    }

    fn take(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        let start = out.len();
        out.resize(MESSAGE_MAX, 0);
        let got = self.file.read_at(&mut out[start..], self.taken)?;
        out.truncate(start + got);
        if got == 0 {
            return Ok(false);
        }
        // Where more follows, up to the end of a line, if there is one.
        let is_full = out.len() == MESSAGE_MAX;
        if let Some(end) = out[start..].iter().rposition(|b| *b == b'\n').filter(|_| is_full) {
            out.truncate(start + end + 1);
        }
        let got = out.len() - start;
        self.advance(self.taken + got as u64)?;
        if self.taken - self.given_back > 2 * STEP {
            let len = (self.taken - self.given_back) / STEP * STEP - STEP;
            let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
            // SAFETY: plain numbers; a refusal only keeps the memory.
            unsafe { libc::fallocate(self.file.as_raw_fd(), mode, self.given_back as i64, len as i64) };
            self.given_back += len;
        }
        Ok(true)
    }

    /// What comes before `end` is taken.
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

fn map(file: &File, offset: u64) -> Result<MmapRaw> {
    Ok(MmapOptions::new().offset(offset).len(PAGE as usize).map_raw_read_only(file)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_is_written_is_taken_in_order() {
        let mut sink = Sink::new(Stream::Out).unwrap();
        let mut written = Vec::new();
        let mut taken = Vec::new();
        for i in 0..3000usize {
            assert!(!sink.is_pending());
            let text = format!("{i}").repeat(i % 700 + 1);
            (&sink.file).write_all(text.as_bytes()).unwrap();
            written.extend_from_slice(text.as_bytes());
            assert!(sink.is_pending(), "{i}");
            loop {
                let mut out = Vec::with_capacity(1000);
                if !sink.take(&mut out).unwrap() {
                    break;
                }
                taken.extend(out);
            }
        }
        assert!(taken == written && written.len() > 3 << 20);
    }
}
