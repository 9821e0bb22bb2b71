// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Starts MPI together with the other ranks, and finds out which rank is what.

use super::hosts;
use super::topology::{Team, Topology, hello_of_this_process};
use crate::base::settings::{self, Backend, Bind, Settings};
use crate::base::{Error, Result, log};
use crate::debug;
use crate::link::doorbell::{Doorbell, Doorbells};
use crate::mpi::{self, Mpi, pmi};
use crate::sys::deadline::Deadline;
use crate::sys::{layout, node, process};
use crate::wire::hello::{HELLO_LEN, Hello, Role};
use std::collections::BTreeSet;
use std::iter::repeat_n;
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
    first_number(&["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"])
}

/// The place of this process among the devices of its node, if the launcher sets its local rank. The first `programs` ranks
/// of the job are programs, and the ranks of a node are taken to be consecutive.
pub fn place_on_node(programs: u32) -> Option<usize> {
    place_in(|name| std::env::var(name).ok()?.parse().ok(), rank()?, programs)
}

fn place_in(get: impl Fn(&str) -> Option<u32>, rank: u32, programs: u32) -> Option<usize> {
    /// Variables for the local rank, and for the rank: both may be inherited from another launcher.
    const NUMBERS: [(&str, &str); 4] = [
        ("OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK"),
        ("MPI_LOCALRANKID", "PMI_RANK"),
        ("PMI_LOCAL_RANK", "PMI_RANK"),
        ("SLURM_LOCALID", "SLURM_PROCID"),
    ];
    let number = |&(local, global): &(&str, &str)| get(local).filter(|_| get(global) == Some(rank));
    let local = NUMBERS.iter().find_map(number)?;
    let first = rank.checked_sub(local)?;
    Some(local.checked_sub(programs.saturating_sub(first))? as usize)
}

fn first_number(variables: &[&str]) -> Option<u32> {
    variables.iter().find_map(|name| std::env::var(name).ok())?.trim().parse().ok()
}

/// True unless another rank reports what all ranks would report.
pub fn speaks_for_all() -> bool {
    rank().is_none_or(|rank| rank == 0)
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
    /// See [`crate::link::Link::new`].
    pub frames: Vec<usize>,
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
            Mpi::spawn(executable, ranks, &places(settings, ranks)?, &forwarded(settings.bind))?
        }
    };
    let mut mine = hello_of_this_process(role, mpi::library());
    mine.fragment = settings.fragment;
    if mpi.is_spawned() && role == Role::Host {
        mine.spawners = first_number(&["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"]).unwrap_or(1);
        mine.spawner = first_number(&["OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID"]).unwrap_or(0);
    }
    if role == Role::Device {
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
    let frame = |h: &Hello| if h.node == hellos[mpi.rank].node { near } else { far };
    let frames = hellos.iter().map(frame).collect();
    Ok(Bootstrap { mpi, doorbells, frames, hellos, topology })
}

/// The hosts for the ranks of this process's devices: its share of `OMPTARGET_MPI_HOSTS`, which names
/// hosts for all ranks of the job, or its own node.
fn places(settings: &Settings, ranks: usize) -> Result<String> {
    let Some(hosts) = &settings.hosts else { return Ok(format!("{}:{ranks}", node::host_name())) };
    let in_list = |e: Error| e.context("OMPTARGET_MPI_HOSTS");
    let mut slots = Vec::new();
    for host in hosts::parse_list(hosts).map_err(in_list)? {
        let here = host.slots.map_or(Ok(1), |n| settings.ranks_of(n)).map_err(in_list)?;
        slots.extend(repeat_n(host.name, here as usize));
    }
    let first = rank().unwrap_or(0) as usize * ranks;
    // One word for neighbours on one host: Open MPI takes 255 bytes in all.
    let mine: Vec<&String> = (first..first + ranks).map(|i| &slots[i % slots.len()]).collect();
    let words = mine.chunk_by(|a, b| a == b).map(|same| format!("{}:{}", same[0], same.len()));
    Ok(words.collect::<Vec<_>>().join(","))
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
fn forwarded(bind: Bind) -> Vec<String> {
    let set = settings::for_devices().into_iter();
    let mut words: Vec<String> = set.map(|(name, value)| format!("{name}={value}")).collect();
    if bind == Bind::Inherit && std::env::var_os("OMPTARGET_MPI_BIND").is_none() {
        words.push("OMPTARGET_MPI_BIND=inherit".into());
    }
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
            "a program without target regions, or without this plugin on its LD_LIBRARY_PATH, never does"
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
