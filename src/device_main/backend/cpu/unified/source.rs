// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Reads the program's memory: from its process, if that is on this node and the system allows it, or by messages.

use super::kept::KnownParts;
use crate::base::{Error, Result};
use crate::device_main::home::{Home, Piece};
use crate::sys::process;
use std::ops::Range;

/// Bytes that are read from the process at once.
const PIECE: usize = 256 << 10;
const PAGE: usize = 4096;

pub(super) struct Source {
    process: Option<i32>,
    /// The program has sent memory, so regions may use it, and it has taken all changes.
    is_allowed: bool,
    buffer: Vec<u8>,
}

impl Source {
    pub fn new(process: Option<i32>) -> Source {
        Source { process, is_allowed: false, buffer: vec![0; PIECE] }
    }

    /// Messages were sent that change the program's memory: only the answer to a later one shows that they were taken.
    pub fn come_after_messages(&mut self) {
        self.is_allowed = false;
    }

    /// True if this process may access the program's, and so perhaps the other way round.
    pub fn is_near(&self) -> bool {
        self.process.is_some()
    }

    /// Reads a range, or what there is from its start on, in pieces that follow each other. Returns where that ends.
    /// `known` is what this process has already. The bytes are in `to` as well, if there is one.
    pub fn read(
        &mut self,
        home: &dyn Home,
        range: Range<u64>,
        known: &KnownParts,
        mut to: Option<&mut [u8]>,
        piece: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<u64> {
        if let Some(process) = self.process.filter(|_| self.is_allowed) {
            match self.read_process(process, range.clone(), to.as_deref_mut(), piece) {
                Err(Error::Reported) => self.process = None,
                result => return result,
            }
        }
        let mut end = range.start;
        home.fetch(range.start, range.end - range.start, known.list(), &mut |got| {
            let same_end = got.at.saturating_add(got.same);
            let got_end = same_end.saturating_add(got.bytes.len() as u64);
            if got.at != end || got_end > range.end || !known.covers(&(end..same_end)) {
                return Err(Error::new("the program sends other memory than this device has asked for"));
            }
            end = got_end;
            if let Some(to) = &mut to {
                let (from, end) = ((same_end - range.start) as usize, (got_end - range.start) as usize);
                to[from..end].copy_from_slice(got.bytes);
            }
            piece(got)
        })?;
        self.is_allowed = true;
        Ok(end)
    }

    /// The same from the process. [`Error::Reported`] if the system does not allow it.
    fn read_process(
        &mut self,
        process: i32,
        range: Range<u64>,
        mut to: Option<&mut [u8]>,
        piece: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<u64> {
        let mut at = range.start;
        while at < range.end {
            let wanted = PIECE.min((range.end - at) as usize);
            let buffer = match &mut to {
                Some(to) => &mut to[(at - range.start) as usize..][..wanted],
                None => &mut self.buffer[..wanted],
            };
            // SAFETY: the buffer is that long.
            let n = unsafe { process::read_memory(process, at, buffer.as_mut_ptr(), wanted) };
            match usize::try_from(n) {
                Ok(n) if n >= PAGE => {
                    let whole = n / PAGE * PAGE;
                    piece(Piece { at, same: 0, bytes: &buffer[..whole] })?;
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
}
