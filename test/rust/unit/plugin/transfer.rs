// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/transfer.rs`.

use super::*;

#[test]
fn pieces_suit_the_size_of_the_copy() {
    if STAGED == 4 << 20 {
        let sizes = [64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 1 << 40];
        assert_eq!(sizes.map(staged_piece), [64 << 10, 1 << 20, 1 << 20, 2 << 20, STAGED, STAGED]);
    }
    for size in [1, 4095, 4097, 300_001, (1 << 20) + 1, (4 << 20) + 8, (5 << 20) - 1, (9 << 20) + 1, u64::MAX] {
        let piece = staged_piece(size);
        assert!((size.min(STAGED / 4)..=STAGED).contains(&piece), "{size}: {piece}");
    }
}
