// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Records the waits of kernels, if the device is traced.

use super::pages::Amount;
use crate::base::clock;
use crate::base::lock::{Mutex, order};
use crate::device_main::backend::Exchange;
use crate::wire::record::Kind;
use std::sync::atomic::{AtomicBool, Ordering};

/// By slot of the kernel, until the kernel has ended.
#[derive(Default)]
pub(super) struct Log {
    is_on: AtomicBool,
    all: Mutex<Vec<(usize, Exchange)>, { order::LEAF }>,
}

impl Log {
    pub fn begin(&self) {
        self.is_on.store(true, Ordering::Relaxed);
    }

    /// Adds a wait that began at `begin` and ends now.
    pub fn add(&self, slot: usize, kind: Kind, begin: u64, bytes: u64) {
        if self.is_on.load(Ordering::Relaxed) {
            self.all.lock().push((slot, Exchange { kind, bytes, begin, end: clock::now() }));
        }
    }

    /// Adds a wait for memory that began at `begin` and ends now. If any part was fetched, charges the whole wait to
    /// fetching.
    pub fn add_fetch(&self, slot: usize, begin: u64, amount: Amount) {
        if amount.fetched > 0 {
            self.add(slot, Kind::Fetch, begin, amount.fetched);
        }
        if amount.unchanged > 0 && self.is_on.load(Ordering::Relaxed) {
            let end = if amount.fetched > 0 { begin } else { clock::now() };
            self.all.lock().push((slot, Exchange { kind: Kind::Confirm, bytes: amount.unchanged, begin, end }));
        }
    }

    pub fn take(&self, slot: usize) -> Vec<Exchange> {
        let mut all = self.all.lock();
        all.extract_if(.., |(of, _)| *of == slot).map(|(_, exchange)| exchange).collect()
    }
}
