// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/unified/streamed.rs`.

use super::*;
use crate::sys::mapping;

/// Where nothing of a process gets by itself, for one test each.
const FIRST: u64 = 0x3c00_0000_0000;
const SECOND: u64 = 0x3d00_0000_0000;

fn fill(streamed: &mut Streamed, range: &Range<u64>, value: u8) {
    let mut memory = streamed.prepare(range).unwrap();
    memory.as_mut_slice(range).fill(value);
    assert!(streamed.place(memory, range));
}

#[test]
fn memory_is_kept_for_later_ranges() {
    let mut streamed = Streamed::new();
    let range = FIRST..FIRST + MOVED_MIN;
    assert!(streamed.prepare(&(FIRST..FIRST + MOVED_MIN / 2)).is_none());
    fill(&mut streamed, &range, 1);
    assert_eq!(streamed.ranges().bytes(), MOVED_MIN);
    streamed.clear();
    assert!(!mapping::is_mapped(&range) && streamed.kept.len() == 1 && streamed.ranges().bytes() == 0);
    // The same memory is moved elsewhere. If a range has become too small, it is not.
    let other = range.end..range.end + MOVED_MIN;
    fill(&mut streamed, &other, 2);
    assert!(streamed.kept.is_empty());
    streamed.clear();
    let memory = streamed.prepare(&range).unwrap();
    assert!(!streamed.place(memory, &(range.start..range.start + MOVED_MIN / 2)));
    // It is not kept beyond the limit.
    let mut at = FIRST;
    for _ in 0..=MOVED_KEPT / MOVED_MIN {
        fill(&mut streamed, &(at..at + MOVED_MIN), 3);
        at += MOVED_MIN;
    }
    streamed.clear();
    assert_eq!(streamed.kept.iter().map(Movable::room).sum::<u64>(), MOVED_KEPT);
    // SAFETY: what was not moved back is this test's, and nothing uses it.
    unsafe { mapping::unmap(FIRST, at - FIRST) };
}

#[test]
fn what_was_unmapped_is_not_taken_back() {
    let mut streamed = Streamed::new();
    let (first, second) = (SECOND..SECOND + MOVED_MIN, SECOND + MOVED_MIN..SECOND + 2 * MOVED_MIN);
    fill(&mut streamed, &first, 1);
    fill(&mut streamed, &second, 2);
    let hole = first.start + (32 << 10)..first.end;
    // SAFETY: the range was mapped just now, and nothing uses it.
    unsafe { mapping::unmap(hole.start, hole.end - hole.start) };
    streamed.remove(&hole);
    streamed.clear();
    assert_eq!(streamed.kept.len(), 1);
    assert!(mapping::is_mapped(&(first.start..hole.start)) && !mapping::is_mapped(&second));
    // SAFETY: as above.
    unsafe { mapping::unmap(first.start, first.end - first.start) };
}
