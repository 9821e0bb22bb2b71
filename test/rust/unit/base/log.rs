// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/log.rs`.

use crate::base::log::Plain;

#[test]
fn a_line_stays_one() {
    assert_eq!(Plain("ä='\u{1b}[31m\nb'").to_string(), "ä='\\u{1b}[31m\\nb'");
}
