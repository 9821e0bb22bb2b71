// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The arguments of kernels that point to memory of the program. A kernel that has used what an argument points to will
//! probably do so again, so that memory is fetched before the kernel starts, which saves a fault.

use crate::base::limits::KERNELS_REMEMBERED;
use crate::base::lock::{Mutex, order};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// By kernel: a bit for each of its first 64 arguments whose memory it has used.
#[derive(Default)]
pub(super) struct Arguments {
    used: Mutex<BTreeMap<u64, u64>, { order::LEAF }>,
    /// Some kernel has used such memory.
    any: AtomicBool,
}

impl Arguments {
    /// Those of a kernel's arguments whose memory it probably uses.
    #[inline]
    pub fn likely(&self, kernel: u64, args: &[u64]) -> Vec<u64> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let used = self.used.lock().get(&kernel).copied().unwrap_or(0);
        args.iter()
            .take(u64::BITS as usize)
            .enumerate()
            .filter(|(i, _)| used >> i & 1 == 1)
            .map(|(_, arg)| *arg)
            .collect()
    }

    /// A kernel has ended; `is_used` tells of an address whether its memory was used.
    pub fn learn(&self, kernel: u64, args: &[u64], is_used: impl Fn(u64) -> bool) {
        let bit = |(i, arg): (usize, &u64)| u64::from(is_used(*arg)) << i;
        let bits = args.iter().take(u64::BITS as usize).enumerate().map(bit).fold(0, |bits, bit| bits | bit);
        let mut used = self.used.lock();
        if used.len() >= KERNELS_REMEMBERED && !used.contains_key(&kernel) {
            used.pop_first();
        }
        used.insert(kernel, bits);
        self.any.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/arguments.rs"]
mod tests;
