// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/addresses/address_map.rs`.

use super::*;

#[test]
fn reserved_addresses_are_nobodys() {
    // AddressSanitizer occupies the first place.
    let at = ARENAS + ARENAS_STEP;
    let r = Reservation::at(at, 1 << 40).unwrap();
    assert!(Reservation::at(at + (1 << 30), 4096).is_err());
    assert_eq!(Mappings::now().at(at).map(|(is_readable, _)| is_readable), Some(false));
    drop(r);
    Reservation::at(at + (1 << 30), 4096).unwrap();
}

#[test]
fn addresses_of_the_window_are_one_images() {
    let (page, at) = (4096, ARENAS + 2 * ARENAS_STEP);
    let mut map = AddressMap::at(at, 16 * page, 2).unwrap();
    map.keep_window(vec![Reservation::at(at + 32 * page, 32 * page).unwrap()]);
    let range = at + 40 * page..at + 42 * page;
    assert!(map.reserve_image(0, &range).unwrap().is_none());
    let overlapping = range.start + page..range.end + page;
    assert!(map.reserve_image(1, &overlapping).is_err());
    assert_eq!(map.owner(range.start), Some(0));
    map.remove_image(0, range.start);
    assert!(map.reserve_image(1, &overlapping).unwrap().is_none());
    assert_eq!((map.owner(range.start), map.owner(range.end)), (None, Some(1)));
}
