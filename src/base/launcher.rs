// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The process that started this rank: the MPI launcher of this job on this node, which a rank
//! may have to end.
//!
//! It is known by its executable, not by its name, which any script may have, and only if this
//! process was started as a rank: the ancestors of a program that was started without a launcher
//! belong to somebody else.

use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// Environment variables of which at least one is set in every process that an MPI
/// launcher started.
pub const VARIABLES: [&str; 4] = ["OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMI_FD", "PMIX_RANK"];

/// The executables of launchers, whatever links lead to them.
const LAUNCHERS: [&str; 5] = ["mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prterun"];
/// What Hydra has between itself and the ranks.
const PROXY: &str = "hydra_pmi_proxy";
/// What starts ranks for a launcher that may be on another node.
const DAEMONS: [&str; 5] = ["orted", "prted", "prte", "slurmstepd", PROXY];

/// What the system shows of a process.
struct Seen {
    parent: libc::pid_t,
    /// Its executable's name.
    executable: String,
}

/// The launcher of this job, if this process is a rank of one and the launcher is an ancestor.
pub fn find() -> Option<libc::pid_t> {
    // As it was at the start: MPI sets such variables for a program that has no launcher.
    let environment = fs::read("/proc/thread-self/environ").ok()?;
    // SAFETY: getppid has no preconditions.
    let parent = unsafe { libc::getppid() };
    is_rank(&environment).then(|| above(parent, see))?
}

/// True if this environment is of a process that a launcher started.
fn is_rank(environment: &[u8]) -> bool {
    let mut names = environment.split(|b| *b == 0).filter_map(|variable| variable.split(|b| *b == b'=').next());
    names.any(|name| VARIABLES.iter().any(|v| v.as_bytes() == name))
}

/// The nearest launcher among a process and its ancestors. Behind the daemon of a launcher only
/// that launcher counts, which is its parent then: an outer job may follow.
fn above(mut pid: libc::pid_t, see: impl Fn(libc::pid_t) -> Option<Seen>) -> Option<libc::pid_t> {
    let is_launcher = |process: &Seen| LAUNCHERS.contains(&process.executable.as_str());
    while pid > 1 {
        // One that can't be seen is of another user.
        let process = see(pid)?;
        if is_launcher(&process) {
            return Some(pid);
        }
        if DAEMONS.contains(&process.executable.as_str()) {
            let above = process.parent;
            return (process.executable == PROXY && is_launcher(&see(above)?)).then_some(above);
        }
        pid = process.parent;
    }
    None
}

fn see(pid: libc::pid_t) -> Option<Seen> {
    let executable = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may have any characters in it; state and parent follow.
    let behind = stat.iter().rposition(|b| *b == b')')? + 1;
    let parent = String::from_utf8_lossy(&stat[behind..]).split_whitespace().nth(1)?.parse().ok()?;
    Some(Seen { parent, executable: name_of(&executable)? })
}

/// The name of an executable, which may have been replaced while it runs.
fn name_of(executable: &Path) -> Option<String> {
    let name = executable.file_name().map(OsStr::to_string_lossy)?;
    Some(name.strip_suffix(" (deleted)").unwrap_or(&name).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The launcher above the first of these processes, each of which is the next one's child.
    fn launcher_of(executables: &[&str]) -> Option<&'static str> {
        let see = |pid: libc::pid_t| {
            let at = usize::try_from(pid - 100).ok()?;
            let executable = executables.get(at).filter(|name| !name.is_empty())?.to_string();
            Some(Seen { parent: if at + 1 < executables.len() { pid + 1 } else { 1 }, executable })
        };
        let found = above(100, see)? as usize - 100;
        LAUNCHERS.iter().find(|name| **name == executables[found]).copied().filter(|_| {
            // The nearest one.
            !executables[..found].iter().any(|name| LAUNCHERS.contains(name))
        })
    }

    #[test]
    fn the_launcher_is_known_by_its_executable() {
        assert_eq!(launcher_of(&["orterun", "bash"]), Some("orterun"));
        assert_eq!(launcher_of(&["bash", "gdb", "orterun", "bash"]), Some("orterun"));
        assert_eq!(launcher_of(&["hydra_pmi_proxy", "mpiexec.hydra", "bash"]), Some("mpiexec.hydra"));
        assert_eq!(launcher_of(&["mpirun_all.sh", "mpirun-x", "bash"]), None);
        assert_eq!(launcher_of(&[]), None);
    }

    #[test]
    fn an_outer_job_is_left_alone() {
        assert_eq!(launcher_of(&["prterun", "bash", "orterun"]), Some("prterun"));
        assert_eq!(launcher_of(&["hydra_pmi_proxy", "bash", "orterun"]), None);
        for daemon in DAEMONS {
            assert_eq!(launcher_of(&[daemon, "p", "orterun"]), None, "{daemon}");
        }
        assert_eq!(launcher_of(&["bash", "", "orterun"]), None, "of another user");
    }

    #[test]
    fn a_rank_is_known_by_its_environment() {
        assert!(is_rank(b"A=b\0PMI_RANK=0\0"));
        assert!(!is_rank(b"A=PMI_RANK=0\0PMI_RANKS=0\0"));
        assert!(!is_rank(b""));
    }

    #[test]
    fn processes_are_seen() {
        let me = see(std::process::id() as libc::pid_t).unwrap();
        let own = std::env::current_exe().unwrap();
        assert_eq!(Some(me.executable), name_of(&own));
        // SAFETY: getppid has no preconditions.
        assert_eq!(me.parent, unsafe { libc::getppid() });
        assert_eq!(name_of("/usr/bin/orterun (deleted)".as_ref()).as_deref(), Some("orterun"));
    }
}
