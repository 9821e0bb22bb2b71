// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The record by which every rank introduces itself, before any other message.
//!
//! The record's size and the offsets of its first four fields never change, so that two different
//! versions can still report that they differ.

use super::format::Field;
use super::{PROTOCOL, Reader};
use crate::base::limits::{PAGE, VERSION};
use crate::base::settings::{Backend, FRAGMENTS};
use crate::base::{Error, Result};
use crate::sys::node::Processor;
use std::ops::Range;

/// Bytes of an encoded [`Hello`], the same in all versions: MPI exchanges them before anything is known.
pub const HELLO_LEN: usize = 512;

pub(super) const MAGIC: &[u8; 8] = b"omptMPI\0";
const TEXT: usize = 64;
/// The maximum number of ranks that programs spawn on a node.
const SPAWNED: u32 = 1 << 24;
/// Bytes of a processor's vendor, as on x86-64.
const VENDOR: usize = 12;
/// Bytes of a processor's name, as on x86-64.
const NAME: usize = 48;
/// The maximum number of ranges of shared files.
const SHARED: usize = 3;
/// Bits of the number of pages in a packed range; the other bits are the number of its first page.
const PAGES: u32 = 29;
/// The maximum number of cores of a node in a record, which has a bit for each.
pub(crate) const CORES: usize = 1024;

/// Encodes the absence of a range.
const NOWHERE: Range<u64> = u64::MAX..u64::MAX;

/// A rank's side of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Role {
    /// A program under libomptarget.
    Host = 1,
    /// A device process.
    Device = 2,
}

/// A rank's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The rank's side.
    pub role: Role,
    /// Bytes per page of memory.
    pub page_size: u32,
    /// Devices behind this rank.
    pub devices: u32,
    /// Processes of this rank that wait or compute: itself and its workers.
    pub processes: u32,
    /// If a program spawned this rank, the number of ranks that the programs of that MPI application may spawn on this
    /// node; otherwise 0.
    pub spawned: u32,
    /// The number of these spawned ranks that belong to programs before this rank's.
    pub earlier: u32,
    /// Process id.
    pub pid: u32,
    /// Cores that the rank may use, ascending; the record omits those from `CORES` on.
    pub cores: Vec<u16>,
    /// Bytes of memory of its node.
    pub memory: u64,
    /// Identifies its node (`sys::node::node_id`).
    pub node: u64,
    /// Bytes of the largest piece of bulk data; the devices use their program's value.
    pub fragment: u64,
    /// Descriptor and nonce of its doorbell (see `link::doorbell`); the nonce is 0 if it has none.
    pub doorbell: (u32, u64),
    /// Host name.
    pub host: String,
    /// MPI library and version.
    pub mpi: String,
    /// Its node's processor.
    pub processor: Processor,
    /// What executes regions, if the rank is a device.
    pub backend: Backend,
    /// Equal for the ranks of a node that choose from the same accelerators.
    pub pool: u32,
    /// The addresses outside of `sys::layout::WINDOW` that the rank uses; `None` if its regions can't use the program's
    /// memory.
    pub outside: Option<Range<u64>>,
    /// The addresses of shared files outside of the window. If they don't fit into the record, it has no `outside`
    /// either.
    pub shared: Vec<Range<u64>>,
}

impl Hello {
    /// The record as bytes.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        let mut out = MAGIC.to_vec();
        PROTOCOL.write(&mut out);
        text::<TEXT>(&mut out, VERSION);
        let Hello { role, page_size, devices, processes, spawned, pid, doorbell, .. } = *self;
        let numbers =
            [role as u32, self.processor.machine.into(), page_size, devices, processes, spawned, pid, doorbell.0];
        numbers.iter().for_each(|n| n.write(&mut out));
        [self.memory, self.node, self.fragment, doorbell.1].iter().for_each(|n| n.write(&mut out));
        text::<TEXT>(&mut out, &self.host);
        text::<TEXT>(&mut out, &self.mpi);
        let mut bits = [0u8; CORES / 8];
        for core in self.cores.iter().map(|&core| usize::from(core)).filter(|&core| core < CORES) {
            bits[core / 8] |= 1 << (core % 8);
        }
        out.extend_from_slice(&bits);
        text::<VENDOR>(&mut out, &self.processor.vendor);
        text::<NAME>(&mut out, &self.processor.name);
        self.processor.megahertz.write(&mut out);
        (self.backend as u32).write(&mut out);
        let shared = packed(&self.shared);
        let outside = self.outside.clone().filter(|_| shared.is_some()).unwrap_or(NOWHERE);
        (outside.start, outside.end).write(&mut out);
        shared.unwrap_or_default().iter().for_each(|range| range.write(&mut out));
        (self.pool, self.earlier).write(&mut out);
        assert!(out.len() <= HELLO_LEN);
        out.resize(HELLO_LEN, 0);
        out.try_into().expect("it has this length now")
    }

    /// Reads a record of a rank with the same version.
    pub fn decode(record: &[u8]) -> Result<Hello> {
        let mut r = Reader(record);
        if r.bytes(MAGIC.len())? != MAGIC {
            return Err(Error::new("it is neither a device nor a program with this plugin"));
        }
        let (protocol, version) = (r.take::<u32>()?, string::<TEXT>(&mut r)?);
        if protocol != PROTOCOL || version != VERSION {
            return Err(Error::new(format!(
                "it is omptarget-mpi {version} (protocol {protocol}), this is {VERSION} (protocol {PROTOCOL}); \
                 use a plugin and a device executable of one build",
            )));
        }
        let role = match r.take::<u32>()? {
            1 => Role::Host,
            2 => Role::Device,
            n => return Err(Error::new(format!("it has an unknown role {n}"))),
        };
        let machine = u16::try_from(r.take::<u32>()?).map_err(|_| Error::new("its ELF machine is out of range"))?;
        let (page_size, devices, processes, spawned) = (r.take()?, r.take()?, r.take()?, r.take()?);
        let (pid, descriptor) = (r.take()?, r.take()?);
        let (memory, node, fragment, doorbell) = (r.take()?, r.take()?, r.take()?, (descriptor, r.take()?));
        if !FRAGMENTS.contains(&fragment) {
            return Err(Error::new(format!("its pieces of {fragment} bytes are out of range")));
        }
        let (host, mpi, bits) = (string::<TEXT>(&mut r)?, string::<TEXT>(&mut r)?, r.bytes(CORES / 8)?);
        let has = |core: &u16| bits[usize::from(core / 8)] & 1 << (core % 8) != 0;
        Ok(Hello {
            role,
            page_size,
            devices,
            processes,
            spawned,
            pid,
            cores: (0..CORES as u16).filter(has).collect(),
            memory,
            node,
            fragment,
            doorbell,
            host,
            mpi,
            processor: Processor {
                machine,
                vendor: string::<VENDOR>(&mut r)?,
                name: string::<NAME>(&mut r)?,
                megahertz: r.take()?,
            },
            backend: match r.take::<u32>()? {
                0 => Backend::Cpu,
                1 => Backend::Offload,
                n => return Err(Error::new(format!("it has an unknown backend {n}"))),
            },
            outside: {
                let (start, end) = r.take()?;
                Some(start..end).filter(|outside| *outside != NOWHERE)
            },
            shared: {
                let mut all = Vec::new();
                for _ in 0..SHARED {
                    let packed: u64 = r.take()?;
                    let (first, pages) = (packed >> PAGES, packed & ((1 << PAGES) - 1));
                    all.push(first * PAGE..(first + pages) * PAGE);
                }
                all.retain(|range| !range.is_empty());
                all
            },
            pool: r.take()?,
            earlier: {
                let earlier = r.take()?;
                let are_some = earlier <= spawned && spawned <= SPAWNED;
                are_some.then_some(earlier).ok_or_else(|| Error::new("its number of spawned ranks is out of range"))?
            },
        })
    }
}

/// Ranges of pages, each packed into a number; `None` if they don't fit.
fn packed(all: &[Range<u64>]) -> Option<[u64; SHARED]> {
    let mut packed = [0; SHARED];
    for (n, range) in all.iter().enumerate() {
        let (first, pages) = (range.start / PAGE, (range.end - range.start).div_ceil(PAGE));
        let fits = first >> (u64::BITS - PAGES) == 0 && pages >> PAGES == 0;
        *packed.get_mut(n).filter(|_| fits)? = first << PAGES | pages;
    }
    Some(packed)
}

fn text<const LEN: usize>(out: &mut Vec<u8>, s: &str) {
    let start = out.len();
    out.extend_from_slice(&s.as_bytes()[..s.floor_char_boundary(LEN)]);
    out.resize(start + LEN, 0);
}

fn string<const LEN: usize>(r: &mut Reader<'_>) -> Result<String> {
    let bytes = r.bytes(LEN)?;
    let end = bytes.iter().position(|&b| b == 0).unwrap_or(LEN);
    Ok(String::from_utf8_lossy(&bytes[..end]).into_owned())
}
