// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Reads the program's memory: from its process, if that is on this node and the system allows it, or by messages.

use crate::base::{Error, Result};
use crate::device_main::home::Home;
use crate::sys::process;
use std::ops::Range;

/// Bytes that are read from the process at once.
const PIECE: usize = 256 << 10;
const PAGE: usize = 4096;
/// Bytes for which another thread is worth its start.
const SHARE: u64 = 2 << 20;
/// Most threads that read.
const THREADS: u64 = 4;

/// Takes a part of the memory: its address and its bytes, whole pages.
pub(super) type Piece<'a> = dyn Fn(u64, &[u8]) -> Result<()> + Sync + 'a;

pub(super) struct Source {
    process: Option<i32>,
    /// The program has sent memory, so regions may use it, and it has taken all changes.
    is_allowed: bool,
    /// How many threads may read at once.
    threads: u64,
    buffer: Vec<u8>,
}

impl Source {
    pub fn new(process: Option<i32>) -> Source {
        let threads = std::thread::available_parallelism().map_or(1, |n| n.get() as u64).min(THREADS);
        Source { process, is_allowed: false, threads, buffer: vec![0; PIECE] }
    }

    /// Messages were sent that change the program's memory: only the answer to a later one shows that they were taken.
    pub fn come_after_messages(&mut self) {
        self.is_allowed = false;
    }

    /// True if this process may access the program's, and so perhaps the other way round.
    pub fn is_near(&self) -> bool {
        self.process.is_some()
    }

    /// Reads a range, or what there is from its start on, and returns where that ends. It is passed on in pieces, not in
    /// order, by several threads. What lies behind the end may be among them.
    pub fn read(&mut self, home: &dyn Home, range: Range<u64>, piece: &Piece<'_>) -> Result<u64> {
        if let Some(process) = self.process.filter(|_| self.is_allowed) {
            match self.read_shares(process, &range, piece) {
                Err(Error::Reported) => self.process = None,
                result => return result,
            }
        }
        let mut end = range.start;
        home.fetch(range.start, range.end - range.start, &mut |at, bytes| {
            if at != end || at + bytes.len() as u64 > range.end {
                return Err(Error::new("the program sends other memory than this device has asked for"));
            }
            end += bytes.len() as u64;
            piece(at, bytes)
        })?;
        self.is_allowed = true;
        Ok(end)
    }

    /// The same from the process. [`Error::Reported`] if the system does not allow it.
    fn read_shares(&mut self, process: i32, range: &Range<u64>, piece: &Piece<'_>) -> Result<u64> {
        let len = range.end - range.start;
        let share = (len / (len / SHARE).clamp(1, self.threads)).next_multiple_of(PIECE as u64);
        let shares = (range.start..range.end).step_by(share as usize).map(|at| at..range.end.min(at + share));
        let buffer = &mut self.buffer;
        std::thread::scope(|scope| {
            let others: Vec<_> = shares
                .skip(1)
                .map(|share| {
                    let read = |share| read_process(process, share, &mut vec![0; PIECE], piece);
                    (share.clone(), std::thread::Builder::new().spawn_scoped(scope, move || read(share)))
                })
                .collect();
            let first = range.start..range.end.min(range.start + share);
            let mut end = read_process(process, first.clone(), buffer, piece)?;
            let mut wanted = first.end;
            for (share, thread) in others {
                // Without a thread, or with an error, the next fault will tell.
                let read = thread.map_or(Ok(share.start), |thread| thread.join().unwrap_or(Ok(share.start)));
                if end == wanted {
                    end = read.unwrap_or(share.start);
                }
                wanted = share.end;
            }
            Ok(end)
        })
    }
}

/// Reads from a process, as [`Source::read`] does.
fn read_process(process: i32, range: Range<u64>, buffer: &mut [u8], piece: &Piece<'_>) -> Result<u64> {
    let mut at = range.start;
    while at < range.end {
        let wanted = buffer.len().min((range.end - at) as usize);
        // SAFETY: the buffer is that long.
        let n = unsafe { process::read_memory(process, at, buffer.as_mut_ptr(), wanted) };
        match usize::try_from(n) {
            Ok(n) if n >= PAGE => {
                let whole = n / PAGE * PAGE;
                piece(at, &buffer[..whole])?;
                at += whole as u64;
            }
            _ if at > range.start => break,
            _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) => {
                return Err(Error::new(""));
            }
            _ => return Err(Error::Reported),
        }
    }
    Ok(at)
}
