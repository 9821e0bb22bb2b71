// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The connection to all devices: sends messages, starts transfers, and dispatches arrivals. Once the link is broken,
//! every call fails, here and in the modules that use this one.

use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, log};
use crate::debug;
use crate::link::{Inbox, Link, Peer, Progress, Span};
use crate::mpi::{TAG_MEMORY, pmi};
use crate::plugin::addresses::address_map::AddressMap;
use crate::plugin::messages::batch::Batch;
use crate::plugin::messages::bulk_tags::Lease;
use crate::plugin::messages::diagnose;
use crate::plugin::messages::in_flight::SentMessage;
use crate::plugin::messages::port::Ports;
use crate::plugin::messages::queue::{MessageId, Open, Queue};
use crate::plugin::messages::queue_trace::Tracing;
use crate::plugin::program::console::Console;
use crate::plugin::program::ending;
use crate::plugin::unified::{Request, Unified};
use crate::sys::deadline::{Deadline, end, end_launcher, flush_streams};
use crate::wire::reply::{Digests, Failure, Reply};
use std::sync::{Arc, OnceLock};
use std::thread::ThreadId;
use std::time::Duration;

/// How long failures of waiting threads are delayed when the program ends MPI.
const GRACE: Duration = Duration::from_secs(3);
/// How long MPI may take to end all ranks.
const ABORT_PATIENCE: Duration = Duration::from_secs(2);

/// The purpose of a bulk transfer, which the link returns at its end. Owns the transfer's memory unless that is the
/// program's.
pub(crate) enum Completion {
    /// The transfer is a part of this message.
    Part { of: MessageId, lease: Arc<Lease> },
    /// A device receives this piece of the program's memory.
    Sent(Vec<u8>),
    /// Memory that the kernel of a message changed, with digests of its old contents.
    Changed { message: MessageId, at: u64, new: Vec<u8>, old: Vec<u8> },
}

/// The link, and the devices at its other end.
pub(crate) struct Connection {
    pub(crate) link: Link<Completion>,
    inbox: Mutex<Inbox<Completion>, { order::INBOX }>,
    pub(crate) ports: Ports,
    pub(crate) rank: usize,
    pub(crate) tracing: Tracing,
    /// The addresses of all devices, for error messages.
    pub(crate) addresses: OnceLock<Arc<AddressMap>>,
    pub(super) console: Console,
    pub(crate) unified: Unified,
    /// By device: the queue for messages that the program did not request.
    pub(super) housekeeping: Vec<Arc<Queue>>,
    /// The thread that ends the process.
    ended_by: OnceLock<ThreadId>,
}

impl Connection {
    pub(crate) fn new(
        link: Link<Completion>,
        rank: usize,
        ports: Ports,
        tracing: Tracing,
        unified: Unified,
    ) -> Connection {
        Connection {
            link,
            inbox: Mutex::default(),
            rank,
            tracing,
            addresses: OnceLock::new(),
            console: Console::new(ports.len()),
            unified,
            housekeeping: (0..ports.len()).map(Queue::control).collect(),
            ended_by: OnceLock::new(),
            ports,
        }
    }

    /// Notes that the calling thread ends the process: a broken connection then does not fail other threads' calls.
    pub(crate) fn begin_end(&self) {
        let _ = self.ended_by.set(std::thread::current().id());
    }

    // ---- sending ---------------------------------------------------------------

    /// Sends the batch of a queue at once. The message may be part of another message, `part_of`. The message and its
    /// failure count as `owner`'s.
    #[inline]
    pub(crate) fn send(
        &self,
        queue: &Queue,
        open: &mut Open,
        owner: &Arc<Queue>,
        part_of: Option<MessageId>,
    ) -> Result<()> {
        let port = &self.ports[queue.port()];
        let reads_shared = open.batch().shares();
        let seq = port.post(open.batch(), owner, part_of, &self.link);
        open.numbered(seq, reads_shared);
        self.link.start().map_err(|e| self.broken(e))?;
        open.sent(queue, &self.tracing);
        Ok(())
    }

    /// Sends the operations that `write` appends as a message of a control queue.
    pub(crate) fn control(&self, queue: &Arc<Queue>, write: impl FnOnce(&mut Batch)) -> Result<()> {
        let open = &mut *queue.open();
        open.batch().begin(self.link.buffer());
        write(open.batch());
        self.send(queue, open, queue, None)
    }

    /// Makes a device answer, if it can.
    pub(crate) fn ask_for_answer(&self, port: usize) {
        // Devices answer an empty message at once. If the link is broken, the waiting threads find out.
        let _ = self.control(&self.housekeeping[port], |_| {});
    }

    /// Starts a bulk transfer to or from the device. The message, which has been sent, names the transfer and counts it
    /// as one of its parts.
    pub(crate) fn start_transfer(
        &self,
        message: MessageId,
        (peer, lease): (Peer, Arc<Lease>),
        span: Span,
        to_device: bool,
    ) -> Result<()> {
        debug!("bulk data {} rank {}", if to_device { "to" } else { "from" }, peer.rank);
        let part = Completion::Part { of: message, lease };
        let started = match to_device {
            true => self.link.send_bulk(peer, span, part),
            false => self.link.receive_bulk(peer, span, part),
        };
        started.map_err(|e| self.broken(e))
    }

    // ---- receiving -------------------------------------------------------------

    /// Makes progress unless another thread does.
    #[inline]
    pub(crate) fn drive(&self) -> Result<Progress> {
        let Some(mut inbox) = self.inbox.try_lock() else { return Ok(Progress::Elsewhere) };
        let driven = self.link.drive(&mut inbox);
        for (transfer, result) in inbox.completed.drain(..) {
            match transfer {
                // This transfer fails only if its command failed, and the command's answer gives the reason.
                Completion::Part { of, lease } => {
                    drop(lease);
                    self.ports.end_part(of);
                }
                Completion::Sent(bytes) => self.unified.buffers.give(bytes),
                Completion::Changed { message: MessageId { port, seq }, at, new, old } => {
                    self.unified.ask(port, Request::Merge { seq, at, new: result.map(|()| new), old });
                }
            }
        }
        if let Some((from, message)) = inbox.take_message() {
            self.receive(from, &message);
            inbox.recycle(message);
        }
        drop(inbox);
        driven.map_err(|e| self.broken(e))
    }

    /// Makes every later use of the link fail. First waits, for at most `patience`, until the driving thread has
    /// handled what it received.
    pub(crate) fn leave(&self, patience: Duration) {
        let _inbox = self.inbox.try_lock_for(patience);
        self.link.leave(patience);
    }

    fn receive(&self, from: usize, message: &[u8]) {
        debug!("from rank {from}: message of {} bytes", message.len());
        let Some((port, message)) = self.ports.sender(from, message) else {
            self.protocol_error(from, "it is no device of this program");
        };
        let senseless = |e: Error| -> ! { self.protocol_error(from, &e.to_string()) };
        match Reply::parse(message).unwrap_or_else(|e| senseless(e)) {
            Reply::Done { seq, bytes } => {
                if !self.ports.answer(MessageId { port, seq }, Ok(bytes)) {
                    self.protocol_error(from, "a reply does not fit its message");
                }
            }
            Reply::Failed { seq, failure } => {
                if !self.fail(MessageId { port, seq }, &failure) {
                    self.protocol_error(from, "a reply without a message");
                }
            }
            Reply::Records(_) if !self.tracing.on => {
                self.protocol_error(from, "it sends records that nobody asked for")
            }
            Reply::Records(records) => self.ports[port].keep(records).unwrap_or_else(|e| senseless(e)),
            upcall => self.note(port, upcall),
        }
    }

    /// Notes an upcall of a device. A thread that holds no lock serves it, except that changes are merged here: the
    /// answer to their kernel may follow at once.
    #[inline(never)]
    fn note(&self, port: usize, upcall: Reply<'_>) {
        self.ports[port].count_unasked();
        let request = match upcall {
            Reply::Output { stream, bytes } => return self.console.push(port, stream, bytes),
            Reply::Changed { seq, changes } => {
                if let Err(e) = self.unified.take_over(port, changes) {
                    self.ports.fail_kernel(MessageId { port, seq }, &e);
                }
                return self.ports[port].count_merged();
            }
            Reply::ChangedAside { seq, at, len, old } => {
                return self.receive_changed(MessageId { port, seq }, at, len as usize, old);
            }
            Reply::ChangedThere { seq, at, len, new, old } => Request::TakeOver { seq, at, len, new, old },
            Reply::Fetch { at, len, known } => Request::Fetch { at, len, known: known.0.to_vec() },
            Reply::Find { at } => Request::Find { at },
            Reply::Done { .. } | Reply::Failed { .. } | Reply::Records(_) => return,
        };
        self.unified.ask(port, request);
    }

    /// Receives a piece of the memory that a kernel changed.
    fn receive_changed(&self, message: MessageId, at: u64, len: usize, old: Digests<'_>) {
        debug!("bulk data from rank {}: {len} bytes", self.ports[message.port].rank);
        let mut new = self.unified.buffers.take();
        new.resize(len, 0);
        // SAFETY: the heap block does not move with the vector, which the link returns when the transfer is done.
        let span = unsafe { Span::new(new.as_mut_ptr(), len) };
        let changed = Completion::Changed { message, at, new, old: old.0.to_vec() };
        // If the link is broken, the waiting threads find out.
        let _ = self.link.receive_bulk(self.memory_of(message.port), span, changed);
    }

    pub(super) fn memory_of(&self, port: usize) -> Peer {
        Peer { rank: self.ports[port].rank, tag: TAG_MEMORY }
    }

    // ---- failures --------------------------------------------------------------

    /// Ends all ranks at once, and this process in any case: MPI may wait for a dead network.
    #[cold]
    pub(crate) fn abort(&self, code: i32) -> ! {
        end_launcher(2 * ABORT_PATIENCE);
        flush_streams();
        let _runs = Deadline::start(ABORT_PATIENCE, code, pmi::fail_everywhere);
        self.link.abort(code, ABORT_PATIENCE);
        // MPI can't abort, because another thread does not return from MPI.
        pmi::fail_everywhere();
        end(code)
    }

    #[cold]
    fn protocol_error(&self, from: usize, what: &str) -> ! {
        log::error(format_args!("rank {from} sent a message that makes no sense ({what}); ending the job"));
        self.abort(1)
    }

    /// Fails a message, and its device if that is lost or nobody waits for the message. False if no such message is
    /// unanswered.
    #[cold]
    fn fail(&self, message: MessageId, failure: &Failure) -> bool {
        let port = &self.ports[message.port];
        let was_alive = port.failures.alive().is_ok();
        let mut error = Error::Reported;
        if was_alive || !failure.lost {
            let memory = (&self.unified.allocations, self.unified.check_access(message.port));
            let addresses = self.addresses.get().map(Arc::as_ref);
            error = diagnose::failure(&self.ports, message.port, failure, addresses, memory);
        }
        // Locked until the queue has the error: another thread may be leaving the queue unawaited.
        let unawaited = port.unawaited.lock();
        let is_unseen = |sent: &&SentMessage| unawaited.contains(&sent.queue, message.seq);
        let unseen = port.flight.lock().unanswered(message.seq).filter(is_unseen).map(|sent| sent.awaited.kernel);
        if failure.lost || unseen.is_some() {
            if was_alive {
                let error =
                    if unseen == Some(0) && !failure.lost { error.context("a copy to the device") } else { error };
                // Every call that fails because of this loss writes this line first: another thread may end the process
                // over the same loss before the thread that waits for this kernel reports it.
                self.console.say(message.port, &log::error_text(&error));
            }
            if was_alive && unseen.is_some() {
                port.failures.fail_unseen();
            }
            // Last: from here on anybody can find the device lost.
            port.lose();
            error = Error::Reported;
        }
        self.ports.answer(message, Err(error))
    }

    #[cold]
    pub(super) fn broken(&self, e: Error) -> Error {
        if self.ended_by.get().is_some_and(|&t| t != std::thread::current().id()) {
            if ending::has_begun() {
                // `guard` holds the call instead: this function's callers have locks that the ending thread may need.
                return Error::Closed;
            }
            // A failure now would make libomptarget abort the process, which would lose its status.
            std::thread::sleep(GRACE);
        }
        let is_first = self.ports.iter().fold(true, |first, port| port.lose() & first);
        match e {
            Error::Text(reason) if is_first => diagnose::broken_connection(&self.ports, &reason),
            _ => Error::Reported,
        }
    }
}
