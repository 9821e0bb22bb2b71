// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! This device's number in the program. libomp, which images call, knows none: it takes this process for a host.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

static NUMBER: AtomicU32 = AtomicU32::new(0);

pub(super) fn set(number: u32) {
    NUMBER.store(number, Ordering::Relaxed);
}

/// The result of `omp_get_device_num` in a region: the plugin's number of the device.
pub fn get() -> c_int {
    NUMBER.load(Ordering::Relaxed) as c_int
}
