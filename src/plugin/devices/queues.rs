// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The queues of one device: creates and reuses them, and waits for them and their events.

use crate::base::lock::{Guard, Mutex, order};
use crate::base::{Error, Result, clock};
use crate::plugin::messages::batch::ExtraParts;
use crate::plugin::messages::bulk_tags::Lease;
use crate::plugin::messages::port::Port;
use crate::plugin::messages::queue::{Event, Ids, MessageId, Open, Queue, QueueMessage};
use crate::plugin::messages::queue_trace::{DeviceTrace, What};
use crate::plugin::progress::engine::Engine;
use crate::plugin::progress::upcalls::Upcalls;
use crate::wire::MESSAGE_MAX;
use crate::wire::command::{Command, HEAD_LEN, Shape, launch_len};
use std::sync::Arc;

pub(crate) struct Queues {
    pub(crate) engine: Arc<Engine>,
    /// The device's number, which is also its port's index.
    pub(super) number: usize,
    ids: Arc<Ids>,
    idle: Mutex<Vec<Arc<Queue>>, { order::LEAF }>,
    trace: Mutex<DeviceTrace, { order::LEAF }>,
}

impl Queues {
    pub(crate) fn new(engine: Arc<Engine>, number: usize) -> Queues {
        let (ids, idle, trace) = Default::default();
        Queues { engine, number, ids, idle, trace }
    }

    /// True if nobody waits for kernels that return nothing. A kernel that uses the program's memory may change it,
    /// which counts as a result.
    fn leaves_kernels(&self) -> bool {
        self.engine.leaves_kernels && !self.engine.connection.unified.is_on()
    }

    pub(crate) fn port(&self) -> &Port {
        self.engine.port(self.number)
    }

    pub(crate) fn check_alive(&self) -> Result<()> {
        Upcalls(&self.engine.connection).check_alive(self.number)
    }

    /// Fails if an unawaited message has failed unseen.
    pub(super) fn check_unseen(&self) -> Result<()> {
        if self.port().failures.has_unseen() { self.check_alive() } else { Ok(()) }
    }

    /// A queue that is not in use, or a new one.
    pub(crate) fn queue(&self) -> Arc<Queue> {
        let idle = self.idle.lock().pop();
        idle.unwrap_or_else(|| self.new_queue())
    }

    /// A queue that was never used.
    pub(crate) fn new_queue(&self) -> Arc<Queue> {
        let queue = Queue::new(&self.ids, self.number);
        // Nobody took this if a dropped queue of the same number failed.
        self.port().failures.take(queue.id);
        queue
    }

    /// The end of a queue, for another operation that may change the device's memory. First completes the reads of
    /// shared memory that were sent: the device does not know of these.
    #[inline]
    pub(crate) fn open<'a>(&self, queue: &'a Queue) -> Result<Guard<'a, Open, { order::OPEN }>> {
        loop {
            let open = queue.open();
            let (port, shares) = (self.port(), open.shares);
            if shares == 0 || port.is_complete(shares) {
                return Ok(open);
            }
            drop(open);
            self.engine.wait_until(None, &|| port.is_complete(shares))?;
        }
    }

    /// Keeps a queue for reuse; the device may still execute what it has sent.
    pub(crate) fn release(&self, queue: Arc<Queue>) {
        let mut open = queue.open();
        if open.trace.is_long() {
            self.trace.lock().take(queue.id, &mut open.trace, self.engine.tracing().events);
        }
        open.reset();
        drop(open);
        self.idle.lock().push(queue);
    }

    /// Takes the notes of all queues that are not in use; keeps at most `limit` of them.
    pub(crate) fn take_trace(&self, limit: u64) -> DeviceTrace {
        let idle = self.idle.lock().clone();
        for queue in idle {
            let open = &mut *queue.open();
            self.trace.lock().take(queue.id, &mut open.trace, limit);
        }
        self.trace.lock().take_all()
    }

    /// Runs a kernel as a part of `queue`, with these arguments or with an array of pointers to them. An accelerator
    /// needs a shape.
    pub(crate) fn launch(
        &self,
        queue: &Arc<Queue>,
        kernel: u64,
        args: impl ExactSizeIterator<Item = u64>,
        (array, shape): (bool, Option<&Shape>),
    ) -> Result<()> {
        self.check_alive()?;
        let len = launch_len(args.len(), shape.is_some());
        if HEAD_LEN + len > MESSAGE_MAX {
            let (n, name) = (args.len(), self.port().kernel_name(kernel));
            return Err(Error::new(format!("kernel {name} has {n} arguments, more than a message holds")));
        }
        let is_left = self.leaves_kernels();
        let mut open = self.open(queue)?;
        let at = self.engine.tracing().stamp();
        self.engine.unshare(queue, &mut open)?;
        self.engine.reserve(queue, &mut open, len, 0)?.launch(kernel, args, (array, shape), is_left);
        open.note(self.engine.tracing(), at, What::Launch(kernel));
        Ok(())
    }

    /// Sends commands on a queue of their own; returns the message's number and the queue.
    pub(crate) fn send_apart(
        &self,
        commands: &[Command<'_>],
        (lease, extra): (Option<Arc<Lease>>, ExtraParts),
    ) -> Result<(u64, Arc<Queue>)> {
        let queue = self.new_queue();
        let mut open = queue.open();
        if let [Command::Image { .. }] = commands {
            // Nothing on the device uses the image yet, and other devices wait for it: it follows no unawaited message.
            open.seen = self.port().unawaited.added();
        }
        commands.iter().try_for_each(|&c| self.engine.push(&queue, &mut open, c))?;
        open.batch().add_transfers(lease, extra);
        self.engine.flush(&queue, &mut open)?;
        let message = open.last;
        drop(open);
        Ok((message, queue))
    }

    /// Sends one command and waits for its answer.
    pub(crate) fn ask(&self, queue: &Arc<Queue>, command: Command<'_>, answer: &mut [u8]) -> Result<()> {
        let mut open = queue.open();
        self.engine.push(queue, &mut open, command)?;
        open.batch().read_into(answer.as_mut_ptr(), answer.len());
        self.engine.flush(queue, &mut open)?;
        drop(open);
        self.finish(queue)
    }

    /// Waits until everything that `queue` has sent is complete; the queue stays in use. Returns the
    /// first failure of anything in the queue.
    pub(crate) fn finish(&self, queue: &Arc<Queue>) -> Result<()> {
        self.engine.wait(queue)?;
        self.check_unseen()?;
        self.port().failures.take(queue.id).map_or(Ok(()), Err)
    }

    pub(crate) fn flush(&self, queue: &Arc<Queue>) -> Result<()> {
        self.engine.flush(queue, &mut queue.open())
    }

    /// Sends the collected message and waits until all of the queue is complete. The queue stays in use and keeps its
    /// failure.
    pub(crate) fn complete(&self, queue: &Arc<Queue>) -> Result<()> {
        self.flush(queue)?;
        self.engine.wait(queue)
    }

    /// Sends the collected message, waits until all of the queue is complete, and releases the queue. Returns the first
    /// failure of anything in the queue.
    pub(crate) fn synchronize(&self, queue: Arc<Queue>) -> Result<()> {
        let waited = self.flush_and_wait(&queue);
        self.conclude(queue, waited)
    }

    /// [`Queues::synchronize`] for a queue that stays in use.
    pub(crate) fn drain(&self, queue: &Arc<Queue>) -> Result<()> {
        self.flush_and_wait(queue)?;
        self.result_of(queue)
    }

    fn flush_and_wait(&self, queue: &Arc<Queue>) -> Result<()> {
        let sent = self.flush_and_look(queue);
        // Read the clock after sending: the device is already at work.
        let since = self.engine.tracing().on.then(clock::now);
        let by_reply = !matches!(sent, Ok(Some(_)));
        let waited = sent.and_then(|unawaited| match unawaited {
            Some(last) => self.engine.leave_unawaited(queue, last),
            None => self.engine.wait(queue),
        });
        if let Some(since) = since {
            self.note_wait(queue, (since, clock::now()), by_reply, true);
        }
        waited
    }

    /// Sends the collected message. If the queue gives the program nothing, returns its last message, which nobody
    /// waits for.
    fn flush_and_look(&self, queue: &Arc<Queue>) -> Result<Option<u64>> {
        let mut open = queue.open();
        self.engine.flush(queue, &mut open)?;
        Ok(open.batch().gives_nothing().then_some(open.last))
    }

    /// Sends the collected message. Releases the queue and returns true if all of it is complete, or if the queue gives
    /// the program nothing.
    pub(crate) fn query(&self, queue: &Arc<Queue>) -> Result<bool> {
        let unawaited = self.flush_and_look(queue)?;
        self.engine.poll()?;
        if let Some(last) = unawaited {
            self.engine.leave_unawaited(queue, last)?;
        } else if !self.engine.is_done(queue) {
            self.engine.note_idle_poll();
            return Ok(false);
        }
        if self.engine.tracing().on {
            let now = clock::now();
            self.note_wait(queue, (now, now), unawaited.is_none(), true);
        }
        self.conclude(queue.clone(), Ok(())).map(|()| true)
    }

    /// Adds a wait for a queue to the trace; `counts` if the program requested it.
    #[cold]
    #[inline(never)]
    pub(crate) fn note_wait(&self, queue: &Queue, time: (u64, u64), by_reply: bool, counts: bool) {
        let open = &mut *queue.open();
        open.trace.waited(time, (open.last, by_reply), counts, self.engine.tracing());
    }

    fn conclude(&self, queue: Arc<Queue>, waited: Result<()>) -> Result<()> {
        let result = self.result_of(&queue);
        // A queue that never became idle (a broken link) must not be reused.
        if waited.is_ok() {
            self.release(queue);
        }
        result.and(waited)
    }

    /// Returns the queue's failure, if any, and then loses the device.
    fn result_of(&self, queue: &Queue) -> Result<()> {
        let port = self.port();
        let Some(e) = port.failures.take_any(queue.id) else { return Ok(()) };
        // The program was promised results that it will not get. It may ignore this call's result
        // (`omp_target_memcpy`), so a failure that nobody has seen stays one.
        port.lose();
        Upcalls(&self.engine.connection).finish_output(self.number);
        Err(e)
    }

    /// Makes all later operations of `queue` wait for the event.
    pub(crate) fn wait_event(&self, event: &Arc<Event>, queue: &Arc<Queue>) -> Result<()> {
        match self.engine.settle(event, Some(queue))? {
            Some(message @ QueueMessage { id: MessageId { port, seq }, .. })
                if port == queue.port() && !self.port().flight.lock().ends_elsewhere(message) =>
            {
                self.engine.push(queue, &mut *self.open(queue)?, Command::Wait { seq })
            }
            // Devices do not know each other's events; libomptarget never requests this.
            Some(_) => self.sync_event(event),
            None => Ok(()),
        }
    }

    pub(crate) fn query_event(&self, event: &Arc<Event>) -> Result<bool> {
        let Some(message) = self.engine.settle(event, None)? else { return Ok(true) };
        self.engine.poll()?;
        Upcalls(&self.engine.connection).check_alive(message.id.port)?;
        let complete = self.engine.is_over(message);
        if !complete {
            self.engine.note_idle_poll();
        }
        Ok(complete)
    }

    pub(crate) fn sync_event(&self, event: &Arc<Event>) -> Result<()> {
        if let Some(message) = self.engine.settle(event, None)? {
            self.engine.wait_until(None, &|| self.engine.is_over(message))?;
            Upcalls(&self.engine.connection).check_alive(message.id.port)?;
        }
        Ok(())
    }
}
