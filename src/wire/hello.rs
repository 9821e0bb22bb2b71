// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What every rank says of itself before anything else, and what the ranks conclude.
//!
//! The record's size and the place of its first four fields never change, so that two
//! different versions can still tell each other that they differ.

use super::{PROTOCOL, Reader};
use crate::base::{Error, Result, elf, node};

/// Bytes of an encoded [`Hello`].
pub const HELLO_LEN: usize = 512;

const MAGIC: &[u8; 8] = b"omptMPI\0";
const TEXT: usize = 64;

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
    /// Process id.
    pub pid: u32,
    /// Cores that it may use.
    pub cores: u32,
    /// Bytes of memory of its node.
    pub memory: u64,
    /// See [`node::node_id`].
    pub node: u64,
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
            version: env!("CARGO_PKG_VERSION").into(),
            role,
            machine: elf::MACHINE,
            page_size: node::page_size(),
            devices: u32::from(role == Role::Device),
            pid: std::process::id(),
            cores: node::cores(),
            memory: node::memory(),
            node: node::node_id(),
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
        for n in [u32::from(self.machine), self.page_size, self.devices, self.pid, self.cores, self.bell.0] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        for n in [self.memory, self.node, self.bell.1] {
            out.extend_from_slice(&n.to_le_bytes());
        }
        text(&mut out, &self.host);
        text(&mut out, &self.mpi);
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
        if protocol != PROTOCOL || version != env!("CARGO_PKG_VERSION") {
            return Err(Error::new(format!(
                "it is omptarget-mpi {version} (protocol {protocol}), this is {} (protocol {PROTOCOL}); \
                 use a plugin and a device executable of one build",
                env!("CARGO_PKG_VERSION")
            )));
        }
        let role = match r.u32()? {
            1 => Role::Host,
            2 => Role::Device,
            n => return Err(Error::new(format!("it has an unknown role {n}"))),
        };
        let machine = u16::try_from(r.u32()?).map_err(|_| Error::new("its ELF machine is out of range"))?;
        let (page_size, devices, pid, cores, descriptor) = (r.u32()?, r.u32()?, r.u32()?, r.u32()?, r.u32()?);
        let (memory, node, bell) = (r.u64()?, r.u64()?, (descriptor, r.u64()?));
        let (host, mpi) = (string(&mut r)?, string(&mut r)?);
        Ok(Hello { protocol, version, role, machine, page_size, devices, pid, cores, memory, node, bell, host, mpi })
    }
}

fn text(out: &mut Vec<u8>, s: &str) {
    let start = out.len();
    out.extend_from_slice(&s.as_bytes()[..s.floor_char_boundary(TEXT - 1)]);
    out.resize(start + TEXT, 0);
}

fn string(r: &mut Reader<'_>) -> Result<String> {
    let bytes = r.bytes(TEXT)?;
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(TEXT);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}

/// What all ranks of a job conclude, each for itself, from all records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// One host and at least one device.
    Ready {
        /// The host's rank.
        host: usize,
        /// The devices' ranks in the order of their device numbers.
        devices: Vec<usize>,
    },
    /// Only hosts: there is nothing to offload to.
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
                 use: mpirun -np N llvm-offload-mpi-device : -np 1 PROGRAM",
            ));
        };
        if devices.is_empty() {
            return Ok(Job::HostsOnly);
        }
        if hosts.len() > 1 {
            return Err(Error::new(format!(
                "{} programs were started ({} and {}) but devices can serve only one; start it with -np 1",
                hosts.len(),
                name(hosts[0]),
                name(hosts[1])
            )));
        }
        for &d in &devices {
            let (device, host) = (hellos[d], hellos[host]);
            for (what, a, b) in [
                ("ELF machine", u32::from(device.machine), u32::from(host.machine)),
                ("page size", device.page_size, host.page_size),
            ] {
                if a != b {
                    return Err(Error::new(format!("{} has {what} {a}, the program's host {b}", name(d))));
                }
            }
        }
        Ok(Job::Ready { host, devices })
    }
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
        assert_eq!(Hello::decode(&h.encode()).unwrap().host, "ä".repeat(31));
    }

    #[test]
    fn jobs_that_work() {
        let (h, d) = (hello(Role::Host), hello(Role::Device));
        assert_eq!(verdict(&[d.clone(), d.clone(), h.clone()]).unwrap(), Job::Ready { host: 2, devices: vec![0, 1] });
        assert_eq!(verdict(&[h.clone(), d]).unwrap(), Job::Ready { host: 0, devices: vec![1] });
        assert_eq!(verdict(&[h.clone(), h]).unwrap(), Job::HostsOnly);
    }

    #[test]
    fn jobs_that_do_not_work_say_why() {
        let (h, d) = (hello(Role::Host), hello(Role::Device));
        let says = |hellos: &[Hello], text: &str| {
            let e = verdict(hellos).unwrap_err().to_string();
            assert!(e.contains(text), "{e}");
        };
        says(&[d.clone(), d.clone()], "no program");
        says(&[h.clone(), d.clone(), h.clone()], "2 programs");
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
