// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/launchers/processes.rs`.

use super::*;

/// The launcher above the first of these processes. Each process is a child of the next one.
fn launcher_of(executables: &[&str]) -> Option<&'static str> {
    let see = |pid: u32| {
        let at = (pid as usize).checked_sub(100)?;
        let executable = executables.get(at).filter(|name| !name.is_empty())?.to_string();
        Some((if at + 1 < executables.len() { pid + 1 } else { 1 }, executable))
    };
    let found = above(100, see)? as usize - 100;
    // Only the nearest launcher is right.
    let is_nearest = !executables[..found].iter().any(|name| LAUNCHERS.contains(name));
    LAUNCHERS.iter().find(|name| **name == executables[found]).copied().filter(|_| is_nearest)
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
    let (parent, executable) = see(std::process::id()).unwrap();
    let own = std::env::current_exe().unwrap();
    assert_eq!(Some(executable), name_of(&own));
    assert_eq!(parent, parent_id());
    assert_eq!(name_of("/usr/bin/orterun (deleted)".as_ref()).as_deref(), Some("orterun"));
}
