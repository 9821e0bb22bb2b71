// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A rank's connection to MPICH's launcher, Hydra (PMI-1, the protocol of `PMI_FD`). If a process simply exits, Hydra
//! takes that for a crash, and kills the others on its node.

use super::{Phase, SPANS_NODES, phase, quirks};
use crate::sys::launchers::{inode_of, is_hydra, pmi_descriptor};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// True if a process of this job can exit successfully without `MPI_Finalize`, but with [`leave`].
pub fn leaves_with_success() -> bool {
    !quirks::needs_finalize_for_success() && !SPANS_NODES.load(Ordering::Relaxed)
}

/// Disconnects from MPICH's launcher, in a process that exits without MPI's exit handlers or without
/// `MPI_Finalize`. The launcher then passes on the process's exit status and does not kill the others. The others must
/// detect the exit themselves, which works on one node only: hence this does nothing in a job on several nodes. Needs
/// no lock; a second call does nothing.
pub fn leave() {
    if !SPANS_NODES.load(Ordering::Relaxed) {
        end();
    }
}

/// [`leave`] for a process that exits because the program's process has ended, without `MPI_Finalize` or by a crash.
/// After a crash the launcher kills this process, and then crashes on a late request from it, so that the program's
/// crash is not reported. Hence this first gives the launcher the time to kill.
pub fn follow() {
    static FOLLOWS: AtomicBool = AtomicBool::new(false);
    if FOLLOWS.swap(true, Ordering::Relaxed) {
        // Another thread is about to exit. It must get the launcher's answer before the process ends.
        std::thread::sleep(KILL_TIME + Duration::from_millis(PATIENCE as u64));
    } else if PMI_FD.load(Ordering::Relaxed) >= 0 && !SPANS_NODES.load(Ordering::Relaxed) {
        std::thread::sleep(KILL_TIME);
        leave();
    }
}

/// The descriptor of the connection, see [`note`]; -1 without a connection or after this process has disconnected.
static PMI_FD: AtomicI32 = AtomicI32::new(-1);
/// The connection's inode, which shows whether the descriptor is still that connection.
static PMI_INODE: AtomicU64 = AtomicU64::new(0);

/// Records the connection to MPICH's launcher. Child processes inherit the descriptor, but not a later record: only
/// the process that started MPI may disconnect.
pub(super) fn note() {
    if let Some(fd) = pmi_descriptor()
        && let Some(inode) = inode_of(fd)
    {
        PMI_INODE.store(inode, Ordering::Relaxed);
        PMI_FD.store(fd, Ordering::Relaxed);
    }
}

/// Why MPI can't be started in a slot of the job, see `job::slot`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Another process has started MPI: the one with this id, if known.
    By(Option<u32>),
    /// The connection to the launcher is closed in this process.
    Disconnected,
}

/// Claims the slot of this process by naming its end of the connection, which has no name and can be named once. The
/// name stays as long as any process has the descriptor.
pub fn claim() -> Result<(), Taken> {
    const START: &[u8] = b"\0omptarget-mpi.";
    let Some(fd) = pmi_descriptor() else { return Ok(()) };
    let inode = inode_of(fd).ok_or(Taken::Disconnected)?;
    let path = [START, format!("{inode}.{}", std::process::id()).as_bytes()].concat();
    // SAFETY: all-zero is a valid address.
    let mut name: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    let family = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    name.sun_family = libc::AF_UNIX as libc::sa_family_t;
    name.sun_path.iter_mut().zip(&path).for_each(|(to, &byte)| *to = byte as std::ffi::c_char);
    let mut len = (family + path.len()) as libc::socklen_t;
    // SAFETY: the address outlives the call, and has this length.
    if unsafe { libc::bind(fd, (&raw const name).cast(), len) } == 0 {
        return Ok(());
    }
    match std::io::Error::last_os_error().raw_os_error() {
        Some(libc::EINVAL) => {}
        Some(libc::ENOTSOCK | libc::EBADF) => return Err(Taken::Disconnected),
        // The launcher has another kind of connection.
        _ => return Ok(()),
    }
    len = size_of_val(&name) as libc::socklen_t;
    // SAFETY: as above; the call fills at most `len` bytes.
    if unsafe { libc::getsockname(fd, (&raw mut name).cast(), &mut len) } != 0 {
        return Err(Taken::By(None));
    }
    let path: Vec<u8> = name.sun_path[..(len as usize).saturating_sub(family)].iter().map(|&c| c as u8).collect();
    // A name that somebody else gave claims nothing.
    let Some(owner) = path.strip_prefix(START) else { return Ok(()) };
    Err(Taken::By(String::from_utf8_lossy(owner).rsplit('.').next().and_then(|id| id.parse().ok())))
}

/// Requests that MPICH's launcher end the job and return a failure, where an exit is not enough. For a process that
/// aborts, or exits while MPI starts: if several processes exit at once, MPICH 4.2's launcher may take all of them for
/// successful.
pub fn fail() {
    if quirks::launcher_forgets_statuses() {
        end_job();
    }
}

/// [`fail`] for a process that exits with MPI started: MPICH 4.0's launcher goes on if other nodes have processes.
pub fn fail_everywhere() {
    if is_hydra() && (quirks::launcher_forgets_statuses() || SPANS_NODES.load(Ordering::Relaxed)) {
        end_job();
    }
}

/// [`fail`] for a process that may not have started MPI yet, so that the other ranks wait for it. It ends the job only
/// if it has or can claim the slot: otherwise the job is another process's, and goes on.
pub fn fail_at_start() {
    let is_own = || claim().is_ok() || claim() == Err(Taken::By(Some(std::process::id())));
    if phase() == Phase::Before && is_hydra() && is_own() {
        end_job();
    } else {
        fail_everywhere();
    }
}

fn end_job() {
    if let Some(fd) = pmi_descriptor() {
        // An abort ends the launcher, which must first read this process's output.
        std::thread::sleep(OUTPUT_TIME);
        let word = b"cmd=abort exitcode=1\n";
        // SAFETY: the buffer outlives the call and has this size. The descriptor is the launcher's as long as nothing in this
        // process closes it, on which MPI relies too; on anything but a socket the call fails.
        unsafe { libc::send(fd, word.as_ptr().cast(), word.len(), libc::MSG_NOSIGNAL) };
    }
}

/// Disconnects from MPICH's launcher. MPICH 4.0 disconnects itself in `MPI_Finalize`, and closes the descriptor; 4.2
/// does it in an exit handler. If MPI is finalized, that handler must find the connection open.
pub(super) fn end() {
    let fd = PMI_FD.swap(-1, Ordering::Relaxed);
    if fd < 0 || inode_of(fd) != Some(PMI_INODE.load(Ordering::Relaxed)) {
        return;
    }
    let word = b"cmd=finalize\n";
    let mut answer = [0u8; 256];
    // SAFETY: all records and buffers outlive their calls and have the sizes that are passed.
    // The contents of the answer do not matter, but its arrival does: by then the launcher has closed its end.
    unsafe {
        if libc::send(fd, word.as_ptr().cast(), word.len(), libc::MSG_NOSIGNAL) == word.len() as isize {
            let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
            if libc::poll(&mut poll, 1, PATIENCE) == 1 {
                libc::read(fd, answer.as_mut_ptr().cast(), answer.len());
            }
        }
    }
}

/// How long the launcher may take to notice the end of a process and to kill the others, on a loaded machine.
const KILL_TIME: Duration = Duration::from_millis(200);
/// How long the launcher may take to pass on a line, on a loaded machine.
const OUTPUT_TIME: Duration = Duration::from_millis(500);
/// How long to wait for the launcher's answer, in milliseconds.
const PATIENCE: c_int = 2000;
