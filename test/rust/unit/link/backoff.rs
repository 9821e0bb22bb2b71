// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/link/backoff.rs`.

use super::*;

/// Spins twice, and yields for that long.
fn policy(patience: Duration) -> BackoffPolicy {
    BackoffPolicy { spins: 2, patience }
}

#[test]
fn a_wait_without_patience_spins_before_it_sleeps() {
    let mut backoff = Backoff::new(policy(Duration::ZERO), None);
    for _ in 0..3 {
        assert!(!backoff.will_sleep(None));
        backoff.pause(None);
    }
    assert!(backoff.will_sleep(None));
    backoff.reset();
    assert!(!backoff.will_sleep(None));
}

#[test]
fn a_wait_that_does_not_yield_has_no_patience_but_for_bulk_data() {
    let mut backoff = Backoff::new(policy(Duration::from_secs(1000)), None);
    assert_eq!(backoff.patience(None), Duration::from_secs(1000));
    backoff.yields = false;
    assert_eq!(backoff.patience(None), Duration::ZERO);
    assert_eq!(backoff.patience(Some(BULK_PATIENCE)), BULK_PATIENCE);
}
