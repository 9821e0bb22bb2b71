// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The packets between a rank and its worker processes, and the socket that carries them.
//!
//! A rank and its workers run on one node, from one build. A worker has no MPI: its rank makes every
//! transfer.

use crate::base::{Error, Result};
use crate::wire::format::{Field, wire_format};
use crate::wire::{MESSAGE_MAX, Reader};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{self, RecvFlags, SendFlags};
use std::os::fd::OwnedFd;

/// Bytes of the longest packet: a message and its header.
pub(crate) const PACKET_MAX: usize = MESSAGE_MAX + 16;

/// The rank at the other end of a transfer, and the tag.
pub type Route = (u32, u32);

wire_format! {
    /// A worker's request, identified by a number, to transfer a piece of bulk data. `at` is the
    /// address in the worker.
    #[allow(missing_docs, reason = "the comment above names the fields that need it")]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Transfer {
        pub id: u64,
        pub route: Route,
        pub at: u64,
        pub len: u64,
    }
}

wire_format! {
    /// A packet. Its first four bytes are the worker's generation, which distinguishes a lost worker
    /// from its successor.
    #[allow(missing_docs, reason = "the comment of each packet names the fields")]
    #[derive(Clone, Copy, Debug, PartialEq)]
    pub enum Packet<'a> {
        /// To a worker: its configuration, the first packet. The worker is bound to `cores` (u16
        /// each); `fragment` is as in `Hello`, `doorbell` is the rank's (`link::doorbell`).
        Begin { host: u32, threads: u32, crowded: bool, fragment: u64, doorbell: (u32, u64), cores: &'a [u8] } = 1,
        /// Both ways: a command message from the host, or a reply to the host.
        Message(bytes: &'a [u8]) = 2,
        /// From a worker: send this piece.
        Send(piece: Transfer) = 4,
        /// From a worker: receive this piece.
        Receive(piece: Transfer) = 5,
        /// To a worker: the transfer with this number is done.
        Done { id: u64, len: u64 } = 6,
        /// To a worker: leave a snapshot.
        TakeSnapshot = 7,
        /// From a worker: the snapshot's process id, or 0 if there is no memory for a snapshot.
        SnapshotTaken { pid: u32 } = 8,
        /// To a worker: fail every message for the reason in this reply.
        FailAll(reply: &'a [u8]) = 9,
        /// From a snapshot: the process id of the worker that it started, or 0 if it can't start one.
        Awake { pid: u32 } = 10,
        /// From a snapshot, which then exits: it read an order for another snapshot.
        WrongSnapshot = 11,
        /// To a worker: its replay of a lost worker's messages is complete.
        Replayed = 12,
    }
}

impl<'a> Packet<'a> {
    /// Replaces the contents of `out` with the packet.
    #[inline]
    pub fn write(&self, generation: u32, out: &mut Vec<u8>) {
        out.clear();
        generation.write(out);
        Field::write(self, out);
    }

    /// Returns the generation and the packet.
    pub fn parse(bytes: &'a [u8]) -> Result<(u32, Packet<'a>)> {
        let mut r = Reader(bytes);
        let read = r.take()?;
        match read {
            _ if !r.0.is_empty() => Err(Error::new("a packet is too long")),
            (_, Packet::Begin { cores, .. }) if !cores.len().is_multiple_of(2) => {
                Err(Error::new("a packet ends within the number of a core"))
            }
            _ => Ok(read),
        }
    }
}

/// Receives a packet and returns its length; without `wait`, `None` if there is no packet yet.
pub(crate) fn receive(socket: &OwnedFd, packet: &mut [u8], wait: bool) -> Result<Option<usize>> {
    let flags = if wait { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
    result_of(retry_on_intr(|| net::recv(socket, &mut *packet, flags)).map(|(_, len)| len))
}

/// Sends a packet; without `wait`, false if there is no room for it now.
pub(crate) fn send(socket: &OwnedFd, packet: &[u8], wait: bool) -> Result<bool> {
    let flags = SendFlags::NOSIGNAL | if wait { SendFlags::empty() } else { SendFlags::DONTWAIT };
    Ok(result_of(retry_on_intr(|| net::send(socket, packet, flags)))?.is_some())
}

/// The result of a call that transfers a packet: its length, `None` if the call would block, or
/// [`Error::Closed`] if the other end is closed.
fn result_of(call: rustix::io::Result<usize>) -> Result<Option<usize>> {
    match call {
        // No packet is empty.
        Ok(0) | Err(Errno::PIPE | Errno::CONNRESET) => Err(Error::Closed),
        Ok(len) => Ok(Some(len)),
        Err(Errno::AGAIN) => Ok(None),
        Err(e) => Err(Error::from(e).context("the socket between a rank and its worker")),
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/workers/packet.rs"]
mod tests;
