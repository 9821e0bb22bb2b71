// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/unified/pages.rs`, with a program that is an array of pages. They are
//! mapped at addresses that nothing else of this process has.

use super::*;
use crate::base::sync::Mutex;
use crate::device_main::upcalls::interface::{Function, Wanted};
use crate::wire::BLOCK;
use crate::wire::command::SharedFile;
use crate::wire::reply::{Known, Reply, begin_changed};
use proptest::prelude::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use xxhash_rust::xxh3::xxh3_128;

const SEQ: u64 = 17;
const KERNEL: u64 = 1;

/// A program. Some of its pages may be unmapped.
struct Program {
    base: u64,
    pages: Mutex<Vec<Option<[u8; PAGE as usize]>>>,
    /// How often it was asked.
    trips: AtomicU64,
    /// Ranges that were asked for.
    fetched: Mutex<Vec<Range<u64>>>,
    /// How many pages were sent, because the device did not have them.
    sent: AtomicU64,
    /// How many parts were named that the device has.
    known: AtomicU64,
    /// Bytes of ranges that came as a whole.
    whole: AtomicU64,
    /// It takes no such range.
    takes_no_range: AtomicBool,
    /// Bytes that came with another old value than they have here.
    conflicts: Mutex<Vec<u64>>,
}

impl Program {
    fn new(pages: usize) -> Program {
        static NEXT: AtomicU64 = AtomicU64::new(0x6100_0000_0000);
        // With room between them, so that no piece of one reaches another one.
        let base = NEXT.fetch_add(1 << 30, Ordering::Relaxed);
        let pages = Mutex::new(vec![Some([0; PAGE as usize]); pages]);
        let (trips, fetched, sent, known, whole, takes_no_range, conflicts) = Default::default();
        Program { base, pages, trips, fetched, sent, known, whole, takes_no_range, conflicts }
    }

    fn change(&self, at: u64, change: impl FnOnce(&mut u8)) {
        let n = at - self.base;
        let mut pages = self.pages.lock();
        let byte = &mut pages[(n / PAGE) as usize].as_mut().expect("a mapped page")[(n % PAGE) as usize];
        change(byte);
    }

    fn set(&self, at: u64, value: u8) {
        self.change(at, |byte| *byte = value);
    }

    fn get(&self, at: u64) -> u8 {
        let mut value = 0;
        self.change(at, |byte| value = *byte);
        value
    }

    fn unmap(&self, page: usize) {
        self.pages.lock()[page] = None;
    }

    fn fetched(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut self.fetched.lock())
    }

    /// How many pages were sent since this was asked last.
    fn sent(&self) -> u64 {
        self.sent.swap(0, Ordering::Relaxed)
    }
}

impl Program {
    fn send(
        &self,
        &Range { start: at, end }: &Range<u64>,
        mut known: Known<'_>,
        piece: &mut dyn FnMut(Piece<'_>) -> Result<()>,
    ) -> Result<()> {
        let len = end - at;
        assert!(at.is_multiple_of(PAGE) && len.is_multiple_of(PAGE) && len > 0, "{at:#x}, {len:#x}");
        self.fetched.lock().push(at..at + len);
        let Some(first) = at.checked_sub(self.base).map(|at| at / PAGE) else { return Ok(()) };
        let pages = self.pages.lock();
        let there: Vec<u8> =
            (first..first + len / PAGE).map_while(|n| pages.get(n as usize).copied().flatten()).flatten().collect();
        let mut is_same = vec![false; there.len() / PAGE as usize];
        while let Some((part, len, digest)) = known.take()? {
            self.known.fetch_add(1, Ordering::Relaxed);
            assert!(at <= part, "{part:#x} is before {at:#x}");
            let part = (part - at) as usize..(part - at) as usize + len as usize;
            if there.get(part.clone()).is_some_and(|bytes| xxh3_128(bytes) == digest) {
                is_same[part.start / PAGE as usize..part.end / PAGE as usize].fill(true);
            }
        }
        // In several pieces.
        let mut n = 0;
        while n < is_same.len() {
            let count = |n: usize, wanted| is_same[n..].iter().take_while(|same| **same == wanted).count();
            let same = count(n, true);
            let others = count(n + same, false).min(3);
            let bytes = &there[(n + same) * PAGE as usize..(n + same + others) * PAGE as usize];
            self.sent.fetch_add(others as u64, Ordering::Relaxed);
            piece(Piece { at: at + n as u64 * PAGE, same: same as u64 * PAGE, bytes })?;
            n += same + others;
        }
        Ok(())
    }
}

impl Upcalls for Program {
    fn process(&self) -> Option<i32> {
        None
    }

    fn fetch(&self, ranges: &[Wanted<'_>], piece: &mut dyn FnMut(Piece<'_>) -> Result<()>) -> Result<()> {
        self.trips.fetch_add(1, Ordering::Relaxed);
        let sent = ranges.iter().map(|(range, known)| self.send(range, *known, piece));
        sent.fold(Ok(()), Result::and)
    }

    fn function(&self, _: u64) -> Result<Option<Function>> {
        unreachable!("no page is a function")
    }

    fn offer_changes(&self, _: u64, _: u64, _: &[u8], _: SharedFile) -> Result<bool> {
        unreachable!("the program is on another node")
    }

    fn unmerged(&self) -> u32 {
        0
    }

    fn send_range(&self, seq: u64, at: u64, new: &[u8], old: &[u8]) -> Result<Vec<Range<u64>>> {
        assert!(seq == SEQ && new.len() == old.len());
        if self.takes_no_range.load(Ordering::Relaxed) {
            return Err(Error::new("no"));
        }
        self.whole.fetch_add(new.len() as u64, Ordering::Relaxed);
        let mut others = Vec::new();
        for (at, (new, old)) in (at..).step_by(BLOCK).zip(new.chunks(BLOCK).zip(old.chunks(BLOCK))) {
            let bytes = || (at..).zip(new.iter().zip(old));
            if bytes().all(|(at, (_, old))| self.get(at) == *old) {
                bytes().for_each(|(at, (new, _))| self.set(at, *new));
            } else {
                others.push(at..at + new.len() as u64);
            }
        }
        Ok(others)
    }

    fn send_changes(&self, seq: u64, write: &mut dyn FnMut(&mut Vec<u8>)) {
        let mut message = Vec::new();
        begin_changed(&mut message, seq);
        write(&mut message);
        assert!(message.len() <= MESSAGE_MAX, "{} bytes", message.len());
        let Ok(Reply::Changed { seq: SEQ, mut changes }) = Reply::parse(&message) else { panic!("{message:?}") };
        while let Some((at, new, old)) = changes.take().unwrap() {
            for (at, (new, old)) in (at..).zip(new.iter().zip(old)).filter(|(_, (new, old))| new != old) {
                self.change(at, |here| {
                    if *here != *old && *here != *new {
                        self.conflicts.lock().push(at);
                    } else {
                        *here = *new;
                    }
                });
            }
        }
    }
}

/// A device's pages of a program, as a kernel uses them.
struct Device<'a> {
    program: &'a Program,
    pages: Pages,
    kernel: u64,
}

impl<'a> Device<'a> {
    fn new(program: &'a Program) -> Device<'a> {
        let mut pages = Pages::new(program).unwrap();
        // Also in programs of few pages.
        pages.streamed.min = 16 * PAGE;
        Device { program, pages, kernel: KERNEL }
    }

    fn touch(&mut self, at: u64) -> Result<()> {
        self.pages.fetch(self.program, self.kernel, at, false)?.map(drop).ok_or_else(|| Error::new("nothing"))
    }

    fn read(&mut self, at: u64) -> u8 {
        self.touch(at).unwrap();
        // SAFETY: the page was just mapped, and nothing unmaps it meanwhile.
        unsafe { (at as *const u8).read_volatile() }
    }

    fn write(&mut self, at: u64, value: u8) {
        self.touch(at).unwrap();
        // SAFETY: as above.
        unsafe { (at as *mut u8).write_volatile(value) };
    }

    /// A kernel has ended; others run.
    fn send(&mut self) {
        self.pages.send_changes(self.program, SEQ, false).unwrap();
    }

    /// The only kernel has ended.
    fn end(&mut self) {
        self.pages.send_changes(self.program, SEQ, true).unwrap();
        self.pages.forget();
    }

    fn refresh(&mut self) -> Result<Amount> {
        self.pages.refresh(self.program)
    }
}

impl Drop for Device<'_> {
    fn drop(&mut self) {
        self.pages.forget();
    }
}

#[test]
fn what_is_only_read_is_not_sent() {
    let program = Program::new(32);
    let at = |n: u64| program.base + n;
    program.set(at(5000), 7);
    let mut device = Device::new(&program);
    assert_eq!(device.read(at(5000)), 7);
    let first = at(0)..at(64 << 10);
    assert_eq!(program.fetched(), [first]);
    // Its neighbors came along. What the program writes later is not seen.
    program.set(at(5000), 8);
    assert_eq!((device.read(at(5000)), device.read(at(0))), (7, 0));
    assert_eq!(program.fetched(), []);
    device.send();
    assert_eq!(program.get(at(5000)), 8);
}

#[test]
fn what_is_written_goes_home_once() {
    let program = Program::new(32);
    let at = |n: u64| program.base + n;
    let mut device = Device::new(&program);
    device.write(at(100), 1);
    device.write(at(20 * PAGE), 2);
    device.send();
    assert_eq!((program.get(at(100)), program.get(at(20 * PAGE))), (1, 2));
    // These values are not sent again: the program may replace them.
    program.set(at(100), 9);
    device.send();
    assert_eq!(program.get(at(100)), 9);
    assert!(program.conflicts.lock().is_empty());
}

#[test]
fn a_byte_that_both_have_changed_is_a_conflict() {
    let program = Program::new(1);
    let at = program.base + 3;
    let mut device = Device::new(&program);
    device.write(at, 1);
    program.set(at, 2);
    device.send();
    assert_eq!(*program.conflicts.lock(), [at]);
    assert_eq!(program.get(at), 2);
    // Neither is it lost if the device has seen the program's value after its own.
    let other = program.base + 4;
    device.write(other, 1);
    program.set(other, 2);
    device.refresh().unwrap();
    assert_eq!(device.read(other), 1);
    device.send();
    assert_eq!(*program.conflicts.lock(), [at, other]);
}

/// Otherwise a kernel that writes there for the first time just now would bring the old bytes back: Linux makes its
/// copy of the page from what the store had, and shows it later.
#[test]
fn a_page_is_a_copy_before_the_store_has_what_is_taken_over() {
    let program = Program::new(3);
    let at = |page: u64| program.base + page * PAGE;
    let mut device = Device::new(&program);
    (0..3).for_each(|page| device.touch(at(page)).unwrap());
    program.set(at(1) + 7, 2);
    device.refresh().unwrap();
    assert_eq!(device.read(at(1) + 7), 2);
    assert_eq!(device.pages.copies(&(at(0)..at(3))).unwrap(), [at(1)]);
    // It is not the device's change.
    program.set(at(1) + 7, 3);
    device.send();
    assert_eq!((program.get(at(1) + 7), program.conflicts.lock().len()), (3, 0));
}

#[test]
fn memory_that_the_program_does_not_have_is_refused() {
    let program = Program::new(20);
    let at = |page: u64| program.base + page * PAGE;
    program.unmap(2);
    program.unmap(18);
    let mut device = Device::new(&program);
    assert!(device.touch(at(2)).is_err() && device.touch(at(20)).is_err());
    // Nothing before a hole keeps what is behind it from being fetched, and the other way round.
    device.write(at(5), 5);
    device.write(at(1), 1);
    device.write(at(17), 17);
    device.write(at(19), 19);
    assert!(device.touch(at(2)).is_err() && device.touch(at(18)).is_err());
    device.send();
    assert_eq!([5, 1, 17, 19].map(|n| program.get(at(n))), [5, 1, 17, 19]);
    // It is there later.
    program.pages.lock()[2] = Some([2; PAGE as usize]);
    assert_eq!(device.read(at(2)), 2);
}

#[test]
fn what_is_written_in_order_is_not_copied_page_by_page() {
    let program = Program::new(64);
    let at = |page: u64| program.base + page * PAGE;
    let mut device = Device::new(&program);
    for page in 0..64 {
        device.write(at(page), 1);
        if page == 15 {
            assert!(
                device.pages.copies(&(at(0)..at(16))).unwrap().len() == 16
                    && device.pages.streamed.ranges().bytes() == 0
            );
        }
    }
    assert!(device.pages.streamed.ranges().iter().eq(std::iter::once(at(16)..at(64))));
    // It is as any other page: what the program writes meanwhile is taken over, what both write is a conflict, and what
    // was sent is not sent again.
    program.set(at(40) + 1, 2);
    program.set(at(41), 3);
    device.refresh().unwrap();
    assert_eq!((device.read(at(40) + 1), device.read(at(41))), (2, 1));
    device.send();
    assert_eq!(*program.conflicts.lock(), [at(41)]);
    program.set(at(42), 9);
    device.send();
    assert_eq!((program.get(at(42)), program.get(at(63)), program.conflicts.lock().len()), (9, 1, 1));
    // It may vanish, for nothing of it is to be sent.
    program.unmap(50);
    device.refresh().unwrap();
    assert!(device.touch(at(50)).is_err());
    assert!(device.pages.streamed.ranges().iter().eq([at(16)..at(50), at(51)..at(64)]));
    // What was only read is as cheap as before, also behind what was written.
    device.end();
    (0..50).for_each(|page| {
        assert_eq!(device.read(at(page)), if [41, 42].contains(&page) { program.get(at(page)) } else { 1 })
    });
    assert_eq!(device.pages.streamed.ranges().bytes(), 0);
    // Nor is it worth it for little.
    device.pages.streamed.min = 64 * PAGE;
    device.end();
    (0..50).for_each(|page| device.write(at(page), 2));
    assert_eq!(device.pages.streamed.ranges().bytes(), 0);
}

#[test]
fn what_has_changed_much_is_sent_as_a_whole() {
    let program = Program::new(128);
    let at = |page: u64| program.base + page * PAGE;
    let mut device = Device::new(&program);
    let fill = |device: &mut Device, pages: Range<u64>, value: u8| {
        for page in pages {
            device.touch(at(page)).unwrap();
            // SAFETY: the page was just mapped, and nothing unmaps it meanwhile.
            unsafe { (at(page) as *mut u8).write_bytes(value, PAGE as usize) };
        }
    };
    // Four blocks in the middle, and some bytes around them.
    fill(&mut device, 32..96, 1);
    device.write(at(3), 2);
    device.write(at(100) + 5, 2);
    device.send();
    let values = [at(3), at(32), at(96) - 1, at(100) + 5].map(|at| program.get(at));
    assert_eq!((values, program.whole.swap(0, Ordering::Relaxed)), ([2, 1, 1, 2], 64 * PAGE));
    // In a block where the program has changed something, too, its change stays, whether that is a conflict or not.
    fill(&mut device, 32..96, 3);
    device.write(at(40) + 7, 1);
    program.set(at(40) + 7, 8);
    program.set(at(50) + 9, 9);
    device.end();
    let values = [at(40) + 6, at(40) + 7, at(50) + 9, at(96) - 1].map(|at| program.get(at));
    assert_eq!((values, program.whole.swap(0, Ordering::Relaxed)), ([3, 8, 9, 3], 64 * PAGE));
    assert_eq!(*program.conflicts.lock(), [at(50) + 9]);
    // A quarter of the least is too little.
    let few = MEMORY_PIECE_MIN as u64 / PAGE / 4;
    fill(&mut device, 0..few, 4);
    device.end();
    assert_eq!((program.get(at(few) - 1), program.whole.load(Ordering::Relaxed)), (4, 0));
}

#[test]
fn what_was_found_before_an_error_goes_home() {
    let program = Program::new(128);
    let at = |n: u64| program.base + n;
    let mut device = Device::new(&program);
    device.write(at(3), 1);
    (32 * PAGE..96 * PAGE).for_each(|n| device.write(at(n), 2));
    program.takes_no_range.store(true, Ordering::Relaxed);
    assert!(device.pages.send_changes(&program, SEQ, false).is_err());
    assert_eq!((program.get(at(3)), program.get(at(32 * PAGE))), (1, 0));
    // The rest comes when the next kernel ends, and nothing twice.
    program.takes_no_range.store(false, Ordering::Relaxed);
    program.set(at(3), 9);
    device.send();
    assert_eq!((program.get(at(3)), program.get(at(96 * PAGE) - 1)), (9, 2));
    assert!(program.conflicts.lock().is_empty());
}

/// What a kernel has used comes with its first fault the next time, as the program has it by then.
#[test]
fn what_a_kernel_has_used_comes_at_once_the_next_time() {
    const PARTS: u64 = 10;
    let program = Program::new(PARTS as usize * 64);
    let at = |part: u64| program.base + part * 64 * PAGE + 17;
    let mut device = Device::new(&program);
    // Reads some parts; returns how often the program was asked.
    let trips = |device: &mut Device, parts: &[u64]| {
        parts.iter().for_each(|&part| assert_eq!(device.read(at(part)), program.get(at(part)), "part {part}"));
        program.trips.swap(0, Ordering::Relaxed)
    };
    let all: Vec<_> = (0..PARTS).collect();
    assert_eq!(trips(&mut device, &all), PARTS);
    device.end();
    (0..PARTS).step_by(2).for_each(|part| program.set(at(part), part as u8 + 1));
    program.sent();
    assert_eq!((trips(&mut device, &all), program.sent()), (1, PARTS / 2 * 16));
    device.write(at(3), 99);
    device.end();
    assert_eq!(program.get(at(3)), 99);
    // Another kernel asks for what it uses itself, and so does this one elsewhere.
    device.kernel += 1;
    assert_eq!(trips(&mut device, &[5, 0]), 2);
    device.end();
    device.kernel -= 1;
    // What is not used again is asked for once more only; it takes two runs that use the same to ask for that at once.
    program.fetched();
    assert_eq!((trips(&mut device, &[7, 8]), program.fetched().len()), (1, PARTS as usize));
    device.end();
    assert_eq!((trips(&mut device, &[7, 8]), program.fetched().len()), (2, 2));
    device.end();
    assert_eq!((trips(&mut device, &[7, 8]), program.fetched().len()), (1, 2));
    device.end();
    assert_eq!((trips(&mut device, &[9, 8]), program.fetched().len()), (2, 2));
}

#[test]
fn what_came_early_is_as_the_program_has_it_when_kernels_begin() {
    let program = Program::new(256);
    let at = |part: u64| program.base + part * 64 * PAGE;
    let mut device = Device::new(&program);
    let read_all = |device: &mut Device| [0, 1, 2].map(|part| device.read(at(part)));
    assert_eq!(read_all(&mut device), [0; 3]);
    device.end();
    assert_eq!(device.read(at(0)), 0);
    // For the kernel that runs this may be too late; another one begins.
    program.set(at(1), 1);
    device.refresh().unwrap();
    program.trips.store(0, Ordering::Relaxed);
    assert_eq!((read_all(&mut device), program.trips.load(Ordering::Relaxed)), ([0, 1, 0], 2));
    device.end();
    // One of the parts is gone.
    (64..80).for_each(|page| program.unmap(page));
    program.set(at(2), 2);
    assert_eq!((device.read(at(0)), device.read(at(2))), (0, 2));
    assert!(device.touch(at(1)).is_err());
}

/// With tiny limits, so much is not kept.
#[cfg(not(feature = "tiny-limits"))]
#[test]
fn memory_that_always_changes_is_rarely_asked_about() {
    let program = Program::new(4096);
    let at = |page: u64| program.base + page * PAGE;
    let mut device = Device::new(&program);
    let mut known = |kernel: u64, round: u8, changed: u64| {
        device.kernel = kernel;
        (0..changed).for_each(|page| program.set(at(page), round));
        program.known.store(0, Ordering::Relaxed);
        (0..4096).for_each(|page| assert_eq!(device.read(at(page)), program.get(at(page))));
        device.end();
        program.known.load(Ordering::Relaxed)
    };
    assert_eq!(known(KERNEL, 1, 4096), 0);
    let blocks = 4096 * PAGE / BLOCK as u64;
    assert_eq!(known(KERNEL, 1, 4096), blocks);
    // All that this kernel has used when it ran last.
    assert_eq!(known(KERNEL, 2, 4096), blocks);
    // Of another one, all of the first step, and few of the others.
    let few = known(KERNEL + 1, 3, 4096);
    assert!((2..blocks / 8).contains(&few), "{few}");
    // As soon as something is the same again, all are.
    let many = known(KERNEL + 2, 4, 80);
    assert!(many > blocks / 2, "{many}");
}

#[test]
fn what_a_region_unmaps_itself_is_an_error() {
    let program = Program::new(64);
    let mut device = Device::new(&program);
    (0..64).for_each(|page| device.write(program.base + page * PAGE, 1));
    // SAFETY: this thread does not use it any more.
    unsafe { mapping::unmap(program.base + 40 * PAGE, PAGE) };
    let errors = [device.refresh().unwrap_err(), device.pages.send_changes(&program, SEQ, true).unwrap_err()];
    assert!(errors.iter().all(|e| e.to_string().contains("a region has unmapped")), "{errors:?}");
    assert!(device.touch(program.base + 40 * PAGE).is_err());
}

#[test]
fn memory_that_vanishes_is_forgotten_unless_it_was_written() {
    let program = Program::new(8);
    let at = |page: u64| program.base + page * PAGE;
    let mut device = Device::new(&program);
    device.write(at(6), 6);
    device.refresh().unwrap();
    // Nothing else is.
    program.unmap(2);
    program.unmap(4);
    program.set(at(3), 3);
    device.refresh().unwrap();
    assert!(device.touch(at(2)).is_err() && device.touch(at(4)).is_err());
    assert_eq!([1, 3, 5, 6].map(|page| device.read(at(page))), [0, 3, 0, 6]);
    device.send();
    assert_eq!(program.get(at(6)), 6);
    device.write(at(3), 4);
    program.unmap(3);
    let error = device.refresh().unwrap_err().to_string();
    assert!(error.contains(&format!("unmapped {:#x}", at(3))), "{error}");
}

#[test]
fn what_is_forgotten_is_fetched_again() {
    let program = Program::new(4);
    let at = program.base + 77;
    let mut device = Device::new(&program);
    device.write(at, 1);
    device.end();
    assert_eq!(program.get(at), 1);
    program.set(at, 2);
    assert_eq!(program.fetched().len(), 1);
    assert_eq!(device.read(at), 2);
    assert_eq!(program.fetched().len(), 1);
    device.write(at, 3);
    device.send();
    assert_eq!((program.get(at), program.conflicts.lock().len()), (3, 0));
}

#[test]
fn what_has_not_changed_is_not_sent_again() {
    let program = Program::new(64);
    let at = |page: u64| program.base + page * PAGE;
    (0..64).for_each(|page| program.set(at(page), page as u8 + 1));
    let mut device = Device::new(&program);
    let read_all =
        |device: &mut Device| (0..64).for_each(|page| assert_eq!(device.read(at(page)), program.get(at(page))));
    read_all(&mut device);
    assert_eq!((program.sent(), program.fetched().len()), (64, 2));
    // One request, and nothing sent.
    device.end();
    read_all(&mut device);
    assert_eq!((program.sent(), program.fetched().len()), (0, 1));
    // One block of 16 pages, and whole pages only.
    device.end();
    program.set(at(33) + 77, 1);
    read_all(&mut device);
    assert_eq!(device.read(at(33) + 77), 1);
    assert_eq!(program.sent(), 16);
    // What a region has changed is known as it went home, whether in order or not.
    device.write(at(3) + 9, 9);
    device.end();
    (0..64).for_each(|page| device.write(at(page), 7));
    assert_eq!((program.sent(), device.pages.streamed.ranges().bytes() > 0), (0, true));
    device.end();
    read_all(&mut device);
    assert_eq!((program.sent(), program.get(at(3) + 9), program.conflicts.lock().len()), (0, 9, 0));
    // In what is written in order, what is known is there too.
    device.end();
    (0..64).for_each(|page| assert_eq!(device.read(at(page)), 7));
    device.end();
    for page in 0..64 {
        assert_eq!(device.read(at(page)), 7);
        device.write(at(page) + 1, 8);
    }
    device.end();
    assert!((0..64).all(|page| (program.get(at(page)), program.get(at(page) + 1)) == (7, 8)));
    assert_eq!(program.sent(), 0);
}

#[test]
fn what_was_unmapped_is_not_kept() {
    let program = Program::new(32);
    let at = |page: u64| program.base + page * PAGE;
    let mut device = Device::new(&program);
    (0..32).for_each(|page| assert_eq!(device.read(at(page)), 0));
    device.end();
    program.unmap(20);
    program.sent();
    // It is gone for this region, and what is there later is what counts.
    assert_eq!(device.read(at(16)), 0);
    assert!(device.touch(at(20)).is_err());
    assert!(device.pages.cache.within(&(at(20)..at(21))).next().is_none());
    device.end();
    program.pages.lock()[20] = Some([5; PAGE as usize]);
    assert_eq!((device.read(at(19)), device.read(at(20)), device.read(at(21))), (0, 5, 0));
    // The page was unmapped and mapped again with the same contents: the digest matches, and nothing is sent.
    program.sent();
    device.end();
    program.unmap(20);
    program.pages.lock()[20] = Some([5; PAGE as usize]);
    assert_eq!((device.read(at(20)), program.sent()), (5, 0));
}

#[test]
fn a_running_region_is_not_sent_again_what_it_has() {
    let program = Program::new(40);
    let at = |page: u64| program.base + page * PAGE;
    let mut device = Device::new(&program);
    (0..40).for_each(|page| assert_eq!(device.read(at(page)), 0));
    device.write(at(2), 2);
    program.sent();
    assert_eq!(device.refresh().unwrap(), Amount { fetched: 0, unchanged: 40 * PAGE });
    program.set(at(20), 1);
    assert_eq!(device.refresh().unwrap(), Amount { fetched: 16 * PAGE, unchanged: 24 * PAGE });
    assert_eq!((device.read(at(20)), device.read(at(2)), program.sent()), (1, 2, 16));
}

#[test]
fn a_program_that_sends_other_memory_is_refused() {
    /// Stands for memory at the right place that this device is said to have.
    const SAME: u64 = 1;
    struct Other(u64);
    impl Upcalls for Other {
        fn process(&self) -> Option<i32> {
            None
        }
        fn fetch(&self, ranges: &[Wanted<'_>], piece: &mut dyn FnMut(Piece<'_>) -> Result<()>) -> Result<()> {
            let [(Range { start: at, end }, _)] = *ranges else { panic!("{} ranges", ranges.len()) };
            let len = end - at;
            let bytes = &vec![0; if self.0 == 0 { len as usize + 4096 } else { 4096 }];
            let same = if self.0 == SAME { PAGE } else { 0 };
            piece(Piece { at: at.wrapping_add(self.0 & !SAME), same, bytes })
        }
        fn function(&self, _: u64) -> Result<Option<Function>> {
            unreachable!("no page is a function")
        }
        fn offer_changes(&self, _: u64, _: u64, _: &[u8], _: SharedFile) -> Result<bool> {
            unreachable!("nothing has changed")
        }
        fn unmerged(&self) -> u32 {
            0
        }
        fn send_changes(&self, _: u64, _: &mut dyn FnMut(&mut Vec<u8>)) {}
        fn send_range(&self, _: u64, _: u64, _: &[u8], _: &[u8]) -> Result<Vec<Range<u64>>> {
            unreachable!("nothing has changed")
        }
    }
    let base = Program::new(1).base;
    for shift in [0, PAGE, PAGE.wrapping_neg(), SAME] {
        let upcalls = Other(shift);
        let error = Pages::new(&upcalls).unwrap().fetch(&upcalls, KERNEL, base, false).unwrap_err().to_string();
        assert!(error.contains("other memory than"), "{error}");
    }
}

#[test]
fn large_changes_are_several_messages() {
    const N: u64 = 40;
    let program = Program::new(N as usize);
    let mut device = Device::new(&program);
    // One large change, then a word of each page.
    for n in 0..N * PAGE {
        device.write(program.base + n, 1 + n as u8 / 2);
    }
    device.send();
    assert!((0..N * PAGE).all(|n| program.get(program.base + n) == 1 + n as u8 / 2));
    for n in 0..N * PAGE / 64 {
        device.write(program.base + n * 64, 0);
    }
    device.send();
    assert!((0..N * PAGE).all(|n| program.get(program.base + n) == if n % 64 == 0 { 0 } else { 1 + n as u8 / 2 }));
}

/// One step of a program and a device that use the same pages.
#[derive(Clone, Copy, Debug)]
enum Step {
    Program(usize, u8),
    Read(usize),
    /// All pages, in order.
    ReadAll,
    Write(usize, u8),
    /// A byte of each page, in order.
    WriteAll(u8),
    Send,
    Refresh,
    /// A kernel ends, another one begins.
    Forget,
}

const PAGES: usize = 40;

fn step() -> impl Strategy<Value = Step> {
    // Few places in each page, so that both sides meet in words.
    let place = || (0..PAGES, 0..24usize).prop_map(|(page, n)| page * PAGE as usize + n * 171 / 10 * 10 + n % 3);
    prop_oneof![
        4 => (place(), any::<u8>()).prop_map(|(at, value)| Step::Program(at, value)),
        4 => place().prop_map(Step::Read),
        2 => Just(Step::ReadAll),
        4 => (place(), any::<u8>()).prop_map(|(at, value)| Step::Write(at, value)),
        1 => any::<u8>().prop_map(Step::WriteAll),
        1 => Just(Step::Send),
        1 => Just(Step::Refresh),
        2 => Just(Step::Forget),
    ]
}

proptest! {
    // Each case compares many bytes.
    #![proptest_config(ProptestConfig::with_cases(32))]

    /// The program and a kernel write different bytes, in any order. Each side sees its own, and the other's as they
    /// were at the last meeting or later.
    #[test]
    fn bytes_that_one_side_writes_are_never_lost(steps in prop::collection::vec(step(), 1..200)) {
        let program = Program::new(PAGES);
        program.unmap(7);
        let mut device = Device::new(&program);
        let is_mine = |at: usize| at.is_multiple_of(2);
        let is_there = |at: usize| at / PAGE as usize != 7;
        let mut written = vec![0u8; PAGES * PAGE as usize];
        // The program's bytes when the device last took them over.
        let mut known = written.clone();
        let mut theirs = written.clone();
        for step in steps {
            match step {
                Step::Program(at, value) if is_there(at) && !is_mine(at) => {
                    program.set(program.base + at as u64, value);
                    theirs[at] = value;
                }
                Step::Write(at, value) if is_there(at) && is_mine(at) => {
                    device.write(program.base + at as u64, value);
                    written[at] = value;
                }
                Step::WriteAll(value) => {
                    for at in (0..PAGES).map(|page| page * PAGE as usize).filter(|at| is_there(*at)) {
                        device.write(program.base + at as u64, value);
                        written[at] = value;
                    }
                }
                Step::Read(at) if is_there(at) => {
                    let value = device.read(program.base + at as u64);
                    if is_mine(at) {
                        prop_assert_eq!(value, written[at]);
                    } else if known[at] == theirs[at] {
                        prop_assert_eq!(value, theirs[at]);
                    }
                }
                Step::ReadAll => {
                    for page in (0..PAGES).filter(|page| is_there(page * PAGE as usize)) {
                        let first = page * PAGE as usize;
                        device.read(program.base + first as u64);
                        // SAFETY: the page is mapped, and nothing changes it now.
                        let here = unsafe {
                            std::slice::from_raw_parts((program.base + first as u64) as *const u8, PAGE as usize)
                        };
                        for (at, &value) in (first..).zip(here).filter(|(at, _)| known[*at] == theirs[*at]) {
                            prop_assert_eq!(value, if is_mine(at) { written[at] } else { theirs[at] }, "byte {}", at);
                        }
                    }
                }
                Step::Read(at) => prop_assert!(device.touch(program.base + at as u64).is_err()),
                Step::Send => device.send(),
                Step::Refresh => {
                    device.refresh().unwrap();
                    known.clone_from(&theirs);
                    for mapped in device.pages.mapped.iter() {
                        let len = (mapped.end - mapped.start) as usize;
                        // SAFETY: these pages are mapped, and nothing changes them now.
                        let here = unsafe { std::slice::from_raw_parts(mapped.start as *const u8, len) };
                        let first = (mapped.start - program.base) as usize;
                        let wanted = (first..).zip(written[first..].iter().zip(&theirs[first..]));
                        let wanted = wanted.map(|(n, (ours, theirs))| if is_mine(n) { ours } else { theirs });
                        prop_assert!(here.iter().eq(wanted.take(len)), "pages at {first}");
                    }
                }
                Step::Forget => {
                    device.end();
                    known.clone_from(&theirs);
                }
                Step::Program(..) | Step::Write(..) => {}
            }
        }
        device.send();
        prop_assert!(program.conflicts.lock().is_empty());
        for at in (0..written.len()).filter(|&at| is_there(at)) {
            prop_assert_eq!(program.get(program.base + at as u64), if is_mine(at) { written[at] } else { theirs[at] });
        }
    }
}
