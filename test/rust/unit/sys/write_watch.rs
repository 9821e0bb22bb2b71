// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/write_watch.rs`. Where Linux can't watch memory, they only test that the error says so.

use super::*;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;

const PAGE: usize = 4096;

/// Pages of this process, all written.
struct Memory(*mut u8, usize);

impl Memory {
    fn new(pages: usize, kind: i32) -> Memory {
        let (len, protection) = (pages * PAGE, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: a new mapping.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, kind | libc::MAP_ANONYMOUS, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        let mut memory = Memory(at.cast(), len);
        memory.bytes().fill(1);
        memory
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: it is mapped, and borrowed as a whole.
        unsafe { std::slice::from_raw_parts_mut(self.0, self.1) }
    }

    /// Watches it; returns the numbers of the pages that were not watched, or written.
    fn watch(&self, watch: &WriteWatch) -> Vec<usize> {
        self.numbers(|each| watch.watch(&Mappings::now(), &self.range(), each))
    }

    fn numbers(&self, find: impl FnOnce(&mut dyn FnMut(Range<u64>))) -> Vec<usize> {
        let mut pages = Vec::new();
        let number = |at: u64| (at - self.0 as u64) as usize / PAGE;
        find(&mut |found| pages.extend(number(found.start)..number(found.end)));
        pages
    }

    fn range(&self) -> Range<u64> {
        self.0 as u64..self.0 as u64 + self.1 as u64
    }

    /// The numbers of the pages that are unchanged.
    fn unchanged(&self, watch: &WriteWatch) -> Vec<usize> {
        self.numbers(|each| watch.unchanged(&self.range(), each).unwrap())
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: nothing uses it any more.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// `None` where Linux is too old or does not allow it.
fn watch() -> Option<WriteWatch> {
    WriteWatch::new().ok()
}

#[test]
fn what_was_written_is_not_unchanged() {
    let Some(watch) = watch() else { return };
    let mut memory = Memory::new(8, libc::MAP_PRIVATE);
    assert!(memory.unchanged(&watch).is_empty(), "nothing is watched");
    assert_eq!(memory.watch(&watch), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(memory.unchanged(&watch), [0, 1, 2, 3, 4, 5, 6, 7]);
    memory.bytes()[PAGE] = 2;
    // By the system.
    File::open("/dev/zero").unwrap().read_exact(&mut memory.bytes()[3 * PAGE..3 * PAGE + 1]).unwrap();
    // SAFETY: nobody needs what is there.
    unsafe { libc::madvise(memory.0.add(5 * PAGE).cast(), PAGE, libc::MADV_DONTNEED) };
    assert_eq!(memory.unchanged(&watch), [0, 2, 4, 6, 7]);
    assert_eq!(memory.unchanged(&watch), [0, 2, 4, 6, 7], "looking changes nothing");
    assert_eq!(memory.watch(&watch), [1, 3]);
    assert_eq!(memory.unchanged(&watch), [0, 1, 2, 3, 4, 6, 7]);
}

#[test]
fn other_memory_at_the_same_addresses_is_not_unchanged() {
    let Some(watch) = watch() else { return };
    let memory = Memory::new(4, libc::MAP_PRIVATE);
    memory.watch(&watch);
    let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_POPULATE;
    // SAFETY: in place of a page that nothing uses.
    unsafe { libc::mmap(memory.0.add(PAGE).cast(), PAGE, libc::PROT_READ | libc::PROT_WRITE, kind, -1, 0) };
    // SAFETY: nothing uses this one either.
    unsafe { libc::munmap(memory.0.add(2 * PAGE).cast(), PAGE) };
    assert_eq!(memory.unchanged(&watch), [0, 3]);
}

#[test]
fn what_others_may_write_is_never_unchanged() {
    let Some(watch) = watch() else { return };
    let memory = Memory::new(4, libc::MAP_SHARED);
    // Linux would note writes through this mapping only.
    assert!(memory.watch(&watch).is_empty() && memory.unchanged(&watch).is_empty());
}

#[test]
fn many_small_parts_are_found() {
    let Some(watch) = watch() else { return };
    let pages = 4 * FOUND;
    let mut memory = Memory::new(pages, libc::MAP_PRIVATE);
    memory.watch(&watch);
    (0..pages).step_by(2).for_each(|n| memory.bytes()[n * PAGE] = 2);
    assert_eq!(memory.unchanged(&watch), (1..pages).step_by(2).collect::<Vec<_>>());
}

#[test]
fn a_mapping_stays_whole() {
    let Some(watch) = watch() else { return };
    let memory = Memory::new(16, libc::MAP_PRIVATE);
    let mappings = || Mappings::now().own_memory(&memory.range()).collect::<Vec<_>>();
    let before = mappings();
    let part = memory.range().start + 4 * PAGE as u64..memory.range().start + 8 * PAGE as u64;
    watch.watch(&Mappings::now(), &part, &mut |_| {});
    assert_eq!(memory.unchanged(&watch), [4, 5, 6, 7]);
    assert_eq!(mappings().len(), before.len());
}

#[test]
fn a_file_whose_reads_leave_no_trace_is_found() {
    let found = |file: &File| writer(&Path::new(DESCRIPTORS).join(file.as_raw_fd().to_string()));
    let path = std::env::current_exe().unwrap();
    assert_eq!(found(&File::open(&path).unwrap()), None);
    assert_eq!(found(&File::open("/dev/zero").unwrap()), None);
    // Some file systems have no such files.
    if let Ok(file) = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path) {
        assert!(found(&file).is_some());
    }
}
