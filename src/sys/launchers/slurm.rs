// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Slurm's variables, and what MPI launchers that start their daemons by srun need in their environment.

use super::text;
use crate::sys::programs;
use std::ffi::OsString;
use std::process::Command;

/// Arguments for the srun of Open MPI 4's mpirun, of Open MPI 5's, and of MPICH's Hydra.
const OPEN_MPI_ARGUMENTS: [&str; 2] = ["OMPI_MCA_plm_slurm_args", "PRTE_MCA_plm_slurm_args"];
const HYDRA_ARGUMENTS: &str = "HYDRA_LAUNCHER_EXTRA_ARGS";
/// What Hydra starts its daemons with, if the user chooses that.
const HYDRA_LAUNCHERS: [&str; 2] = ["HYDRA_LAUNCHER", "HYDRA_BOOTSTRAP"];

/// The nodes of this process's Slurm allocation, in Slurm's notation.
pub(crate) fn nodes() -> Option<String> {
    text("SLURM_JOB_NODELIST")
}

/// True on a node of the allocation: Slurm sets this for all that it starts there.
pub(crate) fn is_on_node() -> bool {
    text("SLURMD_NODENAME").is_some()
}

/// The variables with which mpirun's or Hydra's own srun shares cores with other steps of the job. Without them it
/// waits for the end of a step that holds all cores, such as the `srun --pty bash` in which the launcher runs. What the
/// user has set stays.
pub(crate) fn sharing(is_open_mpi: bool) -> Vec<(String, OsString)> {
    let names = if is_open_mpi { OPEN_MPI_ARGUMENTS.as_slice() } else { &[HYDRA_ARGUMENTS] };
    // Hydra would give the argument to ssh, too.
    let is_other = !is_open_mpi && HYDRA_LAUNCHERS.iter().any(|name| text(name).is_some_and(|kind| kind != "slurm"));
    if nodes().is_none() || is_other || names.iter().any(|name| text(name).is_some()) || !srun_can_overlap() {
        return Vec::new();
    }
    names.iter().map(|name| (name.to_string(), "--overlap".into())).collect()
}

/// True from Slurm 20.11 on. Before, steps share cores anyway.
fn srun_can_overlap() -> bool {
    let out = programs::tool("srun").and_then(|srun| Command::new(srun).arg("--version").output().ok());
    out.is_some_and(|out| release(&String::from_utf8_lossy(&out.stdout)) >= Some((20, 11)))
}

/// The release in srun's line "slurm 22.05.8".
fn release(line: &str) -> Option<(u32, u32)> {
    let mut numbers = line.split_whitespace().nth(1)?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
#[path = "../../../test/rust/unit/sys/launchers/slurm.rs"]
mod tests;
