// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/addresses/arena.rs`.

use super::*;
use proptest::prelude::*;

const BASE: u64 = 1 << 44;

fn arena(len: u64) -> Arena {
    Arena::new(BASE..BASE + len)
}

#[test]
fn large_blocks_are_pages_and_small_ones_lines() {
    let mut a = arena(1 << 30);
    assert_eq!(a.alloc(1, 0).unwrap() % ALIGN, 0);
    assert_eq!(a.alloc(100_001, 0).unwrap() % PAGE, 0);
    assert_eq!(a.alloc(7, 1000).unwrap() % ALIGN, 0);
    assert_eq!(a.alloc(PAGED, 80).unwrap() % PAGE, 16);
    assert_eq!(a.alloc(PAGED, 47).unwrap() % PAGE, 32);
    assert_eq!(a.alloc(3 * LARGE_PAGE, 16).unwrap() % LARGE_PAGE, 16);
}

#[test]
fn too_much_is_refused_and_all_can_be_had() {
    let mut a = arena(1 << 20);
    assert_eq!(a.alloc((1 << 20) + 1, 0), None);
    assert_eq!(a.alloc(u64::MAX, 63), None);
    let all = a.alloc(1 << 20, 16).unwrap();
    assert_eq!(a.alloc(1, 0), None);
    assert!(a.free(all) && !a.free(all));
    assert_eq!((a.used, a.peak), (0, 1 << 20));
    assert_eq!(a.alloc(1 << 20, 0), Some(all));
}

#[test]
fn addresses_are_placed_by_the_blocks_near_them() {
    let mut a = arena(1 << 30);
    let small = a.alloc(100, 0).unwrap();
    let large = a.alloc(100_000, 0).unwrap();
    assert_eq!(small, BASE);
    for (address, words) in [
        (small + 99, "in the 100 bytes"),
        (small + 100, "just past the end of the 100 bytes"),
        (large + 100_008, "8 bytes past the end of the 100000 bytes"),
        (small - 16, "16 bytes before the 100 bytes"),
    ] {
        assert!(a.place(address).unwrap().starts_with(words), "{words}");
    }
    assert_eq!((a.place(small + (8 << 20)), a.place(0), a.place(u64::MAX)), (None, None, None));
    a.free(large);
    assert_eq!(a.place(large), None);
}

#[test]
fn reuse_discards_nothing_and_much_unused_is_discarded() {
    let mut a = arena(1 << 30);
    let small = a.alloc(100, 0).unwrap();
    for _ in 0..1000 {
        let p = a.alloc(1 << 20, 16).unwrap();
        a.free(p);
        assert!(a.take_discards().is_empty());
    }
    let p = a.alloc(100 << 20, 16).unwrap();
    a.free(p);
    let d = a.take_discards();
    assert!(d.iter().any(|r| r.contains(&p)), "{d:?}");
    assert!(a.take_discards().is_empty());
    assert!(a.free(small));
}

proptest! {
    #[test]
    fn blocks_never_overlap_and_all_memory_comes_back(ops in prop::collection::vec((any::<bool>(), 0u64..200_000, any::<u64>(), any::<prop::sample::Index>()), 1..200)) {
        let mut a = arena(8 << 20);
        let mut live: Vec<Range<u64>> = Vec::new();
        for (alloc, size, like, pick) in ops {
            if alloc || live.is_empty() {
                let Some(at) = a.alloc(size, like) else { continue };
                let new = at..at + size.max(1);
                prop_assert!(at >= BASE && new.end <= BASE + (8 << 20));
                prop_assert!(live.iter().all(|r| r.end <= new.start || new.end <= r.start));
                live.push(new);
            } else {
                prop_assert!(a.free(live.swap_remove(pick.index(live.len())).start));
            }
            for d in a.take_discards() {
                prop_assert!(live.iter().all(|r| r.end <= d.start || d.end <= r.start));
            }
        }
        for r in live {
            prop_assert!(a.free(r.start));
        }
        prop_assert_eq!(a.used, 0);
        a.flush_quick();
        prop_assert_eq!(a.holes.len(), 1);
        prop_assert_eq!(a.by_size.len(), 1);
        prop_assert_eq!(a.dirty_bytes, a.dirty.iter().map(|(s, e)| e - s).sum::<u64>());
        prop_assert!(a.alloc(8 << 20, 0).is_some());
    }
}
