// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Fuzz target: the reader of device images.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::image(bytes);
});
