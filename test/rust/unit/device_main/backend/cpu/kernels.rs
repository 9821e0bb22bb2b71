// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/kernels.rs`.

use super::*;

extern "C" fn sum(out: &mut u64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) {
    *out = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g;
}
extern "C" fn nothing() {}

#[test]
fn arguments_arrive_in_order() {
    for _ in 0..3 {
        let mut out = 0u64;
        call(sum as *const () as u64, &[&raw mut out as u64, 1, 1, 1, 1, 1, 1, 10]);
        assert_eq!(out, 91);
        call(nothing as *const () as u64, &[]);
    }
}
