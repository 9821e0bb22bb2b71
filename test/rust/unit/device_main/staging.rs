// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/staging.rs`.

use super::*;

#[test]
fn some_buffers_are_kept() {
    let staging = Staging::default();
    let kept = || staging.kept.lock().len();
    (0..KEPT + 2).for_each(|_| staging.give(vec![1; INLINE_MAX + 1]));
    assert_eq!(kept(), KEPT);
    assert_eq!((staging.take(10).len(), staging.take(2 * INLINE_MAX).len()), (10, 2 * INLINE_MAX));
    assert_eq!(kept(), KEPT - 2);
    staging.give(Vec::new());
    staging.give(vec![0; INLINE_MAX]);
    staging.give(vec![0; STAGED as usize + 1]);
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
