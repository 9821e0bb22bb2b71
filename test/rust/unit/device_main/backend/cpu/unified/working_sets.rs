// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/unified/working_sets.rs`.

use super::*;

/// A kernel uses these pages in this order; returns what is asked for at once.
fn run(sets: &mut WorkingSets, kernel: u64, pages: &[u64]) -> Vec<Range<u64>> {
    let asked = sets.begin(kernel, pages[0]);
    let mut used = Ranges::default();
    pages.iter().for_each(|&page| used.insert(page..page + 1));
    sets.end(&used);
    asked
}

#[test]
fn a_kernel_asks_for_what_it_has_used_if_it_begins_with_some_of_that() {
    let mut sets = WorkingSets::default();
    assert_eq!(run(&mut sets, 1, &[10, 20, 30]), []);
    assert_eq!(run(&mut sets, 2, &[10]), []);
    assert_eq!(run(&mut sets, 1, &[20, 10, 30]), [10..11, 20..21, 30..31]);
    assert_eq!(run(&mut sets, 1, &[40, 10, 20]), []);
}

#[test]
fn a_kernel_that_uses_something_else_each_time_is_guessed_wrong_once() {
    let mut sets = WorkingSets::default();
    let (one, other) = ([1, 10, 12, 14], [1, 20, 22, 24]);
    run(&mut sets, 1, &one);
    assert_eq!(run(&mut sets, 1, &other).len(), 4);
    assert_eq!(run(&mut sets, 1, &one), []);
    assert_eq!(run(&mut sets, 1, &other), []);
    assert_eq!(run(&mut sets, 1, &other), []);
    assert_eq!(run(&mut sets, 1, &other).len(), 4, "it is steady again");
}

#[test]
fn not_all_is_remembered() {
    let mut sets = WorkingSets::default();
    let many: Vec<u64> = (0..2 * PARTS_REMEMBERED as u64).map(|i| 2 * i).collect();
    run(&mut sets, 1, &many);
    assert_eq!(run(&mut sets, 1, &many).len(), PARTS_REMEMBERED);
    let mut large = Ranges::default();
    large.insert(0..MEMORY_REMEMBERED - 1);
    large.insert(MEMORY_REMEMBERED..3 * MEMORY_REMEMBERED);
    sets.begin(2, 0);
    sets.end(&large);
    assert_eq!(sets.begin(2, 0), [0..MEMORY_REMEMBERED - 1, MEMORY_REMEMBERED..MEMORY_REMEMBERED + 1]);
    sets.end(&large);
    (3..3 + KERNELS_REMEMBERED as u64).for_each(|kernel| drop(run(&mut sets, kernel, &[1])));
    assert_eq!(run(&mut sets, 1, &many), []);
}
