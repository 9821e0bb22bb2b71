// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/lock.rs`.

use super::*;

#[test]
fn locks_are_taken_in_their_order() {
    let (first, second) = (Mutex::<_, 1>::new(1), Mutex::<_, 2>::new(2));
    let (one, two) = (first.lock(), second.lock());
    // Guards may be dropped in any order.
    drop(one);
    drop(two);
    assert_eq!((*first.lock(), *second.lock()), (1, 2));
}

#[test]
#[should_panic(expected = "lock 1 is taken behind lock 2")]
fn another_order_is_found() {
    let (first, second) = (Mutex::<_, 1>::new(1), Mutex::<_, 2>::new(2));
    let _two = second.lock();
    let _one = first.lock();
}

#[test]
#[should_panic(expected = "lock 1 is taken behind lock 2")]
fn another_order_is_found_where_nothing_waits() {
    let (first, second) = (Mutex::<_, 1>::new(1), Mutex::<_, 2>::new(2));
    let _two = second.lock();
    let _one = first.try_lock();
}
