// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A rank's use of MPI for one worker: sends the worker's replies to the host, and moves bulk data between the rank's
//! own memory and other ranks.

use super::packet::{Route, Transfer};
use crate::base::Result;
use crate::link::{Link, Peer, Span};
use crate::wire::reply;
use std::sync::Arc;

fn peer((rank, tag): Route) -> Peer {
    Peer { rank: rank as usize, tag }
}

/// A piece of a worker's bulk transfer.
pub(crate) struct Piece {
    /// The worker's index in its rank.
    pub(crate) worker: usize,
    pub(crate) transfer: Transfer,
    bytes: Vec<u8>,
    pub(crate) direction: Direction,
}

impl Piece {
    /// The received bytes; none if the other side had no data.
    pub(crate) fn received(self, result: Result<()>) -> Vec<u8> {
        let mut bytes = self.bytes;
        if result.is_ok() {
            // SAFETY: the transfer wrote all the bytes for which `Uplink::receive` made room.
            unsafe { bytes.set_len(self.transfer.len as usize) };
        }
        bytes
    }
}

pub(crate) enum Direction {
    /// Piece `index` of its route.
    In { index: usize },
    /// Sent at the request of the worker of this generation.
    Out { generation: u32 },
}

/// A worker's connection to MPI.
pub(crate) struct Uplink {
    link: Arc<Link<Piece>>,
    host: usize,
    worker: usize,
    /// The worker's number, which is appended to its messages to the host if its rank has several workers.
    number: Option<u8>,
}

impl Uplink {
    pub(crate) fn new(link: Arc<Link<Piece>>, host: usize, worker: usize, is_one_of_several: bool) -> Uplink {
        Uplink { link, host, worker, number: is_one_of_several.then_some(worker as u8) }
    }

    pub(crate) fn reply(&self, reply: &[u8]) -> Result<()> {
        self.reply_with(|message| message.extend_from_slice(reply))
    }

    /// Sends the reply that `write` appends.
    pub(crate) fn reply_with(&self, write: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let mut message = self.link.buffer();
        write(&mut message);
        message.extend(self.number);
        self.link.send(self.host, message)
    }

    /// Reports to the host that message `seq` is done.
    pub(crate) fn reply_done(&self, seq: u64) -> Result<()> {
        self.reply_with(|message| reply::begin_done(message, seq))
    }

    /// Sends the bytes of a piece. An empty piece shows the other side that there is no data.
    pub(crate) fn send(&self, transfer: Transfer, bytes: Vec<u8>, generation: u32) -> Result<()> {
        // SAFETY: the completion keeps the vector until the transfer is done; its heap block does not move with it,
        // and nothing changes it.
        let span = unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) };
        let (peer, direction) = (peer(transfer.route), Direction::Out { generation });
        let piece = Piece { worker: self.worker, transfer, bytes, direction };
        if transfer.len == 0 { self.link.refuse_bulk(peer, 1, piece) } else { self.link.send_bulk(peer, span, piece) }
    }

    /// Receives piece `index` of its route.
    pub(crate) fn receive(&self, transfer: Transfer, index: usize) -> Result<()> {
        let mut bytes: Vec<u8> = Vec::with_capacity(transfer.len as usize);
        // SAFETY: the completion keeps the vector, which has that capacity, until the transfer is done; its heap
        // block does not move with it, and nothing touches it.
        let span = unsafe { Span::new(bytes.as_mut_ptr(), transfer.len as usize) };
        let piece = Piece { worker: self.worker, transfer, bytes, direction: Direction::In { index } };
        self.link.receive_bulk(peer(transfer.route), span, piece)
    }
}
