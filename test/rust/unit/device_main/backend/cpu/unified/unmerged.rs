// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/unified/unmerged.rs`.

use super::*;

fn change(at: u64, new: &[u8], old: &[u8]) -> Vec<u8> {
    let mut changes = Vec::new();
    Changes::push(&mut changes, at, new, old);
    changes
}

/// What is read of these bytes, which are at address 100.
fn read(unmerged: &Unmerged, bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    unmerged.merge(100, &mut bytes).unwrap();
    bytes
}

#[test]
fn what_is_read_has_the_changes_that_the_program_has_not_merged() {
    let mut unmerged = Unmerged::default();
    unmerged.add([change(98, &[7, 7, 7, 7], &[0, 0, 0, 1]), change(103, &[8, 8], &[0, 0])].concat());
    assert_eq!(read(&unmerged, &[0, 1, 0, 0]), [7, 7, 0, 8]);
    // The program has merged it already, has changed a byte since, or has another value than the region found.
    assert_eq!(read(&unmerged, &[7, 5, 0, 9]), [7, 5, 0, 9]);
    unmerged.add(change(100, &[9], &[7]));
    assert_eq!(read(&unmerged, &[0, 1, 0, 0]), [9, 7, 0, 8], "in their order");
    assert!(unmerged.settle(1) && !unmerged.is_empty());
    assert_eq!(read(&unmerged, &[7, 1, 0, 0]), [9, 1, 0, 0]);
    assert!(unmerged.settle(0) && unmerged.is_empty());
    assert_eq!(read(&unmerged, &[7, 1, 0, 0]), [7, 1, 0, 0]);
}

#[test]
fn too_many_changes_are_not_kept() {
    let mut unmerged = Unmerged::default();
    (0..UNMERGED).for_each(|_| unmerged.add(change(100, &[1], &[0])));
    assert!(unmerged.settle(UNMERGED as u32));
    unmerged.add(change(100, &[1], &[0]));
    unmerged.add(change(100, &[1], &[0]));
    assert!(!unmerged.settle(1) && unmerged.is_empty());
    assert!(unmerged.settle(0));
    unmerged.add(change(100, &[1], &[0]));
    assert!(unmerged.settle(1) && !unmerged.is_empty());
}
