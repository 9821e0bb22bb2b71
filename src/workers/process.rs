// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The processes of a rank: starts workers, kills them, and reads and writes their memory.

use crate::base::{Error, Result};
use crate::device_main::crash::board::CrashBoard;
use crate::device_main::crash::exit::quit;
use crate::link::doorbell::Doorbell;
use crate::sys::process;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::process::{getpid, set_child_subreaper};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::OwnedFd;

/// The rank's side of a new worker. `doorbell` is the worker's.
pub(crate) struct Started {
    pub(crate) pid: i32,
    pub(crate) socket: OwnedFd,
    /// Carries orders to the worker's snapshots.
    pub(crate) wake: PipeWriter,
    pub(crate) doorbell: Doorbell,
    pub(crate) board: &'static CrashBoard,
}

/// The worker's side.
pub(crate) struct Birth {
    pub(crate) socket: OwnedFd,
    pub(crate) wake: PipeReader,
    pub(crate) doorbell: Doorbell,
    pub(crate) board: &'static CrashBoard,
}

/// Starts workers, each of which calls `main` and exits when that returns. Must be called before this
/// process starts another thread, and before it starts MPI, which workers must not inherit.
pub(crate) fn start(workers: u32, main: impl Fn(Birth)) -> Result<Vec<Started>> {
    // Snapshots of workers become children of this process.
    let _ = set_child_subreaper(Some(getpid()));
    let mut started = Vec::new();
    for _ in 0..workers {
        let (mut ours, theirs) = connect()?;
        // SAFETY: this is the process's only thread, so the child may do anything.
        match unsafe { libc::fork() } {
            -1 => return Err(Error::from(io::Error::last_os_error()).context("can't start a worker process")),
            0 => {
                // Close the rank's ends of this worker's sockets and of the earlier workers'.
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

/// Creates the two sides of a worker that is not started yet.
pub(crate) fn connect() -> Result<(Started, Birth)> {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
        .map_err(|e| Error::from(e).context("socketpair"))?;
    let (read, write) = io::pipe().map_err(|e| Error::from(e).context("pipe"))?;
    let (doorbell, board) = (Doorbell::new()?, CrashBoard::new()?);
    let started = Started { pid: 0, socket: ours, wake: write, doorbell: doorbell.try_clone()?, board };
    Ok((started, Birth { socket: theirs, wake: read, doorbell, board }))
}

/// A worker's process, a child of this one.
pub(crate) struct WorkerProcess {
    /// 0 once this process has reaped it.
    pub(super) pid: i32,
    pub(super) board: &'static CrashBoard,
}

impl WorkerProcess {
    /// True if the worker has exited; waits for that if `wait`.
    pub(crate) fn has_exited(&mut self, wait: bool) -> bool {
        if !matches!(process::reap(self.pid, wait), Ok(None)) {
            self.pid = 0;
        }
        self.pid == 0
    }

    pub(crate) fn kill(&mut self) {
        process::kill(self.pid);
        self.has_exited(true);
    }

    pub(crate) fn read(&self, at: u64, len: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(len as usize);
        // SAFETY: the capacity was reserved.
        whole(unsafe { process::read_memory(self.pid, at, bytes.as_mut_ptr(), len as usize) }, len)?;
        // SAFETY: the system has written `len` bytes.
        unsafe { bytes.set_len(len as usize) };
        Ok(bytes)
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) -> io::Result<()> {
        whole(process::write_memory(self.pid, at, bytes), bytes.len() as u64)
    }
}

/// The result of a system call that has copied `n` bytes of `len`.
fn whole(n: isize, len: u64) -> io::Result<()> {
    match u64::try_from(n) {
        Ok(n) if n == len => Ok(()),
        Ok(n) => Err(io::Error::other(format!("only {n} of {len} bytes"))),
        Err(_) => Err(io::Error::last_os_error()),
    }
}
