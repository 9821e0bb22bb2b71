// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/offload/visible.rs`.

use super::*;

#[test]
fn a_device_sees_one_accelerator() {
    let all = |n: usize, place| share(None, || n, place);
    assert_eq!((all(0, 3), all(1, 3)), (None, None));
    assert_eq!(all(4, 6), Some("2".into()));
    let some = |value, place| share(Some(value), || panic!("the variable names them"), place);
    assert_eq!(some("3, 1,", 0), Some("3".into()));
    assert_eq!(some("GPU-a,GPU-b", 3), Some("GPU-b".into()));
    // A batch system has given this process one, or none.
    assert_eq!((some("2", 5), some("", 5)), (None, None));
}
