// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The claim of this process's slot in its job.
//!
//! A launcher gives each rank a slot: one process, and all that this process starts. MPI can be started once in a slot,
//! but a script may run several programs there, and a program may execute itself again. An atomic claim decides who
//! starts MPI. The claim outlives its process, and disappears when the job ends: with PMIx it is a file in the
//! launcher's folder for the job; Hydra has no such folder, but a socket for each slot, which can be named once
//! ([`pmi::claim`]).

use crate::base::settings::Settings;
use crate::base::{Error, Result};
use crate::debug;
use crate::mpi::pmi::{self, Taken};
use crate::sys::launchers::{self, Launcher, launcher};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::Path;

/// Claims the slot of this process, which is about to start MPI. Does nothing without a launcher, or if the launcher
/// has no place for a claim.
///
/// # Errors
/// MPI can't be started here. The error names the process that started it, and says what to do.
pub(crate) fn claim() -> Result<()> {
    let claimed = match launcher() {
        Some((Launcher::Pmi, _)) => pmi::claim(),
        Some(_) => launchers::file_of_slot().map_or(Ok(()), |path| claim_file(&path)),
        None => Ok(()),
    };
    claimed.map_err(explain)
}

/// Claims the slot of a process whose program has started MPI itself, so that other programs in the slot can report why
/// they can't. (With Hydra, MPI itself uses the connection that a claim would need.)
pub(crate) fn note_started() {
    if !matches!(launcher(), None | Some((Launcher::Pmi, _)))
        && let Some(path) = launchers::file_of_slot()
    {
        // An error means that the slot is already claimed, which serves as well.
        let _ = claim_file(&path);
    }
}

fn claim_file(path: &Path) -> std::result::Result<(), Taken> {
    match File::create_new(path) {
        Ok(mut file) => {
            // If this fails, errors do not name the owner.
            let _ = write!(file, "{}", std::process::id());
            Ok(())
        }
        Err(e) if e.kind() == ErrorKind::AlreadyExists => {
            Err(Taken::By(fs::read_to_string(path).ok().and_then(|id| id.parse().ok())))
        }
        Err(e) => {
            debug!("this slot of the job can't be claimed: {}: {e}", path.display());
            Ok(())
        }
    }
}

fn explain(taken: Taken) -> Error {
    let owner = match taken {
        Taken::Disconnected => {
            return Error::new(
                "the connection to MPI's launcher (PMI_FD) is closed: what has started this program closes the \
                 descriptors that it inherited (Python's subprocess does, unless close_fds=False is given)",
            );
        }
        Taken::By(None) => "another process".to_string(),
        Taken::By(Some(id)) if id == std::process::id() => "this process, before it executed a program".to_string(),
        Taken::By(Some(id)) if Path::new(&format!("/proc/{id}")).exists() => format!("process {id}, which still runs"),
        Taken::By(Some(id)) => format!("process {id}, which has ended"),
    };
    Error::new(format!(
        "MPI was started in this slot of the job by {owner}; it starts only once in a slot: run llvm-offload-mpirun for \
         each program, or once with --spawn, so that each program spawns its own devices (Open MPI)"
    ))
}

/// The number of devices of the process that claimed this slot, according to the environment: all ranks except the
/// programs count as devices.
pub(crate) fn devices(settings: &Settings) -> usize {
    let programs = launchers::programs().unwrap_or(1).max(1);
    share(launchers::size().saturating_sub(programs), programs, launchers::rank().unwrap_or(0) as usize)
        * settings.devices_per_rank as usize
}

/// The share of one of several programs; at least one.
fn share(ranks: usize, programs: usize, program: usize) -> usize {
    (ranks / programs + usize::from(program < ranks % programs)).max(1)
}

#[cfg(test)]
#[path = "../../test/rust/unit/job/slot.rs"]
mod tests;
