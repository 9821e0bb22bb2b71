// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Reads the program's memory: from its process, if that is on this node and the system allows it, or by messages.

use crate::base::{Error, Result};
use crate::device_main::home::Home;
use crate::sys::{process, shares};
use std::ops::Range;

/// Bytes that are read from the process at once.
const PIECE: usize = 256 << 10;
const PAGE: usize = 4096;

/// Takes a part of the memory: its address and its bytes, whole pages.
pub(super) type Piece<'a> = dyn Fn(u64, &[u8]) -> Result<()> + Sync + 'a;

pub(super) struct Source {
    process: Option<i32>,
    /// The program has sent memory, so regions may use it, and it has taken all changes.
    is_allowed: bool,
}

impl Source {
    pub fn new(process: Option<i32>) -> Source {
        Source { process, is_allowed: false }
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
            match read_shares(process, range.clone(), piece) {
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
}

/// The same from a process. [`Error::Reported`] if the system does not allow it.
fn read_shares(process: i32, range: Range<u64>, piece: &Piece<'_>) -> Result<u64> {
    let mut end = range.start;
    for (part, read) in shares::divide(range.clone(), &|part| read_process(process, part, piece)) {
        match read {
            Ok(read) => end = read,
            // If the range has a beginning, the next fault tells why it has no more.
            Err(e) if end == range.start => return Err(e),
            Err(_) => break,
        }
        if end < part.end {
            break;
        }
    }
    Ok(end)
}

/// Reads from a process, as [`Source::read`] does.
fn read_process(process: i32, range: Range<u64>, piece: &Piece<'_>) -> Result<u64> {
    let mut buffer = vec![0; PIECE.min((range.end - range.start) as usize)];
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
