// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Starts MPI together with the other ranks, and finds out which rank is what.

use super::spawned;
use super::topology::{Team, Topology, hello_of_this_process};
use crate::base::settings::{self, Backend, Bind, Settings};
use crate::base::{Error, Result, log};
use crate::debug;
use crate::link::Endpoint;
use crate::link::doorbell::{Doorbell, Doorbells};
use crate::mpi::{self, Mpi, pmi};
use crate::sys::deadline::Deadline;
use crate::sys::{layout, node, process};
use crate::wire::hello::{HELLO_LEN, Hello, Role};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// A launcher of MPI programs, known by its environment variables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Open MPI's mpirun.
    OpenMpi,
    /// MPICH's Hydra, or another launcher with its PMI protocol.
    Pmi,
    /// A launcher with PMIx.
    Pmix,
}

/// The launcher that started this process, and the number of ranks if known.
pub fn launcher() -> Option<(Launcher, Option<usize>)> {
    launcher_in(|name| std::env::var(name).ok())
}

fn launcher_in(get: impl Fn(&str) -> Option<String>) -> Option<(Launcher, Option<usize>)> {
    let number = |name| get(name).and_then(|v| v.parse().ok());
    if let Some(size) = get("OMPI_COMM_WORLD_SIZE") {
        Some((Launcher::OpenMpi, size.parse().ok()))
    } else if get("PMI_RANK").is_some() || get("PMI_FD").is_some() {
        Some((Launcher::Pmi, number("PMI_SIZE")))
    } else if get("PMIX_RANK").is_some() {
        Some((Launcher::Pmix, number("SLURM_NTASKS")))
    } else {
        None
    }
}

/// The rank of this process, if the launcher sets a variable for it.
pub fn rank() -> Option<u32> {
    let variables = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"];
    number(variables.into_iter().find(|name| std::env::var(name).is_ok())?)
}

fn number(variable: &str) -> Option<u32> {
    std::env::var(variable).ok()?.trim().parse().ok()
}

/// The place of this process among the devices of its node, if the launcher sets its local rank. The first `programs` ranks
/// of the job are programs, and the ranks of a node are taken to be consecutive.
pub fn place_on_node(programs: u32) -> Option<usize> {
    Some(spawned::here().0 as usize + place_in(number, rank()?, programs)?)
}

fn place_in(get: impl Fn(&str) -> Option<u32>, rank: u32, programs: u32) -> Option<usize> {
    let (local, _) = local_in(get, rank)?;
    let first = rank.checked_sub(local)?;
    Some(local.checked_sub(programs.saturating_sub(first))? as usize)
}

/// The local rank of the process with this rank, and the number of ranks on its node as far as the launcher says it.
fn local_in(get: impl Fn(&str) -> Option<u32>, rank: u32) -> Option<(u32, u32)> {
    /// Variables for the local rank, for the rank, and for that number: all may be inherited from another launcher.
    const NUMBERS: [(&str, &str, &str); 4] = [
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
        ("MPI_LOCALRANKID", "PMI_RANK", "MPI_LOCALNRANKS"),
        ("PMI_LOCAL_RANK", "PMI_RANK", "PMI_LOCAL_SIZE"),
        // The last one is a list of all nodes' numbers, unless there is one node.
        ("SLURM_LOCALID", "SLURM_PROCID", "SLURM_TASKS_PER_NODE"),
    ];
    let is_own = |numbers: &&(&str, &str, &str)| get(numbers.0).is_some() && get(numbers.1) == Some(rank);
    let (local, _, all) = NUMBERS.iter().find(is_own)?;
    let local = get(local)?;
    Some((local, get(all).unwrap_or(0).max(local + 1)))
}

/// The value of [`settings::WITH_DEVICES`] in a job with this number of programs.
pub fn note_of_programs(programs: u32) -> String {
    format!("{programs}/{}", job())
}

/// The number of programs of this job, if its ranks began as device executables and this one has become a program.
pub fn programs() -> Option<usize> {
    let note = std::env::var(settings::WITH_DEVICES).ok().filter(|_| launcher().is_some())?;
    let (programs, of) = note.split_once('/')?;
    programs.parse().ok().filter(|_| of == job())
}

/// Identifies this job. Jobs that its processes start inherit their variables, and differ in this.
fn job() -> String {
    let connection = || Some(pmi::connection()?.to_string());
    format!("{} {}", size(), std::env::var("PMIX_NAMESPACE").ok().or_else(connection).unwrap_or_default())
}

/// True in a program if other ranks of its job are devices for sure.
pub fn is_beside_devices() -> bool {
    programs().is_some_and(|programs| size() == 0 || size() > programs)
}

/// The number of ranks of this job; 0 if the launcher does not say it.
pub fn size() -> usize {
    launcher().and_then(|(_, size)| size).unwrap_or(0)
}

/// True unless another rank reports what all ranks would report. (The first rank may be a device, which reports nothing:
/// so the first one of each program does, where Open MPI says how many ranks each has.)
pub fn speaks_for_all() -> bool {
    let counts = std::env::var("OMPI_APP_CTX_NUM_PROCS").unwrap_or_default();
    let mut ends = counts.split_whitespace().scan(0, |end, n| {
        *end += n.parse::<u32>().ok()?;
        Some(*end)
    });
    rank().is_none_or(|rank| rank == 0 || ends.any(|end| end == rank))
}

/// Fails if the launcher and the MPI library can't work together: each rank would be alone.
fn check_launcher() -> Result<()> {
    let library = mpi::library();
    let wrong = match launcher() {
        Some((Launcher::OpenMpi, _)) => !library.contains("Open MPI"),
        Some((Launcher::Pmi, _)) => library.contains("Open MPI") && std::env::var_os("PMI_FD").is_some(),
        _ => false,
    };
    if !wrong {
        return Ok(());
    }
    let other = if library.contains("Open MPI") { "an MPICH-like launcher" } else { "Open MPI's mpirun" };
    Err(Error::new(format!(
        "this build of omptarget-mpi is for {library}, but the job was started by {other}; \
         use the launcher of the same MPI, or the build for the other one"
    )))
}

/// The start of a job.
pub struct Bootstrap {
    pub mpi: Mpi,
    /// Of the ranks that this process sends to.
    pub doorbells: Doorbells,
    /// By rank.
    pub endpoints: Vec<Endpoint>,
    /// The records of all ranks.
    pub hellos: Vec<Hello>,
    pub topology: Topology,
}

/// How the ranks of a job start.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// A launcher starts all of them.
    Started,
    /// This process, a program, spawns these ranks of the device executable.
    Spawn { executable: &'a Path, ranks: usize },
}

/// Starts MPI and exchanges records; every rank of the job calls this. If the job can't work, rank 0
/// reports why, and MPI is finished on return. `pool` is [`Hello::pool`].
pub fn bootstrap(role: Role, origin: Origin<'_>, pool: u32, settings: &Settings) -> Result<Bootstrap> {
    check_launcher()?;
    if matches!(origin, Origin::Started) && settings.bind != Bind::Inherit {
        node::undo_binding();
    }
    let deadline = expect(role, origin, settings.start_timeout);
    let mut mpi = match origin {
        Origin::Started => Mpi::start()?,
        Origin::Spawn { executable, ranks } => {
            let world = mpi::world();
            let local = local_in(number, world.0 as u32).filter(|_| world.1 > 1).unwrap_or((0, 1));
            let (hosts, others) = spawned::places(settings, ranks, world, (local.0 as usize, local.1 as usize))?;
            let before = launcher().is_none().then(variables);
            let mpi = Mpi::spawn(executable, ranks, &hosts, &forwarded(settings.bind, &others));
            before.iter().for_each(forget_others);
            mpi?
        }
    };
    let mut mine = hello_of_this_process(role, mpi::library());
    mine.fragment = settings.fragment;
    if role == Role::Device {
        if mpi.is_spawned() {
            (mine.earlier, mine.spawned) = spawned::here();
        }
        mine.backend = settings.backend;
        mine.pool = pool;
        mine.outside = layout::outside().filter(|_| !settings.has_workers() && settings.backend == Backend::Cpu);
        mine.shared = layout::shared_outside();
        mine.devices = settings.devices_per_rank;
        mine.processes = if settings.has_workers() { 1 + mine.devices } else { 1 };
    }
    let doorbell = Doorbell::new().ok();
    mine.doorbell = doorbell.as_ref().map_or((0, 0), Doorbell::name);
    let records = mpi.all_gather(&mine.encode())?;
    let hellos: Vec<Result<Hello>> = records.chunks(HELLO_LEN).map(Hello::decode).collect();
    deadline.stop();
    let topology = match Topology::of(&hellos) {
        Ok(topology) => topology,
        Err(e) => {
            if mpi.rank == 0 {
                log::error(e);
            }
            // The launcher ends all ranks when one exits, so none exits before the report.
            let _ = mpi.all_gather(&[0]);
            mpi.finish();
            return Err(Error::Reported);
        }
    };
    mpi.poll_without_yielding();
    let hellos: Vec<Hello> = hellos.into_iter().flatten().collect();
    if hellos.iter().any(|h| h.node != hellos[0].node) {
        mpi.spans_nodes();
    } else if matches!(&topology, Topology::Ready(teams) if teams.len() == 1) && can_watch_each_other(&hellos) {
        mpi.shares_a_node(role == Role::Device);
    }
    if mpi.is_spawned() && role == Role::Host && settings.hosts.is_none() {
        check_places(&hellos, mpi.rank);
    }
    let doorbells = doorbells(doorbell, &hellos, &topology, mpi.rank);
    // Spawned processes are another job, which Open MPI 4 shares no memory with.
    let far = mpi::eager_far();
    let near = if mpi.is_spawned() { far } else { mpi::eager_on_node() };
    let endpoint = |h: &Hello| {
        let is_far = h.node != hellos[mpi.rank].node;
        Endpoint { frame: if is_far { far } else { near }, is_far }
    };
    let endpoints = hellos.iter().map(endpoint).collect();
    Ok(Bootstrap { mpi, doorbells, endpoints, hellos, topology })
}

/// The names of the environment's variables.
fn variables() -> BTreeSet<OsString> {
    std::env::vars_os().map(|(name, _)| name).collect()
}

/// Removes a launcher's variables but for these: MPI has set the others where no launcher did, and a program that this one
/// starts would take itself for a rank of this one's job.
fn forget_others(these: &BTreeSet<OsString>) {
    const PREFIXES: [&str; 6] = ["OMPI_", "OPAL_", "ORTE_", "PMIX_", "PMI_", "PRTE_"];
    let is_launchers = |name: &&OsString| PREFIXES.iter().any(|p| name.as_encoded_bytes().starts_with(p.as_bytes()));
    for name in variables().difference(these).filter(is_launchers) {
        // SAFETY: as safe as the start of MPI, which has just set them: another thread must not read them meanwhile.
        unsafe { std::env::remove_var(name) };
    }
}

/// True if processes of this node can detect through doorbells that another one has exited.
fn can_watch_each_other(hellos: &[Hello]) -> bool {
    hellos.iter().all(|h| h.doorbell.1 != 0) && process::handle(std::process::id() as i32).is_some()
}

/// Warns if MPI spawned devices on another node than this process's own.
fn check_places(hellos: &[Hello], rank: usize) {
    let elsewhere = hellos.iter().filter(|h| h.node != hellos[rank].node);
    let elsewhere: BTreeSet<&str> = elsewhere.map(|h| h.host.as_str()).collect();
    if !elsewhere.is_empty() {
        log::warning(format_args!(
            "{} has not spawned all devices of this process on its own host, {}, but on {}",
            mpi::library(),
            hellos[rank].host,
            elsewhere.into_iter().collect::<Vec<_>>().join(", ")
        ));
    }
}

/// The variables, NAME=VALUE, that spawned devices need. MPI may not pass them on.
fn forwarded(bind: Bind, others: &str) -> Vec<String> {
    let set = settings::for_devices().into_iter();
    let mut words: Vec<String> = set.map(|(name, value)| format!("{name}={value}")).collect();
    if bind == Bind::Inherit && std::env::var_os("OMPTARGET_MPI_BIND").is_none() {
        words.push("OMPTARGET_MPI_BIND=inherit".into());
    }
    words.push(format!("{}={others}", settings::SPAWNED));
    words
}

/// The doorbells of this process and of the ranks on its node that it exchanges messages with.
fn doorbells(mine: Option<Doorbell>, hellos: &[Hello], topology: &Topology, rank: usize) -> Doorbells {
    let Some(Team { host, devices }) = topology.team_of(rank) else { return Doorbells::default() };
    let partners = if rank == *host { devices.as_slice() } else { std::slice::from_ref(host) };
    let mut others: Vec<Option<Doorbell>> = (0..hellos.len()).map(|_| None).collect();
    for &r in partners.iter().filter(|&&r| hellos[r].node == hellos[rank].node) {
        let (descriptor, nonce) = hellos[r].doorbell;
        others[r] =
            Doorbell::of(hellos[r].pid, descriptor, nonce).inspect_err(|e| debug!("rank {r} can't be woken: {e}")).ok();
    }
    Doorbells::new(mine, others, partners.len())
}

/// Ends the process if the other ranks do not start MPI in time: MPI itself may wait forever.
fn expect(role: Role, origin: Origin<'_>, limit: Duration) -> Deadline {
    let spawns = matches!(origin, Origin::Spawn { .. });
    Deadline::start(limit, 1, move || {
        let (me, other) = match role {
            Role::Host => ("the program", "the device processes"),
            Role::Device => ("this device", "the program or another device"),
        };
        let why = if spawns {
            "MPI did not start them in time"
        } else {
            "a program without target regions, or without this plugin on its LD_LIBRARY_PATH, never does, nor does one \
             that uses MPI itself (see OMPTARGET_MPI_PROGRAM_MPI)"
        };
        log::error(format_args!(
            "{me} on host {} has waited {} s for {other} to start MPI; {why} \
             (OMPTARGET_MPI_START_TIMEOUT sets the limit)",
            node::host_name(),
            limit.as_secs()
        ));
        pmi::fail();
    })
}

#[cfg(test)]
#[path = "../../test/rust/unit/job/bootstrap.rs"]
mod tests;
