// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Takes changes over into the program's memory, which its threads use meanwhile.

use crate::base::{Error, Result};
use crate::sys::process::Mappings;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const WORD: usize = size_of::<u64>();

/// A byte that has neither the old value nor the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub at: u64,
    pub new: u8,
    pub old: u8,
    pub here: u8,
}

/// Fails if the memory can't be written.
pub(super) fn check_writable(at: u64, len: usize) -> Result<()> {
    /// Makes pages present as a write would (Linux 5.14).
    const MADV_POPULATE_WRITE: libc::c_int = 23;
    let (start, end) = (at & !(PAGE - 1), (at + len as u64).next_multiple_of(PAGE));
    // SAFETY: it changes no contents.
    if unsafe { libc::madvise(start as *mut _, (end - start) as usize, MADV_POPULATE_WRITE) } == 0 {
        return Ok(());
    }
    let is_old = std::io::Error::last_os_error().raw_os_error() == Some(libc::EINVAL);
    if is_old && Mappings::now().is_writable(start..end) {
        return Ok(());
    }
    Err(Error::new(format!("it has changed the program's memory at {at:#x}, which can't be written")))
}

/// Replaces the bytes that differ between `old` and `new`, each word in one access, and leaves all others as they are.
/// After a conflict, the words before it are replaced.
///
/// # Safety
/// The pages of `to[..new.len()]` can be read and written. Other threads access them by atomic or plain accesses of the
/// processor, never by references.
pub(super) unsafe fn merge(to: *mut u8, new: &[u8], old: &[u8]) -> std::result::Result<(), Conflict> {
    let lead = to as usize % WORD;
    let first = to.wrapping_sub(lead).cast::<AtomicU64>();
    let words = (lead + new.len()).div_ceil(WORD);
    for i in 0..words {
        // The part of this word that the change covers; the rest counts as unchanged.
        let (start, end) = ((i * WORD).saturating_sub(lead), ((i + 1) * WORD - lead).min(new.len()));
        let place = if i == 0 { lead } else { 0 };
        let word = |bytes: &[u8]| {
            let mut word = [0; WORD];
            word[place..place + end - start].copy_from_slice(&bytes[start..end]);
            u64::from_ne_bytes(word)
        };
        let (new, old) = (word(new), word(old));
        if new != old {
            // SAFETY: the word is aligned, and in a page of the range.
            unsafe { merge_word(&*first.add(i), new, old) }?;
        }
    }
    Ok(())
}

fn merge_word(word: &AtomicU64, new: u64, old: u64) -> std::result::Result<(), Conflict> {
    let changed = nonzero_bytes(new ^ old);
    let mut here = word.load(Ordering::Relaxed);
    loop {
        let conflict = nonzero_bytes(here ^ old) & nonzero_bytes(here ^ new) & changed;
        if conflict != 0 {
            let i = if cfg!(target_endian = "little") { conflict.trailing_zeros() } else { conflict.leading_zeros() };
            let i = i as usize / 8;
            let byte = |word: u64| word.to_ne_bytes()[i];
            let at = std::ptr::from_ref(word) as u64 + i as u64;
            return Err(Conflict { at, new: byte(new), old: byte(old), here: byte(here) });
        }
        let merged = here & !changed | new & changed;
        match word.compare_exchange_weak(here, merged, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Ok(()),
            Err(now) => here = now,
        }
    }
}

/// All bits of each byte that is not 0.
fn nonzero_bytes(word: u64) -> u64 {
    u64::from_ne_bytes(word.to_ne_bytes().map(|byte| if byte == 0 { 0 } else { 0xff }))
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/unified/merge.rs"]
mod tests;
