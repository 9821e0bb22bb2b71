// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/unified/merge.rs`.

use super::*;
use proptest::prelude::*;
use std::sync::atomic::AtomicU8;

/// Some cache lines.
const LEN: usize = 192;

#[repr(align(64))]
struct Aligned([u8; LEN]);

/// Merges into the bytes at `at` of `memory`.
fn merge_at(memory: &mut Aligned, at: usize, new: &[u8], old: &[u8]) -> std::result::Result<(), Conflict> {
    assert!(at + new.len() <= memory.0.len() && new.len() == old.len());
    // SAFETY: it is this memory, which nothing else uses now.
    unsafe { merge(memory.0.as_mut_ptr().add(at), new, old) }
}

#[test]
fn conflicts_name_byte_and_values() {
    let mut memory = Aligned([0; LEN]);
    memory.0[20] = 3;
    let base = memory.0.as_ptr() as u64;
    let conflict = merge_at(&mut memory, 13, &[1; 20], &[0; 20]).unwrap_err();
    assert_eq!(conflict, Conflict { at: base + 20, new: 1, old: 0, here: 3 });
    // All others are replaced, also those of its word.
    assert_eq!((memory.0[12], memory.0[20], memory.0[33]), (0, 3, 0));
    assert_eq!((&memory.0[13..20], &memory.0[21..33]), (&[1; 7][..], &[1; 12][..]));
    // The first one is named.
    let conflict = merge_at(&mut memory, 16, &[2; 32], &[0; 32]).unwrap_err();
    assert_eq!(conflict, Conflict { at: base + 16, new: 2, old: 0, here: 1 });
    assert_eq!((&memory.0[16..20], memory.0[20], &memory.0[33..48]), (&[1; 4][..], 3, &[2; 15][..]));
}

#[test]
fn a_conflict_keeps_nothing_else_of_its_line() {
    let mut memory = Aligned([0; LEN]);
    memory.0[100] = 3;
    let base = memory.0.as_ptr() as u64;
    let conflict = merge_at(&mut memory, 0, &[1; LEN], &[0; LEN]).unwrap_err();
    assert_eq!(conflict, Conflict { at: base + 100, new: 1, old: 0, here: 3 });
    assert!((0..LEN).all(|i| memory.0[i] == if i == 100 { 3 } else { 1 }));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn pairs_of_words_are_replaced_up_to_a_conflict() {
    if !std::arch::is_x86_feature_detected!("cmpxchg16b") {
        return;
    }
    const PAIR: usize = 2 * WORD;
    let (mut memory, new) = (Aligned([0; LEN]), [1; LEN]);
    memory.0[100] = 3;
    // SAFETY: it is this memory, which nothing else uses now, and the processor has the instruction.
    let replaced = unsafe { replace_pairs(memory.0.as_mut_ptr().cast(), new.as_chunks().0, [0; LEN].as_chunks().0) };
    let end = 100 / PAIR * PAIR;
    assert_eq!(replaced, end / WORD);
    assert!(memory.0[..end].iter().all(|byte| *byte == 1) && memory.0[end..100].iter().all(|byte| *byte == 0));
    assert!(memory.0[100] == 3 && memory.0[101..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_value_that_is_there_already_is_no_conflict() {
    let mut memory = Aligned([0; LEN]);
    memory.0[9] = 5;
    // The second time for another device.
    for _ in 0..2 {
        assert_eq!(merge_at(&mut memory, 8, &[4, 5, 6], &[0; 3]), Ok(()));
        assert_eq!(memory.0[7..12], [0, 4, 5, 6, 0]);
    }
    // Also in a line that another byte keeps from being replaced as a whole.
    let mut memory = Aligned([1; LEN]);
    memory.0[100] = 3;
    let base = memory.0.as_ptr() as u64;
    let conflict = merge_at(&mut memory, 0, &[1; LEN], &[0; LEN]).unwrap_err();
    assert_eq!(conflict, Conflict { at: base + 100, new: 1, old: 0, here: 3 });
}

proptest! {
    #[test]
    fn bytes_that_are_not_0_are_found(bytes in prop::array::uniform8(prop_oneof![Just(0u8), Just(1), Just(0x80), any::<u8>()])) {
        let wanted = bytes.map(|byte| if byte == 0 { 0 } else { 0xff });
        prop_assert_eq!(nonzero_bytes(u64::from_ne_bytes(bytes)).to_ne_bytes(), wanted);
    }
}

#[test]
fn nothing_is_written_where_nothing_has_changed() {
    let mut memory = Aligned([9; LEN]);
    assert_eq!(merge_at(&mut memory, 3, &[1; 50], &[1; 50]), Ok(()));
    assert_eq!(merge_at(&mut memory, 3, &[], &[]), Ok(()));
    assert_eq!(memory.0, [9; LEN]);
}

#[test]
fn read_only_memory_is_refused() {
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let map = |protection, flags, fd| {
        // SAFETY: a new mapping, which this test alone uses.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 3 * PAGE as usize, protection, flags, fd, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at as u64
    };
    use std::os::fd::AsRawFd;
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    let writable = map(libc::PROT_READ | libc::PROT_WRITE, private, -1);
    assert!(check_writable(writable + 1, 3 * PAGE as usize - 1).is_ok());
    assert!(check_writable(writable + PAGE, 0).is_ok());
    let (constant, guard) = (map(libc::PROT_READ, private, -1), map(libc::PROT_NONE, private, -1));
    let of_file = map(libc::PROT_READ, libc::MAP_PRIVATE, file.as_raw_fd());
    for at in [constant, guard, of_file] {
        let error = check_writable(at + PAGE, 8).unwrap_err().to_string();
        assert!(error.contains(&format!("at {:#x}, which can't be written", at + PAGE)), "{error}");
    }
    // A range whose last byte is in a page that can't be written.
    // SAFETY: the mappings are this test's.
    unsafe { libc::mprotect((writable + 2 * PAGE) as *mut _, PAGE as usize, libc::PROT_READ) };
    assert!(check_writable(writable, 2 * PAGE as usize).is_ok());
    assert!(check_writable(writable, 2 * PAGE as usize + 1).is_err());
    // SAFETY: as above; nothing uses them any more.
    [writable, constant, guard, of_file].into_iter().for_each(|at| unsafe { crate::sys::mapping::unmap(at, 3 * PAGE) });
}

proptest! {
    /// Any range, aligned or not: changed bytes get their new values, all others keep theirs.
    #[test]
    fn only_changed_bytes_are_replaced(
        before in prop::collection::vec(any::<u8>(), LEN), at in 0usize..LEN / 2,
        edits in prop::collection::vec(0u8..3, 0..LEN / 2),
        others in prop::collection::vec(0u8..2, 32),
    ) {
        let mut memory = Aligned(before.clone().try_into().unwrap());
        let old = &before[at..at + edits.len()];
        let new: Vec<u8> = old.iter().zip(&edits).map(|(b, e)| b ^ e).collect();
        // Meanwhile the program has changed some of the others, also outside of the range.
        for (i, byte) in memory.0.iter_mut().enumerate() {
            let is_edited = i >= at && edits.get(i - at).is_some_and(|e| *e != 0);
            if !is_edited && others[i % 32] != 0 {
                *byte = byte.wrapping_add(1);
            }
        }
        let mut wanted = memory.0;
        for (i, byte) in new.iter().enumerate().filter(|(i, _)| edits[*i] != 0) {
            wanted[at + i] = *byte;
        }
        prop_assert_eq!(merge_at(&mut memory, at, &new, old), Ok(()));
        prop_assert_eq!(memory.0, wanted);
    }

    /// The program's threads and two devices write different bytes of the same words at once: none is lost.
    #[test]
    fn writers_of_different_bytes_do_not_disturb_each_other(
        owners in prop::collection::vec(0u8..4, LEN), cuts in prop::collection::vec((0usize..LEN, 1usize..LEN), 40),
    ) {
        let mut memory = Aligned([0; LEN]);
        let bytes = memory.0.as_mut_ptr() as usize;
        // SAFETY: the memory's bytes; all threads use them as atomics of the processor.
        let byte = |i: usize| unsafe { &*((bytes + i) as *const AtomicU8) };
        std::thread::scope(|scope| {
            for device in 0..2u8 {
                let (owners, cuts) = (&owners, &cuts);
                scope.spawn(move || {
                    let mut known = [0u8; LEN];
                    for (round, &(start, len)) in cuts.iter().enumerate() {
                        let end = (start + len).min(LEN);
                        let mut new = known;
                        for i in (start..end).filter(|i| owners[*i] == device) {
                            new[i] = round as u8 + 1;
                        }
                        // SAFETY: these bytes, which live longer than this thread and are only accessed as atomics.
                        unsafe { merge((bytes + start) as *mut u8, &new[start..end], &known[start..end]) }
                            .expect("nobody else writes these bytes");
                        known = new;
                    }
                });
            }
            for thread in 2..4u8 {
                let owners = &owners;
                scope.spawn(move || {
                    for round in 1..=200u8 {
                        (0..LEN).filter(|i| owners[*i] == thread).for_each(|i| byte(i).store(round, Ordering::Relaxed));
                    }
                });
            }
        });
        for (i, &owner) in owners.iter().enumerate() {
            let device = |d: u8| cuts.iter().rposition(|&(start, len)| owner == d && (start..start + len).contains(&i));
            let wanted = match owner {
                d @ 0..2 => device(d).map_or(0, |round| round as u8 + 1),
                _ => 200,
            };
            prop_assert_eq!(byte(i).load(Ordering::Relaxed), wanted, "byte {} of {}", i, owner);
        }
    }

    /// A word is stored at once: no reader sees a mixture of two values.
    #[test]
    fn words_are_never_torn(values in prop::collection::vec(any::<u64>(), 2..20)) {
        let word = AtomicU64::new(values[0]);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                for _ in 0..1000 {
                    let seen = word.load(Ordering::Relaxed);
                    assert!(values.contains(&seen), "{seen:#x}");
                }
            });
            for two in values.windows(2) {
                let at = (&raw const word).cast_mut().cast::<u8>();
                // SAFETY: this word, which is only accessed as an atomic.
                unsafe { merge(at, &two[1].to_ne_bytes(), &two[0].to_ne_bytes()) }.expect("nobody else writes it");
            }
            reader.join().unwrap();
        });
        prop_assert_eq!(word.into_inner(), *values.last().unwrap());
    }
}
