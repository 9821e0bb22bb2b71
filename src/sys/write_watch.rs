// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Which memory of this process was written since it was last looked at, by Linux's own record: `userfaultfd` protects
//! pages, the first write to one lifts its protection without any event, and `PAGEMAP_SCAN` lists those that still have it
//! (Linux 6.7; `userfaultfd.rst` and `pagemap.rst` in Linux's admin-guide/mm).

use super::process::{DESCRIPTORS, Mappings};
use crate::base::Result;
use crate::base::limits::PAGE;
use rustix::mm::{UserfaultfdFlags, userfaultfd};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::Path;

/// Serves faults of user mode only, which ordinary users may ask for. No fault has to be served here.
const UFFD_USER_MODE_ONLY: u32 = 1;
const UFFD_API: u64 = 0xAA;
const UFFD_FEATURE_PAGEFAULT_FLAG_WP: u64 = 1 << 0;
const UFFD_FEATURE_WP_ASYNC: u64 = 1 << 15;
const UFFDIO_WRITEPROTECT: u64 = 0xC018_AA06;
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
// Requests of ioctl(2), with the sizes of their records.
const UFFDIO_API: u64 = 0xC018_AA3F;
const UFFDIO_REGISTER: u64 = 0xC020_AA00;
const PAGEMAP_SCAN: u64 = 0xC060_6610;
const PM_SCAN_WP_MATCHING: u64 = 1 << 0;
const PAGE_IS_WPALLOWED: u64 = 1 << 0;
const PAGE_IS_WRITTEN: u64 = 1 << 1;
const PAGE_IS_FILE: u64 = 1 << 2;
const PAGE_IS_PRESENT: u64 = 1 << 3;
/// Ranges that one scan finds at most.
const FOUND: usize = 256;

/// `struct pm_scan_arg`.
#[repr(C)]
#[derive(Default)]
struct Scan {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    vec: u64,
    vec_len: u64,
    max_pages: u64,
    category_inverted: u64,
    category_mask: u64,
    category_anyof_mask: u64,
    return_mask: u64,
}

/// `struct page_region`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Found {
    start: u64,
    end: u64,
    categories: u64,
}

/// The watched memory of this process.
pub(crate) struct WriteWatch {
    faults: OwnedFd,
    pagemap: File,
}

impl WriteWatch {
    /// Nothing is watched yet.
    ///
    /// # Errors
    /// Linux is older than 6.7, or does not allow it.
    pub(crate) fn new() -> Result<WriteWatch> {
        // SAFETY: what is done with it below changes no contents of memory, and makes no access wait.
        let faults =
            unsafe { userfaultfd(UserfaultfdFlags::from_bits_retain(UFFD_USER_MODE_ONLY) | UserfaultfdFlags::CLOEXEC) };
        let watch = WriteWatch { faults: faults?, pagemap: File::open("/proc/self/pagemap")? };
        let mut api = [UFFD_API, UFFD_FEATURE_PAGEFAULT_FLAG_WP | UFFD_FEATURE_WP_ASYNC, 0];
        // SAFETY: `struct uffdio_api` is three numbers.
        unsafe { control(&watch.faults, UFFDIO_API, &mut api)? };
        // Some systems have no such request.
        let here = std::ptr::from_ref(&api) as u64 / PAGE * PAGE;
        watch.unchanged(&(here..here + PAGE), &mut |_| {})?;
        Ok(watch)
    }

    /// Watches this process's own memory in a range from now on. Passes on what was not watched, or was written since.
    /// Whole mappings are registered: Linux would divide one otherwise.
    pub(crate) fn watch(&self, mappings: &Mappings, pages: &Range<u64>, each: &mut dyn FnMut(Range<u64>)) {
        for mapping in mappings.own_memory(pages) {
            let _ = self.register(&mapping);
        }
        let mask = PAGE_IS_WPALLOWED | PAGE_IS_WRITTEN | PAGE_IS_FILE | PAGE_IS_PRESENT;
        let protect = Scan {
            flags: PM_SCAN_WP_MATCHING,
            category_inverted: PAGE_IS_FILE,
            category_mask: mask,
            ..Scan::default()
        };
        // What could not be registered, and the rest after an error, is not protected.
        let _ = self.scan(protect, pages, each);
    }

    fn register(&self, mapping: &Range<u64>) -> io::Result<()> {
        let mut new = Vec::new();
        let others = Scan { category_inverted: PAGE_IS_WPALLOWED, category_mask: PAGE_IS_WPALLOWED, ..Scan::default() };
        self.scan(others, mapping, &mut |part| new.push(part))?;
        let mut register = [mapping.start, mapping.end - mapping.start, UFFDIO_REGISTER_MODE_WP, 0];
        // SAFETY: `struct uffdio_register` is four numbers. Linux handles a write to a protected page itself.
        unsafe { control(&self.faults, UFFDIO_REGISTER, &mut register)? };
        for part in new {
            // Linux before 6.13 leaves pages that mremap(2) has moved marked as protected, though they can be written.
            let mut unprotect = [part.start, part.end - part.start, 0];
            // SAFETY: `struct uffdio_writeprotect` is three numbers. An error means that the part has been unmapped.
            let _ = unsafe { control(&self.faults, UFFDIO_WRITEPROTECT, &mut unprotect) };
        }
        Ok(())
    }

    /// Passes on the parts of a range that are as they were when they were last watched. Only this process's own memory
    /// can be: what others may write to is not. Pages that are not there do not count, whatever the reason.
    pub(crate) fn unchanged(&self, pages: &Range<u64>, each: &mut dyn FnMut(Range<u64>)) -> io::Result<()> {
        let inverted = PAGE_IS_WRITTEN | PAGE_IS_FILE;
        let mask = PAGE_IS_WPALLOWED | PAGE_IS_WRITTEN | PAGE_IS_FILE | PAGE_IS_PRESENT;
        self.scan(Scan { category_inverted: inverted, category_mask: mask, ..Scan::default() }, pages, each)
    }

    fn scan(&self, mut scan: Scan, pages: &Range<u64>, each: &mut dyn FnMut(Range<u64>)) -> io::Result<()> {
        let mut found = [Found::default(); FOUND];
        scan.size = size_of::<Scan>() as u64;
        (scan.walk_end, scan.end) = (pages.start, pages.end);
        (scan.vec, scan.vec_len) = (found.as_mut_ptr() as u64, FOUND as u64);
        while scan.walk_end < pages.end {
            scan.start = scan.walk_end;
            // SAFETY: the record and the array that it names have these sizes.
            let n = unsafe { control(&self.pagemap, PAGEMAP_SCAN, &mut scan)? };
            found[..n].iter().for_each(|found| each(found.start..found.end));
        }
        Ok(())
    }
}

/// Finds an open file through which this process's memory may change without a trace, if there is one: devices, `io_uring`
/// and `O_DIRECT` may hold on to pages from before these were watched, and write to them later.
pub(crate) fn open_writer() -> Option<String> {
    // Without /proc nothing is known.
    let Ok(files) = std::fs::read_dir(DESCRIPTORS) else { return Some("an unknown file".into()) };
    files.flatten().find_map(|file| writer(&file.path()))
}

/// What a descriptor stands for, by its path in `/proc`, if that may write to memory so.
fn writer(descriptor: &Path) -> Option<String> {
    /// Devices that do not, by the beginnings of their paths.
    const HARMLESS: [&str; 10] = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/pts/",
        "/dev/ptmx",
        "/dev/console",
        "/dev/kmsg",
    ];
    let link = std::fs::read_link(descriptor).ok()?.to_string_lossy().into_owned();
    // Others are not looked at: a file server may not answer.
    let is_special = || std::fs::metadata(descriptor).is_ok_and(|file| !file.is_file() && !file.is_dir());
    let is_harmless = HARMLESS.iter().any(|harmless| link.starts_with(harmless));
    let is_device = link.starts_with("/dev/") && !is_harmless && is_special();
    // For a pipe the flag means packets.
    let is_direct = || {
        let info = descriptor.parent()?.with_file_name("fdinfo").join(descriptor.file_name()?);
        let text = std::fs::read_to_string(info).ok()?;
        let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
        Some(i32::from_str_radix(flags.trim(), 8).ok()? & libc::O_DIRECT != 0)
    };
    let writes = is_device || link.contains("[io_uring]") || (!link.starts_with("pipe:") && is_direct() == Some(true));
    writes.then_some(link)
}

/// ioctl(2); returns its result.
///
/// # Safety
/// `argument` is the record that the request is defined with.
unsafe fn control<T>(file: &impl AsRawFd, request: u64, argument: &mut T) -> io::Result<usize> {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(argument)) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/write_watch.rs"]
mod tests;
