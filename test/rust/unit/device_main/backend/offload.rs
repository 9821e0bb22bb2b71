// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/offload/mod.rs`: which devices share an accelerator, and its memory.

use super::*;
use Turn::{Earlier, Later, Unknown};

/// The sharers of the accelerator at a place among this many of CUDA's, of which this many are visible.
fn sharers(place: usize, among: usize, visible: usize, rivals: &[(usize, Turn)]) -> (u64, u64, u64) {
    let choices = [(elf::CUDA, among), (elf::AMDGPU, 9), (0, 0)];
    let seat = Seat { place, choices, rivals: rivals.to_vec() };
    let Sharers { with_memory, without, all } = seat.sharers(visible, elf::CUDA);
    (with_memory, without, all)
}

#[test]
fn devices_share_an_accelerator_if_their_places_are_as_far_apart_as_there_are_accelerators() {
    let five = [(0, Earlier), (1, Earlier), (2, Later), (3, Later), (4, Later)];
    assert_eq!(sharers(2, 4, 1, &five), (0, 1, 1));
    assert_eq!(sharers(4, 4, 1, &five), (1, 1, 2));
    // Nothing was narrowed.
    assert_eq!((sharers(2, 0, 2, &five), sharers(2, 2, 2, &five)), ((1, 2, 3), (1, 2, 3)));
    assert_eq!(sharers(2, 1, 1, &five), (2, 3, 5));
    assert_eq!(sharers(2, 0, 0, &[]), (0, 1, 1));
    // Another program has them in turn.
    assert_eq!(sharers(2, 1, 1, &[(0, Earlier), (1, Unknown), (2, Later), (3, Unknown)]), (1, 1, 4));
}

#[test]
fn all_devices_of_an_accelerator_get_the_same_memory() {
    let all: u64 = 80 << 30;
    for devices in 1..=8 {
        for total in [0, all] {
            let (mut free, share) = (all, all / devices / 16 * 15);
            for with_memory in 0..devices {
                let arena = Sharers { with_memory, without: devices - with_memory, all: devices }.arena(free, total);
                assert!(arena.abs_diff(share) < 1 << 12, "{with_memory} of {devices}: {arena}, not {share}");
                free -= arena;
            }
            assert!(free >= all / 16);
        }
    }
}

#[test]
fn programs_that_share_an_accelerator_get_the_same_memory() {
    let (all, mut free) = (80u64 << 30, 80u64 << 30);
    // Three jobs with a device each, then one that does not know of them.
    for _ in 0..3 {
        let rivals = vec![(0, Later), (1, Unknown), (2, Unknown)];
        let seat = Seat { place: 0, choices: Default::default(), rivals };
        let arena = seat.sharers(1, elf::CUDA).arena(free, all);
        assert_eq!(arena, 15 * (all / 48));
        free -= arena;
    }
    let late = Sharers { with_memory: 0, without: 1, all: 1 }.arena(free, all);
    assert_eq!(late, 15 * (free / 16));
}
