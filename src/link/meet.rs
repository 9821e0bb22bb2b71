// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Starting MPI together with the other ranks, and learning who is who.

use super::bell::{Bell, Bells};
use crate::base::deadline::Deadline;
use crate::base::settings::{self, Bind, Settings};
use crate::base::{Error, Result, hosts, log, node};
use crate::debug;
use crate::mpi::{self, Mpi};
use crate::wire::hello::{HELLO_LEN, Hello, Job, Role, Team};
use std::iter::repeat_n;
use std::path::Path;
use std::time::Duration;

/// A launcher of MPI programs, as its environment shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Launcher {
    /// Open MPI's mpirun.
    OpenMpi,
    /// MPICH's Hydra, or another that speaks its PMI protocol.
    Pmi,
    /// Some launcher that speaks PMIx.
    Pmix,
}

/// The launcher that started this process, and the number of ranks if it tells.
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

/// Environment variables that tell a process its rank.
const RANK_VARIABLES: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"];

/// The rank of this process, if the launcher sets a variable for it.
pub fn rank() -> Option<u32> {
    RANK_VARIABLES.iter().find_map(|name| std::env::var(name).ok())?.trim().parse().ok()
}

/// True unless the environment shows that another rank can say what all would say.
pub fn speaks_for_all() -> bool {
    rank().is_none_or(|rank| rank == 0)
}

/// Fails if the launcher and the MPI library can't work together: each rank would find
/// itself alone.
///
/// # Errors
/// The text names both.
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

/// Who is who in a job, and what reaches them.
pub struct Meeting {
    /// A started MPI.
    pub mpi: Mpi,
    /// The bells of those that this process sends to.
    pub bells: Bells,
    /// See [`crate::link::Link::new`].
    pub frames: Vec<usize>,
    /// What every rank says of itself.
    pub hellos: Vec<Hello>,
    /// What follows from that.
    pub job: Job,
}

/// How the ranks of a job came to be.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// Something else started all of them.
    Started,
    /// This process, a program, spawns its devices.
    Spawn {
        /// The device executable.
        executable: &'a Path,
        /// How many ranks of it.
        ranks: usize,
    },
}

/// Starts MPI and learns who is who; every rank of the job does this.
///
/// # Errors
/// A job that can't work: one rank has told why, and MPI is ended again.
pub fn meet(role: Role, origin: Origin<'_>, settings: &Settings) -> Result<Meeting> {
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
    let mut mine = Hello::of_this_process(role, mpi::library());
    mine.fragment = settings.fragment;
    if mpi.is_spawned() && role == Role::Host {
        let ranks = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"].iter().find_map(|n| std::env::var(n).ok());
        mine.spawners = ranks.and_then(|n| n.trim().parse().ok()).unwrap_or(1);
    }
    if role == Role::Device {
        mine.devices = settings.devices_per_rank;
        mine.processes = if settings.has_workers() { 1 + mine.devices } else { 1 };
    }
    let bell = Bell::new().ok();
    mine.bell = bell.as_ref().map_or((0, 0), Bell::name);
    let records = mpi.all_gather(&mine.encode())?;
    let hellos: Vec<Result<Hello>> = records.chunks(HELLO_LEN).map(Hello::decode).collect();
    deadline.stop();
    match Job::of(&hellos) {
        Ok(job) => {
            mpi.poll_without_yielding();
            let hellos: Vec<Hello> = hellos.into_iter().flatten().collect();
            if hellos.iter().any(|h| h.node != hellos[0].node) {
                mpi.spans_nodes();
            }
            let bells = bells(bell, &hellos, &job, mpi.rank);
            // Spawned processes are another job, which Open MPI 4 shares no memory with.
            let frame = if mpi.is_spawned() { usize::MAX } else { mpi::eager_on_node() };
            let near = |h: &Hello| if h.node == hellos[mpi.rank].node { frame } else { usize::MAX };
            let frames = hellos.iter().map(near).collect();
            Ok(Meeting { mpi, bells, frames, hellos, job })
        }
        Err(e) => {
            if mpi.rank == 0 {
                log::error(e);
            }
            // Nobody ends, and so makes the launcher end all, before the word is out.
            let _ = mpi.all_gather(&[0]);
            mpi.finish();
            Err(Error::Told)
        }
    }
}

/// Where this process's devices go, which are so many ranks: its share of the hosts that are named for all ranks of
/// the job, or its own node.
fn places(settings: &Settings, ranks: usize) -> Result<String> {
    let Some(hosts) = &settings.hosts else { return Ok(format!("{}:{ranks}", node::host_name())) };
    let hosts = hosts::parse_list(hosts).map_err(|e| e.context("OMPTARGET_MPI_HOSTS"))?;
    let mut slots = Vec::new();
    for host in &hosts {
        let here = host.slots.map_or(Ok(1), |n| settings.ranks_of(n)).map_err(|e| e.context("OMPTARGET_MPI_HOSTS"))?;
        slots.extend(repeat_n(host.name.as_str(), here as usize));
    }
    let rank = RANK_VARIABLES.iter().find_map(|name| std::env::var(name).ok()?.trim().parse::<usize>().ok());
    let first = rank.unwrap_or(0) * ranks;
    // Neighbours on one host in one word: Open MPI takes 255 bytes in all.
    let mine: Vec<&str> = (first..first + ranks).map(|i| slots[i % slots.len()]).collect();
    let words = mine.chunk_by(|a, b| a == b).map(|same| format!("{}:{}", same[0], same.len()));
    Ok(words.collect::<Vec<_>>().join(","))
}

/// What spawned devices need of this process's environment, which MPI may not take along:
/// NAME=VALUE each.
fn forwarded(bind: Bind) -> Vec<String> {
    let set = settings::for_devices().into_iter();
    let mut words: Vec<String> = set.map(|(name, value)| format!("{name}={value}")).collect();
    if bind == Bind::Inherit && std::env::var_os("OMPTARGET_MPI_BIND").is_none() {
        words.push("OMPTARGET_MPI_BIND=inherit".into());
    }
    words
}

/// The bell of this process, and those of the ranks on its node that it exchanges messages
/// with.
fn bells(mine: Option<Bell>, hellos: &[Hello], job: &Job, rank: usize) -> Bells {
    let Some(Team { host, devices }) = job.team_of(rank) else { return Bells::default() };
    let partners = if rank == *host { devices.as_slice() } else { std::slice::from_ref(host) };
    let mut others: Vec<Option<Bell>> = (0..hellos.len()).map(|_| None).collect();
    for &r in partners.iter().filter(|&&r| hellos[r].node == hellos[rank].node) {
        let (descriptor, nonce) = hellos[r].bell;
        others[r] =
            Bell::of(hellos[r].pid, descriptor, nonce).inspect_err(|e| debug!("rank {r} can't be woken: {e}")).ok();
    }
    Bells::new(mine, others, partners.len())
}

/// Ends the process if the other ranks do not show up: MPI itself may wait for ever.
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
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spawned_devices_go_where_there_is_room() {
        let settings = |hosts: &str, devices_per_rank| Settings {
            hosts: Some(hosts.into()),
            devices_per_rank,
            ..Settings::default()
        };
        assert_eq!(places(&settings("a:2,b", 1), 4).unwrap(), "a:2,b:1,a:1");
        assert_eq!(places(&settings("a:4,b:8", 4), 3).unwrap(), "a:1,b:2");
        assert_eq!(places(&settings("a,b", 4), 2).unwrap(), "a:1,b:1");
        assert!(places(&settings("a:3,b:4", 2), 3).unwrap_err().to_string().contains("3 devices can't be 2 to a rank"));
    }

    #[test]
    fn launchers_are_told_by_their_variables() {
        let of =
            |pairs: &[(&str, &str)]| launcher_in(|name| pairs.iter().find(|p| p.0 == name).map(|p| p.1.to_string()));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "3"), ("PMIX_RANK", "0")]), Some((Launcher::OpenMpi, Some(3))));
        assert_eq!(of(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some((Launcher::Pmi, Some(2))));
        assert_eq!(of(&[("PMIX_RANK", "1")]), Some((Launcher::Pmix, None)));
        for name in crate::base::launcher::VARIABLES {
            assert!(of(&[(name, "1")]).is_some(), "{name}");
        }
    }
}
