// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/unified/watched.rs`.

use super::*;
use std::iter;

fn one(range: Range<u64>) -> Ranges {
    iter::once(range).collect()
}

#[test]
fn changes_make_it_ask_ever_more_rarely() {
    let mut watched = Watched::default();
    let used = one(0..WATCHED_MIN);
    watched.end(&used);
    assert!(watched.end(&used).is_empty(), "the program watches nothing");
    watched.renew(1, &Ranges::default(), &Ranges::default());
    // It is changed at once each time.
    let asked: Vec<_> = (1..=50).filter(|_| !watched.end(&used).is_empty()).collect();
    assert_eq!(asked, [2, 4, 8, 16, 32, 48]);
    // It is not: the next change begins anew.
    watched.renew(2, &Ranges::default(), &used);
    watched.end(&used);
    watched.renew(3, &used, &Ranges::default());
    watched.end(&used);
    watched.renew(4, &Ranges::default(), &Ranges::default());
    let asked: Vec<_> = (1..=3).filter(|_| !watched.end(&used).is_empty()).collect();
    assert_eq!(asked, [2]);
}

#[test]
fn small_parts_are_not_worth_a_line() {
    let mut watched = Watched::default();
    watched.renew(1, &Ranges::default(), &Ranges::default());
    let used = [PART..PART + WATCHED_MIN - 4096, 3 * PART..3 * PART + WATCHED_MIN].into_iter().collect();
    watched.end(&used);
    assert!(watched.end(&used).into_iter().eq(iter::once(3 * PART..3 * PART + WATCHED_MIN)));
}

#[test]
fn what_was_here_before_it_was_watched_is_not_current() {
    let mut watched = Watched::default();
    watched.renew(1, &Ranges::default(), &one(0..PART));
    watched.end(&one(0..PART));
    assert!(watched.current.covers(&(0..PART)));
    // The program watches the first half anew: it may have changed it before.
    watched.renew(2, &one(0..PART), &one(0..PART / 2));
    assert!(watched.current.iter().eq(iter::once(PART / 2..PART)));
    watched.change(&(PART / 2..PART / 2 + 4096));
    watched.end(&one(0..PART));
    assert!(watched.current.iter().eq([0..PART / 2, PART / 2 + 4096..PART]));
    watched.renew(3, &one(0..4096), &Ranges::default());
    assert!(watched.current.iter().eq(iter::once(0..4096)));
}

#[test]
fn a_kernel_that_overtakes_others_finds_nothing_current() {
    let (all, none) = (one(0..PART), Ranges::default());
    let mut watched = Watched::default();
    watched.renew(1, &none, &all);
    watched.end(&all);
    // The second word would be that the memory was changed, and is watched anew.
    watched.renew(3, &all, &none);
    assert_eq!(watched.current.bytes(), 0);
    // It comes too late: what is here was fetched after it.
    watched.renew(2, &none, &all);
    watched.end(&all);
    assert_eq!(watched.current.bytes(), 0);
    watched.renew(4, &all, &all);
    watched.end(&all);
    assert!(watched.current.covers(&(0..PART)));
}
