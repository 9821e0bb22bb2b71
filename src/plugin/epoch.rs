// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Counts how often the program has taken over changes of its memory while several devices ran kernels.

use std::sync::atomic::{AtomicU64, Ordering};

static EPOCH: AtomicU64 = AtomicU64::new(0);

/// The present epoch: what is taken over from now on belongs to this one or a later one.
#[inline]
pub(super) fn now() -> u64 {
    EPOCH.load(Ordering::Relaxed)
}

/// Ends the present epoch and returns it.
pub(super) fn end() -> u64 {
    EPOCH.fetch_add(1, Ordering::Relaxed)
}
