// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/devices/memory.rs`.

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

#[test]
fn the_piece_that_overlaps_with_nothing_is_small() {
    if STAGED == 4 << 20 {
        let kib =
            |size: u64, to_device| staged_pieces(size << 10, to_device).iter().map(|len| len >> 10).collect::<Vec<_>>();
        assert_eq!(kib(2047, true), [2047]);
        assert_eq!(kib(2048, true), [512, 1536]);
        assert_eq!(kib(2048 + 511, false), [2044, 515]);
        assert_eq!(kib(4096, false), [2048, 1536, 512]);
        assert_eq!(kib(16 << 10, true), [512, 1536, 2048, 2048, 2048, 2048, 2048, 2048, 2048]);
    }
    for size in
        [1, 4097, 300_001, (1 << 20) + 1, (4 << 20) + 8, (5 << 20) - 1, (9 << 20) + 1, (200 << 20) + 5, 2_134_917_890]
    {
        for to_device in [true, false] {
            let pieces = staged_pieces(size, to_device);
            assert_eq!(pieces.iter().sum::<u64>(), size);
            assert!(pieces.iter().all(|len| (1..=STAGED).contains(len)), "{size}: {pieces:?}");
            assert!(
                pieces.split_last().unwrap().1.iter().all(|len| len % PAGE.min(STAGED / 8) == 0),
                "{size}: {pieces:?}"
            );
        }
    }
}
