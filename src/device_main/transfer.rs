// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Bulk transfers of messages. A message that is ready to send or receive bulk data belongs to its transfer until
//! the transfer is over. Then any thread may execute it further.

use super::backend::{Backend, Copies};
use super::completion::{Completion, IncomingImage, Moving};
use super::parts::Parts;
use super::pending_image::PendingImage;
use super::work::Work;
use crate::base::Result;
use crate::base::lock::Mutex;
use crate::link::{Peer, Span};
use crate::wire::command::{Head, parts as parts_of};
use crate::wire::record::{Kind, TraceEvent};
use memmap2::MmapMut;
use std::sync::Arc;

/// A message whose bulk transfer is about to begin.
pub(super) struct Transfer<'a, B> {
    parts: &'a Parts<B>,
    moving: Moving,
}

impl<'a, B: Backend> Transfer<'a, B> {
    pub fn new(parts: &'a Parts<B>, work: Box<Work>, (rank, tag): (u32, u32)) -> Transfer<'a, B> {
        Transfer { parts, moving: Moving { work, peer: Peer { rank: rank as usize, tag }, event: None } }
    }

    fn begin(&mut self, kind: Kind, bytes: u64) -> Peer {
        let Moving { work, peer, event } = &mut self.moving;
        let Head { queue, seq, .. } = work.head;
        *event = work.trace.as_mut().map(|trace| {
            let begin = trace.start();
            let (peer, tag) = (peer.rank as u32, peer.tag);
            TraceEvent { kind, queue, seq, what: bytes, begin, end: begin, peer, tag }
        });
        *peer
    }

    pub fn receive(mut self, to: u64, len: u64) -> Result<()> {
        let (peer, link) = (self.begin(Kind::Receive, len), self.parts.host.link());
        if let Some(at) = self.parts.backend.direct(to, len) {
            // SAFETY: the backend keeps the memory as long as the arena or image exists. Other accesses by the
            // program are its own business.
            let span = unsafe { Span::new(at, len as usize) };
            return link.receive_bulk(peer, span, Completion::Finish(self.moving, Vec::new()));
        }
        let mut bytes = self.parts.staging.take(len as usize);
        // SAFETY: the heap block does not move with the vector, which the completion
        // keeps until the transfer is done.
        let span = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
        link.receive_bulk(peer, span, Completion::Write(self.moving, to, bytes))
    }

    /// Sends from an address, or `bytes` that were read there. A failed message reports to its peer that there is no data.
    pub fn send(mut self, from: u64, len: u64, bytes: Option<Vec<u8>>) -> Result<()> {
        let (peer, link) = (self.begin(Kind::Send, len), self.parts.host.link());
        let mut bytes = bytes.unwrap_or_default();
        let mut at = (!bytes.is_empty()).then_some(bytes.as_mut_ptr());
        if at.is_none() && self.moving.work.failure.is_none() {
            at = self.parts.backend.direct(from, len);
            if at.is_none()
                && let Err(e) = self.parts.backend.read(from, len as usize, &mut bytes)
            {
                self.moving.work.fail_with(&e);
            }
        }
        if self.moving.work.failure.is_some() {
            self.moving.event = None;
            return link.refuse_bulk(peer, len as usize, Completion::Finish(self.moving, Vec::new()));
        }
        // SAFETY: as in `receive`.
        let span = unsafe { Span::new(at.unwrap_or(bytes.as_mut_ptr()), len as usize) };
        link.send_bulk(peer, span, Completion::Finish(self.moving, bytes))
    }

    /// Receives an image, and forwards each part to up to two devices as soon as it arrives.
    pub fn receive_image(
        mut self,
        id: u32,
        (image, mut room): (PendingImage, MmapMut),
        to: [Option<(u32, u32)>; 2],
    ) -> Result<()> {
        let from = self.begin(Kind::Image, room.len() as u64);
        let (start, len) = (room.as_mut_ptr(), room.len() as u64);
        let (moving, image) = (self.moving, Arc::new(image));
        let incoming = Arc::new(IncomingImage { id, moving, image, room, to, failure: Mutex::default() });
        for (i, range) in parts_of(len).enumerate() {
            // SAFETY: the part lies within `room`, which is kept until all parts are there.
            let span = unsafe { Span::new(start.add(range.start), range.len()) };
            let completion = Completion::PassOn(incoming.clone(), i);
            self.parts.host.link().receive_bulk(from.nth(i), span, completion)?;
        }
        finish_image(self.parts, incoming);
        Ok(())
    }
}

impl Moving {
    /// Ends the transfer. A failed one is not traced.
    fn finish<B>(mut self, parts: &Parts<B>, result: Result<()>) {
        if let (Some(trace), Some(event), Ok(())) = (&mut self.work.trace, self.event, &result) {
            trace.transferred(&parts.trace, event, parts.host.is(self.peer.rank));
        }
        if let Err(e) = result {
            self.work.fail_with(&e);
        }
        parts.pool.push(self.work);
    }
}

/// Does what a finished transfer leaves to do.
pub(super) fn complete<B: Backend>(parts: &Parts<B>, completion: Completion, result: Result<()>) {
    match completion {
        Completion::Finish(moving, sent) => {
            parts.staging.give(sent);
            moving.finish(parts, result);
        }
        Completion::Write(mut moving, to, bytes) => {
            let is_sound = result.is_ok() && moving.work.failure.is_none();
            let result = match is_sound {
                // The thread that executes the message further writes them, or the kernel's launch takes them along.
                true if B::GATHERS => {
                    moving.work.copies = Some(Box::new(Copies::of(to, bytes)));
                    Ok(())
                }
                true => {
                    let written = parts.backend.write(to, &bytes);
                    parts.staging.give(bytes);
                    written
                }
                false => result,
            };
            moving.finish(parts, result);
        }
        Completion::PassOn(incoming, i) => {
            incoming.to.iter().flatten().for_each(|&to| pass_on(parts, &incoming.image, i, to, result.is_ok()));
            if let Err(e) = result {
                incoming.failure.lock().get_or_insert(e);
            }
            finish_image(parts, incoming);
        }
        Completion::Keep(image) => drop(image),
    }
}

/// Forwards a part of an image to a rank that waits for it.
fn pass_on<B>(parts: &Parts<B>, image: &Arc<PendingImage>, i: usize, (rank, tag): (u32, u32), is_sound: bool) {
    let bytes = image.bytes();
    let range = parts_of(bytes.len() as u64).nth(i).unwrap_or_default();
    let (bytes, peer) = (&bytes[range], Peer { rank: rank as usize, tag }.nth(i));
    let (link, keep) = (parts.host.link(), Completion::Keep(image.clone()));
    parts.host.require(if is_sound {
        // SAFETY: the mapping is not written to, and the completion keeps it.
        let span = unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) };
        link.send_bulk(peer, span, keep)
    } else {
        link.refuse_bulk(peer, bytes.len(), keep)
    });
}

/// Finishes the message of an image once all parts have arrived.
fn finish_image<B>(parts: &Parts<B>, incoming: Arc<IncomingImage>) {
    let Some(IncomingImage { id, moving, image, room, failure, .. }) = Arc::into_inner(incoming) else { return };
    // A file that is mapped for writing cannot be sealed.
    drop(room);
    parts.loader.insert(id, image);
    let failure = failure.lock().take();
    moving.finish(parts, failure.map_or(Ok(()), Err));
}
