// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/staging.rs`.

use super::*;

#[test]
fn some_buffers_are_kept() {
    let staging = Staging::default();
    let kept = || staging.0.lock().len();
    (0..KEPT + 2).for_each(|_| staging.give(vec![1; INLINE_MAX + 1]));
    assert_eq!(kept(), KEPT);
    assert_eq!((staging.take(10).len(), staging.take(2 * INLINE_MAX).len()), (10, 2 * INLINE_MAX));
    assert_eq!(kept(), KEPT - 2);
    staging.give(Vec::new());
    staging.give(vec![0; INLINE_MAX]);
    staging.give(vec![0; STAGED as usize + 1]);
    assert_eq!(kept(), KEPT - 2);
}
