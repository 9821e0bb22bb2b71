// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/offload/arena.rs`.

use super::*;

const LEN: u64 = 64 * PAGE;

fn assert_in_use(range: Range<u64>) {
    for at in range.step_by(PAGE as usize) {
        assert!(mapping::map_at(at, PAGE, libc::PROT_NONE, None).is_err(), "{at:#x}");
    }
}

#[test]
fn what_is_free_of_a_range_is_reserved() {
    let start = 0x2466_0000_0000;
    mapping::map_at(start + 20 * PAGE, PAGE, libc::PROT_NONE, None).unwrap();
    Avoided::default().add([start..start + LEN, 0..0].into_iter());
    assert_in_use(start..start + LEN);
}

#[test]
fn what_becomes_free_of_a_range_is_reserved_by_the_next_call() {
    let (start, mut avoided) = (0x2467_0000_0000, Avoided::default());
    let mine = start + 20 * PAGE;
    mapping::map_at(mine, 2 * PAGE, libc::PROT_NONE, None).unwrap();
    avoided.add(std::iter::once(start..start + LEN));
    // SAFETY: this test mapped it.
    unsafe { mapping::unmap(mine, 2 * PAGE) };
    avoided.add(std::iter::once(start..start + LEN));
    assert_in_use(start..start + LEN);
}
