// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The processes of a rank: workers are started, copies killed, and the memory of workers is read
//! and written.

use crate::base::{Error, Result};
use crate::device_main::board::Board;
use crate::device_main::serve::{process_handle, quit};
use crate::link::bell::Bell;
use std::fs::File;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A worker that was started, as its rank sees it.
pub struct Started {
    /// 0 when it was waited for.
    pub pid: i32,
    pub socket: OwnedFd,
    pub wake: File,
    pub bell: Bell,
    pub board: &'static Board,
}

/// What a worker has been started with.
pub struct Birth {
    /// See [`crate::device_main::worker::Worker`].
    pub socket: OwnedFd,
    /// See [`crate::device_main::worker::Worker`].
    pub wake: File,
    /// The bell of its own.
    pub bell: Bell,
    /// Where it writes down what it runs.
    pub board: &'static Board,
}

/// Starts workers, each of which calls `main` and ends with it. To be called before there is
/// any thread, and before MPI is started: workers have none.
///
/// # Errors
/// The system's.
pub fn start(workers: u32, main: impl Fn(Birth)) -> Result<Vec<Started>> {
    // SAFETY: a plain number. Copies of workers become children of this process.
    unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1) };
    let mut started = Vec::new();
    for _ in 0..workers {
        let (mut ours, theirs) = connect()?;
        // SAFETY: the only thread of this process; the child goes on as a program of its own.
        match unsafe { libc::fork() } {
            -1 => return Err(Error::from(std::io::Error::last_os_error()).context("can't start a worker process")),
            0 => {
                // Its rank's end, and all of the other workers.
                drop((ours, started));
                main(theirs);
                quit(1)
            }
            pid => {
                ours.pid = pid;
                started.push(ours);
            }
        }
    }
    Ok(started)
}

/// What connects a rank with a worker that has still to be started.
///
/// # Errors
/// The system's.
pub fn connect() -> Result<(Started, Birth)> {
    let (ours, theirs) = pair()?;
    let (read, write) = pipe()?;
    let (bell, board) = (Bell::new()?, Board::new()?);
    let started = Started { pid: 0, socket: ours, wake: write, bell: bell.try_clone()?, board };
    Ok((started, Birth { socket: theirs, wake: read, bell, board }))
}

fn pair() -> Result<(OwnedFd, OwnedFd)> {
    let mut fds = [0; 2];
    // SAFETY: the array has room for two descriptors, which are ours alone then.
    unsafe {
        match libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, fds.as_mut_ptr()) {
            0 => Ok((OwnedFd::from_raw_fd(fds[0]), OwnedFd::from_raw_fd(fds[1]))),
            _ => Err(Error::from(std::io::Error::last_os_error()).context("socketpair")),
        }
    }
}

fn pipe() -> Result<(File, File)> {
    let mut fds = [0; 2];
    // SAFETY: as in `pair`.
    unsafe {
        match libc::pipe2(fds.as_mut_ptr(), libc::O_CLOEXEC) {
            0 => Ok((File::from_raw_fd(fds[0]), File::from_raw_fd(fds[1]))),
            _ => Err(Error::from(std::io::Error::last_os_error()).context("pipe")),
        }
    }
}

/// A sleeping copy of a worker.
pub struct Copy {
    pub pid: i32,
    /// Tells when it has ended, where the system has such handles (Linux 5.3): it is a child of
    /// the worker's.
    pub handle: Option<OwnedFd>,
}

impl Copy {
    pub fn of(pid: i32) -> Copy {
        Copy { pid, handle: process_handle(pid) }
    }

    pub fn kill(&self) {
        match &self.handle {
            // SAFETY: plain numbers.
            Some(handle) => unsafe {
                libc::syscall(libc::SYS_pidfd_send_signal, handle.as_raw_fd(), libc::SIGKILL, 0, 0);
            },
            None => kill(self.pid),
        }
    }
}

pub fn kill(pid: i32) {
    // SAFETY: plain numbers; the process is one that descends from this.
    unsafe { libc::kill(pid, libc::SIGKILL) };
}

/// Copies from another process.
pub fn read(pid: i32, at: u64, len: u64) -> std::io::Result<Vec<u8>> {
    let mut bytes: Vec<u8> = Vec::with_capacity(len as usize);
    let local = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: len as usize };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: len as usize };
    // SAFETY: the capacity was reserved; the system checks the other process's range.
    let n = if len == 0 { 0 } else { unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) } };
    whole(n, len as usize)?;
    // SAFETY: so many bytes were written.
    unsafe { bytes.set_len(len as usize) };
    Ok(bytes)
}

/// Copies to another process.
pub fn write(pid: i32, at: u64, bytes: &[u8]) -> std::io::Result<()> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: at as *mut _, iov_len: bytes.len() };
    // SAFETY: the bytes are only read; the system checks the other process's range.
    let n = if bytes.is_empty() { 0 } else { unsafe { libc::process_vm_writev(pid, &local, 1, &remote, 1, 0) } };
    whole(n, bytes.len())
}

/// What a system call that has copied `n` bytes of `len` comes to.
fn whole(n: isize, len: usize) -> std::io::Result<()> {
    match usize::try_from(n) {
        Ok(n) if n == len => Ok(()),
        Ok(n) => Err(std::io::Error::other(format!("only {n} of {len} bytes"))),
        Err(_) => Err(std::io::Error::last_os_error()),
    }
}
