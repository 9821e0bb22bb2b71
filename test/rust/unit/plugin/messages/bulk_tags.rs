// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/messages/bulk_tags.rs`.

use super::*;
use proptest::prelude::*;

#[test]
fn all_tags_can_be_used_and_used_again() {
    let tags = Arc::new(Tags::default());
    // A search takes time in proportion to the number of blocks.
    let many = BULK_TAGS.div_ceil(200);
    for _ in 0..3 {
        let all: Vec<_> = (0..BULK_TAGS / many).map(|_| tags.lease(0, 1, many as usize).unwrap()).collect();
        assert!(tags.lease(0, 1, 1).is_none());
        let last = all.iter().map(|l| l.tag()).max();
        assert_eq!(last, Some(TAG_BULK + BULK_TAGS - many));
        // The other direction, like another pair of ranks, has tags of its own.
        assert!(tags.lease(1, 0, BULK_TAGS as usize).is_some());
    }
}

proptest! {
    #[test]
    fn blocks_in_use_do_not_overlap(plan in prop::collection::vec((1usize..4, any::<prop::sample::Index>(), any::<bool>()), 1..300)) {
        let tags = Arc::new(Tags::default());
        let mut held: Vec<Arc<Lease>> = Vec::new();
        for (n, which, gives_back) in plan {
            if gives_back && !held.is_empty() {
                held.swap_remove(which.index(held.len()));
            } else if let Some(lease) = tags.lease(3, 4, n) {
                prop_assert_eq!(lease.block.len(), n);
                let overlaps = held.iter().any(|h| h.block.start < lease.block.end && lease.block.start < h.block.end);
                prop_assert!(!overlaps && lease.block.end <= BULK_TAGS);
                held.push(lease);
            } else {
                // Refused only for lack of room: every gap is too small.
                prop_assert!(held.iter().map(|h| h.block.len()).sum::<usize>() + held.len() * n >= BULK_TAGS as usize - n);
            }
        }
        drop(held);
        prop_assert!(tags.lanes.lock()[&(3, 4)].used.is_empty());
    }
}
