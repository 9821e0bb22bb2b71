// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The process above a device: it waits for the device's end and says what it was, where the
//! device itself can't: killed, crashed outside of any kernel, ended by a kernel's `_exit`.
//!
//! The device is forked off it before MPI and before any thread starts. To the launcher this is
//! the device: it passes signals on, and ends as the device ended. A rank with workers is the
//! parent of these itself, and needs only [`cause`] and their boards.

use super::board::Board;
use super::serve::die_with_parent;
use crate::base::cgroup::{field, memory_folders};
use crate::base::{Error, Result, log, name, node};
use crate::{debug, mpi};
use std::ffi::c_int;
use std::fs;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Passed on to the device.
const PASSED_ON: [c_int; 6] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGCONT];
/// Of these, those that end it.
const DEADLY: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// Splits this process in two: returns in the child, which is the device, with what its
/// parent will read. To be called before any thread starts.
///
/// # Errors
/// The system has no memory or no process left.
pub fn fork_device() -> Result<&'static Board> {
    let (board, file) = Board::in_file()?;
    die_with_parent();
    let launcher = parent();
    let waited = block_signals();
    // SAFETY: no other thread runs.
    let (me, child) = unsafe { (libc::getpid(), libc::fork()) };
    match child {
        -1 => Err(Error::from(std::io::Error::last_os_error()).context("can't start the device's own process")),
        0 => {
            die_with_parent();
            if parent() != me {
                // It ended before it could take this process along.
                // SAFETY: nothing is to be cleaned up.
                unsafe { libc::_exit(1) };
            }
            // SAFETY: the set outlives the call.
            unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &waited, std::ptr::null_mut()) };
            if mpi::library().starts_with("MPICH") {
                start_afresh(&file);
            }
            Ok(board)
        }
        device => supervise(device, launcher, board, &waited),
    }
}

/// Starts this executable anew in this process; returns if that can't be done. MPICH must start in
/// no process that is but a fork of another: in 1 of 70 such processes UCX 1.18 waits for ever while
/// it installs its hooks, with or without other threads (MPICH 4.2, `ucm_event_enter_exclusive`).
fn start_afresh(board: &fs::File) {
    let fd = board.as_raw_fd();
    // SAFETY: the descriptor is open; it stays open in the program that follows.
    unsafe { libc::fcntl(fd, libc::F_SETFD, 0) };
    if let Ok(executable) = std::env::current_exe() {
        let mut command = Command::new(executable);
        if let Some(name) = std::env::args_os().next() {
            command.arg0(name);
        }
        let e = command.arg(format!("--supervised={fd}")).exec();
        debug!("a device could not be started afresh: {e}");
    }
}

/// The board of a device that was started so.
///
/// # Errors
/// This process was started in another way.
pub fn board(fd: c_int) -> Result<&'static Board> {
    // SAFETY: whoever passed the number has opened it for this process.
    Board::of(&unsafe { fs::File::from_raw_fd(fd) })
}

fn parent() -> libc::pid_t {
    // SAFETY: getppid has no preconditions.
    unsafe { libc::getppid() }
}

/// Keeps the signals of a supervisor for it to wait for.
fn block_signals() -> libc::sigset_t {
    // SAFETY: the set is initialised before it is used and outlives the calls.
    unsafe {
        let mut set: libc::sigset_t = mem::zeroed();
        libc::sigemptyset(&mut set);
        PASSED_ON.iter().chain([&libc::SIGCHLD]).for_each(|&signal| {
            libc::sigaddset(&mut set, signal);
        });
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    }
}

/// The parent's life.
fn supervise(device: libc::pid_t, launcher: libc::pid_t, board: &Board, signals: &libc::sigset_t) -> ! {
    let kills = Kills::so_far();
    let_go();
    let mut told_to_end = false;
    let status = loop {
        let mut status = 0;
        // SAFETY: the device is this process's child; the records outlive their calls.
        unsafe {
            let mut info: libc::siginfo_t = mem::zeroed();
            match libc::sigwaitinfo(signals, &mut info) {
                libc::SIGCHLD if libc::waitpid(device, &mut status, libc::WNOHANG) == device => break status,
                signal if PASSED_ON.contains(&signal) => {
                    // From the launcher, or from a terminal or a group's leader to all alike:
                    // no news then to who reads the end's line.
                    told_to_end |= DEADLY.contains(&signal) && [0, launcher].contains(&info.si_pid());
                    libc::kill(device, signal);
                }
                _ => {}
            }
        }
    };
    let line = obituary(device, status, board, &kills).filter(|_| !told_to_end);
    let unexpected = line.is_some();
    if let Some(line) = line {
        log::error(line);
    }
    end_as(status, unexpected, signals)
}

/// Gives up what only the device uses: the launcher must not take this process for one that
/// still prints. Its own connections stay open: one that closes would have it end the job,
/// and this process, before the reason is told.
fn let_go() {
    if let Ok(null) = fs::File::options().read(true).write(true).open("/dev/null") {
        // SAFETY: both descriptors are open.
        unsafe {
            libc::dup2(null.as_raw_fd(), 0);
            libc::dup2(null.as_raw_fd(), 1);
        }
    }
}

/// Ends this process as the device ended; never with success if that was unexpected.
fn end_as(status: c_int, unexpected: bool, signals: &libc::sigset_t) -> ! {
    if libc::WIFSIGNALED(status) {
        let none = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the records outlive their calls. The device's core is the one of interest.
        unsafe {
            libc::setrlimit(libc::RLIMIT_CORE, &none);
            let signal = libc::WTERMSIG(status);
            libc::signal(signal, libc::SIG_DFL);
            libc::sigprocmask(libc::SIG_UNBLOCK, signals, std::ptr::null_mut());
            libc::raise(signal);
        }
    }
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1 };
    let code = if unexpected { code.max(1) } else { code };
    // SAFETY: nothing of this process's is to be cleaned up.
    unsafe { libc::_exit(code) }
}

/// Why a device process ended, and which kernels it ran, for the person who reads it; none
/// if it ended by itself, which it has told then. `status` is what `waitpid` says.
fn obituary(device: libc::pid_t, status: c_int, board: &Board, before: &Kills) -> Option<String> {
    let host = node::host_name();
    let identity = board.identity();
    if !libc::WIFSIGNALED(status) && (board.is_ending() || identity.is_none()) {
        return None;
    }
    let device = match identity {
        Some((number, rank)) => format!("device {number} (rank {rank} on host {host}, pid {device})"),
        None => format!("a device (on host {host}, pid {device})"),
    };
    let running = board.running();
    let at_work = match running.as_slice() {
        [] if identity.is_none() => "before it had met the program".to_string(),
        [] => "while no kernel ran".to_string(),
        [one] => format!("while kernel {one} ran"),
        many => format!("while kernels {} ran", many.join("; ")),
    };
    Some(format!("{device} {}, {at_work}", cause(status, before)))
}

/// What ended a process: "was ended by signal SIGTERM". `status` is what `waitpid` says.
pub fn cause(status: c_int, before: &Kills) -> String {
    if !libc::WIFSIGNALED(status) {
        return format!("ended with status {} (something there called _exit)", libc::WEXITSTATUS(status));
    }
    let signal = libc::WTERMSIG(status);
    let why = match signal {
        libc::SIGKILL => before.since(),
        libc::SIGALRM => " (it had crashed and could not tell how)",
        _ => "",
    };
    format!("was ended by {}{why}", name::of_signal(signal))
}

/// How often the system has killed a process for want of memory: in this process's cgroup,
/// and on the whole node. None where it does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kills {
    cgroup: Option<u64>,
    node: Option<u64>,
}

impl Kills {
    /// The count until now.
    pub fn so_far() -> Kills {
        let count = |file: &Path| field(&fs::read_to_string(file).ok()?, "oom_kill");
        // A group in which memory is not counted has no such file: the one above it has.
        let cgroup = memory_folders().iter().find_map(|folder| {
            // Of version 2 and of version 1.
            ["memory.events", "memory.oom_control"].iter().find_map(|name| count(&folder.join(name)))
        });
        Kills { cgroup, node: count("/proc/vmstat".as_ref()) }
    }

    /// Who sent a SIGKILL since then, as far as the system tells.
    pub fn since(&self) -> &'static str {
        let now = Kills::so_far();
        let more = |before: Option<u64>, now: Option<u64>| before.zip(now).map(|(before, now)| now > before);
        match (more(self.cgroup, now.cgroup), more(self.node, now.node)) {
            (Some(true), _) => {
                " (the system's OOM killer ended a process of its cgroup, the memory of which was used up)"
            }
            (_, Some(true)) => " (the system's OOM killer ended some process meanwhile: memory may have been used up)",
            (None, None) => " (the system's OOM killer may have sent it)",
            _ => " (not of the system's OOM killer, but of some process)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering;

    const EXITED: fn(c_int) -> c_int = |code| code << 8;

    #[test]
    fn the_end_of_a_device_is_told_with_what_ran() {
        let board = Board::new().unwrap();
        let kills = Kills::default();
        let of = |status| obituary(77, status, board, &kills);
        assert_eq!(of(EXITED(1)), None);
        assert!(
            of(libc::SIGSEGV).unwrap().ends_with("pid 77) was ended by signal SIGSEGV, before it had met the program")
        );
        board.introduce(1, 4);
        assert!(of(libc::SIGTERM).unwrap().ends_with("was ended by signal SIGTERM, while no kernel ran"));
        board.add_names([(0x10, "__omp_offloading_3b_4c_main_l12")].into_iter());
        board.kernel(2).store(0x10, Ordering::Relaxed);
        let killed = of(libc::SIGKILL).unwrap();
        assert!(killed.starts_with("device 1 (rank 4 on host "), "{killed}");
        assert!(
            killed.contains("signal SIGKILL (") && killed.ends_with(", while kernel main, line 12 ran"),
            "{killed}"
        );
        board.kernel(3).store(0x20, Ordering::Relaxed);
        assert!(
            of(EXITED(0))
                .unwrap()
                .contains("status 0 (something there called _exit), while kernels main, line 12; at 0x20 ran")
        );
        board.end();
        assert_eq!(of(EXITED(0)), None);
    }
}
