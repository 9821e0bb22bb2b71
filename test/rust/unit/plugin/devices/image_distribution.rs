// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/devices/image_distribution.rs`.

use super::*;

#[test]
fn a_route_reaches_every_device_once_from_one_that_has_it() {
    for n in 0..70 {
        let devices: Vec<usize> = (0..n).map(|i| 100 - i).collect();
        let hops = route(&devices);
        let mut reached = Vec::new();
        for hop in &hops {
            assert!(hop.from.is_none() == reached.is_empty() && !reached.contains(&hop.device));
            let sends = |h: &Hop| Some(h.device) == hop.from && h.to.contains(&Some(hop.device));
            assert!(hop.from.is_none() || hops.iter().any(sends));
            reached.push(hop.device);
        }
        reached.sort_unstable_by_key(|d| 100 - d);
        assert_eq!(reached, devices);
        assert_eq!(hops.iter().flat_map(|h| h.to).flatten().count(), n.saturating_sub(1));
    }
}

#[test]
fn the_parcel_is_the_file_and_names_the_libc() {
    let (parcel, libraries) = parcel(b"ELF...");
    let (file, list) = parcel.split_at(parcel.len() - libraries as usize);
    assert_eq!(file, b"ELF...");
    assert!(list.split(|b| *b == 0).any(|part| part.starts_with(b"libc.so")));
}
