// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/transfers/staging.rs`.

use super::*;

#[test]
fn some_buffers_are_kept() {
    let staging = Staging::default();
    let kept = || staging.kept.lock().len();
    (0..KEPT + 2).for_each(|_| staging.give(vec![1; INLINE_MAX + 1].into()));
    assert_eq!(kept(), KEPT);
    assert_eq!((staging.take(10).len(), staging.take(2 * INLINE_MAX).len()), (10, 2 * INLINE_MAX));
    assert_eq!(kept(), KEPT - 2);
    staging.give(Buffer::default());
    staging.give(vec![0; INLINE_MAX].into());
    staging.give(vec![0; STAGED as usize + 1].into());
    assert_eq!(kept(), KEPT - 2);
}

#[test]
fn few_buffers_are_in_use_out_of_turn() {
    let staging = Staging::default();
    assert!((0..STAGED_AHEAD).all(|_| staging.begin_ahead()));
    assert!(!staging.begin_ahead());
    staging.end_ahead();
    assert!(staging.begin_ahead() && !staging.begin_ahead());
}

#[test]
fn buffers_are_pinned_while_there_are_such() {
    let staging = Staging::default();
    let memory = vec![0; Block::MOST].leak().as_mut_ptr();
    // SAFETY: nothing else uses the memory.
    let block = unsafe { Block::divide(memory, Block::MOST) };
    assert!(staging.pinned.set(Some(block)).is_ok());
    let is_pinned = |buffer: &Buffer| matches!(buffer, Buffer::Pinned(_));
    let taken: Vec<_> = std::iter::repeat_with(|| staging.take(STAGED as usize)).take_while(is_pinned).collect();
    assert!(taken.len() > STAGED_AHEAD && is_pinned(&staging.small()));
    taken.into_iter().for_each(|buffer| staging.give(buffer));
    assert!(!is_pinned(&staging.take(STAGED as usize + 1)));
    assert!(is_pinned(&staging.take(1)) && staging.kept.lock().is_empty());
}
