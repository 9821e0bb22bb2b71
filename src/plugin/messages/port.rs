// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The host's ends of the devices: the incomplete messages of each, and the state of each.

use super::batch::{Batch, PendingRead, Source};
use super::failures::Failures;
use super::in_flight::{InFlight, SentMessage};
use super::queue::{MessageId, Queue};
use super::unawaited::Unawaited;
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, name};
use crate::debug;
use crate::link::Link;
use crate::plugin::addresses::arena::Arena;
use crate::sys::node;
use crate::wire::command::Head;
use crate::wire::record::{Record, Records};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

pub(crate) struct Port {
    pub(crate) rank: usize,
    /// The device's number within its rank, if the rank has several.
    pub(crate) worker: Option<u8>,
    /// The device is on another node.
    pub(crate) is_far: bool,
    /// "device 0 (rank 0 on host a)".
    pub(crate) name: String,
    pub(crate) flight: Mutex<InFlight, { order::FLIGHT }>,
    pub(crate) unawaited: Unawaited,
    pub(crate) failures: Failures,
    in_flight: AtomicUsize,
    pub(crate) arena: Mutex<Arena, { order::ARENA }>,
    /// The names of the device's kernels by address.
    pub(crate) kernels: Mutex<BTreeMap<u64, String>, { order::LEAF }>,
    /// The number of received messages that are not answers.
    unasked: AtomicU64,
    /// `Changed` messages that were merged, see [`Head::merged`].
    merged: AtomicU32,
    pub(crate) records: Mutex<Vec<Record>, { order::LEAF }>,
    /// The device's file of fetched program memory, once it was needed.
    fetched: Mutex<Option<Arc<File>>, { order::LEAF }>,
}

impl Port {
    pub(crate) fn new(rank: usize, worker: Option<u8>, is_far: bool, name: String) -> Port {
        Port {
            rank,
            worker,
            is_far,
            name,
            flight: Mutex::default(),
            unawaited: Unawaited::default(),
            failures: Failures::default(),
            in_flight: AtomicUsize::new(0),
            arena: Mutex::new(Arena::new(0..0)),
            kernels: Mutex::default(),
            unasked: AtomicU64::new(0),
            merged: AtomicU32::new(0),
            records: Mutex::default(),
            fetched: Mutex::default(),
        }
    }

    /// Numbers the message of a batch and submits it; returns its number. The caller must start the link afterwards.
    /// The queue `owner` is complete only when the message is. The message may be a part of another one.
    #[inline]
    pub(crate) fn post<C>(
        &self,
        batch: &mut Batch,
        owner: &Arc<Queue>,
        part_of: Option<MessageId>,
        link: &Link<C>,
    ) -> u64 {
        owner.pending.begin();
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        // One lock covers numbering and submitting, so that messages arrive in the order of their numbers.
        let mut flight = self.flight.lock();
        let (mut message, awaited) = batch.take(flight.pool.pop().unwrap_or_default());
        let seq = flight.push(owner.clone(), awaited, part_of);
        Head::patch(&mut message, seq, node::current_core(), self.merged.load(Ordering::Relaxed));
        message.extend(self.worker);
        debug!("to {}: message {seq} of {} bytes", self.name, message.len());
        link.enqueue(self.rank, message);
        seq
    }

    /// True while a kernel runs that is not unawaited.
    pub(crate) fn has_awaited_kernel(&self) -> bool {
        let unawaited = self.unawaited.lock();
        self.flight.lock().has_kernel(|queue, seq| !unawaited.contains(queue, seq))
    }

    /// A condition to wait for: all messages that are unawaited now are complete, or the device is lost.
    pub(crate) fn when_unawaited_are_over(&self) -> impl Fn() -> bool {
        let left = self.unawaited.lock().numbers();
        move || self.failures.alive().is_err() || left.iter().all(|&seq| self.is_complete(seq))
    }

    /// The numbers of messages sent to the device, and received from it.
    pub(crate) fn messages(&self) -> (u64, u64) {
        let (sent, answered) = self.flight.lock().counts();
        (sent, answered + self.unasked.load(Ordering::Relaxed))
    }

    /// Counts a message that is not an answer.
    pub(crate) fn count_unasked(&self) {
        self.unasked.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a merged `Changed` message of the device. Messages sent from now on contain the new count.
    pub(crate) fn count_merged(&self) {
        self.merged.fetch_add(1, Ordering::Relaxed);
    }

    /// Describes what the program waits for, for error messages.
    pub(crate) fn awaited(&self) -> String {
        let kernel = self.flight.lock().kernel();
        kernel.map_or("data or an image".into(), |kernel| format!("kernel {}", self.kernel_name(kernel)))
    }

    #[cold]
    #[inline(never)]
    pub(crate) fn keep(&self, mut records: Records<'_>) -> Result<()> {
        let mut kept = self.records.lock();
        while let Some(record) = records.take()? {
            kept.push(record);
        }
        Ok(())
    }

    /// The symbol of a kernel.
    #[cold]
    pub(crate) fn kernel_symbol(&self, kernel: u64) -> String {
        self.kernels.lock().get(&kernel).cloned().unwrap_or_else(|| format!("at {kernel:#x}"))
    }

    /// A kernel's name for the user: "main, line 12".
    #[cold]
    pub(crate) fn kernel_name(&self, kernel: u64) -> String {
        name::of_kernel(&self.kernel_symbol(kernel))
    }

    /// Marks the device as lost: its contents can't be trusted any more. True the first time.
    pub(crate) fn lose(&self) -> bool {
        let is_first = self.failures.lose();
        // An open file keeps its memory, perhaps a lot, even when the device has ended.
        self.fetched.lock().take();
        is_first
    }

    /// The device's file of fetched program memory, which `open` opens the first time.
    pub(crate) fn fetched(&self, open: impl FnOnce() -> Result<File>) -> Result<Arc<File>> {
        let mut fetched = self.fetched.lock();
        self.failures.alive()?;
        if let Some(file) = &*fetched {
            return Ok(file.clone());
        }
        Ok(fetched.insert(Arc::new(open()?)).clone())
    }

    /// True if message `seq`, which must have been sent, is complete: answered, with all its data.
    pub(crate) fn is_complete(&self, seq: u64) -> bool {
        self.flight.lock().is_complete(seq)
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
}

/// The devices in the order of their numbers.
pub(crate) struct Ports {
    all: Box<[Port]>,
    /// The first device of each rank; the others of that rank follow it.
    by_rank: Vec<Option<usize>>,
}

impl Deref for Ports {
    type Target = [Port];

    fn deref(&self) -> &[Port] {
        &self.all
    }
}

impl Ports {
    pub(crate) fn new(all: Vec<Port>, ranks: usize) -> Ports {
        let mut by_rank = vec![None; ranks];
        for (i, port) in all.iter().enumerate() {
            by_rank[port.rank].get_or_insert(i);
        }
        Ports { all: all.into(), by_rank }
    }

    /// True if the job contains only this program and its devices.
    pub(crate) fn are_whole_job(&self) -> bool {
        self.by_rank.iter().flatten().count() + 1 == self.by_rank.len()
    }

    /// True while a device has an incomplete message.
    pub(crate) fn is_busy(&self) -> bool {
        self.iter().any(|port| port.in_flight() > 0)
    }

    /// The device that sent a message from a rank, and the message without the device's own number.
    #[inline]
    pub(crate) fn sender<'a>(&self, from: usize, message: &'a [u8]) -> Option<(usize, &'a [u8])> {
        let first = (*self.by_rank.get(from)?)?;
        if self.all[first].worker.is_none() {
            return Some((first, message));
        }
        let (&worker, message) = message.split_last()?;
        let port = first + usize::from(worker);
        (self.all.get(port)?.rank == from).then_some((port, message))
    }

    /// Applies the answer to a message: copies the bytes of its reads, or fails its queue. False if
    /// no such message is unanswered, or if it does not read this number of bytes.
    #[inline]
    pub(crate) fn answer(&self, MessageId { port, seq }: MessageId, answer: Result<&[u8]>) -> bool {
        let mut flight = self.all[port].flight.lock();
        let Some(sent) = flight.unanswered(seq) else { return false };
        match answer {
            Err(error) => self.all[sent.queue.port()].failures.fail(sent.queue.id, error),
            Ok(mut bytes) => {
                for &PendingRead { to, len, source } in &sent.awaited.reads {
                    let from = match source {
                        Source::Shared { here, .. } => here,
                        Source::Reply => {
                            let Some((piece, rest)) = bytes.split_at_checked(len) else { return false };
                            bytes = rest;
                            piece.as_ptr()
                        }
                    };
                    // SAFETY: both are valid until the queue is complete, which `complete` below causes at the
                    // earliest. Shared memory and the program's may be the same: a region has got a pointer to it.
                    unsafe { to.copy_from(from, len) };
                }
                if !bytes.is_empty() {
                    return false;
                }
            }
        }
        let complete = flight.answer(seq);
        drop(flight);
        if let Some(sent) = complete {
            self.complete(port, sent);
        }
        true
    }

    /// Fails a message whose kernel runs or has run. (If the message is answered, nobody waits for it.)
    pub(crate) fn fail_kernel(&self, MessageId { port, seq }: MessageId, e: &Error) {
        let port = &self.all[port];
        if let Some(sent) = port.flight.lock().unanswered(seq) {
            let kernel = port.kernel_name(sent.awaited.kernel);
            let error = Error::new(format!("kernel {kernel} failed on {}: {e}", port.name));
            self.all[sent.queue.port()].failures.fail(sent.queue.id, error);
        }
    }

    /// Ends a part of a message other than its answer.
    pub(crate) fn end_part(&self, MessageId { port, seq }: MessageId) {
        let complete = self.all[port].flight.lock().end_part(seq);
        if let Some(sent) = complete {
            self.complete(port, sent);
        }
    }

    /// Ends the wait for a complete message of a port, and for the message of which it was the last open part.
    #[inline]
    fn complete(&self, port: usize, sent: SentMessage) {
        self.all[port].in_flight.fetch_sub(1, Ordering::Relaxed);
        let end_part = |of: MessageId| Some((of.port, self.all[of.port].flight.lock().end_part(of.seq)?));
        let whole = sent.part_of.and_then(end_part);
        sent.queue.pending.end();
        if let Some((port, sent)) = whole {
            self.complete(port, sent);
        }
    }
}
