// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The environment variables that MPI launchers set for the processes that they start. This file names every variable
//! of a launcher or a batch system that this library reads (`mpi::quirks` has those of MPI libraries); `processes`
//! knows the launchers' executables.

pub(crate) mod processes;
pub(crate) mod slurm;

use crate::base::settings;
use std::ffi::{OsStr, c_int};
use std::path::PathBuf;

/// A launcher of MPI programs, recognized by its environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Open MPI's mpirun.
    OpenMpi,
    /// MPICH's Hydra, or another launcher with its PMI protocol.
    Pmi,
    /// A launcher with PMIx.
    Pmix,
}

/// Open MPI's number of ranks.
const OPEN_MPI: &str = "OMPI_COMM_WORLD_SIZE";
/// The descriptor of the connection to MPICH's launcher.
const PMI_FD: &str = "PMI_FD";
const PMI_RANK: &str = "PMI_RANK";
const PMIX_RANK: &str = "PMIX_RANK";
/// At least one of these is set in every process that a launcher started.
pub const VARIABLES: [&str; 4] = [OPEN_MPI, PMI_RANK, PMI_FD, PMIX_RANK];
/// Prefixes of the variables that launchers and MPI libraries set.
const PREFIXES: [&str; 6] = ["OMPI_", "OPAL_", "ORTE_", "PMIX_", "PMI_", "PRTE_"];

/// True for a variable of a launcher, or of an MPI.
pub(crate) fn is_variable(name: &OsStr) -> bool {
    PREFIXES.iter().any(|prefix| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
}

fn text(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn number(name: &str) -> Option<u32> {
    text(name)?.trim().parse().ok()
}

/// The launcher that started this process, and the number of ranks if known.
pub fn launcher() -> Option<(Launcher, Option<usize>)> {
    launcher_in(text)
}

fn launcher_in(get: impl Fn(&str) -> Option<String>) -> Option<(Launcher, Option<usize>)> {
    let number = |name| get(name).and_then(|v| v.parse().ok());
    if let Some(size) = get(OPEN_MPI) {
        Some((Launcher::OpenMpi, size.parse().ok()))
    } else if get(PMI_RANK).is_some() || get(PMI_FD).is_some() {
        Some((Launcher::Pmi, number("PMI_SIZE")))
    } else if get(PMIX_RANK).is_some() {
        Some((Launcher::Pmix, number("SLURM_NTASKS")))
    } else {
        None
    }
}

/// The number of ranks of this job; 0 if the launcher does not tell.
pub fn size() -> usize {
    launcher().and_then(|(_, size)| size).unwrap_or(0)
}

/// The rank of this process, if the launcher sets a variable for it.
pub fn rank() -> Option<u32> {
    let variables = ["OMPI_COMM_WORLD_RANK", PMI_RANK, PMIX_RANK];
    number(variables.into_iter().find(|name| text(name).is_some())?)
}

/// The local rank of the process with this rank, and the number of ranks on its node, if the launcher sets them.
pub(crate) fn local(rank: u32) -> Option<(u32, u32)> {
    local_in(number, rank)
}

fn local_in(get: impl Fn(&str) -> Option<u32>, rank: u32) -> Option<(u32, u32)> {
    /// Variables for the local rank, the rank, and the number of local ranks. All may be inherited from another
    /// launcher.
    const NUMBERS: [(&str, &str, &str); 4] = [
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        (HYDRA_LOCAL_RANK, PMI_RANK, "MPI_LOCALNRANKS"),
        ("PMI_LOCAL_RANK", PMI_RANK, "PMI_LOCAL_SIZE"),
        // Slurm's number is a list for all nodes, unless there is one node.
        ("SLURM_LOCALID", "SLURM_PROCID", "SLURM_TASKS_PER_NODE"),
    ];
    let is_own = |numbers: &&(&str, &str, &str)| get(numbers.0).is_some() && get(numbers.1) == Some(rank);
    let (local, _, all) = NUMBERS.iter().find(is_own)?;
    let local = get(local)?;
    Some((local, get(all).unwrap_or(0).max(local + 1)))
}

/// The index of this process among the devices of its node, if the launcher sets its local rank. The first `programs`
/// ranks of the job are programs. Assumes that the ranks of a node are consecutive.
pub(crate) fn place_on_node(programs: u32) -> Option<usize> {
    place_in(number, rank()?, programs)
}

fn place_in(get: impl Fn(&str) -> Option<u32>, rank: u32, programs: u32) -> Option<usize> {
    let (local, _) = local_in(get, rank)?;
    let first = rank.checked_sub(local)?;
    Some(local.checked_sub(programs.saturating_sub(first))? as usize)
}

/// The number of executables on mpirun's command line, if the launcher sets it.
pub(crate) fn executables() -> Option<u32> {
    number("OMPI_NUM_APP_CTX")
}

/// True unless another rank reports what all ranks would report. (The first rank may be a device, which reports
/// nothing. So the first rank of each executable reports, if Open MPI sets the number of ranks of each. Its
/// OMPI_FIRST_RANKS would tell directly, but is "0 0" in 4.1.)
pub(crate) fn speaks_for_all() -> bool {
    let counts = text("OMPI_APP_CTX_NUM_PROCS").unwrap_or_default();
    let mut ends = counts.split_whitespace().scan(0, |end, n| {
        *end += n.parse::<u32>().ok()?;
        Some(*end)
    });
    rank().is_none_or(|rank| rank == 0 || ends.any(|end| end == rank))
}

/// The value of [`settings::WITH_DEVICES`] in a job with this number of programs.
pub(crate) fn note_of_programs(programs: u32) -> String {
    format!("{programs}/{}", job())
}

/// The number of programs of this job, if its ranks began as device executables and this one has become a program.
pub(crate) fn programs() -> Option<usize> {
    let note = text(settings::WITH_DEVICES).filter(|_| launcher().is_some())?;
    let (programs, of) = note.split_once('/')?;
    programs.parse().ok().filter(|_| of == job())
}

/// True in a program if other ranks of its job are certainly devices.
pub(crate) fn is_beside_devices() -> bool {
    programs().is_some_and(|programs| size() == 0 || size() > programs)
}

/// Identifies this job. Jobs that its processes start inherit the variables, but have a different identifier.
fn job() -> String {
    let connection = || Some(inode_of(pmi_descriptor()?)?.to_string());
    format!("{} {}", size(), text("PMIX_NAMESPACE").or_else(connection).unwrap_or_default())
}

/// A file with a name that is unique to this slot, in the launcher's own folder for this job, if PMIx has such a
/// folder.
pub(crate) fn file_of_slot() -> Option<PathBuf> {
    let (folder, job, rank) = (text("PMIX_SERVER_TMPDIR")?, text("PMIX_NAMESPACE")?, text(PMIX_RANK)?);
    Some(PathBuf::from(folder).join(format!("omptarget-mpi.{}.{rank}", job.replace('/', "_"))))
}

/// The file with the nodes of PBS's allocation: a line for each core, in any order.
pub(crate) fn pbs_node_file() -> Option<PathBuf> {
    std::env::var_os("PBS_NODEFILE").map(PathBuf::from)
}

/// True if PMIx connects this process with its launcher.
pub(crate) fn has_pmix() -> bool {
    text(PMIX_RANK).is_some()
}

/// Hydra's own variable for the local rank.
const HYDRA_LOCAL_RANK: &str = "MPI_LOCALRANKID";

/// True for MPICH's launcher with the protocol PMI-1.
pub(crate) fn is_hydra() -> bool {
    let is_set = |name: &str| text(name).is_some();
    // The last two select another protocol.
    is_set(HYDRA_LOCAL_RANK) && !is_set("PMI_VERSION") && !is_set("MPIR_CVAR_PMI_VERSION")
}

/// The descriptor of the connection to MPICH's launcher.
pub(crate) fn pmi_descriptor() -> Option<c_int> {
    text(PMI_FD)?.parse().ok()
}

/// The inode of a descriptor, which shows whether it is still the same connection.
pub(crate) fn inode_of(fd: c_int) -> Option<u64> {
    // SAFETY: a plain record, which the call fills; it accepts any number.
    unsafe {
        let mut status: libc::stat = std::mem::zeroed();
        (libc::fstat(fd, &mut status) == 0).then_some(status.st_ino)
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/sys/launchers.rs"]
mod tests;
