// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/thunks.rs`.

use super::*;

extern "C" fn add<const N: u64>(n: u64) -> u64 {
    n + N
}

fn call(at: u64, n: u64) -> u64 {
    // SAFETY: the tests put a stub there, which leads to a function of this type.
    unsafe { std::mem::transmute::<u64, extern "C" fn(u64) -> u64>(at)(n) }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn functions_are_callable_at_other_addresses() {
    let mut thunks = Thunks::new();
    // On different pages.
    let (a, b) = (0x1234_5678_9000, 0x1234_5678_aff0);
    thunks.set(a, add::<1> as *const () as u64).unwrap();
    thunks.set(b, add::<2> as *const () as u64).unwrap();
    assert_eq!((call(a, 1), call(b, 1)), (2, 3));
    thunks.set(a, add::<2> as *const () as u64).unwrap();
    assert_eq!(call(a, 1), 3);
}

#[test]
#[cfg(target_arch = "x86_64")]
fn what_is_there_stays_there() {
    let own = add::<1> as *const () as u64;
    assert!(Thunks::new().set(own, 1).unwrap_err().to_string().contains("has something else"));
    assert_eq!(call(own, 1), 2);
}

/// The first byte of the code at an address.
fn code_at(at: u64) -> u8 {
    // SAFETY: a page of thunks is there.
    unsafe { *(at as *const u8) }
}

#[test]
#[cfg(target_arch = "x86_64")]
fn a_stub_does_not_reach_into_the_next_one() {
    let (mut thunks, to) = (Thunks::new(), add::<1> as *const () as u64);
    let at = 0x1234_5679_9100;
    // Functions without gaps, some of which chance aligns, in different orders.
    let found = [(0, false), (12, false), (16, true), (40, false), (57, false), (48, false), (64, true)];
    for (from, _) in found {
        thunks.set(at + from, to).unwrap();
    }
    for (from, has_stub) in found {
        assert_eq!(code_at(at + from), if has_stub { 0x49 } else { TRAP }, "{from}");
        assert_eq!(thunks.called(at + from), Some(Called::Function(to)));
        if has_stub {
            assert_eq!(call(at + from, 1), 2);
        }
    }
    assert_eq!((code_at(at + 30), code_at(at + 50), code_at(at + 0x800)), (TRAP, TRAP, TRAP));
    assert_eq!((thunks.called(at + 30), thunks.called(to)), (Some(Called::Other), None));
}
