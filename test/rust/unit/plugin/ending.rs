// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/ending.rs`.

use super::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

#[test]
fn a_call_within_a_call_is_not_made() {
    assert!(!is_inside());
    let inner = call(|| {
        assert!(is_inside());
        std::thread::spawn(|| assert!(!is_inside() && call(|| ()).is_some())).join().unwrap();
        call(|| ())
    });
    assert_eq!(inner, Some(None));
    assert!(!is_inside() && call(|| ()).is_some());
}

#[test]
fn a_call_with_locks_ends_if_it_panics_but_not_within_another_one() {
    with_locks(|| {
        assert!(has_locks());
        assert!(catch_unwind(AssertUnwindSafe(|| with_locks(|| panic!("as intended")))).is_err());
        assert!(has_locks());
    });
    assert!(!has_locks());
}

#[test]
fn threads_that_have_called_are_known_while_they_live() {
    let (begun, has_begun) = std::sync::mpsc::channel();
    let (end, has_ended) = std::sync::mpsc::channel::<()>();
    let other = std::thread::spawn(move || {
        call(|| begun.send(()).unwrap());
        let _ = has_ended.recv();
    });
    has_begun.recv().unwrap();
    assert!(has_other_users());
    drop(end);
    other.join().unwrap();
}
