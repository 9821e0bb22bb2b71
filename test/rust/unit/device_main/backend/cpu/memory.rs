// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/memory.rs`.

use super::*;

#[test]
fn a_new_arena_replaces_the_old_one() {
    let m = Memory::default();
    // SAFETY: nothing uses the first one.
    unsafe {
        m.start(0x2346_0000_0000, 1 << 20, SharedFile::default()).unwrap();
        m.start(0x2345_0000_0000, 1 << 20, SharedFile::default()).unwrap();
    }
    assert!(!m.is_plain(0x2346_0000_0000, 1) && m.is_plain(0x2345_0000_0000, 1 << 20));
}

#[test]
fn own_memory_is_accessible() {
    let m = Memory::default();
    let own = Box::new(7u64);
    let at = &raw const *own as u64;
    let mut out = Vec::new();
    m.read(at, 8, &mut out).unwrap();
    assert_eq!(out, 7u64.to_ne_bytes());
    m.write(at, &9u64.to_ne_bytes()).unwrap();
    // SAFETY: the test's own box.
    assert_eq!(unsafe { (&raw const *own).read_volatile() }, 9);
    assert!(m.read(16, 8, &mut out).is_err());
    assert!(m.write(checked as *const () as u64, &[0; 8]).is_err(), "code is not writable");
    assert_eq!(out.len(), 8);
}
