// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The bulk data in a [`super::replay_log`]: the pieces that a worker has received, and hashes of
//! the pieces that it has sent. A replay requests the same pieces in the same order on each route.

use super::messages::Effects;
use crate::workers::packet::Route;
use rustc_hash::FxHashMap;

/// A worker's request for a piece, and the piece's destination in the worker.
pub(crate) type Waiter = (u64, u64);

/// What to do with a worker's request for a piece.
#[derive(Debug, PartialEq)]
pub(crate) enum Asked<'a> {
    /// Receive the piece, which has this index.
    New(usize),
    /// Nothing: the piece is in flight, and its arrival completes the request.
    UnderWay,
    /// Give the worker these bytes, which a lost worker received.
    Done(&'a [u8]),
}

enum Piece {
    /// The worker has sent a piece with this hash.
    Sent(u64),
    /// A piece for the worker is in flight; `None` if the worker that requested it is lost.
    Coming(Option<Waiter>),
    /// The worker has received this piece.
    Received(Vec<u8>),
}

/// The pieces in one direction of a route, in the order of their requests.
#[derive(Default)]
struct Pieces {
    /// The index of the first piece of `all`.
    base: usize,
    all: Vec<Piece>,
    /// The index of the worker's next request.
    next: usize,
    /// The messages of all pieces before this index are over.
    over: usize,
}

impl Pieces {
    fn end(&self) -> usize {
        self.base + self.all.len()
    }

    fn get_mut(&mut self, index: usize) -> Option<&mut Piece> {
        self.all.get_mut(index.checked_sub(self.base)?)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Direction {
    ToWorker,
    FromWorker,
}

/// All bulk data since a worker's last checkpoint.
#[derive(Default)]
pub(crate) struct BulkLog {
    routes: FxHashMap<(Direction, Route), Pieces>,
    /// The messages that forward an image, by the routes that they send on.
    forwards: FxHashMap<Route, u64>,
    under_way: usize,
}

impl BulkLog {
    /// Decides what to do with the worker's request to receive a piece.
    pub(crate) fn receive(&mut self, route: Route, waiter: Waiter) -> Asked<'_> {
        let pieces = self.routes.entry((Direction::ToWorker, route)).or_default();
        let index = pieces.next;
        pieces.next += 1;
        if index == pieces.end() {
            self.under_way += 1;
            pieces.all.push(Piece::Coming(Some(waiter)));
            return Asked::New(index);
        }
        match &mut pieces.all[index - pieces.base] {
            Piece::Received(bytes) => Asked::Done(bytes),
            piece => {
                *piece = Piece::Coming(Some(waiter));
                Asked::UnderWay
            }
        }
    }

    fn received_mut(&mut self, route: Route, index: usize) -> Option<&mut Piece> {
        self.routes.get_mut(&(Direction::ToWorker, route))?.get_mut(index)
    }

    /// The request that waits for a piece.
    pub(crate) fn waiter(&mut self, route: Route, index: usize) -> Option<Waiter> {
        if let Piece::Coming(waiter) = self.received_mut(route, index)? { *waiter } else { None }
    }

    /// Logs a piece that its waiter has received.
    pub(super) fn received(&mut self, route: Route, index: usize, bytes: Vec<u8>) {
        self.under_way -= 1;
        if let Some(piece) = self.received_mut(route, index) {
            *piece = Piece::Received(bytes);
        }
    }

    /// Logs that the worker sends a piece with this hash. Returns the hash of the corresponding piece that a
    /// lost worker sent; `None` if the piece must be sent.
    pub(super) fn send(&mut self, route: Route, hash: u64) -> Option<u64> {
        let pieces = self.routes.entry((Direction::FromWorker, route)).or_default();
        let index = pieces.next;
        pieces.next += 1;
        if let Some(&mut Piece::Sent(before)) = pieces.get_mut(index) {
            return Some(before);
        }
        self.under_way += 1;
        pieces.all.push(Piece::Sent(hash));
        None
    }

    /// Records that a piece was sent.
    pub(super) fn sent(&mut self) {
        self.under_way -= 1;
    }

    /// The message that forwards an image on this route, if any.
    pub(super) fn forwarder(&self, route: Route) -> Option<u64> {
        self.forwards.get(&route).copied()
    }

    /// True if a lost worker's successor must still repeat requests to send pieces of this message.
    pub(super) fn repeats_sends(&self, effects: &Effects) -> bool {
        let mut sends = effects.sends.iter().filter_map(|&route| self.routes.get(&(Direction::FromWorker, route)));
        sends.any(|pieces| pieces.next < pieces.end())
    }

    /// Logs a message that forwards an image on these routes.
    pub(super) fn begin_forward(&mut self, seq: u64, routes: &[Route]) {
        self.forwards.extend(routes.iter().map(|&route| (route, seq)));
    }

    /// Lets other messages use the routes of a message that is over.
    pub(super) fn end_message(&mut self, effects: &Effects, keeps: bool) {
        for route in &effects.sends {
            self.forwards.remove(route);
        }
        let received = effects.receives.iter().map(|&route| (Direction::ToWorker, route));
        let sent = effects.sends.iter().map(|&route| (Direction::FromWorker, route));
        for route in received.chain(sent) {
            if !keeps {
                self.routes.remove(&route);
            } else if let Some(pieces) = self.routes.get_mut(&route) {
                pieces.over = pieces.end();
            }
        }
    }

    /// True if no piece is in flight or still to be forwarded.
    pub(super) fn is_idle(&self) -> bool {
        self.forwards.is_empty() && self.under_way == 0
    }

    /// Forgets all pieces. None may be in flight.
    pub(super) fn clear(&mut self) {
        self.routes.clear();
    }

    /// Forgets the pieces of messages that are over, and the bytes of all other pieces.
    pub(super) fn forget_finished(&mut self) {
        self.routes.retain(|_, pieces| {
            pieces.all.drain(..pieces.over - pieces.base);
            pieces.base = pieces.over;
            pieces.next = pieces.next.max(pieces.base);
            for piece in &mut pieces.all {
                if let Piece::Received(bytes) = piece {
                    *bytes = Vec::new();
                }
            }
            !pieces.all.is_empty()
        });
    }

    /// Prepares for the requests of a lost worker's successor, which start from the beginning.
    pub(super) fn restart(&mut self) {
        for pieces in self.routes.values_mut() {
            pieces.next = pieces.base;
            for piece in &mut pieces.all {
                if let Piece::Coming(waiter) = piece {
                    *waiter = None;
                }
            }
        }
    }
}

#[cfg(test)]
impl BulkLog {
    /// The bytes in memory, without the overhead of the tables.
    pub(super) fn held(&self) -> usize {
        let bytes =
            |piece: &Piece| size_of::<Piece>() + if let Piece::Received(bytes) = piece { bytes.len() } else { 0 };
        let pieces: usize = self.routes.values().flat_map(|pieces| &pieces.all).map(bytes).sum();
        pieces + 48 * (self.routes.len() + self.forwards.len())
    }

    /// The index of the first piece of the message that now receives on a route.
    pub(super) fn start_of(&self, route: Route) -> usize {
        self.routes[&(Direction::ToWorker, route)].over
    }
}
