// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Moves messages and bulk data between ranks, in order, without waiting.
//!
//! Any thread may submit at any time. One thread at a time [`Link::drive`]s:
//! it makes the transport's progress, starts what the others submitted meanwhile, and
//! hands out what arrived. What a message means is not known here.

pub mod bell;
pub mod idle;
pub mod meet;
mod sleepers;

use crate::base::deadline::{Deadline, end, end_launcher, flush_streams};
use crate::base::limits::{FRAMED, OWN_SPARE_BUFFERS, POSTED, SPARE_BUFFERS, WINDOW};
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::mpi::{Mpi, Received, Request, TAG_MESSAGE};
use crate::wire::ROOM;
use bell::Bells;
use idle::{Idle, Pace};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

/// How long the transport may take to end all ranks.
const ABORT_PATIENCE: Duration = Duration::from_secs(2);

/// What moves the bytes: MPI in a job, queues in memory in tests.
pub trait Transport: Send {
    /// Starts a send; see [`Mpi::send`].
    ///
    /// # Errors
    /// The transport's own.
    ///
    /// # Safety
    /// `data[..len]` stays valid and unchanged until the request is done.
    unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request>;

    /// Starts a receive; see [`Mpi::receive`].
    ///
    /// # Errors
    /// The transport's own.
    ///
    /// # Safety
    /// `data[..len]` stays valid and is not touched until the request is done.
    unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request>;

    /// Makes progress and tells whether the request is done.
    ///
    /// # Errors
    /// The transport's own.
    fn test(&mut self, request: &mut Request) -> Result<Option<Received>>;

    /// Gives up a receive that nothing was sent for; its memory is free then.
    fn cancel(&mut self, request: Request);

    /// Ends the transport, together with the other ranks.
    fn finish(&mut self);

    /// Ends all ranks at once.
    fn abort(&mut self, code: i32) -> !;
}

impl Transport for Mpi {
    unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { Mpi::send(self, to, tag, data, len) }
    }
    unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { Mpi::receive(self, from, tag, data, len) }
    }
    fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        Mpi::test(self, request)
    }
    fn cancel(&mut self, request: Request) {
        Mpi::cancel(self, request);
    }
    fn finish(&mut self) {
        Mpi::finish(self);
    }
    fn abort(&mut self, code: i32) -> ! {
        Mpi::abort(self, code)
    }
}

/// The far side and the name of a bulk transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The other rank.
    pub rank: usize,
    /// The tag that both sides use for this transfer, and for no other one between the same two
    /// ranks while it is under way: both ends post their pieces without knowing of the other
    /// end's order.
    pub tag: u32,
}

impl Peer {
    /// The peer of the `i`-th of several transfers that were named together.
    pub fn nth(self, i: usize) -> Peer {
        Peer { tag: self.tag.saturating_add(i as u32), ..self }
    }
}

/// Memory of a bulk transfer that the submitter promised to keep.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    at: *mut u8,
    len: usize,
}

// SAFETY: a span is handed from thread to thread as a whole; `Span::new` has the terms.
unsafe impl Send for Span {}

impl Span {
    /// Names memory for a transfer.
    ///
    /// # Safety
    /// `at[..len]` stays valid until the transfer is done: unchanged for a send,
    /// untouched for a receive.
    pub unsafe fn new(at: *mut u8, len: usize) -> Span {
        Span { at, len }
    }
}

/// Called once, by the thread that drives, when a bulk transfer is over.
pub type OnDone = Box<dyn FnOnce(Result<()>) + Send>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Out,
    /// Sends empty pieces: the data can't be had, but the other side waits for it.
    OutEmpty,
    In,
}

/// A large transfer: pieces of bounded size straight from and to user memory.
struct Bulk {
    way: Way,
    peer: Peer,
    span: Span,
    /// Bytes for which a request was started.
    started: usize,
    /// The oldest piece first, with its length.
    pieces: VecDeque<(Request, usize)>,
    short: bool,
    done: Option<OnDone>,
}

enum Job {
    Message { to: usize, bytes: Vec<u8> },
    Bulk(Bulk),
}

struct State {
    transport: Box<dyn Transport>,
    /// Receives posted for messages, the oldest first.
    posted: VecDeque<(Request, Vec<u8>)>,
    /// Buffers of receives to be posted again, when there is time: not while somebody
    /// waits for what has just been received.
    read: Vec<Vec<u8>>,
    /// Messages that may still be read from their buffers, the oldest first.
    /// Of one in frames the last has the buffer.
    sends: VecDeque<(Request, Vec<u8>)>,
    bulk: Vec<Bulk>,
    broken: Option<Error>,
    /// By rank, the beginning of a message that comes in frames.
    begun: Vec<Vec<u8>>,
    /// Message buffers for reuse that need no further lock.
    spares: Vec<Vec<u8>>,
}

/// See the module.
pub struct Link {
    state: Mutex<State, { order::LINK }>,
    /// What was submitted while another thread was driving.
    outbox: Mutex<Vec<Job>, { order::LEAF }>,
    outbox_len: AtomicUsize,
    spares: Mutex<Vec<Vec<u8>>, { order::LEAF }>,
    fragment: usize,
    unfinished_bulk: AtomicUsize,
    /// Of each rank.
    traffic: Vec<Traffic>,
    /// How often somebody has driven.
    rounds: AtomicU64,
    bells: Bells,
    frames: Vec<usize>,
}

/// Bulk data with one rank.
#[derive(Default)]
struct Traffic {
    /// Pieces that have moved.
    moved: AtomicU64,
    /// Transfers that are under way.
    unfinished: AtomicUsize,
}

/// What one [`Link::drive`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something moved.
    Made,
    /// Nothing moved.
    None,
    /// Another thread is driving.
    Elsewhere,
}

impl Link {
    /// A link over a started transport; posts the receives for messages.
    ///
    /// `frames` has of each rank how many bytes the transport carries there without asking
    /// the receiver first, where several such sends cost less than a large one. A message
    /// that is longer, but not by much, goes in frames of that length; the first that is
    /// shorter, and be it empty, ends it. Bulk data goes in pieces of `fragment` bytes, on
    /// which both ends of a transfer must agree.
    ///
    /// # Errors
    /// The transport's.
    pub fn new(transport: Box<dyn Transport>, fragment: usize, bells: Bells, frames: Vec<usize>) -> Result<Link> {
        let mut state = State {
            transport,
            posted: VecDeque::new(),
            read: Vec::new(),
            sends: VecDeque::new(),
            bulk: Vec::new(),
            broken: None,
            begun: vec![Vec::new(); frames.len()],
            spares: Vec::new(),
        };
        for _ in 0..POSTED {
            state.post(Vec::new())?;
        }
        Ok(Link {
            state: Mutex::new(state),
            outbox: Mutex::default(),
            outbox_len: AtomicUsize::new(0),
            spares: Mutex::default(),
            fragment,
            unfinished_bulk: AtomicUsize::new(0),
            traffic: frames.iter().map(|_| Traffic::default()).collect(),
            rounds: AtomicU64::new(0),
            bells,
            frames,
        })
    }

    /// For a process that takes the place of one that is gone, whose bell it has.
    pub fn start_anew(&self) {
        if let Some(bell) = self.bells.mine() {
            bell.start_anew();
        }
    }

    /// A wait for what this link brings.
    pub fn idle(&self, pace: Pace) -> Idle<'_> {
        Idle::new(pace, self.bells.mine())
    }

    /// An empty message buffer.
    #[inline]
    pub fn buffer(&self) -> Vec<u8> {
        self.spares.lock().pop().unwrap_or_else(|| Vec::with_capacity(ROOM))
    }

    /// Takes back a buffer that is not needed any more.
    #[inline]
    pub fn recycle(&self, mut buffer: Vec<u8>) {
        let mut spares = self.spares.lock();
        if spares.len() < SPARE_BUFFERS && buffer.capacity() > 0 {
            buffer.clear();
            spares.push(buffer);
        }
    }

    /// Sends a message; messages between two ranks arrive in the order of their submits.
    ///
    /// # Errors
    /// The transport is broken.
    #[inline]
    pub fn send(&self, to: usize, bytes: Vec<u8>) -> Result<()> {
        self.submit(Job::Message { to, bytes })
    }

    /// Sends bulk data.
    ///
    /// # Errors
    /// The transport is broken; `done` may not be called then.
    pub fn send_bulk(&self, peer: Peer, span: Span, done: OnDone) -> Result<()> {
        self.bulk(Way::Out, peer, span, done)
    }

    /// Sends as many empty pieces as `len` bytes would take: the receiver's transfer
    /// ends with an error instead of waiting for ever.
    ///
    /// # Errors
    /// The transport is broken; `done` may not be called then.
    pub fn refuse_bulk(&self, peer: Peer, len: usize, done: OnDone) -> Result<()> {
        self.bulk(Way::OutEmpty, peer, Span { at: std::ptr::null_mut(), len }, done)
    }

    /// Receives bulk data.
    ///
    /// # Errors
    /// The transport is broken; `done` may not be called then.
    pub fn receive_bulk(&self, peer: Peer, span: Span, done: OnDone) -> Result<()> {
        self.bulk(Way::In, peer, span, done)
    }

    fn bulk(&self, way: Way, peer: Peer, span: Span, done: OnDone) -> Result<()> {
        self.unfinished_bulk.fetch_add(1, Relaxed);
        if let Some(traffic) = self.traffic.get(peer.rank) {
            traffic.unfinished.fetch_add(1, Relaxed);
        }
        let pieces = VecDeque::with_capacity(WINDOW);
        self.submit(Job::Bulk(Bulk { way, peer, span, started: 0, pieces, short: false, done: Some(done) }))
    }

    /// True while bulk data is under way, for [`Idle::pause`].
    pub fn has_bulk(&self) -> bool {
        self.unfinished_bulk.load(Relaxed) != 0
    }

    /// How many pieces of bulk data have moved to and from a rank, and how many transfers are
    /// under way.
    pub fn bulk_with(&self, rank: usize) -> (u64, usize) {
        let traffic = self.traffic.get(rank);
        traffic.map_or((0, 0), |t| (t.moved.load(Relaxed), t.unfinished.load(Relaxed)))
    }

    /// Changes whenever a thread has looked for what other ranks sent.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Relaxed)
    }

    #[inline]
    fn submit(&self, job: Job) -> Result<()> {
        let Some(mut state) = self.state.try_lock() else {
            // Whoever drives now or next starts it: every waiting thread drives.
            let mut outbox = self.outbox.lock();
            outbox.push(job);
            self.outbox_len.store(outbox.len(), Relaxed);
            return Ok(());
        };
        if let Some(e) = &state.broken {
            return Err(e.clone());
        }
        let started = self.start_outbox(&mut state).and_then(|()| self.start(&mut state, job));
        started.inspect_err(|e| state.broken = Some(e.clone()))
    }

    #[inline]
    fn start_outbox(&self, state: &mut State) -> Result<()> {
        if self.outbox_len.load(Relaxed) == 0 {
            return Ok(());
        }
        let jobs = {
            let mut outbox = self.outbox.lock();
            self.outbox_len.store(0, Relaxed);
            std::mem::take(&mut *outbox)
        };
        jobs.into_iter().try_for_each(|job| self.start(state, job))
    }

    #[inline]
    fn start(&self, state: &mut State, job: Job) -> Result<()> {
        match job {
            Job::Message { to, bytes } => {
                let frame = self.frames.get(to).copied().filter(|_| bytes.len() <= FRAMED).unwrap_or(usize::MAX);
                let mut rest = bytes.as_slice();
                while rest.len() >= frame {
                    let (now, later) = rest.split_at(frame);
                    // SAFETY: as below.
                    let request = unsafe { state.transport.send(to, TAG_MESSAGE, now.as_ptr(), frame)? };
                    state.sends.push_back((request, Vec::new()));
                    rest = later;
                }
                // SAFETY: the vector moves into its list, which does not move its bytes, and
                // stays there untouched until this and earlier requests are done.
                let request = unsafe { state.transport.send(to, TAG_MESSAGE, rest.as_ptr(), rest.len())? };
                state.sends.push_back((request, bytes));
                self.bells.ring(to);
            }
            Job::Bulk(mut bulk) => {
                bulk.start_pieces(&mut *state.transport, self.fragment)?;
                // The other end may have waited for it for long.
                self.bells.ring(bulk.peer.rank);
                state.bulk.push(bulk);
            }
        }
        Ok(())
    }

    /// Makes progress; `on_message(from, bytes)` is called for each message that arrived,
    /// in order; it may take the buffer. It and the transfers' `done`
    /// run inside: they may submit but not drive.
    ///
    /// # Errors
    /// The transport is broken, now or since before.
    #[inline]
    pub fn drive(&self, on_message: &mut dyn FnMut(usize, &mut Vec<u8>)) -> Result<Progress> {
        let Some(mut state) = self.state.try_lock() else { return Ok(Progress::Elsewhere) };
        if let Some(e) = &state.broken {
            return Err(e.clone());
        }
        self.drive_locked(&mut state, on_message).inspect_err(|e| state.broken = Some(e.clone()))
    }

    fn drive_locked(&self, state: &mut State, on_message: &mut dyn FnMut(usize, &mut Vec<u8>)) -> Result<Progress> {
        self.start_outbox(state)?;
        state.post_again()?;
        self.rounds.store(self.rounds.load(Relaxed).wrapping_add(1), Relaxed);
        let mut progress = Progress::None;
        while let Some((request, _)) = state.sends.front_mut() {
            if state.transport.test(request)?.is_none() {
                break;
            }
            let (_, buffer) = state.sends.pop_front().expect("there is a front");
            if state.spares.len() >= OWN_SPARE_BUFFERS {
                self.recycle(buffer);
            } else if buffer.capacity() > 0 {
                state.spares.push(buffer);
            }
        }
        if !state.bulk.is_empty() && self.drive_bulk(state)? {
            progress = Progress::Made;
        }
        while let Some((request, _)) = state.posted.front_mut() {
            let Some(got) = state.transport.test(request)? else { break };
            let (_, mut buffer) = state.posted.pop_front().expect("there is a front");
            // SAFETY: the transport wrote `len` bytes into the capacity that was posted.
            unsafe { buffer.set_len(got.len.min(buffer.capacity())) };
            progress = Progress::Made;
            let framed = self.frames.get(got.from) == Some(&got.len);
            if let Some(begun) = state.begun.get_mut(got.from).filter(|b| framed || !b.is_empty()) {
                begun.extend_from_slice(&buffer);
                if begun.len() > FRAMED {
                    return Err(Error::new(format!("rank {} sent more frames than a message has", got.from)));
                }
                if !framed {
                    let mut whole = std::mem::take(begun);
                    on_message(got.from, &mut whole);
                    self.recycle(whole);
                }
            } else {
                on_message(got.from, &mut buffer);
            }
            state.read.push(buffer);
        }
        Ok(progress)
    }

    fn drive_bulk(&self, state: &mut State) -> Result<bool> {
        let State { transport, bulk, .. } = state;
        let mut moved = false;
        let mut i = 0;
        while i < bulk.len() {
            let transfer = &mut bulk[i];
            let traffic = self.traffic.get(transfer.peer.rank);
            while let Some((request, len)) = transfer.pieces.front_mut() {
                let tested = transport.test(request);
                let tested = tested.map_err(|e| e.context(format_args!("data to or from rank {}", transfer.peer.rank)));
                let Some(got) = tested? else { break };
                if let Some(traffic) = traffic {
                    traffic.moved.fetch_add(1, Relaxed);
                }
                transfer.short |= transfer.way == Way::In && got.len != *len;
                transfer.pieces.pop_front();
                moved = true;
            }
            transfer.start_pieces(&mut **transport, self.fragment)?;
            if transfer.pieces.is_empty() {
                let transfer = bulk.swap_remove(i);
                self.unfinished_bulk.fetch_sub(1, Relaxed);
                if let Some(traffic) = traffic {
                    traffic.unfinished.fetch_sub(1, Relaxed);
                }
                if let Some(done) = transfer.done {
                    done(if transfer.short { Err(Error::new("the sender could not send the data")) } else { Ok(()) });
                }
            } else {
                i += 1;
            }
        }
        Ok(moved)
    }

    /// True if nothing submitted is still to be sent.
    pub fn is_flushed(&self) -> bool {
        let Some(state) = self.state.try_lock() else { return false };
        self.outbox_len.load(Relaxed) == 0 && state.sends.is_empty() && state.bulk.is_empty()
    }

    /// Ends the transport together with the other ranks. Messages that were received in
    /// advance are given up.
    pub fn finish(&self) {
        let mut state = self.state.lock();
        state.broken = Some(Error::Told);
        for (request, _) in std::mem::take(&mut state.posted) {
            state.transport.cancel(request);
        }
        state.transport.finish();
    }

    /// Leaves the transport as it is: whoever uses the link from here on gets an error. (Or waits
    /// for a thread that has had the link locked all this time.)
    pub fn leave(&self, patience: Duration) {
        if let Some(mut state) = self.state.try_lock_for(patience) {
            state.broken = Some(Error::Told);
        }
    }

    /// Ends all ranks at once, and this process in any case: what MPI does to that end may
    /// wait for a network that is gone.
    pub fn abort(&self, code: i32) -> ! {
        end_launcher(2 * ABORT_PATIENCE);
        let _runs = Deadline::start(ABORT_PATIENCE, code, || {});
        flush_streams();
        match self.state.try_lock_for(ABORT_PATIENCE) {
            Some(mut state) => state.transport.abort(code),
            None => end(code),
        }
    }
}

impl State {
    #[inline]
    fn post_again(&mut self) -> Result<()> {
        while let Some(buffer) = self.read.pop() {
            self.post(buffer)?;
        }
        Ok(())
    }

    fn post(&mut self, mut buffer: Vec<u8>) -> Result<()> {
        if buffer.capacity() == 0 {
            buffer = self.spares.pop().unwrap_or_default();
        }
        buffer.clear();
        buffer.reserve_exact(ROOM);
        // SAFETY: the vector moves into `posted`, which does not move its bytes, and is
        // not touched until the request is done.
        let request = unsafe { self.transport.receive(None, TAG_MESSAGE, buffer.as_mut_ptr(), ROOM)? };
        self.posted.push_back((request, buffer));
        Ok(())
    }
}

impl Bulk {
    fn start_pieces(&mut self, transport: &mut dyn Transport, fragment: usize) -> Result<()> {
        let Peer { rank, tag } = self.peer;
        while self.started < self.span.len && self.pieces.len() < WINDOW {
            let len = (self.span.len - self.started).min(fragment);
            let at = self.span.at.wrapping_add(self.started);
            // SAFETY: `Span::new` has the promise that the memory stays valid; an empty
            // piece touches no memory.
            let request = unsafe {
                match self.way {
                    Way::Out => transport.send(rank, tag, at, len)?,
                    Way::OutEmpty => transport.send(rank, tag, std::ptr::dangling(), 0)?,
                    Way::In => transport.receive(Some(rank), tag, at, len)?,
                }
            };
            self.pieces.push_back((request, len));
            self.started += len;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mpi::TAG_BULK;
    use parking_lot::Mutex;
    use proptest::prelude::*;
    use std::sync::Arc;

    type Mail = Arc<Mutex<Vec<VecDeque<(usize, u32, Vec<u8>)>>>>;

    /// From whom, tag, room.
    type Receive = (Option<usize>, u32, *mut u8, usize);

    /// Ranks in one process: a send is done when it was copied.
    struct Memory {
        rank: usize,
        mail: Mail,
        /// By request; none if it is done.
        receives: Vec<Option<Receive>>,
    }

    // SAFETY: the pointers are used by whoever has the transport, as those of MPI.
    unsafe impl Send for Memory {}

    const SENT: u64 = u64::MAX;

    impl Transport for Memory {
        unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request> {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(data, len) }.to_vec();
            self.mail.lock()[to].push_back((self.rank, tag, bytes));
            Ok(Request(SENT))
        }
        unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
            self.receives.push(Some((from, tag, data, len)));
            Ok(Request(self.receives.len() as u64 - 1))
        }
        fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
            if request.0 == SENT {
                return Ok(Some(Received { from: self.rank, len: 0 }));
            }
            let slot = &mut self.receives[request.0 as usize];
            let (from, tag, data, len) = slot.expect("a request is tested until it is done");
            let mail = &mut self.mail.lock()[self.rank];
            let found = mail.iter().position(|(f, t, _)| *t == tag && from.is_none_or(|from| from == *f));
            let Some((from, _, bytes)) = found.and_then(|i| mail.remove(i)) else { return Ok(None) };
            assert!(bytes.len() <= len, "a message is longer than its receive");
            // SAFETY: the poster's promise.
            unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len()) };
            *slot = None;
            Ok(Some(Received { from, len: bytes.len() }))
        }
        fn cancel(&mut self, _: Request) {}
        fn finish(&mut self) {}
        fn abort(&mut self, code: i32) -> ! {
            panic!("aborted with {code}")
        }
    }

    fn links(ranks: usize, frame: usize) -> Vec<Link> {
        let mail: Mail = Arc::new(Mutex::new(vec![VecDeque::new(); ranks]));
        let link = |rank| {
            let transport = Memory { rank, mail: mail.clone(), receives: Vec::new() };
            Link::new(Box::new(transport), 1000, Bells::default(), vec![frame; ranks]).unwrap()
        };
        (0..ranks).map(link).collect()
    }

    proptest! {
        #[test]
        fn messages_of_any_length_arrive_whole_and_in_order(
            frame in 1usize..5000,
            lens in prop::collection::vec((0usize..2, prop_oneof![0usize..ROOM.min(20_000), Just(5000), 4990usize..5010]), 1..40)
        ) {
            let links = links(3, frame.max(500));
            let content = |i: usize, len: usize| vec![i as u8; len];
            for (i, &(from, len)) in lens.iter().enumerate() {
                links[from].send(2, content(i, len)).unwrap();
            }
            let mut got = [Vec::new(), Vec::new()];
            while links[2].drive(&mut |from, bytes| got[from].push(bytes.clone())).unwrap() == Progress::Made {}
            for (from, got) in got.into_iter().enumerate() {
                let sent = lens.iter().enumerate().filter(|(_, l)| l.0 == from).map(|(i, l)| content(i, l.1));
                prop_assert!(got.into_iter().eq(sent));
            }
            // As many receives are posted as ever.
            let state = links[2].state.lock();
            prop_assert_eq!(state.posted.len() + state.read.len(), POSTED);
        }

        #[test]
        fn bulk_data_goes_in_pieces(len in 1usize..20_000) {
            let links = links(2, 4000);
            let from: Vec<u8> = (0..len).map(|i| (i * 7) as u8).collect();
            let mut to = vec![0u8; len];
            let done = Arc::new(AtomicUsize::new(0));
            let count = || -> OnDone {
                let done = done.clone();
                Box::new(move |result| { result.unwrap(); done.fetch_add(1, Relaxed); })
            };
            // SAFETY: both outlive the transfer, which ends below.
            let (out, room) = unsafe { (Span::new(from.as_ptr().cast_mut(), len), Span::new(to.as_mut_ptr(), len)) };
            let tag = TAG_BULK + 9;
            links[1].receive_bulk(Peer { rank: 0, tag }, room, count()).unwrap();
            links[0].send_bulk(Peer { rank: 1, tag }, out, count()).unwrap();
            while done.load(Relaxed) < 2 {
                links[0].drive(&mut |_, _| {}).unwrap();
                links[1].drive(&mut |_, _| {}).unwrap();
            }
            prop_assert_eq!(from, to);
        }
    }
}
