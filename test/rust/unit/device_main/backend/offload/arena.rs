// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/offload/arena.rs`.

use super::*;

#[test]
fn what_is_free_of_a_range_is_reserved() {
    let (start, len) = (0x2466_0000_0000, 64 * PAGE);
    let mine = start + 20 * PAGE;
    mapping::map_at(mine, PAGE, libc::PROT_NONE, None).unwrap();
    let mut avoided = Avoided::default();
    avoided.add([start..start + len, 0..0].into_iter());
    for at in (start..start + len).step_by(PAGE as usize) {
        assert!(mapping::map_at(at, PAGE, libc::PROT_NONE, None).is_err(), "{at:#x}");
    }
    // The second time nothing is tried again.
    avoided.add(std::iter::once(start..start + len));
    assert_eq!(avoided.0.len(), 2);
}
