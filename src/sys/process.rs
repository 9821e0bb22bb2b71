// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Processes: their memory, their exit, and their entries in `/proc`.
//!
//! The paths of `/proc` go through the calling thread. `/proc/self` stands for the main thread: once that
//! thread has exited by `pthread_exit`, it shows no files, no mappings and no executable.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result, retry_on_intr};
use rustix::process::{Pid, PidfdFlags, Signal, WaitOptions, kill_process, pidfd_open, waitpid};
use std::ffi::OsString;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

pub(crate) const EXECUTABLE: &str = "/proc/thread-self/exe";
pub(crate) const MAPS: &str = "/proc/thread-self/maps";
pub(crate) const DESCRIPTORS: &str = "/proc/thread-self/fd";

/// The memory mappings of a process. The kernel gives absolute paths of mapped files, whichever path the
/// loader was given and whatever the current directory is now.
pub struct Mappings(Vec<u8>);

impl Mappings {
    /// This process's current mappings; none if they can't be read.
    pub(crate) fn now() -> Mappings {
        Mappings(std::fs::read(MAPS).unwrap_or_default())
    }

    /// The mappings of a process on this node; none if they can't be read.
    pub(crate) fn of(pid: i32) -> Mappings {
        Mappings(std::fs::read(format!("/proc/{pid}/maps")).unwrap_or_default())
    }

    /// The mappings in the text of a `/proc/…/maps`.
    pub fn of_text(text: &str) -> Mappings {
        Mappings(text.into())
    }

    /// The mappings that no other process shares.
    pub(crate) fn private(&self) -> Mappings {
        self.only(|line| shared_file(line).is_none())
    }

    /// The mappings of files that other processes may share.
    pub(crate) fn shared(&self) -> Mappings {
        self.only(|line| shared_file(line).is_some())
    }

    /// All mappings except those that another process shares with this one at the same addresses.
    pub(crate) fn without_common(&self, other: &Mappings) -> Mappings {
        let theirs: Vec<_> = other.0.split(|b| *b == b'\n').filter_map(shared_file).collect();
        self.only(|line| shared_file(line).is_none_or(|file| !theirs.contains(&file)))
    }

    fn only(&self, is_wanted: impl Fn(&[u8]) -> bool) -> Mappings {
        Mappings(self.0.split_inclusive(|b| *b == b'\n').filter(|line| is_wanted(line)).flatten().copied().collect())
    }

    /// The path of the file that is mapped at an address; a different file may have replaced it.
    pub(crate) fn file_at(&self, address: usize) -> Option<PathBuf> {
        let mut files = self.0.split(|b| *b == b'\n').filter_map(mapped_file);
        files.find(|(range, _)| range.contains(&(address as u64))).map(|(_, path)| path)
    }

    /// The mapping at an address: whether it is readable, and its name.
    pub fn at(&self, address: u64) -> Option<(bool, String)> {
        let line = self.line_at(address)?;
        let is_readable = access(line)?.starts_with(b"r");
        let name = name(line).map_or("[anonymous memory]".into(), String::from_utf8_lossy);
        Some((is_readable, name.into_owned()))
    }

    /// True if the mapping at an address is executable.
    pub(crate) fn is_code(&self, address: u64) -> bool {
        self.line_at(address).and_then(access).is_some_and(|access| access.get(2) == Some(&b'x'))
    }

    fn line_at(&self, address: u64) -> Option<&[u8]> {
        let mut lines = self.0.split(|b| *b == b'\n');
        lines.find(|line| addresses(line).is_some_and(|range| range.contains(&address)))
    }

    /// The range of the mapping that contains an address.
    pub(crate) fn around(&self, address: u64) -> Option<Range<u64>> {
        self.line_at(address).and_then(addresses)
    }

    /// The first thread's stack as far as it has grown.
    pub(crate) fn first_stack(&self) -> Option<Range<u64>> {
        self.0.split(|b| *b == b'\n').find(|line| line.ends_with(b" [stack]")).and_then(addresses)
    }

    /// The accessible ranges, ascending, with neighbors merged.
    pub(crate) fn accessible(&self) -> Vec<Range<u64>> {
        /// The largest gap between neighbors, such as the guard page of a stack.
        const GAP: u64 = 64 << 10;
        let is_accessible = |line: &&[u8]| !line.windows(6).any(|part| part == b" ---p ");
        let mut all: Vec<Range<u64>> = Vec::new();
        for range in self.0.split(|b| *b == b'\n').filter(is_accessible).filter_map(addresses) {
            match all.last_mut() {
                Some(last) if range.start <= last.end.saturating_add(GAP) => last.end = range.end,
                _ => all.push(range),
            }
        }
        all
    }

    /// True if all of a range can be written.
    pub(crate) fn is_writable(&self, range: Range<u64>) -> bool {
        let is_writable =
            |line: &&[u8]| line.splitn(2, |b| *b == b' ').nth(1).is_some_and(|rest| rest.get(1) == Some(&b'w'));
        let mut at = range.start;
        for mapped in self.0.split(|b| *b == b'\n').filter(is_writable).filter_map(addresses) {
            if mapped.contains(&at) {
                at = mapped.end;
            }
        }
        at >= range.end
    }

    /// The parts of a range where nothing is mapped.
    pub(crate) fn free_in(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut free, mut at) = (Vec::new(), range.start);
        for mapped in self.0.split(|b| *b == b'\n').filter_map(addresses) {
            if mapped.start >= range.end {
                break;
            }
            if mapped.start > at {
                free.push(at..mapped.start);
            }
            at = at.max(mapped.end);
        }
        if at < range.end {
            free.push(at..range.end);
        }
        free
    }
}

/// The addresses of a line of `/proc/…/maps`.
fn addresses(line: &[u8]) -> Option<Range<u64>> {
    let range = std::str::from_utf8(line.split(|b| *b == b' ').next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let number = |digits| u64::from_str_radix(digits, 16).ok();
    Some(number(start)?..number(end)?)
}

/// The permitted accesses of a line of `/proc/…/maps`: `r-xp`.
fn access(line: &[u8]) -> Option<&[u8]> {
    line.split(|b| *b == b' ').nth(1)
}

/// Addresses, offset, device and inode of a line of `/proc/…/maps`, if a file is mapped there and shared.
fn shared_file(line: &[u8]) -> Option<[&[u8]; 4]> {
    let mut words = line.split(|b| *b == b' ');
    let (range, access) = (words.next()?, words.next()?);
    let file = [range, words.next()?, words.next()?, words.next()?];
    (access.last() == Some(&b's')).then_some(file)
}

/// Addresses and file of a line of `/proc/…/maps`, if a file is mapped there.
fn mapped_file(line: &[u8]) -> Option<(Range<u64>, PathBuf)> {
    let path = name(line).filter(|name| name.starts_with(b"/"))?;
    Some((addresses(line)?, path_of(&unescaped(path, b"\n"))))
}

/// The last field of a line of `/proc/…/maps`: a path, or the kernel's name for the memory.
fn name(line: &[u8]) -> Option<&[u8]> {
    let name = line.splitn(6, |b| *b == b' ').nth(5)?.trim_ascii_start();
    let name = name.strip_suffix(b" (deleted)").unwrap_or(name);
    Some(name).filter(|name| !name.is_empty())
}

/// A name without the octal escapes (`\012`) that the kernel writes for these characters.
pub(crate) fn unescaped(name: &[u8], characters: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| first == b'\\').and_then(|d| std::str::from_utf8(d).ok());
        let escaped = digits.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|b| characters.contains(b));
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &behind[3..] } else { behind };
    }
    bytes
}

pub(crate) fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

/// True if a process of this node runs or waits; false if it is stopped (also by a debugger) or dead.
pub fn is_running(pid: u32) -> bool {
    status(pid).is_some_and(|status| status.starts_with(['R', 'S', 'D', 'I']))
}

/// State, parent and further fields of a process: the part of `/proc/PID/stat` after "PID (NAME) ".
pub(super) fn status(pid: u32) -> Option<String> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain any character.
    let name_end = stat.iter().rposition(|b| *b == b')')?;
    Some(String::from_utf8_lossy(stat.get(name_end + 2..)?).into_owned())
}

/// A process of this node, with a pidfd.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) pid: i32,
    file: OwnedFd,
}

impl AsFd for Handle {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// A process of this node; `None` if the kernel has no pidfds.
pub(crate) fn handle(pid: i32) -> Option<Handle> {
    pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok().map(|file| Handle { pid, file })
}

/// Waits until the process of this handle has exited.
pub(crate) fn wait_for_end(process: &Handle) {
    let _ = retry_on_intr(|| poll(&mut [PollFd::new(process, PollFlags::IN)], None));
}

/// True if the process of this handle has exited.
pub(crate) fn has_ended(process: Option<&Handle>) -> bool {
    let Some(process) = process else { return false };
    let mut ends = [PollFd::new(process, PollFlags::IN)];
    poll(&mut ends, Some(&Timespec::default())).is_ok_and(|n| n == 1) && ends[0].revents().contains(PollFlags::IN)
}

pub(crate) fn kill(pid: i32) {
    if let Some(pid) = Pid::from_raw(pid.max(0)) {
        let _ = kill_process(pid, Signal::KILL);
    }
}

/// Reaps a child that has exited and returns its `waitpid` status. `None` if it still runs; `block` waits for its exit.
pub(crate) fn reap(child: i32, block: bool) -> Result<Option<i32>> {
    let options = if block { WaitOptions::empty() } else { WaitOptions::NOHANG };
    // 0 and negative numbers would stand for several children.
    let child = Pid::from_raw(child.max(0)).ok_or(Errno::CHILD)?;
    let exited = retry_on_intr(|| waitpid(Some(child), options))?;
    Ok(exited.map(|(_, status)| status.as_raw()))
}

/// Reaps any child that has exited; returns its process id and its `waitpid` status.
pub(crate) fn reap_any() -> Option<(i32, i32)> {
    let (pid, status) = rustix::process::wait(WaitOptions::NOHANG).ok()??;
    Some((pid.as_raw_pid(), status.as_raw()))
}

/// Copies from another process or, with a thread's id, from this one. Returns how many bytes were
/// readable, or -1 with the reason in `errno`.
///
/// # Safety
/// `to[..len]` is writable.
pub(crate) unsafe fn read_memory(pid: i32, from: u64, to: *mut u8, len: usize) -> isize {
    let (local, remote) = (range(to, len), range(from as *mut u8, len));
    // SAFETY: the kernel checks the remote range; the caller answers for the local one.
    unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) }
}

/// Copies to another process or, with a thread's id, to this one. Returns how many bytes were
/// writable, or -1 with the reason in `errno`.
pub(crate) fn write_memory(pid: i32, to: u64, bytes: &[u8]) -> isize {
    let (local, remote) = (range(bytes.as_ptr().cast_mut(), bytes.len()), range(to as *mut u8, bytes.len()));
    // SAFETY: the kernel checks the remote range and only reads the local one.
    unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) }
}

fn range(at: *mut u8, len: usize) -> libc::iovec {
    libc::iovec { iov_base: at.cast(), iov_len: len }
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/process.rs"]
mod tests;
