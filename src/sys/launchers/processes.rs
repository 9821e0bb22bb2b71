// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The MPI launcher of this job on this node, which a rank may have to end.
//!
//! The launcher is recognized by its executable; its process name could be any script's. It counts
//! only if this process was started as a rank: without a launcher, a program's ancestors are not part
//! of the job.

use super::VARIABLES;
use crate::sys::process;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::parent_id;
use std::path::Path;

/// The executables of launchers, after resolving links.
const LAUNCHERS: [&str; 5] = ["mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"];
/// Hydra's process between the launcher and the ranks.
const PROXY: &str = "hydra_pmi_proxy";
/// Processes that start ranks for a launcher that may be on another node.
const DAEMONS: [&str; 5] = ["orted", "prted", "prte", "slurmstepd", PROXY];

/// The launcher of this job, if this process is a rank of one and the launcher is an ancestor.
pub(crate) fn find() -> Option<u32> {
    // Use the initial environment: MPI itself sets these variables in a program without a launcher.
    let environment = fs::read("/proc/thread-self/environ").ok()?;
    is_rank(&environment).then(|| above(parent_id(), see))?
}

/// True if the launcher of this job runs on this node, and its command line names an executable of this name.
pub(crate) fn launcher_starts(name: &str) -> bool {
    let command = find().and_then(|launcher| fs::read(format!("/proc/{launcher}/cmdline")).ok()).unwrap_or_default();
    command.split(|b| *b == 0).any(|word| Path::new(OsStr::from_bytes(word)).file_name() == Some(name.as_ref()))
}

fn is_rank(environment: &[u8]) -> bool {
    let mut names = environment.split(|b| *b == 0).filter_map(|variable| variable.split(|b| *b == b'=').next());
    names.any(|name| VARIABLES.iter().any(|v| v.as_bytes() == name))
}

/// The processes above this one, from its parent to the launcher's process on this node that started it as a rank:
/// scripts and tools such as `perf` may be between them. Only the parent if the launcher's process is another user's.
pub(crate) fn ancestors() -> Vec<u32> {
    let mut above = Vec::new();
    let found = nearest(parent_id(), |pid| {
        above.push(pid);
        see(pid)
    });
    if found.is_none() {
        above.truncate(1);
    }
    above
}

/// The nearest launcher among a process and its ancestors. Above a launcher's daemon, only the
/// daemon's parent counts: what follows may be an outer job.
fn above(pid: u32, see: impl Fn(u32) -> Option<(u32, String)>) -> Option<u32> {
    let (pid, parent, executable) = nearest(pid, &see)?;
    if LAUNCHERS.contains(&executable.as_str()) {
        return Some(pid);
    }
    (executable == PROXY && LAUNCHERS.contains(&see(parent)?.1.as_str())).then_some(parent)
}

/// The nearest launcher or daemon among a process and its ancestors, with its parent and executable.
fn nearest(mut pid: u32, mut see: impl FnMut(u32) -> Option<(u32, String)>) -> Option<(u32, u32, String)> {
    while pid > 1 {
        // Another user's process can't be seen.
        let (parent, executable) = see(pid)?;
        if LAUNCHERS.contains(&executable.as_str()) || DAEMONS.contains(&executable.as_str()) {
            return Some((pid, parent, executable));
        }
        pid = parent;
    }
    None
}

/// A process's parent and the name of its executable.
fn see(pid: u32) -> Option<(u32, String)> {
    let executable = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let parent = process::status(pid)?.split_whitespace().nth(1)?.parse().ok()?;
    Some((parent, name_of(&executable)?))
}

/// The name of an executable, which may have been replaced while it runs.
fn name_of(executable: &Path) -> Option<String> {
    let name = executable.file_name().map(OsStr::to_string_lossy)?;
    Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_string())
}

#[cfg(test)]
#[path = "../../../test/rust/unit/sys/launchers/processes.rs"]
mod tests;
