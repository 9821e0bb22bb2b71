// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Between a rank and its worker processes, which are on one node and of one build: what a
//! worker, which has no MPI, asks of the rank that speaks it, and what the rank tells it.

use super::{MESSAGE_MAX, Reader};
use crate::base::{Error, Result};

/// Bytes of the longest packet: a message, and what stands in front of it.
pub const PACKET_MAX: usize = MESSAGE_MAX + 16;

/// One packet. Its first four bytes name the generation of the worker: those of one that
/// was lost are not for its successor, nor the other way round.
#[allow(missing_docs, reason = "the fields are named in each kind's line")]
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Packet<'a> {
    /// 1, to a worker: what it has to know before anything else; `cores` are those that it
    /// is bound to (u16 each), `fragment` is as in `Hello`, `bell` is the rank's (`link::bell`).
    Begin { host: u32, threads: u32, crowded: bool, fragment: u64, bell: (u32, u64), cores: &'a [u8] },
    /// 2, both ways: a command message from the host, or a reply to it.
    Message(&'a [u8]),
    /// 4, from a worker: sends a piece of bulk data to a rank.
    Send { id: u64, rank: u32, tag: u32, at: u64, len: u64 },
    /// 5, from a worker: receives a piece of bulk data from a rank.
    Receive { id: u64, rank: u32, tag: u32, at: u64, len: u64 },
    /// 6, to a worker: what it asked for under this number is done.
    Done { id: u64, len: u64 },
    /// 7, to a worker: it leaves a sleeping copy of itself behind.
    Copy,
    /// 8, from a worker: the copy's process id, or 0 if none could be made.
    Copied { pid: u32 },
    /// 9, to a worker: whatever it is told fails for the reason in this reply.
    Fail(&'a [u8]),
    /// 10, from a copy: the process id of the worker that it has made, 0 if it can't.
    Awake { pid: u32 },
    /// 11, from a copy that the rank does not know: it got an order that is another's, and ends.
    Misled,
}

impl<'a> Packet<'a> {
    /// Writes the packet over `out`.
    pub fn write(&self, generation: u32, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&generation.to_le_bytes());
        let mut begin = |kind: u8, words: &[u32], longs: &[u64], bytes: &[u8]| {
            out.push(kind);
            words.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
            longs.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
            out.extend_from_slice(bytes);
        };
        match *self {
            Packet::Begin { host, threads, crowded, fragment, bell: (descriptor, nonce), cores } => {
                begin(1, &[host, threads, u32::from(crowded), descriptor], &[fragment, nonce], cores);
            }
            Packet::Message(bytes) => begin(2, &[], &[], bytes),
            Packet::Send { id, rank, tag, at, len } => begin(4, &[rank, tag], &[id, at, len], &[]),
            Packet::Receive { id, rank, tag, at, len } => begin(5, &[rank, tag], &[id, at, len], &[]),
            Packet::Done { id, len } => begin(6, &[], &[id, len], &[]),
            Packet::Copy => begin(7, &[], &[], &[]),
            Packet::Copied { pid } => begin(8, &[pid], &[], &[]),
            Packet::Fail(reply) => begin(9, &[], &[], reply),
            Packet::Awake { pid } => begin(10, &[pid], &[], &[]),
            Packet::Misled => begin(11, &[], &[], &[]),
        }
    }

    /// Reads a packet and its generation.
    ///
    /// # Errors
    /// Anything that [`Packet::write`] does not write.
    pub fn parse(bytes: &'a [u8]) -> Result<(u32, Packet<'a>)> {
        let mut r = Reader(bytes);
        let generation = r.u32()?;
        let packet = match r.u8()? {
            1 => {
                let (host, threads, crowded, descriptor) = (r.u32()?, r.u32()?, r.u32()? != 0, r.u32()?);
                let (fragment, bell) = (r.u64()?, (descriptor, r.u64()?));
                let cores = r.bytes(r.0.len() & !1)?;
                Packet::Begin { host, threads, crowded, fragment, bell, cores }
            }
            2 => Packet::Message(r.bytes(r.0.len())?),
            4 => Packet::Send { rank: r.u32()?, tag: r.u32()?, id: r.u64()?, at: r.u64()?, len: r.u64()? },
            5 => Packet::Receive { rank: r.u32()?, tag: r.u32()?, id: r.u64()?, at: r.u64()?, len: r.u64()? },
            6 => Packet::Done { id: r.u64()?, len: r.u64()? },
            7 => Packet::Copy,
            8 => Packet::Copied { pid: r.u32()? },
            9 => Packet::Fail(r.bytes(r.0.len())?),
            10 => Packet::Awake { pid: r.u32()? },
            11 => Packet::Misled,
            kind => return Err(Error::new(format!("unknown kind {kind} of packet"))),
        };
        if !r.0.is_empty() {
            return Err(Error::new("a packet is too long"));
        }
        Ok((generation, packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_longest_packets_have_room() {
        let (bytes, cores) = ([7u8; MESSAGE_MAX], [7u8; 2 * crate::wire::hello::CORES]);
        let mut out = Vec::new();
        for packet in [
            Packet::Begin { host: 1, threads: 2, crowded: true, fragment: 5, bell: (3, 4), cores: &cores },
            Packet::Message(&bytes),
            Packet::Fail(&bytes),
        ] {
            packet.write(1, &mut out);
            assert!(out.len() <= PACKET_MAX, "{}", out.len());
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(generation: u32, n: u32, at: u64, bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let even = &bytes[..bytes.len() & !1];
            let (rank, tag, len) = (n.wrapping_mul(3), n ^ 5, at >> 3);
            let mut out = Vec::new();
            for packet in [
                Packet::Begin { host: n, threads: tag, crowded: n % 2 == 1, fragment: at, bell: (rank, at), cores: even },
                Packet::Message(&bytes),
                Packet::Send { id: !at, rank, tag, at, len },
                Packet::Receive { id: !at, rank, tag, at, len },
                Packet::Done { id: !at, len },
                Packet::Copy,
                Packet::Copied { pid: n },
                Packet::Fail(&bytes),
                Packet::Awake { pid: n },
                Packet::Misled,
            ] {
                packet.write(generation, &mut out);
                prop_assert_eq!(Packet::parse(&out).unwrap(), (generation, packet));
            }
        }

        #[test]
        fn any_bytes_are_safe_to_read(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = Packet::parse(&bytes);
        }
    }
}
