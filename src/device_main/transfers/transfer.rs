// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Bulk transfers of messages. A message that is ready to send or receive bulk data belongs to its transfer until the
//! transfer is over. Then any thread may execute the rest of the message.

use super::buffer::Buffer;
use super::completion::{Completion, IncomingImage, Moving};
use crate::base::lock::Mutex;
use crate::base::{Result, clock};
use crate::device_main::backend::{Backend, Copies};
use crate::device_main::images::pending_image::PendingImage;
use crate::device_main::messages::schedule::Item as _;
use crate::device_main::messages::work::{Early, Work};
use crate::device_main::shared_state::SharedState;
use crate::device_main::upcalls::asker::Arrival;
use crate::link::{Peer, Span};
use crate::wire::command::{Head, parts as parts_of};
use crate::wire::record::{Kind, TraceEvent};
use std::sync::Arc;

/// A message whose bulk transfer is about to begin.
pub(crate) struct Transfer<'a, B> {
    shared: &'a SharedState<B>,
    moving: Moving,
}

impl<'a, B: Backend> Transfer<'a, B> {
    pub fn new(shared: &'a SharedState<B>, work: Box<Work>, (rank, tag): (u32, u32)) -> Transfer<'a, B> {
        Transfer { shared, moving: Moving { work, peer: Peer { rank: rank as usize, tag }, event: None } }
    }

    fn begin(&mut self, kind: Kind, bytes: u64) -> Peer {
        let Moving { work, peer, event } = &mut self.moving;
        let head = work.head;
        *event = work.trace.as_mut().map(|trace| event_of(head, *peer, (kind, bytes), trace.start()));
        *peer
    }

    /// Receives directly to an address if possible, and otherwise into a buffer with the completion `staged`.
    /// `is_sound` is false if the address must not be used any more.
    pub fn receive(
        mut self,
        (to, len): (u64, u64),
        is_sound: bool,
        staged: fn(Moving, u64, Buffer) -> Completion,
    ) -> Result<()> {
        let (peer, link) = (self.begin(Kind::Receive, len), self.shared.host.link());
        if is_sound && let Some(at) = self.shared.backend.direct(to, len) {
            // SAFETY: the backend keeps the memory as long as the arena or image exists. Other accesses by the
            // program are the program's responsibility.
            let span = unsafe { Span::new(at, len as usize) };
            return link.receive_bulk(peer, span, Completion::Finish(self.moving, Buffer::default()));
        }
        stage(self.shared, peer, len, |bytes| staged(self.moving, to, bytes));
        Ok(())
    }

    /// Sends from an address, or `bytes` that were read there. A failed message reports to its peer that there is no
    /// data.
    pub fn send(mut self, from: u64, len: u64, bytes: Option<Buffer>) -> Result<()> {
        let (peer, link) = (self.begin(Kind::Send, len), self.shared.host.link());
        let mut bytes = bytes.unwrap_or_default();
        let mut at = (!bytes.is_empty()).then_some(bytes.as_mut_ptr());
        if at.is_none() && self.moving.work.failure.is_none() {
            let backend = &self.shared.backend;
            at = backend.direct(from, len);
            if at.is_none() {
                match backend.fault() {
                    Some(fault) => self.moving.work.fail(fault.failure.clone()),
                    None => {
                        let mut there = Vec::new();
                        let read = backend.read(from, len as usize, &mut there);
                        read.unwrap_or_else(|e| self.moving.work.fail_with(&e));
                        bytes = there.into();
                    }
                }
            }
        }
        if self.moving.work.failure.is_some() {
            self.moving.event = None;
            return link.refuse_bulk(peer, len as usize, Completion::Finish(self.moving, Buffer::default()));
        }
        // SAFETY: as in `receive`.
        let span = unsafe { Span::new(at.unwrap_or(bytes.as_mut_ptr()), len as usize) };
        link.send_bulk(peer, span, Completion::Finish(self.moving, bytes))
    }

    /// Receives an image, and forwards each part to up to two devices as soon as it arrives.
    pub fn receive_image(mut self, id: u32, (len, libraries): (u64, u64), to: [Option<(u32, u32)>; 2]) -> Result<()> {
        let pending = PendingImage::new(len, libraries);
        let (image, mut room) = pending.map_err(|e| e.context(format_args!("no room for an image of {len} bytes")))?;
        let from = self.begin(Kind::Image, len);
        let start = room.as_mut_ptr();
        let (moving, image) = (self.moving, Arc::new(image));
        let incoming = Arc::new(IncomingImage { id, moving, image, room, to, failure: Mutex::default() });
        for (i, range) in parts_of(len).enumerate() {
            // SAFETY: the part lies within `room`, which is kept until all parts are there.
            let span = unsafe { Span::new(start.add(range.start), range.len()) };
            let completion = Completion::PassOn(incoming.clone(), i);
            self.shared.host.link().receive_bulk(from.nth(i), span, completion)?;
        }
        finish_image(self.shared, incoming);
        Ok(())
    }
}

/// The trace event of a transfer that begins.
fn event_of(head: Head, peer: Peer, (kind, bytes): (Kind, u64), begin: u64) -> TraceEvent {
    let Head { queue, seq, .. } = head;
    TraceEvent { kind, queue, seq, what: bytes, begin, end: begin, peer: peer.rank as u32, tag: peer.tag }
}

/// Receives into a buffer.
fn stage<B>(shared: &SharedState<B>, peer: Peer, len: u64, completion: impl FnOnce(Buffer) -> Completion) {
    let mut bytes = shared.staging.take(len as usize);
    // SAFETY: the bytes do not move with the buffer, which the completion keeps until the transfer is done.
    let span = unsafe { Span::new(bytes.as_mut_ptr(), bytes.len()) };
    shared.host.link().receive_bulk_later(peer, span, completion(bytes));
}

/// Announces the bulk data of a message that waits for its turn, if the message begins with it and may have a buffer
/// now.
pub(crate) fn announce_early<B: Backend>(shared: &SharedState<B>, work: &mut Work) -> Option<Arc<Early>> {
    let (peer, to, len) = work.early_data()?;
    if shared.backend.direct(to, len).is_some() || !shared.staging.begin_ahead() {
        return None;
    }
    let event = work.trace.is_some().then(|| event_of(work.head, peer, (Kind::Receive, len), clock::now()));
    Some(work.early.insert(Early::new(peer, len, event)).clone())
}

/// Receives the bulk data that [`announce_early`] announced.
pub(crate) fn receive_early<B>(shared: &SharedState<B>, early: Arc<Early>) {
    stage(shared, early.peer, early.len, |bytes| Completion::Early(early, bytes));
}

/// It is the turn of a message whose bulk data is received early. Returns the message if the data has arrived.
pub(crate) fn take_early<B>(shared: &SharedState<B>, work: Box<Work>, to: u64, early: &Early) -> Option<Box<Work>> {
    let (work, (result, bytes)) = early.take(work, to)?;
    Some(Moving { work, peer: early.peer, event: None }.collect(shared, to, result, bytes))
}

impl Moving {
    /// Ends the transfer, and returns its message. A failed transfer is not traced.
    fn end<B>(mut self, shared: &SharedState<B>, result: Result<()>) -> Box<Work> {
        if let (Some(event), Ok(())) = (self.event, &result) {
            shared.trace.transferred(event, shared.host.is(self.peer.rank));
        }
        if let Err(e) = result {
            self.work.fail_with(&e);
        }
        self.work
    }

    /// Ends a transfer into a buffer, and writes the bytes to their address.
    fn write<B: Backend>(self, shared: &SharedState<B>, to: u64, mut result: Result<()>, bytes: Buffer) -> Box<Work> {
        if result.is_ok() && self.work.failure.is_none() {
            result = shared.backend.write(to, &bytes);
        }
        shared.staging.give(bytes);
        self.end(shared, result)
    }

    /// Ends a transfer into a buffer. The thread that continues the message writes the bytes to their address, or the
    /// kernel's launch takes them along.
    fn collect<B>(mut self, shared: &SharedState<B>, to: u64, result: Result<()>, bytes: Buffer) -> Box<Work> {
        if result.is_ok() && self.work.failure.is_none() {
            self.work.copies = Some(Box::new(Copies::of(to, bytes)));
        } else {
            shared.staging.give(bytes);
        }
        self.end(shared, result)
    }
}

/// Does what remains to be done after a transfer.
pub(crate) fn complete<B: Backend>(shared: &SharedState<B>, completion: Completion, result: Result<()>) {
    match completion {
        Completion::Finish(moving, sent) => {
            shared.staging.give(sent);
            if moving.work.is_passed {
                shared.staging.end_ahead();
            }
            shared.pool.push(moving.end(shared, result));
        }
        Completion::Write(moving, to, bytes) => shared.pool.push(moving.write(shared, to, result, bytes)),
        Completion::Collect(moving, to, bytes) => shared.pool.push(moving.collect(shared, to, result, bytes)),
        Completion::Early(early, bytes) => {
            if let (Some(event), Ok(())) = (early.event, &result) {
                shared.trace.transferred(event, shared.host.is(early.peer.rank));
            }
            if let Some((work, to, (result, bytes))) = early.arrived((result, bytes)) {
                let moving = Moving { work, peer: early.peer, event: None };
                shared.pool.push(moving.collect(shared, to, result, bytes));
            }
        }
        Completion::PassOn(incoming, i) => {
            incoming.to.iter().flatten().for_each(|&to| pass_on(shared, &incoming.image, i, to, result.is_ok()));
            if let Err(e) = result {
                incoming.failure.lock().get_or_insert(e);
            }
            finish_image(shared, incoming);
        }
        Completion::Memory(at, bytes) => shared.answers.arrive(Arrival::Bulk { at, bytes: result.map(|()| bytes) }),
        Completion::Sent(bytes) => shared.staging.give(bytes),
        Completion::Keep(image) => drop(image),
    }
}

/// Forwards a part of an image to a rank that waits for it.
fn pass_on<B>(shared: &SharedState<B>, image: &Arc<PendingImage>, i: usize, (rank, tag): (u32, u32), is_sound: bool) {
    let bytes = image.bytes();
    let range = parts_of(bytes.len() as u64).nth(i).unwrap_or_default();
    let (bytes, peer) = (&bytes[range], Peer { rank: rank as usize, tag }.nth(i));
    let (link, keep) = (shared.host.link(), Completion::Keep(image.clone()));
    shared.host.require(if is_sound {
        // SAFETY: the mapping is not written to, and the completion keeps it.
        let span = unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) };
        link.send_bulk(peer, span, keep)
    } else {
        link.refuse_bulk(peer, bytes.len(), keep)
    });
}

/// Finishes the message of an image once all parts have arrived.
fn finish_image<B>(shared: &SharedState<B>, incoming: Arc<IncomingImage>) {
    let Some(IncomingImage { id, moving, image, room, failure, .. }) = Arc::into_inner(incoming) else { return };
    // A file that is mapped for writing cannot be sealed.
    drop(room);
    shared.loader.insert(id, image);
    let failure = failure.lock().take();
    shared.pool.push(moving.end(shared, failure.map_or(Ok(()), Err)));
}
