// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/unified/memory.rs`, with memory of this process.

use super::*;
use proptest::prelude::*;
use std::cell::RefCell;

/// What a device gets.
#[derive(Debug, Default)]
struct Got {
    /// By page, whether its bytes came.
    came: Vec<bool>,
    bytes: Vec<u8>,
    messages: usize,
}

/// Asks for the pages of `memory`, of which the device knows these ranges of pages as they are in `theirs`.
fn ask(memory: &[u8], theirs: &[u8], known: &[Range<usize>]) -> Result<Got> {
    let at = memory.as_ptr() as u64;
    let mut list = Vec::new();
    for part in known.iter().map(|pages| pages.start * PAGE..pages.end * PAGE) {
        let digest = xxh3_128(&theirs[part.clone()]);
        Known::push(&mut list, (at + part.start as u64, part.len() as u32, digest));
    }
    let (got, is_over) = (RefCell::new(Got::default()), RefCell::new(false));
    let take = |command: Command<'_>| {
        let Command::Pages { at: from, same, more, bytes: Bytes(bytes) } = command else { panic!("{command:?}") };
        let mut got = got.borrow_mut();
        let start = (from - at) as usize;
        assert!(start == got.bytes.len() && bytes.len() <= PIECE && !is_over.replace(!more), "{command:?}");
        got.bytes.extend_from_slice(&theirs[start..start + same as usize]);
        got.bytes.extend_from_slice(bytes);
        got.came.extend(std::iter::repeat_n(false, same as usize / PAGE));
        got.came.extend(std::iter::repeat_n(true, bytes.len() / PAGE));
        got.messages += 1;
        Ok(())
    };
    send(&take, at..at + memory.len() as u64, Known(&list))?;
    assert!(is_over.into_inner());
    Ok(got.into_inner())
}

/// Pages of this process.
fn memory(pages: usize) -> memmap2::MmapMut {
    memmap2::MmapMut::map_anon(pages * PAGE).unwrap()
}

#[test]
fn what_a_device_has_is_not_sent() {
    let mut here = memory(64);
    here.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i / 100) as u8);
    let blocks = [0..16, 16..32, 32..48, 48..64];
    let got = ask(&here, &here, &blocks).unwrap();
    assert!(got.came.iter().all(|came| !came) && got.messages == 1 && got.bytes == here[..]);
    // One byte has changed.
    let theirs = here.to_vec();
    here[40 * PAGE + 5] ^= 1;
    let got = ask(&here, &theirs, &blocks).unwrap();
    assert!(got.bytes == here[..] && (0..64).all(|page| got.came[page] == blocks[2].contains(&page)));
    // Without anything that the device has, nothing is missing.
    let got = ask(&here, &theirs, &[]).unwrap();
    assert!(got.bytes == here[..] && got.came.iter().all(|came| *came));
    assert_eq!(got.messages, here.len().div_ceil(PIECE));
}

#[test]
fn memory_ends_where_the_program_has_no_more() {
    let here = memory(8);
    let theirs = here.to_vec();
    // SAFETY: nothing uses the last pages.
    unsafe { libc::mprotect(here.as_ptr().add(5 * PAGE) as *mut _, 3 * PAGE, libc::PROT_NONE) };
    // What the device has would be confirmed as a whole only.
    let got = ask(&here, &theirs, std::slice::from_ref(&(0..8))).unwrap();
    assert_eq!((got.came.len(), got.came.contains(&false)), (5, false));
    let got = ask(&here, &theirs, &[0..5, 5..8]).unwrap();
    assert_eq!((got.came.len(), got.came.contains(&true), got.messages), (5, false, 1));
    let gone = &here[5 * PAGE..];
    assert!(ask(gone, &theirs, std::slice::from_ref(&(0..3))).is_err());
}

#[test]
fn parts_outside_of_the_range_do_no_harm() {
    let here = memory(4);
    let at = here.as_ptr() as u64;
    let digest = xxh3_128(&here[..2 * PAGE]);
    let mut list = Vec::new();
    for page in [0, 3] {
        Known::push(&mut list, (at + page * PAGE as u64, 2 * PAGE as u32, digest));
    }
    let sent = RefCell::new(0);
    let count = |command: Command<'_>| {
        let Command::Pages { same: 0, bytes: Bytes(bytes), .. } = command else { panic!("{command:?}") };
        *sent.borrow_mut() += bytes.len();
        Ok(())
    };
    // The first part begins before the range, the last one ends behind it.
    send(&count, at + PAGE as u64..at + 4 * PAGE as u64, Known(&list)).unwrap();
    assert_eq!(*sent.borrow(), 3 * PAGE);
    assert!(send(&count, u64::MAX - 4095..u64::MAX, Known(&list)).is_err());
}

proptest! {
    /// The device has the program's memory then, and got only pages of parts that had changed, or that it did not know.
    #[test]
    fn all_that_has_changed_is_sent(
        changes in prop::collection::vec(0..100 * PAGE, 0..6),
        known in prop::collection::vec((0..5usize, 1..17usize), 0..20),
    ) {
        let mut here = memory(100);
        here.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i / 1000) as u8);
        let theirs = here.to_vec();
        changes.iter().for_each(|&at| here[at] ^= 0x55);
        let mut parts = Vec::new();
        let mut free = 0;
        for (gap, pages) in known {
            let part = free + gap..free + gap + pages;
            free = part.end;
            if free <= 100 {
                parts.push(part);
            }
        }
        let got = ask(&here, &theirs, &parts).unwrap();
        prop_assert!(got.bytes == here[..]);
        prop_assert!(got.messages <= here.len().div_ceil(PIECE) + 1 + parts.len());
        let is_same = |part: &Range<usize>| {
            let bytes = part.start * PAGE..part.end * PAGE;
            here[bytes.clone()] == theirs[bytes]
        };
        for page in 0..100 {
            let is_known = parts.iter().any(|part| part.contains(&page) && is_same(part));
            prop_assert_eq!(got.came[page], !is_known, "page {}", page);
        }
    }
}
