// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/unified/page_cache.rs`.

use super::*;
use crate::wire::reply::Reply;
use proptest::prelude::*;

const PAGE: u64 = 4096;

fn pages(ranges: &[Range<u64>]) -> Ranges {
    let mut pages = Ranges::default();
    ranges.iter().for_each(|range| pages.insert(range.clone()));
    pages
}

fn all(cache: &PageCache) -> Vec<Range<u64>> {
    cache.within(&(0..u64::MAX)).collect()
}

#[test]
fn what_was_not_used_for_longest_is_dropped() {
    const PART: u64 = MEMORY_KEPT / 4;
    let part = |n: u64| n * PART..(n + 1) * PART;
    let mut cache = PageCache::default();
    for n in 0..4 {
        assert!(cache.add(&pages(&[part(n)])).is_empty());
    }
    // The first one is used again.
    assert!(cache.add(&pages(&[part(0)])).is_empty());
    assert_eq!(cache.add(&pages(&[part(5)])), [part(1)]);
    assert_eq!(all(&cache), [part(0), part(2).start..part(3).end, part(5)]);
    let (page, block) = (part(6).start..part(6).start + PAGE, part(2).start..part(2).start + BLOCK);
    assert!(cache.add(&pages(&[page])).into_iter().eq([block]));
    // More than the limit at once: always the same of it is kept.
    let much = 0..MEMORY_KEPT + PART;
    let dropped = cache.add(&pages(std::slice::from_ref(&much)));
    assert!(dropped.iter().any(|range| *range == part(0)) && all(&cache).len() == 1);
    assert_eq!(cache.add(&pages(std::slice::from_ref(&much))), [part(0)]);
    let rest = part(0).end..much.end;
    assert!(all(&cache).into_iter().eq([rest]));
}

#[test]
fn what_is_removed_is_not_counted() {
    let mut cache = PageCache::default();
    let whole = 0..3 * BLOCK;
    cache.add(&pages(&[whole]));
    cache.remove(&(PAGE..2 * BLOCK - PAGE));
    assert_eq!(all(&cache), [0..PAGE, 2 * BLOCK - PAGE..3 * BLOCK]);
    assert_eq!(cache.used.len(), 3);
    cache.remove(&(0..2 * BLOCK));
    assert_eq!((cache.used.len(), cache.within(&(0..2 * BLOCK)).count()), (1, 0));
}

#[test]
fn digests_are_of_blocks() {
    let mut store = Store::new().unwrap();
    let bytes: Vec<u8> = (0..3 * BLOCK).map(|n| (n / 7) as u8).collect();
    store.write(BLOCK, &bytes).unwrap();
    let (first, second) = (BLOCK + PAGE..2 * BLOCK + PAGE, 3 * BLOCK..4 * BLOCK);
    let known = KnownParts::of(&store, [first.clone(), second.clone()].into_iter(), false).unwrap();
    let mut list = known.list();
    for part in [BLOCK + PAGE..2 * BLOCK, 2 * BLOCK..2 * BLOCK + PAGE, second.clone()] {
        let digest = xxh3_128(&bytes[(part.start - BLOCK) as usize..(part.end - BLOCK) as usize]);
        assert_eq!(list.take().unwrap(), Some((part.start, (part.end - part.start) as u32, digest)));
    }
    assert_eq!(list.take().unwrap(), None);
    assert!(known.covers(&first) && known.covers(&second) && known.covers(&(0..0)));
    assert!(!known.covers(&(BLOCK..2 * BLOCK)) && !known.covers(&(first.start..second.end)));
    // What was freed is not what it was.
    store.free(&second);
    let again = KnownParts::of(&store, std::iter::once(second), false).unwrap();
    let Some((_, _, digest)) = again.list().take().unwrap() else { panic!("no part") };
    assert_eq!(digest, xxh3_128(&[0; BLOCK as usize]));
}

#[test]
fn there_are_no_more_parts_than_a_message_holds() {
    let store = Store::new().unwrap();
    let ranges = (0..2 * Known::MOST as u64).map(|n| 2 * n * PAGE..(2 * n + 1) * PAGE);
    let known = KnownParts::of(&store, ranges, false).unwrap();
    assert_eq!(known.pages.iter().count(), Known::MOST);
    let mut message = Vec::new();
    Reply::Fetch { at: 0, len: 1 << 40, known: known.list() }.write(&mut message);
    assert!(message.len() <= crate::wire::MESSAGE_MAX, "{} bytes", message.len());
}

proptest! {
    /// Every page that is kept can be dropped, and none is kept that was never added.
    #[test]
    fn no_block_is_forgotten(steps in prop::collection::vec((any::<bool>(), 0..200u64, 1..90u64), 1..40)) {
        let (mut cache, mut model) = (PageCache::default(), std::collections::BTreeSet::new());
        for (adds, first, n) in steps {
            let range = first * PAGE..(first + n) * PAGE;
            if adds {
                for dropped in cache.add(&pages(std::slice::from_ref(&range))) {
                    model.retain(|page| !dropped.contains(&(page * PAGE)));
                }
                model.extend(first..first + n);
                model.retain(|page| cache.pages.around(page * PAGE).is_some());
            } else {
                cache.remove(&range);
                model.retain(|page| !(first..first + n).contains(page));
            }
            prop_assert_eq!(cache.pages.bytes(), model.len() as u64 * PAGE);
            prop_assert!(model.iter().all(|page| cache.pages.around(page * PAGE).is_some()));
            prop_assert!(model.iter().all(|page| cache.used.contains_key(&(page * PAGE / BLOCK))));
            prop_assert!(cache.pages.bytes() <= MEMORY_KEPT);
        }
    }
}
