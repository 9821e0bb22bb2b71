// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The arguments of kernels that point to memory of the program. A kernel that has used the memory at an argument will
//! probably use it again. So that memory is fetched before the kernel starts, which saves a fault.

use crate::base::limits::KERNELS_REMEMBERED;
use crate::base::lock::{Mutex, order};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

/// After this many runs with prefetched memory, one run without shows what the kernel itself uses.
const RELEARN: u32 = 32;

#[derive(Default)]
pub(super) struct Arguments {
    used: Mutex<BTreeMap<u64, Used>, { order::LEAF }>,
    /// Some kernel has used memory of the program.
    any: AtomicBool,
}

/// The arguments whose memory a kernel uses.
struct Used {
    /// A bit for each of its first 64 arguments.
    arguments: u64,
    /// Runs since that was learned.
    runs: u32,
}

impl Arguments {
    /// The arguments of a starting kernel whose memory it probably uses.
    #[inline]
    pub fn likely(&self, kernel: u64, args: &[u64]) -> Vec<u64> {
        if !self.any.load(Ordering::Relaxed) {
            return Vec::new();
        }
        let mut used = self.used.lock();
        let Some(used) = used.get_mut(&kernel) else { return Vec::new() };
        used.runs += 1;
        let likely = if used.runs < RELEARN { used.arguments } else { 0 };
        let args = args.iter().take(u64::BITS as usize).enumerate();
        args.filter(|(i, _)| likely >> i & 1 == 1).map(|(_, arg)| *arg).collect()
    }

    /// Learns from a kernel that has ended; `is_here` returns whether the memory at an address was fetched.
    pub fn learn(&self, kernel: u64, args: &[u64], is_here: impl Fn(u64) -> bool) {
        let bit = |(i, arg): (usize, &u64)| u64::from(is_here(*arg)) << i;
        let here = args.iter().take(u64::BITS as usize).enumerate().map(bit).fold(0, |bits, bit| bits | bit);
        let mut used = self.used.lock();
        match used.get_mut(&kernel).filter(|used| used.runs < RELEARN) {
            // Prefetched memory is here in any case.
            Some(used) => used.arguments &= here,
            None => {
                if used.len() >= KERNELS_REMEMBERED && !used.contains_key(&kernel) {
                    used.pop_first();
                }
                used.insert(kernel, Used { arguments: here, runs: 0 });
            }
        }
        self.any.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/arguments.rs"]
mod tests;
