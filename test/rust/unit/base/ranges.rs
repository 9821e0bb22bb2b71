// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/ranges.rs`.

use super::*;
use proptest::prelude::*;

const END: u64 = 64;

proptest! {
    /// A set of ranges is compared with a table of all addresses.
    #[test]
    fn ranges_are_what_was_inserted_and_not_removed(
        changes in prop::collection::vec((0..END, 1..9u64, prop::bool::weighted(0.8)), 0..16), within in (0..END, 0..END),
    ) {
        let mut ranges = Ranges::default();
        let mut is_in = vec![false; END as usize + 9];
        for (start, len, is_inserted) in changes {
            let range = start..start + len;
            if is_inserted { ranges.insert(range.clone()) } else { ranges.remove(&range) }
            range.for_each(|at| is_in[at as usize] = is_inserted);
        }
        let all: Vec<_> = ranges.iter().collect();
        prop_assert!(all.windows(2).all(|two| two[0].end < two[1].start), "{all:?} touch or are in no order");
        let range = within.0.min(within.1)..within.0.max(within.1);
        let parts: Vec<_> = ranges.within(&range).collect();
        prop_assert!(parts.iter().all(|part| range.start <= part.start && part.start < part.end && part.end <= range.end));
        prop_assert!(range.clone().all(|at| is_in[at as usize] == parts.iter().any(|part| part.contains(&at))));
        prop_assert_eq!(ranges.covers(&range), range.clone().all(|at| is_in[at as usize]));
        for at in 0..is_in.len() as u64 {
            let around = ranges.around(at);
            prop_assert_eq!(around.is_some(), is_in[at as usize]);
            if let Some(around) = around {
                prop_assert!(around.contains(&at) && all.contains(&around));
                continue;
            }
            let within = within.0.min(at)..within.1.max(at + 1);
            let gap = ranges.gap(at, &within);
            prop_assert!(gap.contains(&at) && within.start <= gap.start && gap.end <= within.end);
            prop_assert!(gap.clone().all(|at| !is_in[at as usize]));
            prop_assert!(gap.start == within.start || is_in[gap.start as usize - 1]);
            prop_assert!(gap.end == within.end || is_in[gap.end as usize]);
        }
        ranges.clear();
        prop_assert_eq!(ranges.iter().next(), None);
    }
}

#[test]
fn a_range_may_fill_all_gaps() {
    let mut ranges = Ranges::default();
    for start in (10..50).step_by(10) {
        ranges.insert(start..start + 5);
    }
    let whole = 10..45;
    for filling in [15..45, 20..30] {
        ranges.insert(filling);
        assert!(ranges.iter().eq([whole.clone()]));
    }
}
