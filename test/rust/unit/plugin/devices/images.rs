// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/devices/images.rs`.

use super::*;

#[test]
fn globals_share_pages() {
    assert_eq!(pages(vec![]), []);
    assert_eq!(
        pages(vec![0x5ff8..0x6001, 0x1010..0x1018, 0x1018..0x1019, 0x9000..0x9001]),
        [0x1000..0x2000, 0x5000..0x7000, 0x9000..0xa000]
    );
    // Neighbors become one.
    assert_eq!(pages(vec![0x1fff..0x2000, 0x2000..0x2001, 0x4000..0x4001]), [0x1000..0x3000, 0x4000..0x5000]);
}
