// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/memory.rs`.

use super::*;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

#[test]
fn a_new_arena_replaces_the_old_one() {
    let m = Memory::default();
    // SAFETY: nothing uses the first one.
    unsafe {
        m.start(0x2346_0000_0000, 1 << 20, Default::default()).unwrap();
        m.start(0x2345_0000_0000, 1 << 20, Default::default()).unwrap();
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

#[test]
fn shared_pages_keep_their_contents() {
    const AT: u64 = 0x2348_0000_0000;
    let (page, m) = (u64::from(node::page_size()), Memory::default());
    let (file, nonce) = shared_file::create(4 * page).unwrap();
    let shared = SharedFile { pid: std::process::id(), descriptor: file.as_raw_fd() as u32, nonce, len: 4 * page };
    // SAFETY: nothing else uses this arena.
    unsafe {
        m.start(AT, 16 * page, (2 * page, shared)).unwrap();
        m.write(AT + 8 * page, &[7; 9]).unwrap();
        assert!(!m.share(AT + 8 * page, 2 * page, page).unwrap(), "not the beginning's part of the file");
        assert!(!m.share(AT + 8 * page, 3 * page, 2 * page).unwrap(), "not behind the file");
        assert!(m.share(AT + 8 * page, 2 * page, 2 * page).unwrap());
        assert!(!m.share(AT + 9 * page, 2 * page, 2 * page).unwrap(), "no page twice");
        assert!(!m.share(AT + 12 * page, 1, 2 * page).unwrap(), "whole pages only");
        assert!(!m.share(AT + 15 * page, 2 * page, 2 * page).unwrap(), "only the arena");
    }
    let (mut here, mut there) = (Vec::new(), [0; 9]);
    m.read(AT + 8 * page, 9, &mut here).unwrap();
    file.read_exact_at(&mut there, 2 * page).unwrap();
    assert_eq!((&here[..], there), (&[7; 9][..], [7; 9]));
    m.write(AT + 9 * page, &[8; 9]).unwrap();
    file.read_exact_at(&mut there, 3 * page).unwrap();
    assert_eq!(there, [8; 9]);
    m.write(AT + 7 * page, &[9; 9]).unwrap();
    m.discard(AT + 7 * page, 4 * page);
    for (place, at) in [(2, 8), (3, 9)] {
        file.read_exact_at(&mut there, place * page).unwrap();
        here.clear();
        m.read(AT + at * page, 9, &mut here).unwrap();
        assert_eq!((&here[..], there), (&[0; 9][..], [0; 9]), "the file has discarded it");
    }
}
