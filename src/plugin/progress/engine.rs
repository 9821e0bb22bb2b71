// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Sends the batches of queues, and waits for the devices: one engine serves all devices.

use super::connection::{Completion, Connection};
use super::heartbeat::Heartbeat;
use super::upcalls::Upcalls;
use super::wait::Waiting;
use crate::base::limits::IN_FLIGHT;
use crate::base::settings::Backend;
use crate::base::{Error, Result};
use crate::link::backoff::BackoffPolicy;
use crate::link::{Link, Progress};
use crate::plugin::messages::batch::{Batch, PendingRead, Source};
use crate::plugin::messages::bulk_tags::{Lease, Tags};
use crate::plugin::messages::port::{Port, Ports};
use crate::plugin::messages::queue::{Event, Open, Position, Queue, QueueMessage};
use crate::plugin::messages::queue_trace::Tracing;
use crate::plugin::program::ending;
use crate::plugin::unified::Unified;
use crate::wire::INLINE_MAX;
use crate::wire::command::{COMMAND_MAX, Command};
use crate::wire::control::Control;
use crate::wire::hello::Hello;
use std::cell::OnceCell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The connection to the devices, and the waits of threads for it.
pub(crate) struct Engine {
    pub(crate) connection: Connection,
    pub(crate) waiting: Waiting,
    /// Nobody waits for kernels that return nothing (`OMPTARGET_MPI_ASYNC`).
    pub(crate) leaves_kernels: bool,
    tags: Arc<Tags>,
}

impl Engine {
    /// An engine over a started link. `ranks` counts all ranks of the job. A device that is silent for
    /// `heartbeat` is asked to answer.
    pub(crate) fn new(
        link: Link<Completion>,
        (rank, ranks): (usize, usize),
        ports: Vec<Port>,
        (policy, heartbeat): (BackoffPolicy, Duration),
        (tracing, unified): (Tracing, Unified),
        leaves_kernels: bool,
    ) -> Engine {
        let heartbeat = Heartbeat::new(ports.len(), heartbeat);
        Engine {
            connection: Connection::new(link, rank, Ports::new(ports, ranks), tracing, unified),
            waiting: Waiting::new(policy, heartbeat),
            leaves_kernels,
            tags: Arc::default(),
        }
    }

    pub(crate) fn port(&self, number: usize) -> &Port {
        &self.connection.ports[number]
    }

    pub(crate) fn tracing(&self) -> &Tracing {
        &self.connection.tracing
    }

    /// True if this process may itself access a device's memory, where possible. It may not if a trace must contain all
    /// copies, or if the device must see all copies in messages, because it has several processes or may be replaced.
    pub(crate) fn can_share_memory(&self, device: usize, hello: &Hello) -> bool {
        let is_plain = hello.processes == 1 && hello.backend == Backend::Cpu && !self.tracing().on;
        // Another node may have a process with that pid.
        is_plain && self.connection.link.doorbells().sees_running(self.port(device).rank)
    }

    /// Makes a whole device execute an operation and returns the number that it answers. Fails if nothing arrives from the
    /// device for `patience`.
    pub(crate) fn request(&self, queue: &Arc<Queue>, operation: Control<'_>, patience: Duration) -> Result<u64> {
        let mut answer = Box::new([0u8; 8]);
        self.connection.control(queue, |batch| {
            batch.control(operation);
            if !matches!(operation, Control::Trace { .. }) {
                batch.read_into(answer.as_mut_ptr(), answer.len());
            }
        })?;
        let waited = self.wait_for_answer(queue, patience);
        if !queue.pending.is_idle() {
            // A late answer is still written there.
            std::mem::forget(answer);
            return Err(waited.err().unwrap_or_else(|| Error::new("it does not answer")));
        }
        Ok(u64::from_le_bytes(*answer))
    }

    /// Waits until a control queue is idle, or until nothing arrives from its device for `patience`. After half of
    /// that, asks the device for an answer: a worker that repeats the work of a lost one executes the operation only
    /// after that work.
    fn wait_for_answer(&self, queue: &Arc<Queue>, patience: Duration) -> Result<()> {
        let heard = || self.port(queue.port()).messages().1;
        let wait = || {
            let since = Instant::now();
            // Several threads may wait for a control queue, which wakes one.
            self.wait_until(None, &|| queue.pending.is_idle() || since.elapsed() > patience / 2)
        };
        loop {
            let before = heard();
            wait()?;
            if !queue.pending.is_idle() {
                self.connection.ask_for_answer(queue.port());
                wait()?;
            }
            if queue.pending.is_idle() || heard() == before {
                return Ok(());
            }
        }
    }

    /// Sends the message that a queue has collected, if any.
    #[inline]
    pub(crate) fn flush(&self, queue: &Arc<Queue>, open: &mut Open) -> Result<()> {
        if open.batch().is_empty() {
            return Ok(());
        }
        let port = self.port(queue.port());
        if port.in_flight() >= IN_FLIGHT {
            self.waiting.wait_for_room(&self.connection, port)?;
        }
        self.connection.send(queue, open, queue, None)
    }

    /// The batch of a queue, with room for a command of this length and for its part of the reply. If there is no
    /// room, first sends the collected message.
    #[inline]
    pub(crate) fn reserve<'a>(
        &self,
        queue: &Arc<Queue>,
        open: &'a mut Open,
        command: usize,
        reply: usize,
    ) -> Result<&'a mut Batch> {
        self.make_room(queue, open, command, reply)?;
        if self.port(queue.port()).unawaited.added() != open.seen {
            self.order_behind_unawaited(queue, open, (command, reply))?;
        }
        Ok(open.batch())
    }

    /// Prepares for an operation that may change the device's memory: makes the device itself execute the reads of
    /// shared memory that were collected and not sent.
    #[inline]
    pub(crate) fn unshare(&self, queue: &Arc<Queue>, open: &mut Open) -> Result<()> {
        if !open.batch().shares() {
            return Ok(());
        }
        for PendingRead { to, len, source } in open.batch().take_shared() {
            let Source::Shared { device, .. } = source else { continue };
            for at in (0..len).step_by(INLINE_MAX) {
                self.read(queue, open, device + at as u64, (to.wrapping_add(at), (len - at).min(INLINE_MAX)))?;
            }
        }
        Ok(())
    }

    /// Adds a read of up to [`INLINE_MAX`] bytes to the memory at `to`.
    pub(crate) fn read(
        &self,
        queue: &Arc<Queue>,
        open: &mut Open,
        from: u64,
        (to, len): (*mut u8, usize),
    ) -> Result<()> {
        let batch = self.reserve(queue, open, COMMAND_MAX, len)?;
        batch.push(Command::Read { from, len: len as u32 });
        batch.read_into(to, len);
        Ok(())
    }

    /// Orders the queue's operations from here on behind the unawaited messages.
    #[cold]
    fn order_behind_unawaited(&self, queue: &Arc<Queue>, open: &mut Open, room: (usize, usize)) -> Result<()> {
        let port = self.port(queue.port());
        let before = port.unawaited.before(queue, &mut open.seen, |seq| port.is_complete(seq));
        for seq in before {
            self.make_room(queue, open, COMMAND_MAX, 0)?;
            open.batch().wait_for_unawaited(seq);
        }
        self.make_room(queue, open, room.0, room.1)
    }

    /// Sends the collected message if there is no room for a command of this length and for its part of the reply, and
    /// starts a message if none is open.
    #[inline]
    fn make_room(&self, queue: &Arc<Queue>, open: &mut Open, command: usize, reply: usize) -> Result<()> {
        if !open.batch().has_room(command, reply) {
            self.flush(queue, open)?;
        }
        if open.batch().is_empty() {
            open.batch().begin(self.connection.link.buffer());
        }
        Ok(())
    }

    /// Leaves the messages of a queue up to `last` to the device, unawaited. Returns once MPI has taken their data, or
    /// another thread polls for that, and few enough messages are in flight.
    pub(crate) fn leave_unawaited(&self, queue: &Arc<Queue>, last: u64) -> Result<()> {
        let port = self.port(queue.port());
        if last != 0 {
            port.unawaited.add(queue, last, |seq| port.is_complete(seq));
        }
        while self.connection.drive()? == Progress::Made {}
        let are_few = || port.in_flight() < IN_FLIGHT || port.is_complete(last);
        self.wait_until(None, &|| are_few() && self.connection.link.is_sent(port.rank))
    }

    /// Waits for the unawaited messages. If they may be kernels, waits as long as they take, unless another thread
    /// keeps this one from driving for `patience`. If they are copies, only a failure could still matter: waits for
    /// `patience`.
    pub(crate) fn settle_unawaited(&self, patience: Duration) -> Result<()> {
        let settled: Vec<_> = self.connection.ports.iter().map(Port::when_unawaited_are_over).collect();
        let (mut backoff, mut since) = (self.connection.link.backoff(self.waiting.policy), Instant::now());
        while !settled.iter().all(|is_over| is_over()) && since.elapsed() <= patience {
            let polled = self.poll()?;
            if self.leaves_kernels && polled != Progress::Elsewhere {
                since = Instant::now();
            }
            if polled == Progress::Made {
                backoff.reset();
                continue;
            }
            self.waiting.heartbeat.check(&self.connection);
            backoff.pause(self.connection.link.bulk_patience());
        }
        if ending::has_begun() {
            ending::hold();
        }
        Ok(())
    }

    /// Adds a command of bounded length to a queue's batch.
    pub(crate) fn push(&self, queue: &Arc<Queue>, open: &mut Open, command: Command<'_>) -> Result<()> {
        self.unshare(queue, open)?;
        self.reserve(queue, open, COMMAND_MAX, 0)?.push(command);
        Ok(())
    }

    /// True if a queue's messages up to this one are complete.
    pub(crate) fn is_over(&self, message: QueueMessage) -> bool {
        self.port(message.id.port).flight.lock().is_over(message)
    }

    /// Sends and returns the message that an event is in. Returns `None` if the event is complete, or in the batch that
    /// `waiting` collects.
    pub(crate) fn settle(&self, event: &Event, waiting: Option<&Arc<Queue>>) -> Result<Option<QueueMessage>> {
        loop {
            let position = event.position.lock().clone();
            match position {
                Position::Complete => return Ok(None),
                Position::Open(queue) if waiting.is_some_and(|w| Arc::ptr_eq(w, &queue)) => return Ok(None),
                Position::Open(queue) => {
                    // On a lost device or a broken link the event would stay open forever.
                    Upcalls(&self.connection).check_alive(queue.port())?;
                    self.flush(&queue, &mut queue.open())?;
                }
                Position::Sent(message) => return Ok((!self.is_over(message)).then_some(message)),
            }
        }
    }

    /// Tags for `n` transfers from one rank to another, reserved until the last clone of the lease is
    /// dropped. Waits if not enough are free.
    pub(crate) fn lease(&self, from: usize, to: usize, n: usize) -> Result<Arc<Lease>> {
        let lease = OnceCell::new();
        let found = || lease.get().is_some() || self.tags.lease(from, to, n).is_some_and(|l| lease.set(l).is_ok());
        if !found() {
            self.wait_until(None, &found)?;
        }
        Ok(lease.into_inner().expect("it was waited for"))
    }

    /// Makes progress if no other thread does.
    #[inline]
    pub(crate) fn poll(&self) -> Result<Progress> {
        let progress = self.connection.drive()?;
        Upcalls(&self.connection).serve();
        Ok(progress)
    }

    /// Counts an unsuccessful poll by a caller that does not wait; some polls check the devices.
    pub(crate) fn note_idle_poll(&self) {
        self.waiting.heartbeat.note_idle_poll(&self.connection);
    }

    /// Waits until everything that a queue has sent is complete.
    #[inline]
    pub(crate) fn wait(&self, queue: &Arc<Queue>) -> Result<()> {
        self.wait_until(Some(queue), &|| queue.pending.is_idle())?;
        Upcalls(&self.connection).finish_output(queue.port());
        if ending::has_begun() {
            // Process exit may have begun during `finish_output`, which waits for the program's streams.
            ending::hold();
        }
        Ok(())
    }

    pub(crate) fn wait_until(&self, queue: Option<&Queue>, done: &dyn Fn() -> bool) -> Result<()> {
        self.waiting.wait_until(&self.connection, queue, done)
    }

    /// True if everything that a queue has sent is complete.
    pub(crate) fn is_done(&self, queue: &Queue) -> bool {
        queue.pending.is_idle() && !self.connection.console.owes(queue.port())
    }
}
