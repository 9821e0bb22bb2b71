// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/lock.rs`.

use super::*;

#[test]
fn locks_are_taken_in_their_order() {
    let (first, second) = (Mutex::<_, 1>::new(1), Mutex::<_, 2>::new(2));
    let (one, two) = (first.lock(), second.lock());
    drop(one);
    // An attempt may be made out of order, and guards may be dropped in any.
    let (one, another) = (first.try_lock(), Mutex::<_, 2>::new(2));
    let second_two = another.try_lock();
    drop((two, second_two, one));
    assert_eq!((*first.lock(), *second.lock()), (1, 2));
}

#[test]
#[should_panic(expected = "lock 1 is taken behind lock 2")]
fn another_order_is_found() {
    let (first, second) = (Mutex::<_, 1>::new(1), Mutex::<_, 2>::new(2));
    let _two = second.lock();
    let _one = first.lock();
}
