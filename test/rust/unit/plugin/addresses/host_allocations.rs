// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/addresses/host_allocations.rs`.

use super::*;

#[test]
fn ranges_are_found_in_their_allocation() {
    let allocations = Allocations::default();
    let (at, empty) = (allocations.alloc(100).unwrap(), allocations.alloc(0).unwrap());
    assert_eq!(allocations.around(at, 100), Some(at..at + 100));
    assert_eq!(allocations.around(at + 99, 1), Some(at..at + 100));
    assert_eq!(allocations.around(at + 99, 2), None);
    assert_eq!(allocations.around(at - 1, 1), None);
    assert_eq!(allocations.around(at, u64::MAX), None);
    assert!(allocations.alloc(u64::MAX).is_err());
    assert!(!allocations.free(at + 1));
    assert!(allocations.free(at) && allocations.free(empty));
    assert!(!allocations.free(at));
    assert_eq!(allocations.around(at, 1), None);
}
