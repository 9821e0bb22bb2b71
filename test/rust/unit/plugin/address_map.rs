// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/address_map.rs`.

use super::*;

#[test]
fn reserved_addresses_are_nobodys() {
    // AddressSanitizer occupies the first place.
    let at = ARENAS + ARENAS_STEP;
    let r = Reservation::at(at, 1 << 40).unwrap();
    assert!(Reservation::at(at + (1 << 30), 4096).is_err());
    assert_eq!(host_mapping(at), None);
    drop(r);
    Reservation::at(at + (1 << 30), 4096).unwrap();
}

#[test]
fn own_memory_has_a_name() {
    let own = 7u64;
    assert!(host_mapping(&raw const own as u64).is_some());
    assert_eq!(host_mapping(16), None);
}
