// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The number that this device has in the program. libomp, which images call, knows none: to it this process is a host.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, Ordering};

static NUMBER: AtomicU32 = AtomicU32::new(0);

pub(super) fn set(number: u32) {
    NUMBER.store(number, Ordering::Relaxed);
}

/// What `omp_get_device_num` returns in a region: the plugin's number of the device.
pub fn get() -> c_int {
    NUMBER.load(Ordering::Relaxed) as c_int
}
