// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The supervisor: the parent process of a device. It waits for the device to exit and reports the reason
//! if the device can't: it was killed, crashed outside of any kernel, or a kernel called `_exit`.
//!
//! The supervisor forks the device before MPI and before any thread starts. The launcher takes the
//! supervisor for the device, so the supervisor passes signals on, and exits as the device did. A rank with
//! workers is itself their parent, and needs only [`cause`], [`Kills`] and the crash boards.

use super::board::CrashBoard;
use super::exit::die_with_parent;
use crate::base::{Error, Result, log, name};
use crate::debug;
use crate::mpi::quirks;
use crate::sys::cgroup::{field, memory_folders};
use crate::sys::{layout, node, process};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, setrlimit};
use rustix::stdio::{dup2_stdin, dup2_stdout};
use std::ffi::c_int;
use std::fs;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::process::{CommandExt, parent_id};
use std::path::Path;
use std::process::Command;

/// Signals that are passed on to the device.
const PASSED_ON: [c_int; 6] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGTSTP, libc::SIGCONT];
/// Those of them that terminate the device.
const DEADLY: [c_int; 4] = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT];

/// How a device executes its own executable again.
pub(crate) enum Anew {
    AsIs,
    /// With another [`layout`].
    InWindow,
}

/// Forks the device and returns in it, with the crash board that its parent will read; or the device executes its
/// executable anew, with the number of programs before it. No thread may run yet.
pub(crate) fn fork_device(anew: Option<Anew>, programs: u32) -> Result<&'static CrashBoard> {
    let (board, file) = CrashBoard::in_file()?;
    die_with_parent();
    let (me, launcher) = (std::process::id(), parent_id());
    let waited = block_signals();
    // SAFETY: no other thread runs.
    match unsafe { libc::fork() } {
        -1 => Err(Error::from(std::io::Error::last_os_error()).context("can't start the device's own process")),
        0 => {
            die_with_parent();
            if parent_id() != me {
                // The parent has exited already.
                // SAFETY: there is nothing to clean up.
                unsafe { libc::_exit(1) };
            }
            // SAFETY: the set outlives the call.
            unsafe { libc::sigprocmask(libc::SIG_UNBLOCK, &waited, std::ptr::null_mut()) };
            if anew.is_some() || quirks::needs_exec_after_fork() {
                start_afresh(&file, matches!(anew, Some(Anew::InWindow)), programs);
            }
            Ok(board)
        }
        device => supervise(device, launcher as i32, board, &waited),
    }
}

/// Executes this executable anew in this process; returns if that fails.
fn start_afresh(board: &fs::File, in_window: bool, programs: u32) {
    let fd = board.as_raw_fd();
    // The descriptor stays open across `exec`.
    let _ = fcntl_setfd(board, FdFlags::empty());
    if let Ok(executable) = std::env::current_exe() {
        let moved = in_window.then(layout::choose_window).flatten();
        let mut command = match &moved {
            Some(moved) => Command::new(&moved.loader),
            // Without the window, regions can't use the program's memory.
            None if in_window && !quirks::needs_exec_after_fork() => return,
            None => Command::new(&executable),
        };
        if command.get_program() != executable {
            command.arg(executable);
        } else if let Some(name) = std::env::args_os().next() {
            command.arg0(name);
        }
        command.arg(format!("--supervised={fd}"));
        if let Some(moved) = &moved {
            command.arg(format!("--stack-limit={}", moved.stack_limit));
        }
        command.arg(format!("--programs={programs}"));
        let e = command.exec();
        if let Some(moved) = moved {
            layout::settle(moved.stack_limit);
        }
        debug!("a device could not be started afresh: {e}");
    }
}

/// The crash board of a device that `start_afresh` started.
pub(crate) fn board(fd: c_int) -> Result<&'static CrashBoard> {
    // SAFETY: the process that passed the number has opened it for this process.
    CrashBoard::of(&unsafe { fs::File::from_raw_fd(fd) })
}

/// Blocks the signals that the supervisor waits for.
fn block_signals() -> libc::sigset_t {
    // SAFETY: the set is initialized before it is used and outlives the calls.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        PASSED_ON.iter().chain([&libc::SIGCHLD]).for_each(|&signal| {
            libc::sigaddset(&mut set, signal);
        });
        libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
        set
    }
}

fn supervise(device: i32, launcher: i32, board: &CrashBoard, signals: &libc::sigset_t) -> ! {
    let kills = Kills::so_far();
    release_streams();
    let mut asked_to_end = false;
    let status = loop {
        // SAFETY: zero is a valid value, and both records outlive the call.
        let (signal, info) = unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            (libc::sigwaitinfo(signals, &mut info), info)
        };
        if signal == libc::SIGCHLD
            && let Ok(Some(status)) = process::reap(device, false)
        {
            break status;
        }
        if PASSED_ON.contains(&signal) {
            // The signal is from the launcher, from a terminal or to the whole process group: the user then knows
            // why the device exits.
            // SAFETY: the kernel fills in the sender for such signals.
            let asks_to_end = DEADLY.contains(&signal) && [0, launcher].contains(&unsafe { info.si_pid() });
            if asks_to_end && let Ok(Some(status)) = process::reap(device, false) {
                // The launcher may be ending the job because the device has exited: SIGCHLD comes after these signals.
                asked_to_end |= libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == signal;
                break status;
            }
            asked_to_end |= asks_to_end;
            if let (Some(device), Some(signal)) = (Pid::from_raw(device), Signal::from_named_raw(signal)) {
                let _ = kill_process(device, signal);
            }
        }
    };
    let line = obituary(device, status, board, &kills).filter(|_| !asked_to_end);
    let unexpected = line.is_some();
    if let Some(line) = line {
        log::error(line);
    }
    end_as(status, unexpected, signals)
}

/// Closes standard input and output, so that the launcher does not take this process for one that still
/// prints. Connections to the launcher stay open: if one closed, the launcher would end the job, and this
/// process, before the reason is reported.
fn release_streams() {
    if let Ok(null) = fs::File::options().read(true).write(true).open("/dev/null") {
        let _ = dup2_stdin(&null).and_then(|()| dup2_stdout(&null));
    }
}

/// Exits as the device did, but never with success if the exit was unexpected.
fn end_as(status: c_int, unexpected: bool, signals: &libc::sigset_t) -> ! {
    if libc::WIFSIGNALED(status) {
        // The device's core dump is of interest, not this process's.
        let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
        // SAFETY: the default action needs no handler, and the set outlives the call.
        unsafe {
            let signal = libc::WTERMSIG(status);
            libc::signal(signal, libc::SIG_DFL);
            libc::sigprocmask(libc::SIG_UNBLOCK, signals, std::ptr::null_mut());
            libc::raise(signal);
        }
    }
    let code = if libc::WIFEXITED(status) { libc::WEXITSTATUS(status) } else { 1 };
    let code = if unexpected { code.max(1) } else { code };
    // SAFETY: there is nothing to clean up.
    unsafe { libc::_exit(code) }
}

/// Describes why a device exited and which kernels it ran; `None` if the device has reported its exit itself.
fn obituary(device: i32, status: c_int, board: &CrashBoard, before: &Kills) -> Option<String> {
    let host = node::host_name();
    let identity = board.identity();
    if !libc::WIFSIGNALED(status) && (board.is_exit_known() || identity.is_none()) {
        return None;
    }
    let device = match identity {
        Some((number, rank)) => format!("device {number} (rank {rank} on host {host}, pid {device})"),
        None => format!("a device (on host {host}, pid {device})"),
    };
    let running = board.running();
    let at_work = match running.as_slice() {
        _ if board.was_in_mpi() && may_be_of_mpi(status) => {
            "while MPI made its first copy from or to the accelerator's memory, which it says it \
            can (without that: OMPTARGET_MPI_GPU_DIRECT=off)"
                .to_string()
        }
        [] if identity.is_none() => "before it had met the program".to_string(),
        [] => "while no kernel ran".to_string(),
        [one] => format!("while kernel {one} ran"),
        many => format!("while kernels {} ran", many.join("; ")),
    };
    let hint = match board.is_direct() && may_be_of_mpi(status) {
        true => {
            "; MPI accesses the accelerator's memory, which may be the cause (without that: OMPTARGET_MPI_GPU_DIRECT=off)"
        }
        false => "",
    };
    Some(format!("{device} {}, {at_work}{hint}", cause(status, before)))
}

/// True if a process may end in this way because MPI can't access memory.
fn may_be_of_mpi(status: c_int) -> bool {
    !libc::WIFSIGNALED(status) || [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT].contains(&libc::WTERMSIG(status))
}

/// Describes how a process ended: "was ended by signal SIGTERM". `status` is from `waitpid`.
pub(crate) fn cause(status: c_int, before: &Kills) -> String {
    if !libc::WIFSIGNALED(status) {
        return format!("ended with status {} (something there called _exit)", libc::WEXITSTATUS(status));
    }
    let signal = libc::WTERMSIG(status);
    let why = match signal {
        libc::SIGKILL => before.since(),
        libc::SIGALRM => " (it had crashed and could not report how)",
        _ => "",
    };
    format!("was ended by {}{why}", name::of_signal(signal))
}

/// How many processes the OOM killer has ended in this process's cgroup and on the whole node, if known.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Kills {
    cgroup: Option<u64>,
    node: Option<u64>,
}

impl Kills {
    pub fn so_far() -> Kills {
        let count = |file: &Path| field(&fs::read_to_string(file).ok()?, "oom_kill");
        // A group that does not account for memory lacks this file; the group above it has it.
        let cgroup = memory_folders().iter().find_map(|folder| {
            // Of version 2, and of version 1.
            ["memory.events", "memory.oom_control"].iter().find_map(|name| count(&folder.join(name)))
        });
        Kills { cgroup, node: count("/proc/vmstat".as_ref()) }
    }

    /// The sender of a SIGKILL since `self` was read, as far as known.
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
#[path = "../../../test/rust/unit/device_main/crash/supervisor.rs"]
mod tests;
