// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Every peculiarity of an MPI library, each with the release in which it was seen; later releases are assumed to have
//! it too. Nothing else in the plugin and the device depends on which library this is. [`super::pmi`] handles MPICH's
//! launcher, `sys::launchers` the variables of launchers.

use crate::sys::launchers::{self, Launcher};
use std::sync::LazyLock;

/// The MPI library of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Library {
    /// Open MPI, of this major release.
    OpenMpi(u32),
    /// MPICH, and its version.
    Mpich(String),
    /// Any other one.
    Other,
}

static LIBRARY: LazyLock<Library> = LazyLock::new(|| Library::of(&super::library()));

impl Library {
    /// The library with a name such as "Open MPI v4.1.4" or "MPICH 4.0.2".
    fn of(name: &str) -> Library {
        if let Some(version) = name.strip_prefix("Open MPI v") {
            Library::OpenMpi(version.split('.').next().and_then(|major| major.parse().ok()).unwrap_or(0))
        } else if let Some(version) = name.strip_prefix("MPICH ") {
            Library::Mpich(version.to_string())
        } else {
            Library::Other
        }
    }

    fn is_open_mpi(&self) -> bool {
        matches!(self, Library::OpenMpi(_))
    }

    fn is_mpich(&self) -> bool {
        matches!(self, Library::Mpich(_))
    }
}

/// The library's eager limit on a node, in bytes: it sends up to this size without asking the receiver first. No MPI
/// call reports it. Measured round trips: Open MPI 4.1 takes 1.7 us for 4032 bytes and 5.6 us for 4064; MPICH 4.0 takes
/// 2.4 us for 8128 bytes and 6.1 us for 8300.
pub(crate) fn eager_on_node() -> usize {
    if LIBRARY.is_open_mpi() { 4032 } else { 8128 }
}

/// The library's eager limit to another node, in bytes. Measured over TCP: Open MPI 4.1 completes sends of 65,000 bytes
/// at once and those of 65,500 after two round trips; for MPICH 4.0 (UCX) these sizes are 19,400 and 19,600. On other
/// networks 16 KiB are common, the default of libfabric's providers; Open MPI asks there, which costs a short round
/// trip.
pub(crate) fn eager_far() -> usize {
    if LIBRARY.is_open_mpi() { 65_000 } else { 16 << 10 }
}

/// Names the launcher of this job if it belongs to another MPI, with which each process would start as a singleton.
pub(crate) fn other_launcher() -> Option<&'static str> {
    match launchers::launcher()?.0 {
        Launcher::OpenMpi if !LIBRARY.is_open_mpi() => Some("Open MPI's mpirun"),
        Launcher::Pmi if LIBRARY.is_open_mpi() && launchers::pmi_descriptor().is_some() => {
            Some("an MPICH-like launcher")
        }
        _ => None,
    }
}

/// Variables that make a program's own `MPI_Init` start MPI at `MPI_THREAD_MULTIPLE`, and their values.
pub(crate) const LEVEL_VARIABLES: [(&str, &str); 2] =
    [("OMPI_MPI_THREAD_LEVEL", "3"), ("MPIR_CVAR_DEFAULT_THREAD_LEVEL", "MPI_THREAD_MULTIPLE")];

/// The only thread level that Open MPI 5 grants if its variable is set.
pub(crate) fn fixed_level() -> Option<i32> {
    std::env::var(LEVEL_VARIABLES[0].0).ok()?.parse().ok()
}

/// MPICH 4.2 must not start in a forked process that has not called `exec`: in 1 of 70 such processes UCX 1.18 hangs
/// while it installs its hooks (`ucm_event_enter_exclusive`), with or without other threads.
pub(crate) fn needs_exec_after_fork() -> bool {
    LIBRARY.is_mpich()
}

/// MPICH 4.0 hangs in `MPI_Finalize` on several nodes, in most runs of any program over TCP (UCX): one rank waits for
/// the progress of another, which waits in PMI and makes none. Processes that skip `MPI_Finalize` exit cleanly.
pub(crate) fn hangs_in_finalize_on_several_nodes() -> bool {
    LIBRARY.is_mpich()
}

/// Open MPI's mpirun, and other launchers with PMIx, take a process that exits without `MPI_Finalize` for failed. (A
/// program that Open MPI started may have no PMIx variable.)
pub(crate) fn needs_finalize_for_success() -> bool {
    LIBRARY.is_open_mpi() || launchers::has_pmix()
}

/// The launcher of MPICH 4.2.0 to 4.2.2 loses the status of a process that exits without disconnecting: it kills the
/// others, takes their ends for crashes too, and counts the first process as successful if it has not reaped it yet.
pub(crate) fn launcher_forgets_statuses() -> bool {
    matches!(&*LIBRARY, Library::Mpich(version) if ["4.2.0", "4.2.1", "4.2.2"].contains(&version.as_str()))
        && launchers::is_hydra()
}

/// The key of `MPI_Comm_spawn` for a list of hosts. Open MPI 5 warns about Open MPI 4's name.
pub(crate) fn add_host_key() -> &'static str {
    if *LIBRARY == Library::OpenMpi(4) { "add-host" } else { "PMIX_ADD_HOST" }
}

/// True if the user has set whether Open MPI yields at each poll.
pub(crate) fn yielding_is_set() -> bool {
    std::env::var_os("OMPI_MCA_mpi_yield_when_idle").is_some()
}

#[cfg(test)]
#[path = "../../test/rust/unit/mpi/quirks.rs"]
mod tests;
