// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/unified/diff.rs`.

use super::*;
use proptest::prelude::*;

#[test]
fn equal_versions_have_no_changes() {
    assert_eq!(changed_words(&[7; 64], &[7; 64]).next(), None);
    assert_eq!(changed_words(&[], &[]).next(), None);
}

#[test]
fn neighbors_are_one_range() {
    let old = [0; 64];
    let mut new = old;
    for i in [7, 8, 20, 63] {
        new[i] = 1;
    }
    assert_eq!(changed_words(&new, &old).collect::<Vec<_>>(), [0..24, 56..64]);
}

#[test]
fn a_change_counts_in_words() {
    let old = [0; 64];
    let mut new = old;
    assert!(is_change_of(0, &new, &old) && !is_change_of(1, &new, &old));
    [3, 4, 40].into_iter().for_each(|i| new[i] = 1);
    assert!(is_change_of(16, &new, &old) && !is_change_of(17, &new, &old));
}

proptest! {
    /// The ranges are in order, do not touch, and hold what differs: words with a byte that does.
    #[test]
    fn ranges_are_all_that_differs(old in prop::collection::vec(0u8..3, 0..40), salt in prop::collection::vec(0u8..2, 320)) {
        let old: Vec<u8> = old.iter().flat_map(|b| [*b; 8]).collect();
        let new: Vec<u8> = old.iter().zip(&salt).map(|(b, s)| b ^ s).collect();
        let differs = |i: usize| new[i] != old[i];
        let in_word = |i: usize| (i / 8 * 8..i / 8 * 8 + 8).any(differs);
        let check = |ranges: Vec<Range<usize>>, wanted: &dyn Fn(usize) -> bool| {
            let touch = ranges.windows(2).any(|two| two[0].end >= two[1].start);
            let empty = ranges.iter().any(Range::is_empty);
            let exact = (0..new.len()).all(|i| ranges.iter().any(|r| r.contains(&i)) == wanted(i));
            !touch && !empty && exact
        };
        prop_assert!(check(changed_words(&new, &old).collect(), &in_word));
    }
}
