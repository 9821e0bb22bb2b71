// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What remains to be done after a bulk transfer: the link returns it.

use super::buffer::Buffer;
use crate::base::Error;
use crate::base::lock::{Mutex, order};
use crate::device_main::images::pending_image::PendingImage;
use crate::device_main::messages::work::{Early, Work};
use crate::link::Peer;
use crate::wire::record::TraceEvent;
use memmap2::MmapMut;
use std::sync::Arc;

/// A message whose bulk transfer is in flight.
pub(crate) struct Moving {
    pub(crate) work: Box<Work>,
    pub(crate) peer: Peer,
    /// The transfer's trace event, if it is traced.
    pub(crate) event: Option<TraceEvent>,
}

/// What remains to be done after a transfer. Keeps the transfer's memory until then.
pub(crate) enum Completion {
    /// Nothing: the data went directly from or to the backend's memory, or from this buffer.
    Finish(Moving, Buffer),
    /// Write the bytes to this address.
    Write(Moving, u64, Buffer),
    /// Leave the write to the message's executor.
    Collect(Moving, u64, Buffer),
    /// Leave the write to the message's executor, once it is the message's turn.
    Early(Arc<Early>, Buffer),
    /// Forward the part of an image with this index, which has arrived.
    PassOn(Arc<IncomingImage>, usize),
    /// Pass these bytes of the program's memory, from the address on, to the thread that asked for them.
    Memory(u64, Buffer),
    /// Nothing: a change of the program's memory was sent.
    Sent(Buffer),
    /// Nothing: a part of the image was forwarded.
    Keep(Arc<PendingImage>),
}

/// An image that is received in parts. The thread with the last reference finishes its message.
pub(crate) struct IncomingImage {
    pub(crate) id: u32,
    pub(crate) moving: Moving,
    pub(crate) image: Arc<PendingImage>,
    pub(crate) room: MmapMut,
    /// Ranks and tags to which each part is forwarded when it arrives.
    pub(crate) to: [Option<(u32, u32)>; 2],
    pub(crate) failure: Mutex<Option<Error>, { order::LEAF }>,
}
