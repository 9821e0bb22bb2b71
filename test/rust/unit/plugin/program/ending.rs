// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/program/ending.rs`.

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

#[test]
fn threads_are_held_as_the_table_says() {
    use Phase::*;
    let (early, late) = (PAUSE / 2, PAUSE);
    for (phase, since_begun, has_locks, held) in [
        (Running, Duration::ZERO, false, false),
        (Exiting, Duration::ZERO, false, false),
        (Begun, early, false, true),
        (Begun, early, true, true),
        (Begun, late, false, false),
        (EndingDevices, late, false, true),
        (EndingDevices, early, true, false),
        (Ended, late, false, true),
        (Ended, late, true, true),
        (Unwatched, late, true, true),
    ] {
        assert_eq!(is_held(phase, since_begun, has_locks), held, "phase {}", phase as u8);
    }
}

/// As in `exit`, which first destroys the thread-local data of its thread.
#[test]
fn a_thread_that_is_not_counted_any_more_sees_the_others() {
    struct Last(std::sync::mpsc::Sender<bool>);
    impl Drop for Last {
        fn drop(&mut self) {
            self.0.send(has_other_users()).unwrap();
        }
    }
    thread_local!(static LAST: Cell<Option<Last>> = const { Cell::new(None) });
    let (seen, has_seen) = std::sync::mpsc::channel();
    call(|| {
        std::thread::spawn(|| {
            // Destroyed after what the call registers.
            LAST.set(Some(Last(seen)));
            call(|| ());
        });
        assert!(has_seen.recv().unwrap());
    });
}
