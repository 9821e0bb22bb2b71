// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/offload/mod.rs`: which devices share an accelerator, and its memory.

use super::*;

fn sharers(place: usize, among: usize, visible: usize, rivals: &[(usize, bool)]) -> (u64, u64) {
    let Sharers { with_memory, without } = Seat { place, among, rivals: rivals.to_vec() }.sharers(visible);
    (with_memory, without)
}

#[test]
fn devices_share_an_accelerator_if_their_places_are_as_far_apart_as_there_are_accelerators() {
    let five = [(0, true), (1, true), (2, false), (3, false), (4, false)];
    assert_eq!(sharers(2, 4, 1, &five), (0, 1));
    assert_eq!(sharers(4, 4, 1, &five), (1, 1));
    // Nothing was narrowed.
    assert_eq!((sharers(2, 0, 2, &five), sharers(2, 2, 2, &five), sharers(2, 1, 1, &five)), ((1, 2), (1, 2), (2, 3)));
    assert_eq!(sharers(2, 0, 0, &[]), (0, 1));
}

#[test]
fn all_devices_of_an_accelerator_get_the_same_memory() {
    let all: u64 = 80 << 30;
    for devices in 1..=8 {
        let (mut free, share) = (all, all / devices / 16 * 15);
        for with_memory in 0..devices {
            let arena = Sharers { with_memory, without: devices - with_memory }.arena(free);
            assert!(arena.abs_diff(share) < 1 << 12, "{with_memory} of {devices}: {arena}, not {share}");
            free -= arena;
        }
        assert!(free >= all / 16);
    }
}
