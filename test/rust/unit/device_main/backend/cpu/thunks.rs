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
    let mut thunks = Thunks::default();
    // The second stub extends into the next page.
    let (a, b) = (0x1234_5678_9000, 0x1234_5678_9ff8);
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
    assert!(Thunks::default().set(own, 1).unwrap_err().to_string().contains("has something else"));
    assert_eq!(call(own, 1), 2);
}
