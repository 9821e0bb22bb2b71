// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/unified/fetch.rs`, with memory of this process.

use super::*;
use proptest::prelude::*;
use std::cell::RefCell;

const PORT: usize = 5;

/// What a device gets.
#[derive(Debug, Default)]
struct Got {
    /// By page, whether its bytes came.
    came: Vec<bool>,
    bytes: Vec<u8>,
    messages: usize,
    /// Lengths of pieces of bulk data.
    pieces: Vec<usize>,
    is_over: bool,
}

/// Sends to a device that has `theirs` from the address `at` on.
struct Device<'a> {
    at: u64,
    theirs: &'a [u8],
    piece_len: Option<usize>,
    got: RefCell<Got>,
}

impl Device<'_> {
    fn take(&self, bytes: &[u8]) {
        let mut got = self.got.borrow_mut();
        got.bytes.extend_from_slice(bytes);
        got.came.extend(std::iter::repeat_n(true, bytes.len() / PAGE));
    }
}

impl Post for Device<'_> {
    fn answer(&self, port: usize, answer: Answer<'_>) -> Result<()> {
        let (from, same, more, bytes) = match answer {
            Answer::Pages { at, same, more, bytes } => (at, same, more, Some(bytes.0)),
            Answer::PagesAside { at, same, more, .. } => (at, same, more, None),
            other => panic!("{other:?}"),
        };
        {
            let got = &mut *self.got.borrow_mut();
            let start = (from - self.at) as usize;
            assert!(port == PORT && start == got.bytes.len() && !got.is_over, "{answer:?}");
            got.bytes.extend_from_slice(&self.theirs[start..start + same as usize]);
            got.came.extend(std::iter::repeat_n(false, same as usize / PAGE));
            got.messages += 1;
            got.is_over = !more;
            got.pieces.extend(match answer {
                Answer::PagesAside { len, .. } => Some(len as usize),
                _ => None,
            });
        }
        bytes.into_iter().for_each(|bytes| {
            assert!(bytes.len() <= PIECE);
            self.take(bytes);
        });
        Ok(())
    }

    fn piece(&self, port: usize, bytes: Vec<u8>) -> Result<()> {
        assert_eq!((port, self.got.borrow().pieces.last()), (PORT, Some(&bytes.len())));
        self.take(&bytes);
        Ok(())
    }

    fn piece_len(&self) -> Option<usize> {
        self.piece_len
    }
}

/// Asks for the pages of `memory`, of which the device knows these ranges of pages as they are in `theirs`. None if there
/// is nothing.
fn ask(memory: &[u8], theirs: &[u8], known: &[Range<usize>]) -> Option<Got> {
    ask_in_pieces(memory, theirs, known, None)
}

fn ask_in_pieces(memory: &[u8], theirs: &[u8], known: &[Range<usize>], piece_len: Option<usize>) -> Option<Got> {
    let at = memory.as_ptr() as u64;
    let mut list = Vec::new();
    for part in known.iter().map(|pages| pages.start * PAGE..pages.end * PAGE) {
        let digest = xxh3_128(&theirs[part.clone()]);
        Known::push(&mut list, (at + part.start as u64, part.len() as u32, digest));
    }
    let device = Device { at, theirs, piece_len, got: RefCell::default() };
    let is_there = send((&device, PORT), &SpareBuffers::default(), at..at + memory.len() as u64, Known(&list)).unwrap();
    let got = device.got.into_inner();
    assert_eq!((got.is_over, got.messages > 0), (is_there, is_there));
    is_there.then_some(got)
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
    assert!(ask(gone, &theirs, std::slice::from_ref(&(0..3))).is_none());
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
    let device = Device { at: at + PAGE as u64, theirs: &here, piece_len: None, got: RefCell::default() };
    // The first part begins before the range, the last one ends behind it.
    assert!(
        send((&device, PORT), &SpareBuffers::default(), at + PAGE as u64..at + 4 * PAGE as u64, Known(&list)).unwrap()
    );
    assert_eq!(device.got.borrow().bytes.len(), 3 * PAGE);
    assert!(!send((&device, PORT), &SpareBuffers::default(), u64::MAX - 4095..u64::MAX, Known(&list)).unwrap());
}

#[test]
fn much_comes_as_bulk_data() {
    let mut here = memory(200);
    here.iter_mut().enumerate().for_each(|(i, byte)| *byte = (i / 100) as u8);
    let theirs = here.to_vec();
    let piece = MEMORY_PIECE_MIN + BLOCK;
    let got = ask_in_pieces(&here, &theirs, &[], Some(piece)).unwrap();
    assert!(got.bytes == here[..] && got.came.iter().all(|came| *came));
    let rest = here.len() % piece;
    assert_eq!(got.pieces.iter().sum::<usize>(), here.len() - if rest < MEMORY_PIECE_MIN { rest } else { 0 });
    assert!(got.pieces.iter().all(|&len| len <= piece && len >= MEMORY_PIECE_MIN));
    // Not what the device has, and not little.
    here[100 * PAGE] ^= 1;
    let blocks: Vec<_> = (0..192).step_by(16).map(|page| page..page + 16).collect();
    let got = ask_in_pieces(&here, &theirs, &blocks, Some(piece)).unwrap();
    assert!(got.bytes == here[..] && got.came.iter().filter(|came| **came).count() == 16 + 8);
    assert!(MEMORY_PIECE_MIN <= BLOCK || got.pieces.is_empty());
}

proptest! {
    /// The device has the program's memory then, and got only pages of parts that had changed, or that it did not know.
    #[test]
    fn all_that_has_changed_is_sent(
        changes in prop::collection::vec(0..100 * PAGE, 0..6),
        known in prop::collection::vec((0..5usize, 1..17usize), 0..20),
        piece in prop::option::of(0..9usize),
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
        let got = ask_in_pieces(&here, &theirs, &parts, piece.map(|n| MEMORY_PIECE_MIN + n * BLOCK)).unwrap();
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
