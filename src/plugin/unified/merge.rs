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
    let end = at.checked_add(len as u64).and_then(|end| end.checked_next_multiple_of(PAGE));
    let (start, end) = (at & !(PAGE - 1), end.ok_or_else(|| Error::new("it has changed memory at no address"))?);
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
/// After a conflict, the words before it are replaced. A byte that has the new value already is a conflict if
/// `is_others` is true of its address: another device has written it.
///
/// # Safety
/// The pages of `to[..new.len()]` can be read and written. Other threads access them by atomic or plain accesses of the
/// processor, never by references.
pub(super) unsafe fn merge(
    to: *mut u8,
    new: &[u8],
    old: &[u8],
    is_others: &dyn Fn(u64) -> bool,
) -> std::result::Result<(), Conflict> {
    // What lies before the first whole word, the whole words, and the rest.
    let lead = to.align_offset(WORD).min(new.len());
    let (head, new) = new.split_at(lead);
    let (old_head, old) = old.split_at(lead);
    let (words, tail) = new.as_chunks::<WORD>();
    let (old_words, old_tail) = old.as_chunks::<WORD>();
    let first = to.wrapping_add(lead).cast::<AtomicU64>();
    // SAFETY: all of these words are aligned, and in pages of the range.
    unsafe {
        let place = to as usize % WORD;
        merge_part(to.wrapping_sub(place).cast(), place, head, old_head, is_others)?;
        for (i, (new, old)) in words.iter().zip(old_words).enumerate() {
            if new != old {
                merge_word(&*first.add(i), u64::from_ne_bytes(*new), u64::from_ne_bytes(*old), is_others)?;
            }
        }
        merge_part(first.wrapping_add(words.len()), 0, tail, old_tail, is_others)
    }
}

/// Merges bytes of one word, from its byte `place` on.
///
/// # Safety
/// As for [`merge`], if there are any bytes.
unsafe fn merge_part(
    word: *const AtomicU64,
    place: usize,
    new: &[u8],
    old: &[u8],
    is_others: &dyn Fn(u64) -> bool,
) -> std::result::Result<(), Conflict> {
    if new == old {
        return Ok(());
    }
    let whole = |part: &[u8]| {
        let mut bytes = [0; WORD];
        bytes[place..place + part.len()].copy_from_slice(part);
        u64::from_ne_bytes(bytes)
    };
    // SAFETY: the caller's promise.
    merge_word(unsafe { &*word }, whole(new), whole(old), is_others)
}

#[inline]
fn merge_word(
    word: &AtomicU64,
    new: u64,
    old: u64,
    is_others: &dyn Fn(u64) -> bool,
) -> std::result::Result<(), Conflict> {
    let changed = nonzero_bytes(new ^ old);
    let mut here = word.load(Ordering::Relaxed);
    loop {
        if (here ^ old) & changed != 0 {
            check(std::ptr::from_ref(word) as u64, (here, new, old), is_others)?;
        }
        let merged = here & !changed | new & changed;
        if changed == !0 {
            word.store(merged, Ordering::Release);
            return Ok(());
        }
        match word.compare_exchange_weak(here, merged, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return Ok(()),
            Err(now) => here = now,
        }
    }
}

/// Fails if a byte of the word at an address, `here`, can't be replaced: something else has changed it.
#[cold]
fn check(
    at: u64,
    (here, new, old): (u64, u64, u64),
    is_others: &dyn Fn(u64) -> bool,
) -> std::result::Result<(), Conflict> {
    let words = [here, new, old].map(u64::to_ne_bytes);
    for (i, at) in (at..).enumerate().take(WORD) {
        let [here, new, old] = words.map(|word| word[i]);
        if new != old && here != old && (here != new || is_others(at)) {
            return Err(Conflict { at, new, old, here });
        }
    }
    Ok(())
}

/// All bits of each byte that is not 0.
#[inline]
fn nonzero_bytes(word: u64) -> u64 {
    const LOW: u64 = u64::from_ne_bytes([0x7f; WORD]);
    // Of each byte the highest bit, which no addition carries over.
    let highest = (((word & LOW) + LOW) | word) & !LOW;
    (highest >> 7) * 0xff
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/unified/merge.rs"]
mod tests;
