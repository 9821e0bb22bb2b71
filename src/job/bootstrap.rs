// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Starts MPI together with the other ranks, and finds out the role of each rank.

use super::spawned;
use super::topology::{Team, Topology, hello_of_this_process};
use crate::base::settings::{self, Backend, Bind, Settings};
use crate::base::{Error, Result, log};
use crate::debug;
use crate::link::Endpoint;
use crate::link::doorbell::{Doorbell, Doorbells};
use crate::mpi::{self, Mpi, pmi, quirks};
use crate::sys::deadline::Deadline;
use crate::sys::{launchers, layout, node, process};
use crate::wire::hello::{HELLO_LEN, Hello, Role};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Fails if the launcher and the MPI library can't work together: each rank would be alone.
fn check_launcher() -> Result<()> {
    quirks::other_launcher().map_or(Ok(()), |other| {
        Err(Error::new(format!(
            "this build of omptarget-mpi is for {}, but the job was started by {other}; use the launcher of the same MPI, or \
             the build for the other one",
            mpi::library()
        )))
    })
}

/// The start of a job.
pub struct Bootstrap {
    pub mpi: Mpi,
    /// Those of the ranks that this process sends to.
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
    /// A launcher starts all ranks.
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
            let local = launchers::local(world.0 as u32).filter(|_| world.1 > 1).unwrap_or((0, 1));
            let (hosts, others) = spawned::places(settings, ranks, world, (local.0 as usize, local.1 as usize))?;
            let before = launchers::launcher().is_none().then(variables);
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
            // The launcher ends all ranks when one exits, so no rank may exit before the report.
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
    // Spawned processes are another job, with which Open MPI 4 shares no memory.
    let far = quirks::eager_far();
    let near = if mpi.is_spawned() { far } else { quirks::eager_on_node() };
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

/// Removes a launcher's variables except these: MPI set the others although there is no launcher, and a program that
/// this one starts would take itself for a rank of this one's job.
fn forget_others(these: &BTreeSet<OsString>) {
    for name in variables().difference(these).filter(|name| launchers::is_variable(name)) {
        // SAFETY: as safe as the start of MPI, which just set them: no other thread may read them meanwhile.
        unsafe { std::env::remove_var(name) };
    }
}

/// True if processes of this node can detect through doorbells that one of them has exited.
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
