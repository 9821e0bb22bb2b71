// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Merges changes into the program's memory while its threads use it.

use crate::base::limits::PAGE;
use crate::base::{Error, Result};
use crate::sys::process::Mappings;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

const WORD: usize = size_of::<u64>();

/// A byte that has neither the old value nor the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub at: u64,
    pub new: u8,
    pub old: u8,
    pub here: u8,
}

impl fmt::Display for Conflict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Conflict { at, new, old, here } = self;
        write!(
            f,
            "it has changed the byte at {at:#x} from {old:#04x} to {new:#04x}, but it is {here:#04x} now: the program, or \
             another device, has changed it meanwhile"
        )
    }
}

/// Fails if the memory can't be written.
pub(super) fn check_writable(at: u64, len: usize) -> Result<()> {
    /// Faults pages in as a write would (Linux 5.14).
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

/// Replaces the bytes that differ between `old` and `new`, each word in one access, and leaves all other bytes. Does
/// not replace bytes in conflict, and returns the first of these. A byte that already has the new value is not in
/// conflict: several devices may store the same flag.
///
/// # Safety
/// The pages of `to[..new.len()]` can be read and written. Other threads access them by atomic or plain accesses of the
/// processor, never by references.
pub(super) unsafe fn merge(to: *mut u8, new: &[u8], old: &[u8]) -> std::result::Result<(), Conflict> {
    // The bytes before the first whole word, the whole words, and the rest.
    let lead = to.align_offset(WORD).min(new.len());
    let (head, new) = new.split_at(lead);
    let (old_head, old) = old.split_at(lead);
    let (words, tail) = new.as_chunks::<WORD>();
    let (old_words, old_tail) = old.as_chunks::<WORD>();
    let first = to.wrapping_add(lead).cast::<AtomicU64>();
    // SAFETY: all of these words are aligned, and in pages of the range.
    unsafe {
        let place = to as usize % WORD;
        let merged = merge_part(to.wrapping_sub(place).cast(), place, head, old_head);
        let merged = merged.and(merge_words(first, words, old_words));
        merged.and(merge_part(first.wrapping_add(words.len()), 0, tail, old_tail))
    }
}

/// Merges whole words.
///
/// # Safety
/// As for [`merge`], with an aligned address.
unsafe fn merge_words(
    first: *const AtomicU64,
    new: &[[u8; WORD]],
    old: &[[u8; WORD]],
) -> std::result::Result<(), Conflict> {
    let (mut at, mut merged) = (0, Ok(()));
    while at < new.len() {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("cmpxchg16b") {
            // SAFETY: the processor has the instruction, and the caller's promise.
            at += unsafe { replace_pairs(first.wrapping_add(at), &new[at..], &old[at..]) };
        }
        if let (Some(new), Some(old)) = (new.get(at), old.get(at))
            && new != old
        {
            // SAFETY: the caller's promise.
            let word = unsafe { &*first.wrapping_add(at) };
            merged = merged.and(merge_word(word, u64::from_ne_bytes(*new), u64::from_ne_bytes(*old)));
        }
        at += 1;
    }
    merged
}

/// Replaces words two at a time, which takes half the time, as long as they have their old values. Returns the number
/// of words that need no further work.
///
/// # Safety
/// As for [`merge_words`].
#[cfg(target_arch = "x86_64")]
unsafe fn replace_pairs(first: *const AtomicU64, new: &[[u8; WORD]], old: &[[u8; WORD]]) -> usize {
    if !first.cast::<u128>().is_aligned() {
        return 0;
    }
    let (new, old) = (new.as_flattened().as_chunks().0, old.as_flattened().as_chunks().0);
    let kept = new.iter().zip(old).enumerate().position(|(i, (new, old))| {
        let at = first.cast::<u128>().cast_mut().wrapping_add(i);
        // SAFETY: the caller's promise; the address is aligned.
        new != old && !unsafe { replace_pair(at, old, new) }
    });
    2 * kept.unwrap_or(new.len())
}

/// Replaces 16 bytes if they have their old values. In a shared library, the standard library's `cmpxchg16b` becomes a
/// call of libatomic (Rust 1.95).
///
/// # Safety
/// As for [`merge_words`], with an address that is a multiple of 16. The processor has `cmpxchg16b`.
#[cfg(target_arch = "x86_64")]
#[inline]
unsafe fn replace_pair(at: *mut u128, old: &[u8; 2 * WORD], new: &[u8; 2 * WORD]) -> bool {
    let (old, new) = (u128::from_le_bytes(*old), u128::from_le_bytes(*new));
    let (low, high): (u64, u64);
    // SAFETY: the caller's promise. LLVM reserves rbx, so it is restored.
    unsafe {
        std::arch::asm!(
            "xchg {kept}, rbx",
            "lock cmpxchg16b [rdi]",
            "mov rbx, {kept}",
            kept = inout(reg) new as u64 => _,
            in("rdi") at,
            in("rcx") (new >> 64) as u64,
            inout("rax") old as u64 => low,
            inout("rdx") (old >> 64) as u64 => high,
            options(nostack),
        );
    }
    u128::from(low) | u128::from(high) << 64 == old
}

/// Merges bytes of one word, starting at its byte `place`.
///
/// # Safety
/// As for [`merge`], if there are any bytes.
unsafe fn merge_part(
    word: *const AtomicU64,
    place: usize,
    new: &[u8],
    old: &[u8],
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
    merge_word(unsafe { &*word }, whole(new), whole(old))
}

#[inline]
fn merge_word(word: &AtomicU64, new: u64, old: u64) -> std::result::Result<(), Conflict> {
    let mut changed = nonzero_bytes(new ^ old);
    let mut conflict = None;
    let mut here = word.load(Ordering::Relaxed);
    loop {
        if (here ^ old) & changed != 0 {
            let (bytes, first) = conflicts(std::ptr::from_ref(word) as u64, (here, new, old));
            changed &= !bytes;
            conflict = conflict.or(first);
        }
        let merged = here & !changed | new & changed;
        if changed == !0 {
            word.store(merged, Ordering::Release);
            return Ok(());
        }
        match word.compare_exchange_weak(here, merged, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return conflict.map_or(Ok(()), Err),
            Err(now) => here = now,
        }
    }
}

/// The conflicting bytes of the word `here` at an address, which something else has changed: their mask, and the first
/// of them.
#[cold]
fn conflicts(at: u64, (here, new, old): (u64, u64, u64)) -> (u64, Option<Conflict>) {
    let words = [here, new, old].map(u64::to_ne_bytes);
    let (mut mask, mut first) = ([0; WORD], None);
    for (i, at) in (at..).enumerate().take(WORD) {
        let [here, new, old] = words.map(|word| word[i]);
        if new != old && here != old && here != new {
            mask[i] = 0xff;
            first = first.or(Some(Conflict { at, new, old, here }));
        }
    }
    (u64::from_ne_bytes(mask), first)
}

/// A mask of the bytes that are not 0.
#[inline]
fn nonzero_bytes(word: u64) -> u64 {
    const LOW: u64 = u64::from_ne_bytes([0x7f; WORD]);
    // The highest bit of each byte; the addition does not carry into the next byte.
    let highest = (((word & LOW) + LOW) | word) & !LOW;
    (highest >> 7) * 0xff
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/unified/merge.rs"]
mod tests;
