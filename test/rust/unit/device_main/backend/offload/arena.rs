// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/offload/arena.rs`.

use super::*;

#[test]
fn what_is_free_of_a_range_is_reserved() {
    let (start, len) = (0x2466_0000_0000, 64 * SMALL);
    let mine = start + 20 * SMALL + 3 * PAGE;
    mapping::map_at(mine, PAGE, libc::PROT_NONE, None).unwrap();
    let mut avoided = Avoided::default();
    avoided.add([start..start + len, 0..0].into_iter());
    let is_free = |at: u64| {
        let free = mapping::map_at(at, PAGE, libc::PROT_NONE, None).is_ok();
        if free {
            // SAFETY: it was mapped just now.
            unsafe { mapping::unmap(at, PAGE) };
        }
        free
    };
    let free = (start..start + len).step_by(SMALL as usize / 2).filter(|&at| is_free(at)).count();
    // Nothing but the part with the page.
    assert!((1..=2).contains(&free), "{free}");
    assert!(!is_free(start) && !is_free(mine) && !is_free(start + len - PAGE));
    // The second time nothing is tried again.
    avoided.add(std::iter::once(start..start + len));
    assert_eq!(avoided.0.len(), 1);
}
