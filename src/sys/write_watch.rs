// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Which memory of this process was written since it was last looked at, by Linux's own record: `userfaultfd` protects
//! pages, the first write to one lifts its protection without any event, and `PAGEMAP_SCAN` lists those that still have it
//! (Linux 6.7; `userfaultfd.rst` and `pagemap.rst` in Linux's admin-guide/mm).

use crate::base::Result;
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
const UFFDIO_REGISTER_MODE_WP: u64 = 1 << 1;
const UFFDIO_WRITEPROTECT_MODE_WP: u64 = 1 << 0;
// Requests of ioctl(2), with the sizes of their records.
const UFFDIO_API: u64 = 0xC018_AA3F;
const UFFDIO_REGISTER: u64 = 0xC020_AA00;
const UFFDIO_WRITEPROTECT: u64 = 0xC018_AA06;
const PAGEMAP_SCAN: u64 = 0xC060_6610;
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
        watch.unchanged(&(0..0), &mut |_| {})?;
        Ok(watch)
    }

    /// Watches these pages from now on.
    ///
    /// # Errors
    /// Some of them are not mapped, or another part of the process watches them.
    pub(crate) fn watch(&self, pages: &Range<u64>) -> io::Result<()> {
        let len = pages.end - pages.start;
        let mut register = [pages.start, len, UFFDIO_REGISTER_MODE_WP, 0];
        let mut protect = [pages.start, len, UFFDIO_WRITEPROTECT_MODE_WP];
        // SAFETY: `struct uffdio_register` is four numbers, `struct uffdio_writeprotect` three. Linux handles a write to a
        // protected page itself.
        unsafe {
            control(&self.faults, UFFDIO_REGISTER, &mut register)?;
            control(&self.faults, UFFDIO_WRITEPROTECT, &mut protect)
        }
    }

    /// Passes on the parts of a range that are as they were when they were last watched. Only this process's own memory
    /// can be: what others may write to is not. Pages that are not there do not count, whatever the reason.
    pub(crate) fn unchanged(&self, pages: &Range<u64>, each: &mut dyn FnMut(Range<u64>)) -> io::Result<()> {
        let mut found = [Found::default(); FOUND];
        let mut scan = Scan {
            size: size_of::<Scan>() as u64,
            end: pages.end,
            walk_end: pages.start,
            vec: found.as_mut_ptr() as u64,
            vec_len: FOUND as u64,
            category_inverted: PAGE_IS_WRITTEN | PAGE_IS_FILE,
            category_mask: PAGE_IS_WPALLOWED | PAGE_IS_WRITTEN | PAGE_IS_FILE | PAGE_IS_PRESENT,
            ..Scan::default()
        };
        while scan.walk_end < pages.end {
            scan.start = scan.walk_end;
            found.fill(Found::default());
            // SAFETY: the record and the array that it names have these sizes.
            unsafe { control(&self.pagemap, PAGEMAP_SCAN, &mut scan)? };
            // Linux fills the array from its start.
            found.iter().take_while(|found| found.end > found.start).for_each(|found| each(found.start..found.end));
        }
        Ok(())
    }
}

/// A file of this process through which its memory may change without a trace: `O_DIRECT`, `io_uring` and devices write
/// to pages that were looked up before. `None` if there is none.
pub(crate) fn open_writer() -> Option<String> {
    /// Devices that do not, by the beginning of their paths.
    const HARMLESS: [&str; 9] = [
        "/dev/null",
        "/dev/zero",
        "/dev/full",
        "/dev/random",
        "/dev/urandom",
        "/dev/tty",
        "/dev/pts/",
        "/dev/console",
        "/dev/shm/",
    ];
    let is_direct = |number: &Path| {
        let info = std::fs::read_to_string(Path::new("/proc/self/fdinfo").join(number)).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        flags.is_some_and(|flags| i32::from_str_radix(flags.trim(), 8).is_ok_and(|flags| flags & libc::O_DIRECT != 0))
    };
    // Without /proc nothing is known.
    let Ok(files) = std::fs::read_dir("/proc/self/fd") else { return Some("unknown files".into()) };
    files.flatten().find_map(|file| {
        let link = std::fs::read_link(file.path()).ok()?.to_string_lossy().into_owned();
        let is_device = link.starts_with("/dev/") && !HARMLESS.iter().any(|harmless| link.starts_with(harmless));
        let writes = is_device || link.contains("[io_uring]") || is_direct(Path::new(&file.file_name()));
        writes.then_some(link)
    })
}

/// ioctl(2).
///
/// # Safety
/// `argument` is the record that the request is defined with.
unsafe fn control<T>(file: &impl AsRawFd, request: u64, argument: &mut T) -> io::Result<()> {
    // SAFETY: the caller's promise.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), request, std::ptr::from_mut(argument)) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/write_watch.rs"]
mod tests;
