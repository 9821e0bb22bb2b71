// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Fuzz target: the readers of text that users, systems and compilers write.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::text(bytes);
});
