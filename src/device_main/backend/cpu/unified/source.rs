// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Reads the program's memory: from its process, if that is on this node and the system allows it, or by messages.

use super::page_cache::KnownParts;
use super::unmerged::Unmerged;
use crate::base::{Error, Result};
use crate::device_main::upcalls::interface::{Piece, Upcalls};
use crate::sys::{crew, process};
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Bytes that are read from the process at once.
const PIECE: usize = 256 << 10;
/// The least bytes for which several threads pay off.
const COPY_MIN: usize = 4 << 20;
const PAGE: usize = 4096;

pub(super) struct Source {
    process: Option<i32>,
    /// The program has sent memory, so regions may use it.
    is_allowed: bool,
    unmerged: Unmerged,
    buffer: Vec<u8>,
}

impl Source {
    pub fn new(process: Option<i32>) -> Source {
        Source { process, is_allowed: false, unmerged: Unmerged::default(), buffer: vec![0; PIECE] }
    }

    /// True if this process may access the program's, so that the program can perhaps access this one's.
    pub fn is_near(&self) -> bool {
        self.process.is_some()
    }

    /// Notes the changes of a message that is sent to the program.
    pub fn note_sent(&mut self, changes: Vec<u8>) {
        if self.is_near() {
            self.unmerged.add(changes);
        }
    }

    /// The program's process, if reading it, and merging what is known to be unmerged, shows all earlier changes. Otherwise
    /// the memory must be requested by message, which follows the changes that are on their way.
    fn readable(&mut self, upcalls: &dyn Upcalls) -> Option<i32> {
        let process = self.process.filter(|_| self.is_allowed)?;
        self.unmerged.settle(upcalls.unmerged()).then_some(process)
    }

    /// Reads the readable prefix of a range, in consecutive pieces. Returns the prefix's end. `known` are the parts
    /// that this process already has. Also copies the bytes to `to`, if given.
    pub fn read(
        &mut self,
        upcalls: &dyn Upcalls,
        range: Range<u64>,
        known: &KnownParts,
        mut to: Option<&mut [u8]>,
        piece: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<u64> {
        if let Some(process) = self.readable(upcalls) {
            match self.read_process(process, range.clone(), to.as_deref_mut(), piece)? {
                Some(end) => return Ok(end),
                None => self.process = None,
            }
        }
        let mut end = range.start;
        upcalls.fetch(&[(range.clone(), known.list())], &mut |got| {
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
        self.is_allowed |= end > range.start;
        Ok(end)
    }

    /// Copies the readable prefix of a range to the same offsets of a file, and to `to` if given, with several threads.
    /// Returns the prefix's end. `None` if nothing was copied: the range is short, or the process can't be read there.
    pub fn copy(
        &mut self,
        upcalls: &dyn Upcalls,
        range: Range<u64>,
        to: Option<&mut [u8]>,
        file: &Arc<File>,
    ) -> Option<u64> {
        let (process, len) = (self.readable(upcalls)?, (range.end - range.start) as usize);
        if len < COPY_MIN || !self.unmerged.is_empty() {
            return None;
        }
        let to = to.map(|to| {
            assert_eq!(to.len(), len);
            to.as_mut_ptr() as usize
        });
        let (file, last) = (file.clone(), AtomicUsize::new(usize::MAX));
        let copied = crew::share(len.div_ceil(PIECE), move |buffer, i| {
            if i > last.load(Ordering::Relaxed) {
                return 0;
            }
            let offset = i * PIECE;
            let (at, wanted) = (range.start + offset as u64, PIECE.min(len - offset));
            let bytes = match to {
                // SAFETY: the slice is that long, and borrowed until `share` returns; no piece is done after that. Each
                // piece has its own part.
                Some(to) => unsafe { std::slice::from_raw_parts_mut((to + offset) as *mut u8, wanted) },
                None => {
                    buffer.resize(PIECE, 0);
                    &mut buffer[..wanted]
                }
            };
            // SAFETY: the buffer is that long.
            let n = unsafe { process::read_memory(process, at, bytes.as_mut_ptr(), wanted) };
            let whole = usize::try_from(n).map_or(0, |n| n / PAGE * PAGE);
            let copied = file.write_all_at(&bytes[..whole], at).map_or(0, |()| whole);
            if copied < wanted {
                last.fetch_min(i, Ordering::Relaxed);
            }
            copied
        });
        let end = range.start + until_first_short(&copied) as u64;
        (end > range.start).then_some(end)
    }

    /// [`Source::read`] from the process; none if the system does not allow that.
    fn read_process(
        &mut self,
        process: i32,
        range: Range<u64>,
        mut to: Option<&mut [u8]>,
        piece: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<Option<u64>> {
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
                    self.unmerged.merge(at, &mut buffer[..whole])?;
                    piece(Piece { at, same: 0, bytes: &buffer[..whole] })?;
                    at += whole as u64;
                }
                _ if at > range.start => break,
                _ if std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) => break,
                _ => return Ok(None),
            }
        }
        Ok(Some(at))
    }
}

/// The total bytes of consecutive pieces, up to and including the first short one.
fn until_first_short(pieces: &[usize]) -> usize {
    let whole = pieces.iter().take_while(|&&n| n == PIECE).count();
    whole * PIECE + pieces.get(whole).unwrap_or(&0)
}
