// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/shared_file.rs`.

use super::*;
use std::os::fd::AsRawFd;

#[test]
fn only_the_right_file_opens() {
    const LEN: u64 = 8192;
    let (file, nonce) = create(LEN).unwrap();
    let (pid, descriptor) = (std::process::id(), file.as_raw_fd() as u32);
    let opened = open((pid, descriptor, nonce), LEN).unwrap();
    file.write_all_at(b"from there", 100).unwrap();
    let mut seen = [0; 10];
    opened.read_exact_at(&mut seen, 100).unwrap();
    assert_eq!(&seen, b"from there");

    assert!(open((pid, descriptor, nonce ^ 1), LEN).is_err());
    assert!(open((pid, descriptor, nonce), LEN * 2).is_err());
    assert!(open((pid, 1_000_000, nonce), LEN).is_err());
    let other = memfd(c"other", 0).unwrap();
    other.set_len(LEN).unwrap();
    assert!(open((pid, other.as_raw_fd() as u32, 0), LEN).is_err());
    assert!(file.set_len(0).is_err(), "its size is sealed");
}
