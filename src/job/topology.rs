// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The devices of each program, and each device's share of its node. Every rank derives these from the records
//! of all ranks.

use crate::base::settings::{Backend, FRAGMENTS};
use crate::base::{Error, Result};
use crate::sys::node;
use crate::wire::hello::{Hello, Role};

/// This process's record.
pub fn hello_of_this_process(role: Role, mpi: String) -> Hello {
    Hello {
        role,
        page_size: node::page_size(),
        devices: u32::from(role == Role::Device),
        processes: 1,
        spawned: 0,
        earlier: 0,
        pid: std::process::id(),
        cores: node::cores(),
        memory: node::memory(),
        node: node::node_id(),
        fragment: *FRAGMENTS.end(),
        doorbell: (0, 0),
        host: node::host_name(),
        mpi,
        processor: node::processor(),
        backend: Backend::Cpu,
        pool: 0,
        outside: None,
        shared: Vec::new(),
    }
}

/// The rank of a program, and those of its devices in the order of device numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Team {
    pub(crate) host: usize,
    pub(crate) devices: Vec<usize>,
}

/// The teams of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Topology {
    /// Every program has at least one device.
    Ready(Vec<Team>),
    /// There are only programs, and nothing to offload to.
    HostsOnly,
}

impl Topology {
    /// Derives the topology from all records in the order of ranks. If the job can't work, all ranks
    /// get the same error.
    pub(crate) fn of(records: &[Result<Hello>]) -> Result<Topology> {
        if let Some((rank, Err(e))) = records.iter().enumerate().find(|(_, r)| r.is_err()) {
            return Err(e.clone().context(format!("rank {rank} can't take part")));
        }
        let hellos: Vec<&Hello> = records.iter().flatten().collect();
        let ranks_of = |role: Role| (0..hellos.len()).filter(|&i| hellos[i].role == role).collect::<Vec<_>>();
        let (hosts, devices) = (ranks_of(Role::Host), ranks_of(Role::Device));
        let Some(&host) = hosts.first() else {
            return Err(Error::new(
                "only device processes were started and no program; \
                 use: mpirun -np N+1 llvm-offload-mpi-device PROGRAM",
            ));
        };
        if devices.is_empty() {
            return Ok(Topology::HostsOnly);
        }
        if devices.len() < hosts.len() {
            return Err(Error::new(format!(
                "{} processes of programs need at least one device each, and the job has {}: start more \
                 (llvm-offload-mpirun -n N)",
                hosts.len(),
                devices.len()
            )));
        }
        for &rank in devices.iter().chain(&hosts) {
            let (it, host) = (hellos[rank], hellos[host]);
            let machines = ("ELF machine", it.processor.machine.into(), host.processor.machine.into());
            let pages = ("page size", it.page_size, host.page_size);
            // An accelerator's node may have any processor; its images are checked when they are loaded.
            let is_free = |what: &str| what == machines.0 && it.backend == Backend::Offload;
            let differ = [machines, pages].into_iter().find(|(what, a, b)| a != b && !is_free(what));
            if let Some((what, a, b)) = differ {
                let name = format!("rank {rank} on host {}", it.host);
                return Err(Error::new(format!("{name} has {what} {a}, the program's host {b}")));
            }
        }
        Ok(Topology::Ready(share_out(&hosts, &devices, &hellos)))
    }

    pub(crate) fn team_of(&self, rank: usize) -> Option<&Team> {
        let Topology::Ready(teams) = self else { return None };
        teams.iter().find(|t| t.host == rank || t.devices.contains(&rank))
    }
}

/// Divides the devices evenly among the programs. Each gets devices on its own node first.
fn share_out(hosts: &[usize], devices: &[usize], hellos: &[&Hello]) -> Vec<Team> {
    let mut teams: Vec<Team> = hosts.iter().map(|&host| Team { host, devices: Vec::new() }).collect();
    let (each, rest) = (devices.len() / hosts.len(), devices.len() % hosts.len());
    let due = |i: usize| each + usize::from(i < rest);
    let mut left = devices.to_vec();
    for own_node in [true, false] {
        // One device at a time, so that the programs of one node share its devices.
        loop {
            let before = left.len();
            for (_, team) in teams.iter_mut().enumerate().filter(|(i, team)| team.devices.len() < due(*i)) {
                let fits = |&d: &usize| !own_node || hellos[d].node == hellos[team.host].node;
                if let Some(at) = left.iter().position(fits) {
                    team.devices.push(left.remove(at));
                }
            }
            if left.len() == before {
                break;
            }
        }
    }
    teams.iter_mut().for_each(|t| t.devices.sort_unstable());
    teams
}

/// The number of equal shares of a rank's node: one for each device, including those that other programs may spawn
/// there.
pub(crate) fn sharers(hellos: &[Hello], rank: usize) -> usize {
    let me = &hellos[rank];
    let here = hellos.iter().filter(|h| h.node == me.node);
    let devices: usize = here.map(|h| h.devices as usize).sum();
    devices.max(me.spawned as usize * me.devices as usize).max(1)
}

/// The index of a rank among the ranks of its node that use accelerators; the ranks that earlier programs may spawn
/// there come first.
pub(crate) fn accelerator_of(hellos: &[Hello], rank: usize) -> usize {
    hellos[rank].earlier as usize + accelerators(&hellos[..rank], hellos[rank].node)
}

/// The number of ranks of a node that use accelerators.
fn accelerators(hellos: &[Hello], node: u64) -> usize {
    let is_one = |h: &&Hello| h.node == node && h.role == Role::Device && h.backend == Backend::Offload;
    hellos.iter().filter(is_one).count()
}

/// When a rival device allocates its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Before this device.
    Earlier,
    /// After this device, or it is this device.
    Later,
    /// Unknown, because it belongs to another program.
    Unknown,
}

/// The indices, see [`accelerator_of`], of the ranks that choose from the same accelerators as this one, itself
/// included, and of those that other programs may spawn on the node. `team` lists the ranks of the devices of its
/// program.
pub(crate) fn rivals_of(hellos: &[Hello], rank: usize, team: &[usize]) -> Vec<(usize, Turn)> {
    let me = &hellos[rank];
    let is_rival = |&other: &usize| {
        let h = &hellos[other];
        h.role == Role::Device && (h.node, h.backend, h.pool) == (me.node, me.backend, me.pool)
    };
    let turn = |other| match team.contains(&other) {
        true if other < rank => Turn::Earlier,
        true => Turn::Later,
        false => Turn::Unknown,
    };
    let ranks: Vec<usize> = (0..hellos.len()).filter(is_rival).collect();
    let mut rivals: Vec<_> = ranks.iter().map(|&other| (accelerator_of(hellos, other), turn(other))).collect();
    let (all, earlier) = (me.spawned as usize, me.earlier as usize);
    let others = (0..earlier).chain(earlier + accelerators(hellos, me.node)..all);
    rivals.extend(others.map(|place| (place, Turn::Unknown)));
    rivals
}

/// The number of processes of the job that compute or wait on a rank's node.
pub(crate) fn processes(hellos: &[Hello], rank: usize) -> usize {
    let here = hellos.iter().filter(|h| h.node == hellos[rank].node);
    here.map(|h| h.processes as usize).sum()
}

/// The cores for the `worker`th device of a rank: its share of its node's cores. `None` if the node has
/// fewer cores than processes, because a busy process then needs any idle core, or if other programs may
/// spawn devices there, whose cores are unknown.
pub(crate) fn share_of_cores(hellos: &[Hello], rank: usize, worker: usize) -> Option<&[u16]> {
    let me = &hellos[rank];
    let here = |h: &&Hello| h.node == me.node;
    let devices_of = |hellos: &[Hello]| -> usize { hellos.iter().filter(here).map(|h| h.devices as usize).sum() };
    let devices = devices_of(hellos).max(1);
    if processes(hellos, rank) > me.cores.len() || sharers(hellos, rank) > devices {
        return None;
    }
    let index = devices_of(&hellos[..rank]) + worker;
    Some(&me.cores[index * me.cores.len() / devices..(index + 1) * me.cores.len() / devices])
}

#[cfg(test)]
#[path = "../../test/rust/unit/job/topology.rs"]
mod tests;
