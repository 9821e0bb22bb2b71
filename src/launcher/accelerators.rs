// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Decides what executes the regions of a job, processors or accelerators, and counts accelerators.

use super::command::{Job, with_environment};
use super::options::{LauncherKind, Options};
use super::program::Program;
use super::query;
use crate::base::settings::Backend;
use crate::base::target::{Target, are_for_accelerators, images_in};
use crate::base::{Error, Result, elf};
use crate::job::hosts::Host;
use crate::wire::check::{ACCELERATORS, MARK};
use std::ffi::OsString;
use std::path::Path;

const VARIABLE: &str = "OMPTARGET_MPI_BACKEND";
/// If empty, it hides NVIDIA's accelerators, which devices prefer to AMD's.
const CUDA_VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

pub(super) struct Regions {
    /// Environment variables that select what executes the regions, unless they are already set so.
    pub variables: Vec<(String, OsString)>,
    /// The program's images that accelerators execute.
    pub images: Vec<Target>,
    /// Each accelerator is a device, unless the user gives a number of devices.
    pub uses_all: bool,
}

impl Regions {
    /// By the user's choice in the options or, as `set`, in the environment, or else by the program's images.
    pub fn of(options: &Options, program: Option<&Program>, set: Backend, calls_mpi: bool) -> Regions {
        let is_set = std::env::var_os(VARIABLE).is_some();
        let file = program.and_then(|program| elf::map(&program.path).ok());
        let mut images: Vec<Target> = file.iter().flat_map(|file| images_in(file)).collect();
        let (backend, must_be_set) = match options.backend {
            Some(asked) => (asked, true),
            None if !is_set && are_for_accelerators(&images) => (Backend::Offload, true),
            None => (set, false),
        };
        images.retain(|image| backend == Backend::Offload && image.is_accelerator());
        let value = if backend == Backend::Offload { "offload" } else { "cpu" };
        let mut variables: Vec<(String, OsString)> = Vec::new();
        variables.extend(must_be_set.then(|| (VARIABLE.into(), value.into())));
        let has = |machine| images.iter().any(|image: &Target| image.machine == machine);
        // Devices that an MPI application spawns do not get its variables, and it may use the accelerators itself.
        if has(elf::AMDGPU) && !has(elf::CUDA) && !calls_mpi {
            variables.push((CUDA_VISIBLE.into(), OsString::new()));
        }
        let uses_all = backend == Backend::Offload && (program.is_none() || !images.is_empty());
        Regions { variables, images, uses_all }
    }
}

/// Gives each of these hosts that has no number yet, and is named once, as many devices as it has accelerators. If the
/// list is empty, returns the number for this host instead. A host without accelerators also gets a device, which will
/// report that.
pub(super) fn count(job: &Job, device: &Path, regions: &Regions, hosts: &mut [Host]) -> Result<Option<u32>> {
    let all: Vec<String> = hosts.iter().map(|host| host.name.clone()).collect();
    // Naming a host once per device also gives it a number.
    let is_open = |host: &Host| host.slots.is_none() && all.iter().filter(|name| **name == host.name).count() == 1;
    let names: Vec<String> = hosts.iter().filter(|host| is_open(host)).map(|host| host.name.clone()).collect();
    if names.is_empty() && !hosts.is_empty() {
        return Ok(None);
    }
    let arguments = ["--accelerators"].into_iter().chain(names.iter().map(String::as_str));
    // With srun, the job's host may be another one; and like the job itself, the question may wait for an allocation.
    let is_srun = job.kind == LauncherKind::Srun;
    let job = Some(job).filter(|_| is_srun || !hosts.is_empty());
    let question = with_environment(&regions.variables, query::command(device, arguments));
    let (text, end) = query::ask(job, &names, question, (!is_srun).then_some(query::LIMIT))?;
    let uncounted = |host: String| {
        Error::new(format!(
            "the accelerators of {host} can't be counted: {end}; say how many devices it should have (-n, --hosts), or see \
             what --check reports; the answer was: {}",
            query::shortened(&text, "; ")
        ))
    };
    if hosts.is_empty() {
        return counted(&text, None).map(|n| Some(n.max(1))).ok_or_else(|| uncounted("this host".into()));
    }
    for host in hosts.iter_mut().filter(|host| is_open(host)) {
        // A single host gives the only answer.
        let name = Some(host.name.as_str()).filter(|_| names.len() > 1);
        let n = counted(&text, name).ok_or_else(|| uncounted(format!("host {}", host.name)))?;
        host.slots = Some(n.max(1));
    }
    Ok(None)
}

/// The number on which all answers agree, or all answers of a host with this name; `None` if there is none.
fn counted(text: &str, host: Option<&str>) -> Option<u32> {
    let answers = text.lines().filter_map(|line| line.split_once(MARK)?.1.trim().strip_prefix(ACCELERATORS));
    let mut numbers = answers.filter_map(|answer| {
        let mut words = answer.split_whitespace();
        let number = words.next()?.parse().ok()?;
        host.is_none_or(|host| words.any(|name| name == host)).then_some(number)
    });
    let first = numbers.next()?;
    numbers.all(|number| number == first).then_some(first)
}

#[cfg(test)]
#[path = "../../test/rust/unit/launcher/accelerators.rs"]
mod tests;
