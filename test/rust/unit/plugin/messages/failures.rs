// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/messages/failures.rs`.

use super::*;

#[test]
fn a_queue_keeps_its_first_failure_with_a_text() {
    let failures = Failures::default();
    for error in [Error::Reported, Error::new("first"), Error::new("second"), Error::Reported] {
        failures.fail(2, error);
    }
    failures.fail(1, Error::Reported);
    assert_eq!(failures.take(3), None);
    assert_eq!(failures.take(2), Some(Error::new("first")));
    assert_eq!(failures.take(2), None);
    assert_eq!(failures.take(1), Some(Error::Reported));
}

#[test]
fn an_unseen_failure_fails_any_queue_but_precedes_no_other() {
    let failures = Failures::default();
    failures.fail(1, Error::new("own"));
    failures.fail_unseen();
    assert_eq!(failures.take_any(1), Some(Error::new("own")));
    assert_eq!(failures.take_any(1), Some(Error::Reported));
    failures.note_failed_call();
    assert_eq!(failures.take_any(1), None);
}
