// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Finds the differences between two versions of pages.

use crate::wire::BLOCK;
use std::ops::Range;

pub(super) const WORD: usize = 8;

/// The ranges of whole words in which two versions of the same length differ. The length is a multiple of 8.
pub(super) fn changed_words(new: &[u8], old: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let (new, old) = (new.as_chunks::<WORD>().0, old.as_chunks::<WORD>().0);
    runs(new.len(), move |i| new[i] != old[i]).map(|words| words.start * WORD..words.end * WORD)
}

/// True if words of at least `len` bytes differ.
pub(super) fn is_change_of(len: usize, new: &[u8], old: &[u8]) -> bool {
    let words = new.as_chunks::<WORD>().0.iter().zip(old.as_chunks::<WORD>().0);
    let most = len.div_ceil(WORD);
    words.filter(|(new, old)| new != old).take(most).count() == most
}

/// The ranges of blocks in which so much differs that the whole new version is smaller than the differing bytes of
/// both.
pub(super) fn parts_with_much_change(new: &[u8], old: &[u8]) -> impl Iterator<Item = Range<usize>> {
    let blocks: Vec<_> = new.chunks(BLOCK).zip(old.chunks(BLOCK)).collect();
    let is_much = move |i: usize| is_change_of(blocks[i].0.len() / 2, blocks[i].0, blocks[i].1);
    runs(new.len().div_ceil(BLOCK), is_much).map(|blocks| blocks.start * BLOCK..new.len().min(blocks.end * BLOCK))
}

/// The longest ranges below `end` for which `is_in` is true.
fn runs(end: usize, is_in: impl Fn(usize) -> bool) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let start = (at..end).find(|&i| is_in(i))?;
        at = (start..end).find(|&i| !is_in(i)).unwrap_or(end);
        Some(start..at)
    })
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/diff.rs"]
mod tests;
