// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What every rank says of itself before anything else, and what the ranks conclude.
//!
//! The record's size and the place of its first four fields never change, so that two
//! different versions can still tell each other that they differ.

use super::{PROTOCOL, Reader};
use crate::base::limits::VERSION;
use crate::base::settings::FRAGMENTS;
use crate::base::{Error, Result, elf, node};

/// Bytes of an encoded [`Hello`].
pub const HELLO_LEN: usize = 512;

const MAGIC: &[u8; 8] = b"omptMPI\0";
const TEXT: usize = 64;
/// Cores of a node that a record has room for, a bit for each.
pub const CORES: usize = 1024;

/// Which half of the product a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    /// A program under libomptarget.
    Host = 1,
    /// A device process.
    Device = 2,
}

/// What a rank says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// [`PROTOCOL`] of its build.
    pub protocol: u32,
    /// Version of this crate.
    pub version: String,
    /// What it is.
    pub role: Role,
    /// `e_machine` of its build.
    pub machine: u16,
    /// Bytes per page of memory.
    pub page_size: u32,
    /// Devices behind this rank.
    pub devices: u32,
    /// Processes of this rank that wait or compute: one, or itself and its workers.
    pub processes: u32,
    /// Of a program that spawned its devices, processes on its node that may do the same;
    /// 1 otherwise.
    pub spawners: u32,
    /// Process id.
    pub pid: u32,
    /// Cores that it may use, ascending; those from [`CORES`] on are not told.
    pub cores: Vec<u16>,
    /// Bytes of memory of its node.
    pub memory: u64,
    /// See [`node::node_id`].
    pub node: u64,
    /// Bytes of the largest piece of bulk data; the program's holds for its devices.
    pub fragment: u64,
    /// Descriptor and nonce of its bell (see `link::bell`); a nonce of 0 if it has none.
    pub bell: (u32, u64),
    /// Host name.
    pub host: String,
    /// MPI library and version.
    pub mpi: String,
}

impl Hello {
    /// This process's record.
    pub fn of_this_process(role: Role, mpi: String) -> Hello {
        Hello {
            protocol: PROTOCOL,
            version: VERSION.into(),
            role,
            machine: elf::MACHINE,
            page_size: node::page_size(),
            devices: u32::from(role == Role::Device),
            processes: 1,
            spawners: 1,
            pid: std::process::id(),
            cores: node::cores(),
            memory: node::memory(),
            node: node::node_id(),
            fragment: *FRAGMENTS.end(),
            bell: (0, 0),
            host: node::host_name(),
            mpi,
        }
    }

    /// The record as bytes.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut out = Vec::with_capacity(HELLO_LEN);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.protocol.to_le_bytes());
        text(&mut out, &self.version);
        out.extend_from_slice(&(self.role as u32).to_le_bytes());
        let Hello { page_size, devices, processes, spawners, pid, bell, .. } = *self;
        for n in [u32::from(self.machine), page_size, devices, processes, spawners, pid, bell.0] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        for n in [self.memory, self.node, self.fragment, self.bell.1] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        text(&mut out, &self.host);
        text(&mut out, &self.mpi);
        let mut bits = [0u8; CORES / 8];
        for core in self.cores.iter().map(|&core| usize::from(core)).filter(|&core| core < CORES) {
            bits[core / 8] |= 1 << (core % 8);
        }
        out.extend_from_slice(&bits);
        let mut record = [0; HELLO_LEN];
        record[..out.len()].copy_from_slice(&out);
        record
    }

    /// Reads a record.
    ///
    /// # Errors
    /// Bytes of some other program, or of another version of this one.
    pub fn decode(record: &[u8]) -> Result<Hello> {
        let mut r = Reader(record);
        if r.bytes(MAGIC.len())? != MAGIC {
            return Err(Error::new("it is neither a device nor a program with this plugin"));
        }
        let (protocol, version) = (r.u32()?, string(&mut r)?);
        if protocol != PROTOCOL || version != VERSION {
            return Err(Error::new(format!(
                "it is omptarget-mpi {version} (protocol {protocol}), this is {VERSION} (protocol {PROTOCOL}); \
                 use a plugin and a device executable of one build",
            )));
        }
        let role = match r.u32()? {
            1 => Role::Host,
            2 => Role::Device,
            n => return Err(Error::new(format!("it has an unknown role {n}"))),
        };
        let machine = u16::try_from(r.u32()?).map_err(|_| Error::new("its ELF machine is out of range"))?;
        let (page_size, devices, processes, spawners) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let (pid, descriptor) = (r.u32()?, r.u32()?);
        let (memory, node, fragment, bell) = (r.u64()?, r.u64()?, r.u64()?, (descriptor, r.u64()?));
        if !FRAGMENTS.contains(&fragment) {
            return Err(Error::new(format!("its pieces of {fragment} bytes are out of range")));
        }
        let (host, mpi) = (string(&mut r)?, string(&mut r)?);
        let bits = r.bytes(CORES / 8)?;
        let cores = (0..CORES).filter(|core| bits[core / 8] & 1 << (core % 8) != 0).map(|core| core as u16).collect();
        Ok(Hello {
            protocol,
            version,
            role,
            machine,
            page_size,
            devices,
            processes,
            spawners,
            pid,
            cores,
            memory,
            node,
            fragment,
            bell,
            host,
            mpi,
        })
    }
}

fn text(out: &mut Vec<u8>, s: &str) {
    let start = out.len();
    out.extend_from_slice(&s.as_bytes()[..s.floor_char_boundary(TEXT)]);
    out.resize(start + TEXT, 0);
}

fn string(r: &mut Reader<'_>) -> Result<String> {
    let bytes = r.bytes(TEXT)?;
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(TEXT);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// A program and its devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Team {
    /// The program's rank.
    pub host: usize,
    /// The devices' ranks in the order of their device numbers.
    pub devices: Vec<usize>,
}

/// What all ranks of a job conclude, each for itself, from all records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Every program has at least one device.
    Ready(Vec<Team>),
    /// Only programs: there is nothing to offload to.
    HostsOnly,
}

impl Job {
    /// Looks at the records of all ranks, in the order of their ranks.
    ///
    /// # Errors
    /// A job that can't work; every rank gets the same verdict.
    pub fn of(records: &[Result<Hello>]) -> Result<Job> {
        let name = |rank: usize| match &records[rank] {
            Ok(h) => format!("rank {rank} on host {}", h.host),
            Err(_) => format!("rank {rank}"),
        };
        if let Some((rank, e)) = records.iter().enumerate().find_map(|(i, r)| Some((i, r.as_ref().err()?))) {
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
            return Ok(Job::HostsOnly);
        }
        if devices.len() < hosts.len() {
            return Err(Error::new(format!(
                "{} programs share the devices, but there are only {}: each needs one at least",
                hosts.len(),
                devices.len()
            )));
        }
        for &rank in devices.iter().chain(&hosts) {
            let (it, host) = (hellos[rank], hellos[host]);
            for (what, a, b) in [
                ("ELF machine", u32::from(it.machine), u32::from(host.machine)),
                ("page size", it.page_size, host.page_size),
            ] {
                if a != b {
                    return Err(Error::new(format!("{} has {what} {a}, the program's host {b}", name(rank))));
                }
            }
        }
        Ok(Job::Ready(share_out(&hosts, &devices, &hellos)))
    }

    /// The team of a rank.
    pub fn team_of(&self, rank: usize) -> Option<&Team> {
        let Job::Ready(teams) = self else { return None };
        teams.iter().find(|t| t.host == rank || t.devices.contains(&rank))
    }
}

/// Gives each program as many devices as the others, but for a rest; those on its own node
/// first.
fn share_out(hosts: &[usize], devices: &[usize], hellos: &[&Hello]) -> Vec<Team> {
    let mut teams: Vec<Team> = hosts.iter().map(|&host| Team { host, devices: Vec::new() }).collect();
    let (each, rest) = (devices.len() / hosts.len(), devices.len() % hosts.len());
    let due = |i: usize| each + usize::from(i < rest);
    let mut left = devices.to_vec();
    for own_node in [true, false] {
        // In turn, so that the programs of one node share its devices.
        loop {
            let before = left.len();
            for (i, team) in teams.iter_mut().enumerate() {
                if team.devices.len() == due(i) {
                    continue;
                }
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

/// How many share a device's node in equal parts: its devices, and if these were spawned as
/// many again for each other program there that may do the same.
pub fn sharers(hellos: &[Hello], rank: usize) -> usize {
    let here = || hellos.iter().filter(|h| h.node == hellos[rank].node);
    let devices: usize = here().map(|h| h.devices as usize).sum();
    let spawners = here().filter(|h| h.role == Role::Host).map(|h| h.spawners as usize).max();
    devices.max(1) * spawners.unwrap_or(1).max(1)
}

/// How many processes of the job compute or wait on a rank's node.
pub fn processes(hellos: &[Hello], rank: usize) -> usize {
    let here = hellos.iter().filter(|h| h.node == hellos[rank].node);
    here.map(|h| h.processes as usize).sum()
}

/// The cores that a device, the `worker`th of its rank, is bound to: its share of those of
/// its node; none if the node has fewer cores than processes, where whoever works needs a core
/// that another one left, or processes of other jobs, of which nothing is known.
pub fn share_of_cores(hellos: &[Hello], rank: usize, worker: usize) -> Option<&[u16]> {
    let me = &hellos[rank];
    let here = |h: &&Hello| h.node == me.node;
    if processes(hellos, rank) > me.cores.len() || hellos.iter().filter(here).any(|h| h.spawners > 1) {
        return None;
    }
    let devices_of = |hellos: &[Hello]| -> usize { hellos.iter().filter(here).map(|h| h.devices as usize).sum() };
    let devices = devices_of(hellos).max(1);
    let index = devices_of(&hellos[..rank]) + worker;
    Some(&me.cores[index * me.cores.len() / devices..(index + 1) * me.cores.len() / devices])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn hello(role: Role) -> Hello {
        Hello::of_this_process(role, "Some MPI 1.0".into())
    }

    fn verdict(hellos: &[Hello]) -> Result<Job> {
        Job::of(&hellos.iter().map(|h| Hello::decode(&h.encode())).collect::<Vec<_>>())
    }

    #[test]
    fn a_record_survives_the_wire() {
        let mut h = hello(Role::Device);
        assert_eq!(Hello::decode(&h.encode()).unwrap(), h);
        h.host = "ä".repeat(100);
        assert_eq!(Hello::decode(&h.encode()).unwrap().host, "ä".repeat(32));
    }

    #[test]
    fn jobs_that_work() {
        let (h, d) = (hello(Role::Host), hello(Role::Device));
        let team = |host, devices: &[usize]| Team { host, devices: devices.to_vec() };
        let ready = |hellos: &[&Hello], teams: &[Team]| {
            let hellos: Vec<Hello> = hellos.iter().map(|&h| h.clone()).collect();
            assert_eq!(verdict(&hellos).unwrap(), Job::Ready(teams.to_vec()));
        };
        ready(&[&d, &d, &h], &[team(2, &[0, 1])]);
        ready(&[&h, &d], &[team(0, &[1])]);
        ready(&[&d, &d, &d, &h, &h], &[team(3, &[0, 2]), team(4, &[1])]);
        // The devices of its own node come first, but not more than its due.
        let (far_h, far_d) = (Hello { node: 1, ..h.clone() }, Hello { node: 1, ..d.clone() });
        ready(&[&far_d, &far_d, &d, &d, &h, &far_h], &[team(4, &[2, 3]), team(5, &[0, 1])]);
        ready(&[&far_d, &far_d, &far_d, &d, &h, &far_h], &[team(4, &[2, 3]), team(5, &[0, 1])]);
        assert_eq!(verdict(&[h.clone(), h]).unwrap(), Job::HostsOnly);
    }

    #[test]
    fn devices_share_the_cores_of_their_node() {
        let with = |role, node, cores: &[u16]| Hello { node, cores: cores.to_vec(), ..hello(role) };
        let cores = [0, 1, 4, 5, 8];
        let (h, d) = (with(Role::Host, 7, &cores), with(Role::Device, 7, &cores));
        let (far, few) = (with(Role::Device, 8, &[3]), with(Role::Device, 9, &[3]));
        let job = [h, d.clone(), far, d, few.clone(), few];
        let share = |rank| share_of_cores(&job, rank, 0);
        assert_eq!((share(1), share(3)), (Some(&[0, 1][..]), Some(&[4, 5, 8][..])));
        assert_eq!((share(2), share(4)), (Some(&[3][..]), None));
        assert_eq!((sharers(&job, 1), sharers(&job, 2)), (2, 1));
        let mut spawned = job[..2].to_vec();
        spawned[0].spawners = 3;
        assert_eq!((sharers(&spawned, 1), share_of_cores(&spawned, 1, 0)), (3, None));
        let two = [
            Hello { cores: vec![], ..job[0].clone() },
            Hello { devices: 2, cores: vec![0, 1, 2, 3, 4], ..job[1].clone() },
        ];
        assert_eq!((share_of_cores(&two, 1, 0), share_of_cores(&two, 1, 1)), (Some(&[0, 1][..]), Some(&[2, 3, 4][..])));
        assert_eq!(sharers(&two, 1), 2);
    }

    #[test]
    fn jobs_that_do_not_work_say_why() {
        let (h, d) = (hello(Role::Host), hello(Role::Device));
        let says = |hellos: &[Hello], text: &str| {
            let e = verdict(hellos).unwrap_err().to_string();
            assert!(e.contains(text), "{e}");
        };
        says(&[d.clone(), d.clone()], "no program");
        says(&[h.clone(), d.clone(), h.clone()], "2 programs share the devices, but there are only 1");
        says(&[Hello { version: "0.0.9".into(), ..d.clone() }, h.clone()], "0.0.9");
        says(&[Hello { protocol: 999, ..d.clone() }, h.clone()], "protocol 999");
        says(&[Hello { machine: 21, ..d.clone() }, h.clone()], "ELF machine 21");
        says(&[Hello { page_size: 65536, ..d.clone() }, h], "page size 65536");
        assert!(Job::of(&[Hello::decode(&[0; HELLO_LEN]), Ok(d)]).is_err());
    }

    proptest! {
        #[test]
        fn any_bytes_are_safe_to_read(bytes in prop::collection::vec(any::<u8>(), 0..HELLO_LEN)) {
            let _ = Hello::decode(&bytes);
            let _ = Hello::decode(&[&MAGIC[..], &bytes].concat());
        }
    }
}
