// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Moves messages and bulk data between ranks, in order and without blocking.
//!
//! Any thread may submit at any time. The thread that holds the [`Inbox`] drives: it progresses the transport,
//! starts the submissions of other threads, and takes what has arrived. It handles the arrivals after it has
//! released the link. This folder does not interpret messages and makes no callbacks.

pub mod backoff;
pub mod doorbell;
mod sleepers;

use crate::base::limits::{FRAMES, OWN_SPARE_BUFFERS, POSTED, SPARE_BUFFERS, WINDOW};
use crate::base::lock::{Guard, Mutex, order};
use crate::base::{Error, Result};
use crate::mpi::{Mpi, Received, Request, TAG_MESSAGE};
use crate::wire::ROOM;
use backoff::{BULK_PATIENCE, Backoff, BackoffPolicy, far_patience};
use doorbell::Doorbells;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// One deferred submission starts at least every this many rounds, even if the link is busy.
const LATER_ROUNDS: u64 = 8;

/// What moves the bytes: MPI in a job, in-memory queues in tests.
pub trait Transport: Send {
    /// Starts a send; see [`Mpi::send`].
    ///
    /// # Safety
    /// `data[..len]` stays valid and unchanged until the request is done.
    unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request>;

    /// Starts a receive; see [`Mpi::receive`].
    ///
    /// # Safety
    /// `data[..len]` stays valid and is not touched until the request is done.
    unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request>;

    /// Makes progress; returns the result of a request once it is done.
    ///
    /// # Safety
    /// This transport made the request, and has not returned it as done or failed.
    unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>>;

    /// Cancels a receive that no send matches; its memory may then be reused.
    ///
    /// # Safety
    /// As for `test`.
    unsafe fn cancel(&mut self, request: Request);

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
    unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        // SAFETY: the caller's promise.
        unsafe { Mpi::test(self, request) }
    }
    unsafe fn cancel(&mut self, request: Request) {
        // SAFETY: the caller's promise.
        unsafe { Mpi::cancel(self, request) };
    }
    fn finish(&mut self) {
        Mpi::finish(self);
    }
    fn abort(&mut self, code: i32) -> ! {
        Mpi::abort(self, code)
    }
}

/// What a link knows about another rank.
#[derive(Clone, Copy, Debug)]
pub struct Endpoint {
    /// The largest size of an eager send, which does not ask the receiver first, where several of these cost less than
    /// a large one. A message of this length or more, up to `limits::FRAMES` times as long, is sent in frames of this
    /// length; the first shorter frame, possibly an empty one, ends it. Both ends must agree on this length.
    pub frame: usize,
    /// The rank is on another node.
    pub is_far: bool,
}

/// The other end of a bulk transfer, and the transfer's tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The other rank.
    pub rank: usize,
    /// No other transfer between the same two ranks may use this tag at the same time: each end posts its pieces
    /// without knowing the other end's order. Exception: transfers of one piece each ([`Link::fragment`]) in one
    /// direction may share a tag if both ends submit them one after the other in the same order, which is then the
    /// order in which the transport matches them.
    pub tag: u32,
}

impl Peer {
    /// The peer of transfer `i` in a series with consecutive tags.
    pub fn nth(self, i: usize) -> Peer {
        Peer { tag: self.tag.saturating_add(i as u32), ..self }
    }
}

/// Memory of a bulk transfer; the submitter promises to keep it.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    at: *mut u8,
    len: usize,
}

// SAFETY: a span moves between threads as a whole; `Span::new` states the terms.
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

/// What [`Link::drive`] delivers. A thread that is handling it keeps others from driving, so messages are handled in
/// order.
#[derive(Debug)]
pub struct Inbox<C> {
    /// Finished bulk transfers, each with an error if the data was unavailable.
    pub completed: Vec<(C, Result<()>)>,
    message: Option<(usize, Vec<u8>)>,
    /// Buffers of handled messages.
    read: Vec<Vec<u8>>,
}

impl<C> Default for Inbox<C> {
    fn default() -> Inbox<C> {
        Inbox { completed: Vec::new(), message: None, read: Vec::new() }
    }
}

impl<C> Inbox<C> {
    /// Takes the message that arrived, if any, and its sender's rank.
    #[inline]
    pub fn take_message(&mut self) -> Option<(usize, Vec<u8>)> {
        self.message.take()
    }

    /// Takes back the buffer of a handled message.
    #[inline]
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        self.read.push(buffer);
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Out,
    /// Sends empty pieces: the data is unavailable, but the other side waits for it.
    OutEmpty,
    In,
}

/// A large transfer in pieces of bounded size, directly from or to user memory.
struct Bulk<C> {
    direction: Direction,
    peer: Peer,
    span: Span,
    /// Bytes for which requests were started.
    started: usize,
    /// The requests in flight, each with its length, oldest first.
    pieces: VecDeque<(Request, usize)>,
    short: bool,
    completion: C,
}

/// A send of a message, or of a frame of it; the last frame has the message's buffer.
struct Sending {
    request: Request,
    buffer: Vec<u8>,
}

enum Submission<C> {
    Message { to: usize, bytes: Vec<u8> },
    Bulk(Bulk<C>),
}

struct State<C> {
    transport: Box<dyn Transport>,
    /// Receives posted for messages, oldest first.
    posted: VecDeque<(Request, Vec<u8>)>,
    /// Sends in flight by rank, oldest first.
    sends: Vec<VecDeque<Sending>>,
    /// The ranks that have sends in flight; the first is tested next.
    sending: VecDeque<usize>,
    bulk: Vec<Bulk<C>>,
    broken: Option<Error>,
    /// By rank, the beginning of a message that arrives in frames.
    begun: Vec<Vec<u8>>,
    /// Message buffers for reuse that need no further lock.
    spares: Vec<Vec<u8>>,
    /// The submissions that are being started; kept empty otherwise, to reuse its memory.
    starting: Vec<Submission<C>>,
}

/// The connection of this rank to all others. A bulk transfer is submitted with a `C`, which keeps the transfer's
/// memory. The link returns it in the [`Inbox`] when the transfer is over.
pub struct Link<C> {
    state: Mutex<State<C>, { order::LINK }>,
    /// Submissions that are not started yet, in order.
    outbox: Mutex<Vec<Submission<C>>, { order::LEAF }>,
    outbox_len: AtomicUsize,
    /// Submissions that can wait until the link is otherwise idle.
    later: Mutex<VecDeque<Submission<C>>, { order::LEAF }>,
    /// The length of `later`.
    later_len: AtomicUsize,
    spares: Mutex<Vec<Vec<u8>>, { order::LEAF }>,
    fragment: usize,
    unfinished_bulk: AtomicUsize,
    /// Bytes of the pieces in flight to and from other nodes, as of the last round.
    far_bytes: AtomicUsize,
    /// By rank.
    traffic: Vec<Traffic>,
    /// How often a thread has driven.
    rounds: AtomicU64,
    doorbells: Doorbells,
    /// By rank.
    endpoints: Vec<Endpoint>,
}

/// Bulk data to and from one rank.
#[derive(Default)]
struct Traffic {
    /// Pieces that have moved.
    moved: AtomicU64,
    /// Transfers in flight.
    unfinished: AtomicUsize,
}

/// The result of [`Link::drive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Something moved.
    Made,
    /// Nothing moved.
    None,
    /// Another thread is driving.
    Elsewhere,
}

impl<C> Link<C> {
    /// Creates a link over a started transport, and posts the receives for messages.
    ///
    /// `endpoints` is indexed by rank; a rank beyond its end is near and gets whole messages. Bulk data is sent in pieces
    /// of `fragment` bytes; both ends of a transfer must agree on this size.
    pub fn new(
        transport: Box<dyn Transport>,
        fragment: usize,
        doorbells: Doorbells,
        endpoints: Vec<Endpoint>,
    ) -> Result<Link<C>> {
        let mut state = State {
            transport,
            posted: VecDeque::new(),
            sends: Vec::new(),
            sending: VecDeque::new(),
            bulk: Vec::new(),
            broken: None,
            begun: vec![Vec::new(); endpoints.len()],
            spares: Vec::new(),
            starting: Vec::new(),
        };
        state.post(&mut Vec::new())?;
        Ok(Link {
            state: Mutex::new(state),
            outbox: Mutex::default(),
            outbox_len: AtomicUsize::new(0),
            later: Mutex::default(),
            later_len: AtomicUsize::new(0),
            spares: Mutex::default(),
            fragment,
            unfinished_bulk: AtomicUsize::new(0),
            far_bytes: AtomicUsize::new(0),
            traffic: endpoints.iter().map(|_| Traffic::default()).collect(),
            rounds: AtomicU64::new(0),
            doorbells,
            endpoints,
        })
    }

    /// The doorbells of this rank and of the others on its node.
    pub fn doorbells(&self) -> &Doorbells {
        &self.doorbells
    }

    /// Starts a wait for progress of this link.
    pub fn backoff(&self, policy: BackoffPolicy) -> Backoff<'_> {
        Backoff::new(policy, self.doorbells.mine())
    }

    /// An empty message buffer.
    #[inline]
    pub fn buffer(&self) -> Vec<u8> {
        self.spares.lock().pop().unwrap_or_else(|| Vec::with_capacity(ROOM))
    }

    /// Takes back a buffer for reuse.
    #[inline]
    pub fn recycle(&self, mut buffer: Vec<u8>) {
        let mut spares = self.spares.lock();
        if spares.len() < SPARE_BUFFERS && buffer.capacity() > 0 {
            buffer.clear();
            spares.push(buffer);
        }
    }

    /// Sends a message. Messages between two ranks arrive in the order of submission.
    #[inline]
    pub fn send(&self, to: usize, bytes: Vec<u8>) -> Result<()> {
        self.submit(Submission::Message { to, bytes })
    }

    /// Submits a message that [`Link::start`] sends.
    #[inline]
    pub fn enqueue(&self, to: usize, bytes: Vec<u8>) {
        self.push(Submission::Message { to, bytes });
    }

    /// Sends bulk data. If the transport is broken, `completion` is not returned.
    pub fn send_bulk(&self, peer: Peer, span: Span, completion: C) -> Result<()> {
        self.submit(self.bulk(Direction::Out, peer, span, completion))
    }

    /// Sends as many empty pieces as `len` bytes would take: the receiver's transfer fails instead of waiting
    /// forever.
    pub fn refuse_bulk(&self, peer: Peer, len: usize, completion: C) -> Result<()> {
        self.submit(self.bulk(Direction::OutEmpty, peer, Span { at: std::ptr::null_mut(), len }, completion))
    }

    /// Receives bulk data; fails like [`Link::send_bulk`].
    pub fn receive_bulk(&self, peer: Peer, span: Span, completion: C) -> Result<()> {
        self.submit(self.bulk(Direction::In, peer, span, completion))
    }

    /// [`Link::receive_bulk`], started by the driving thread after it has drained arrivals: MPI may copy all of the
    /// data in the call that starts the receive.
    pub fn receive_bulk_later(&self, peer: Peer, span: Span, completion: C) {
        let bulk = self.bulk(Direction::In, peer, span, completion);
        let mut later = self.later.lock();
        later.push_back(bulk);
        self.later_len.store(later.len(), Relaxed);
        drop(later);
        self.wake_driver();
    }

    fn bulk(&self, direction: Direction, peer: Peer, span: Span, completion: C) -> Submission<C> {
        self.unfinished_bulk.fetch_add(1, Relaxed);
        if let Some(traffic) = self.traffic.get(peer.rank) {
            traffic.unfinished.fetch_add(1, Relaxed);
        }
        let pieces = VecDeque::with_capacity(WINDOW);
        Submission::Bulk(Bulk { direction, peer, span, started: 0, pieces, short: false, completion })
    }

    /// Bytes of the largest piece of bulk data.
    pub fn fragment(&self) -> usize {
        self.fragment
    }

    /// True while bulk data is in flight.
    pub fn has_bulk(&self) -> bool {
        self.unfinished_bulk.load(Relaxed) != 0
    }

    /// For [`Backoff::pause`]: how long a wait yields before it sleeps. `None` without bulk data in flight.
    #[inline]
    pub fn bulk_patience(&self) -> Option<Duration> {
        self.has_bulk().then(|| BULK_PATIENCE + far_patience(self.far_bytes.load(Relaxed)))
    }

    /// How many bulk pieces have moved to and from a rank, and how many transfers are in flight.
    pub fn bulk_with(&self, rank: usize) -> (u64, usize) {
        let traffic = self.traffic.get(rank);
        traffic.map_or((0, 0), |t| (t.moved.load(Relaxed), t.unfinished.load(Relaxed)))
    }

    /// Changes whenever a thread has polled for arrivals.
    pub fn rounds(&self) -> u64 {
        self.rounds.load(Relaxed)
    }

    #[inline]
    fn submit(&self, job: Submission<C>) -> Result<()> {
        self.push(job);
        self.start()
    }

    #[inline]
    fn push(&self, job: Submission<C>) {
        let mut outbox = self.outbox.lock();
        outbox.push(job);
        self.outbox_len.store(outbox.len(), Relaxed);
    }

    /// Starts what was submitted, unless another thread drives.
    #[inline]
    pub fn start(&self) -> Result<()> {
        let Some(mut state) = self.state.try_lock() else {
            // The thread that drives now or next starts the submission: every waiting thread drives. Wake it, because
            // it may be about to sleep.
            self.wake_driver();
            return Ok(());
        };
        if let Some(e) = &state.broken {
            let unsent = std::mem::take(&mut *self.outbox.lock());
            self.outbox_len.store(0, Relaxed);
            // Not under the outbox's lock: what a completion keeps may take another one.
            drop(unsent);
            return Err(e.clone());
        }
        self.start_outbox(&mut state).inspect_err(|e| state.broken = Some(e.clone()))
    }

    /// Wakes this process's driving thread if it sleeps.
    pub fn wake_driver(&self) {
        if let Some(doorbell) = self.doorbells.mine() {
            doorbell.ring();
        }
    }

    /// Starts one deferred submission. True if there was one.
    #[cold]
    fn start_later(&self, state: &mut State<C>) -> Result<bool> {
        let mut later = self.later.lock();
        let first = later.pop_front();
        self.later_len.store(later.len(), Relaxed);
        drop(later);
        first.map_or(Ok(false), |job| self.start_one(state, job).map(|()| true))
    }

    #[inline]
    fn start_outbox(&self, state: &mut State<C>) -> Result<()> {
        if self.outbox_len.load(Relaxed) == 0 {
            return Ok(());
        }
        let mut jobs = std::mem::take(&mut state.starting);
        let mut outbox = self.outbox.lock();
        std::mem::swap(&mut *outbox, &mut jobs);
        self.outbox_len.store(0, Relaxed);
        drop(outbox);
        let started = jobs.drain(..).try_for_each(|job| self.start_one(state, job));
        state.starting = jobs;
        started
    }

    #[inline]
    fn start_one(&self, state: &mut State<C>, job: Submission<C>) -> Result<()> {
        match job {
            Submission::Message { to, bytes } => {
                let is_framed = |frame: &usize| bytes.len() <= frame.saturating_mul(FRAMES);
                let frame = self.endpoints.get(to).map(|to| to.frame).filter(is_framed).unwrap_or(usize::MAX);
                let mut rest = bytes.as_slice();
                loop {
                    let len = rest.len().min(frame);
                    // SAFETY: the vector moves into its list, which does not move its bytes, and stays there untouched
                    // until the requests of all frames are done; or it is leaked.
                    match unsafe { state.transport.send(to, TAG_MESSAGE, rest.as_ptr(), len) } {
                        Ok(request) if len < frame => {
                            state.push_send(to, Sending { request, buffer: bytes });
                            break;
                        }
                        Ok(request) => state.push_send(to, Sending { request, buffer: Vec::new() }),
                        Err(e) => {
                            // The transport may read earlier frames from the vector as long as MPI runs.
                            std::mem::forget(bytes);
                            return Err(e);
                        }
                    }
                    rest = &rest[len..];
                }
                self.doorbells.ring(to);
            }
            Submission::Bulk(mut bulk) => {
                let started = bulk.start_pieces(&mut *state.transport, self.fragment);
                // The other end may have waited long enough to sleep.
                self.doorbells.ring(bulk.peer.rank);
                // Keep it even after an error: the pieces started before use the memory.
                state.bulk.push(bulk);
                started?;
            }
        }
        Ok(())
    }

    /// Makes progress, and fills `inbox` with finished bulk transfers and at most one message, which the caller must
    /// take, even if it returns an error. After [`Progress::Made`] there may be more.
    ///
    /// # Errors
    /// The transport is broken, now or since an earlier call.
    #[inline]
    pub fn drive(&self, inbox: &mut Inbox<C>) -> Result<Progress> {
        let Some(mut state) = self.state.try_lock() else { return Ok(Progress::Elsewhere) };
        if let Some(e) = &state.broken {
            return Err(e.clone());
        }
        self.drive_locked(&mut state, inbox).inspect_err(|e| state.broken = Some(e.clone()))
    }

    fn drive_locked(&self, state: &mut State<C>, inbox: &mut Inbox<C>) -> Result<Progress> {
        self.start_outbox(state)?;
        // Post now, not when a message arrives: by now it is handled, so nothing waits for that.
        state.post(&mut inbox.read)?;
        self.rounds.store(self.rounds.load(Relaxed).wrapping_add(1), Relaxed);
        let mut progress = Progress::None;
        while let Some(&to) = state.sending.front() {
            let sends = &mut state.sends[to];
            let send = sends.front_mut().expect("the rank has some");
            // SAFETY: this transport made the request, which leaves the list when it is done; if it fails, the link is
            // broken.
            if unsafe { state.transport.test(&mut send.request) }?.is_none() {
                // One unsuccessful test per call, of each rank in turn: a busy rank does not delay the others.
                state.sending.rotate_left(1);
                break;
            }
            let Sending { buffer, .. } = sends.pop_front().expect("there is a front");
            if sends.is_empty() {
                state.sending.pop_front();
            }
            if state.spares.len() >= OWN_SPARE_BUFFERS {
                self.recycle(buffer);
            } else if buffer.capacity() > 0 {
                state.spares.push(buffer);
            }
        }
        if !state.bulk.is_empty() && self.drive_bulk(state, &mut inbox.completed)? {
            progress = Progress::Made;
        }
        while inbox.message.is_none()
            && let Some((request, _)) = state.posted.front_mut()
        {
            // SAFETY: as above.
            let Some(got) = unsafe { state.transport.test(request) }? else { break };
            let (_, mut buffer) = state.posted.pop_front().expect("there is a front");
            // SAFETY: the transport wrote `len` bytes into the capacity that was posted.
            unsafe { buffer.set_len(got.len.min(buffer.capacity())) };
            progress = Progress::Made;
            let framed = self.endpoints.get(got.from).is_some_and(|from| from.frame == got.len);
            if let Some(begun) = state.begun.get_mut(got.from).filter(|b| framed || !b.is_empty()) {
                begun.extend_from_slice(&buffer);
                if begun.len() > ROOM {
                    return Err(Error::new(format!("rank {} sent more frames than a message has", got.from)));
                }
                inbox.read.push(buffer);
                if !framed {
                    inbox.message = Some((got.from, std::mem::take(begun)));
                }
            } else {
                inbox.message = Some((got.from, buffer));
            }
        }
        if self.later_len.load(Relaxed) > 0
            && (progress == Progress::None || self.rounds().is_multiple_of(LATER_ROUNDS))
            && self.start_later(state)?
        {
            progress = Progress::Made;
        }
        Ok(progress)
    }

    fn drive_bulk(&self, state: &mut State<C>, completed: &mut Vec<(C, Result<()>)>) -> Result<bool> {
        let State { transport, bulk, .. } = state;
        let mut moved = false;
        let mut i = 0;
        while i < bulk.len() {
            let transfer = &mut bulk[i];
            let traffic = self.traffic.get(transfer.peer.rank);
            while let Some((request, len)) = transfer.pieces.front_mut() {
                // SAFETY: as for messages.
                let tested = unsafe { transport.test(request) };
                let tested = tested.map_err(|e| e.context(format_args!("data to or from rank {}", transfer.peer.rank)));
                let Some(got) = tested? else { break };
                if let Some(traffic) = traffic {
                    traffic.moved.fetch_add(1, Relaxed);
                }
                transfer.short |= transfer.direction == Direction::In && got.len != *len;
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
                let sound = if transfer.short { Err(Error::new("the sender could not send the data")) } else { Ok(()) };
                completed.push((transfer.completion, sound));
            } else {
                i += 1;
            }
        }
        let is_far = |rank: usize| self.endpoints.get(rank).is_some_and(|to| to.is_far);
        let far = bulk.iter().filter(|transfer| is_far(transfer.peer.rank));
        self.far_bytes.store(far.flat_map(|transfer| &transfer.pieces).map(|(_, len)| len).sum(), Relaxed);
        Ok(moved)
    }

    /// Copies memory by a message of this rank to itself, `me`. Returns false if that takes longer than `patience`. An
    /// error of this copy does not break the link. Unless the result is true, the transport may use the memory as long
    /// as the process exists.
    pub fn copy(&self, me: Peer, to: Span, from: Span, patience: Duration) -> Result<bool> {
        let end = Instant::now() + patience;
        let started = {
            let transport = &mut self.lock_sound()?.transport;
            // SAFETY: `Span::new` requires the memory to stay valid.
            unsafe {
                let receive = transport.receive(Some(me.rank), me.tag, to.at, to.len)?;
                [transport.send(me.rank, me.tag, from.at, from.len)?, receive]
            }
        };
        for mut request in started {
            // SAFETY: this transport made the request, which is not tested again once it is done or failed.
            while unsafe { self.lock_sound()?.transport.test(&mut request) }?.is_none() {
                if Instant::now() >= end {
                    return Ok(false);
                }
                // Other threads may drive meanwhile.
                std::thread::yield_now();
            }
        }
        Ok(true)
    }

    /// Locks the state, after waiting for the driving thread. Fails if the transport is broken.
    fn lock_sound(&self) -> Result<Guard<'_, State<C>, { order::LINK }>> {
        let state = self.state.lock();
        match &state.broken {
            Some(e) => Err(e.clone()),
            None => Ok(state),
        }
    }

    /// True if the transport has taken all messages to a rank, or if they are started and another thread polls for
    /// them.
    pub fn is_sent(&self, rank: usize) -> bool {
        let Some(state) = self.state.try_lock() else { return self.outbox_len.load(Relaxed) == 0 };
        self.outbox_len.load(Relaxed) == 0 && state.sends.get(rank).is_none_or(VecDeque::is_empty)
    }

    /// True if no send and no bulk transfer is pending.
    pub fn is_flushed(&self) -> bool {
        let Some(state) = self.state.try_lock() else { return false };
        let is_started = self.outbox_len.load(Relaxed) + self.later_len.load(Relaxed) == 0;
        is_started && state.sending.is_empty() && state.bulk.is_empty()
    }

    /// True if fewer than `most` messages wait to be sent; false if another thread holds the link.
    pub fn has_fewer_unsent(&self, most: usize) -> bool {
        let Some(state) = self.state.try_lock() else { return false };
        self.outbox_len.load(Relaxed) + state.sends.iter().map(VecDeque::len).sum::<usize>() < most
    }

    /// Ends the transport together with the other ranks, after canceling the posted receives.
    pub fn finish(&self) {
        let mut state = self.state.lock();
        let was_sound = state.broken.replace(Error::Closed).is_none();
        for (request, buffer) in std::mem::take(&mut state.posted) {
            if was_sound {
                // SAFETY: this transport made the request, which is not done: no call has failed.
                unsafe { state.transport.cancel(request) };
            } else {
                std::mem::forget(buffer);
            }
        }
        state.transport.finish();
    }

    /// Leaves the transport as it is: later uses of the link fail. If another thread keeps the link locked for all
    /// of `patience`, later uses wait for that thread instead.
    pub fn leave(&self, patience: Duration) {
        if let Some(mut state) = self.state.try_lock_for(patience) {
            state.broken = Some(Error::Closed);
        }
    }

    /// Ends all ranks at once, unless another thread keeps the link locked for all of `patience`.
    pub fn abort(&self, code: i32, patience: Duration) {
        if let Some(mut state) = self.state.try_lock_for(patience) {
            state.transport.abort(code);
        }
    }
}

impl<C> State<C> {
    #[inline]
    fn push_send(&mut self, to: usize, send: Sending) {
        if to >= self.sends.len() {
            self.sends.resize_with(to + 1, VecDeque::new);
        }
        let sends = &mut self.sends[to];
        if sends.is_empty() {
            self.sending.push_back(to);
        }
        sends.push_back(send);
    }

    /// Posts the missing receives, preferably into buffers of `read`.
    #[inline]
    fn post(&mut self, read: &mut Vec<Vec<u8>>) -> Result<()> {
        while self.posted.len() < POSTED {
            let mut buffer = read.pop().or_else(|| self.spares.pop()).unwrap_or_default();
            buffer.clear();
            buffer.reserve_exact(ROOM);
            // SAFETY: the vector moves into `posted`, which does not move its bytes, and is
            // not touched until the request is done.
            let request = unsafe { self.transport.receive(None, TAG_MESSAGE, buffer.as_mut_ptr(), ROOM)? };
            self.posted.push_back((request, buffer));
        }
        read.clear();
        Ok(())
    }
}

impl<C> Bulk<C> {
    fn start_pieces(&mut self, transport: &mut dyn Transport, fragment: usize) -> Result<()> {
        let Peer { rank, tag } = self.peer;
        while self.started < self.span.len && self.pieces.len() < WINDOW {
            let len = (self.span.len - self.started).min(fragment);
            let at = self.span.at.wrapping_add(self.started);
            // SAFETY: `Span::new` requires the memory to stay valid; an empty piece touches no memory.
            let request = unsafe {
                match self.direction {
                    Direction::Out => transport.send(rank, tag, at, len)?,
                    Direction::OutEmpty => transport.send(rank, tag, std::ptr::dangling(), 0)?,
                    Direction::In => transport.receive(Some(rank), tag, at, len)?,
                }
            };
            self.pieces.push_back((request, len));
            self.started += len;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/link.rs"]
mod tests;
