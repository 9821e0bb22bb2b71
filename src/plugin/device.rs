// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! One device as libomptarget knows it: memory, transfers, images, kernels.

use super::arena::Arena;
use super::engine::{Engine, Port, Target};
use super::flight::Extra;
use super::image::{Entry, Loaded};
use super::queue::{Event, Ids, Open, Queue};
use super::space::{Reservation, Space};
use super::tags::Lease;
use super::watch::{Journal, What};
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, clock, elf, node};
use crate::debug;
use crate::link::{Peer, Span};
use crate::wire::command::{COMMAND_MAX, Command, HEAD_LEN, Head, Writer, launch_len};
use crate::wire::hello::Hello;
use crate::wire::reply::DONE_LEN;
use crate::wire::{INLINE_MAX, MESSAGE_MAX};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often an image may be moved before the device's addresses are given up on.
const MOVES: usize = 16;

/// See the module.
pub struct Device {
    /// What the device said of itself.
    pub hello: Hello,
    /// Its number, which is also its port's index.
    pub number: usize,
    engine: Arc<Engine>,
    space: Arc<Space>,
    range: Range<u64>,
    images: Mutex<Vec<Loaded>, { order::LOADED_IMAGES }>,
    idle_queues: Mutex<Vec<Arc<Queue>>, { order::LEAF }>,
    journal: Mutex<Journal, { order::LEAF }>,
    /// For what concerns the whole device.
    pub control: Arc<Queue>,
    queue_ids: Arc<Ids>,
}

impl Device {
    /// A device whose arena was mapped at `range`, by a message of the queue `control`.
    pub fn new(
        number: usize,
        hello: Hello,
        engine: Arc<Engine>,
        space: Arc<Space>,
        range: Range<u64>,
        control: Arc<Queue>,
    ) -> Device {
        *engine.ports[number].arena.lock() = Arena::new(range.clone());
        Device {
            hello,
            number,
            engine,
            space,
            range,
            images: Mutex::default(),
            idle_queues: Mutex::default(),
            journal: Mutex::default(),
            control,
            queue_ids: Arc::default(),
        }
    }

    /// The host's end of it.
    pub fn port(&self) -> &Port {
        &self.engine.ports[self.number]
    }

    /// Fails if the device failed before.
    ///
    /// # Errors
    /// [`Error::Told`].
    #[inline]
    pub fn alive(&self) -> Result<()> {
        self.engine.check_alive(self.number)
    }

    /// "device 0 (rank 0 on host a)".
    pub fn name(&self) -> &str {
        &self.port().name
    }

    /// Bytes of memory that the device can hand out.
    pub fn capacity(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// What a person wants to know of the device: names of properties, and values.
    pub fn info(&self) -> [(&'static str, String); 10] {
        let h = &self.hello;
        [
            ("Device kind", "process reached over MPI".to_string()),
            (
                "Rank",
                self.port().worker.map_or(String::new(), |w| format!("worker {w} of ")) + &self.port().rank.to_string(),
            ),
            ("Host name", h.host.clone()),
            ("Process id", h.pid.to_string()),
            ("Cores", format!("{} ({})", h.cores.len(), node::ranges(&h.cores))),
            ("Memory of the device", format!("{} MiB", self.capacity() >> 20)),
            ("Memory of its node", format!("{} MiB", h.memory >> 20)),
            ("MPI library", h.mpi.clone()),
            ("Plugin version", h.version.clone()),
            ("Protocol version", h.protocol.to_string()),
        ]
    }

    /// The rank of the program.
    pub fn host_rank(&self) -> usize {
        self.engine.rank
    }

    /// The most bytes that were allocated at a time.
    pub fn peak(&self) -> u64 {
        self.port().arena.lock().peak()
    }

    // ---- memory ----------------------------------------------------------------

    /// Takes device memory, for what lies at the address `like` in the program if that is
    /// not 0.
    ///
    /// # Errors
    /// The device has not that much left, or was lost.
    pub fn alloc(&self, size: u64, like: u64) -> Result<u64> {
        /// Where glibc's malloc puts what is large: most copies are from or to such memory.
        const MALLOC: u64 = 16;
        let like = if like == 0 { MALLOC } else { like };
        self.alive()?;
        let mut arena = self.port().arena.lock();
        arena.alloc(size, like).ok_or_else(|| {
            let free = self.capacity() - arena.used();
            let (name, all) = (self.name(), self.capacity());
            let how = if free < size { "" } else { ", not in one piece" };
            Error::new(format!("no room for {size} bytes on {name}: {free} of its {all} bytes are free{how}"))
        })
    }

    /// Gives device memory back.
    ///
    /// # Errors
    /// An address that [`Device::alloc`] did not return.
    pub fn free(&self, at: u64) -> Result<()> {
        // Locked until the discards are on their way: whatever is written to these
        // addresses later must not be discarded with them.
        let mut arena = self.port().arena.lock();
        if !arena.free(at) {
            return Err(Error::new(format!("{at:#x} is not allocated on {}", self.name())));
        }
        for some in arena.take_discards().chunks(MESSAGE_MAX / 2 / COMMAND_MAX) {
            self.engine.control(&self.control, |w| {
                some.iter().for_each(|r| w.push(Command::Discard { at: r.start, len: r.end - r.start }));
            })?;
        }
        Ok(())
    }

    /// True if the range lies within memory that the host side knows of the device.
    fn knows(&self, at: u64, len: u64) -> bool {
        let Some(end) = at.checked_add(len) else { return false };
        (self.range.start <= at && end <= self.range.end) || self.space.in_image(self.number, at..end)
    }

    // ---- queues ----------------------------------------------------------------

    /// A queue that nobody uses.
    pub fn queue(&self) -> Arc<Queue> {
        let idle = self.idle_queues.lock().pop();
        idle.unwrap_or_else(|| self.new_queue())
    }

    fn new_queue(&self) -> Arc<Queue> {
        Queue::new(&self.queue_ids, self.number)
    }

    fn release(&self, queue: Arc<Queue>) {
        let mut open = queue.open.lock();
        if open.notes.are_many() {
            self.journal.lock().take(queue.id, &mut open.notes, self.engine.watching.events);
        }
        open.reset();
        drop(open);
        self.idle_queues.lock().push(queue);
    }

    /// The time, if there is a trace for it.
    #[inline]
    fn stamp(&self) -> u64 {
        if self.engine.watching.trace { clock::now() } else { 0 }
    }

    /// Writes down what was asked of a queue at a time, once it is in the open message.
    #[inline]
    fn note(&self, open: &mut Open, at: u64, what: What) {
        if self.engine.watching.trace {
            open.notes.asked(at, what);
        }
    }

    /// All notes of queues that nobody uses now; at most `limit` are kept.
    pub fn take_journal(&self, limit: u64) -> Journal {
        let idle = self.idle_queues.lock().clone();
        for queue in idle {
            let open = &mut *queue.open.lock();
            self.journal.lock().take(queue.id, &mut open.notes, limit);
        }
        self.journal.lock().take_all()
    }

    /// Gives an order to the whole device and returns the number that it answers, within some
    /// time.
    ///
    /// # Errors
    /// The device does not answer, or the link is broken.
    pub fn tell(&self, command: Command<'_>, patience: Duration) -> Result<u64> {
        let (queue, since) = (&self.control, Instant::now());
        let mut answer = Box::new([0u8; 8]);
        let mut open = queue.open.lock();
        self.push(queue, &mut open, command)?;
        if !matches!(command, Command::Watch { .. }) {
            open.targets.push(Target { at: answer.as_mut_ptr(), len: answer.len() });
            open.reply += answer.len();
        }
        self.engine.close(queue, &mut open)?;
        drop(open);
        let waited = self.engine.wait_until(Some(queue), &|| queue.is_idle() || since.elapsed() > patience);
        if !queue.is_idle() {
            // It may be written to yet.
            std::mem::forget(answer);
            return Err(waited.err().unwrap_or_else(|| Error::new("it does not answer")));
        }
        Ok(u64::from_le_bytes(*answer))
    }

    /// Makes sure that the open message has room for a command and its reply.
    fn room(&self, queue: &Arc<Queue>, open: &mut Open, command: usize, reply: usize) -> Result<()> {
        let full = open.message.len() + command > MESSAGE_MAX || DONE_LEN + open.reply + reply > MESSAGE_MAX;
        if full && !open.message.is_empty() {
            self.engine.close(queue, open)?;
        }
        if open.message.is_empty() {
            open.message = self.engine.link.buffer();
            Head::begin(&mut open.message, queue.id, open.fresh);
        }
        Ok(())
    }

    fn push(&self, queue: &Arc<Queue>, open: &mut Open, command: Command<'_>) -> Result<()> {
        self.room(queue, open, COMMAND_MAX, 0)?;
        Writer(&mut open.message).push(command);
        Ok(())
    }

    /// Sends what was collected and waits until all of it is done; the queue is free
    /// then, whatever the result.
    ///
    /// # Errors
    /// The first failure of anything in the queue.
    pub fn synchronize(&self, queue: Arc<Queue>) -> Result<()> {
        let waited = self.finish(&queue);
        self.conclude(queue, waited)
    }

    /// Sends what was collected and waits until all of it is done, or the link is broken.
    fn finish(&self, queue: &Arc<Queue>) -> Result<()> {
        let sent = self.flush(queue);
        // Behind the sending: the device is at work while the clock is read.
        let since = self.engine.watching.on.then(clock::now);
        let waited = sent.and_then(|()| self.engine.wait(queue));
        if let Some(since) = since {
            self.waited(queue, (since, clock::now()), true);
        }
        waited
    }

    /// Sends what was collected and waits until all of it is done; the queue stays in use.
    ///
    /// # Errors
    /// The first failure of anything in the queue.
    pub fn drain(&self, queue: &Arc<Queue>) -> Result<()> {
        self.finish(queue)?;
        self.judge(queue)
    }

    /// Sends what was collected and tells whether all of it is done; if so, the queue
    /// is free.
    ///
    /// # Errors
    /// The first failure of anything in the queue.
    pub fn query(&self, queue: &Arc<Queue>) -> Result<bool> {
        self.flush(queue)?;
        self.engine.poll()?;
        if !self.engine.is_done(queue) {
            self.engine.looked_in_vain();
            return Ok(false);
        }
        if self.engine.watching.on {
            let now = clock::now();
            self.waited(queue, (now, now), true);
        }
        self.conclude(queue.clone(), Ok(())).map(|()| true)
    }

    /// Writes down that a thread waited for what a queue has to do, and counts it if it was
    /// the program that asked to.
    #[cold]
    #[inline(never)]
    fn waited(&self, queue: &Queue, time: (u64, u64), counts: bool) {
        let open = &mut *queue.open.lock();
        // Behind `drain` nothing may be left to wait for.
        if open.last == 0 || std::mem::replace(&mut open.notes.waited_for, open.last) == open.last {
            return;
        }
        if counts {
            open.notes.count(time);
        }
        if self.engine.watching.trace {
            open.notes.waited(time, open.last);
        }
    }

    /// Sends what was collected.
    fn flush(&self, queue: &Arc<Queue>) -> Result<()> {
        self.engine.close(queue, &mut queue.open.lock())
    }

    fn conclude(&self, queue: Arc<Queue>, waited: Result<()>) -> Result<()> {
        let judged = self.judge(&queue);
        // A queue that never got idle (a broken link) must not be used again.
        if waited.is_ok() {
            self.release(queue);
        }
        judged.and(waited)
    }

    /// The failure of a queue, if something in it failed.
    fn judge(&self, queue: &Queue) -> Result<()> {
        let Some(e) = queue.take_failure() else { return Ok(()) };
        // The program was promised results that it will not get.
        self.port().lose();
        Err(e)
    }

    // ---- transfers -------------------------------------------------------------

    /// Copies from the program's memory to the device, as a part of `queue`.
    ///
    /// # Errors
    /// The device was lost; or, for memory that only the device knows, the copy failed.
    ///
    /// # Safety
    /// `from[..size]` is readable, and if larger than [`INLINE_MAX`], until `queue` is
    /// synchronized.
    pub unsafe fn submit(&self, queue: &Arc<Queue>, to: u64, from: *const u8, size: u64) -> Result<()> {
        self.alive()?;
        if size as usize <= INLINE_MAX && self.knows(to, size) {
            let mut open = queue.open.lock();
            let at = self.stamp();
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(from, size as usize) };
            self.room(queue, &mut open, COMMAND_MAX + bytes.len(), 0)?;
            self.note(&mut open, at, What::Submit(size));
            Writer(&mut open.message).push(Command::Write { to, bytes });
            return Ok(());
        }
        if !self.knows(to, size) {
            // SAFETY: the caller's promise.
            let bytes = unsafe { std::slice::from_raw_parts(from, size as usize) };
            return self.unknown(queue, "write to", to, size, |queue, open, at, len| {
                self.room(queue, open, COMMAND_MAX + len as usize, 0)?;
                let bytes = &bytes[at as usize..][..len as usize];
                Writer(&mut open.message).push(Command::Write { to: to + at, bytes });
                Ok(())
            });
        }
        let at = self.stamp();
        let (here, there) = (self.engine.rank, self.port().rank);
        let lease = self.engine.lease(here, there, 1)?;
        let (rank, tag) = (here as u32, lease.tag());
        // SAFETY: the caller's promise; a send does not write to it.
        let span = unsafe { Span::new(from.cast_mut(), size as usize) };
        let mut open = queue.open.lock();
        self.push(queue, &mut open, Command::Receive { to, len: size, rank, tag })?;
        self.note(&mut open, at, What::Submit(size));
        self.close_with_bulk(queue, &mut open, (Peer { rank: there, tag }, lease), span, true)
    }

    /// Sends the open message, the last command of which names a bulk transfer with the program,
    /// and starts that.
    fn close_with_bulk(
        &self,
        queue: &Arc<Queue>,
        open: &mut Open,
        (peer, lease): (Peer, Arc<Lease>),
        span: Span,
        to_device: bool,
    ) -> Result<()> {
        open.extra = Extra { transfers: 1, elsewhere: false };
        open.lease = Some(lease.clone());
        self.engine.close(queue, open)?;
        self.engine.bulk((queue, open.last), (peer, lease), span, to_device)
    }

    /// Repeats a pattern all over `size` bytes of the device, as a part of `queue`.
    ///
    /// # Errors
    /// As [`Device::submit`]; or a pattern that does not fit, or is too long.
    pub fn fill(&self, queue: &Arc<Queue>, to: u64, pattern: &[u8], size: u64) -> Result<()> {
        let len = pattern.len();
        if len == 0 || len > INLINE_MAX || !size.is_multiple_of(len as u64) {
            return Err(Error::new(format!("{size} bytes can't be filled with a pattern of {len}")));
        }
        let piece = pattern.repeat(INLINE_MAX / len);
        let mut at = 0;
        while at < size {
            let n = (size - at).min(piece.len() as u64);
            // SAFETY: `piece` has that many bytes, and no more than are copied at the call.
            unsafe { self.submit(queue, to + at, piece.as_ptr(), n)? };
            at += n;
        }
        Ok(())
    }

    /// Copies from the device to the program's memory, as a part of `queue`.
    ///
    /// # Errors
    /// The device was lost; or, for memory that only the device knows, the copy failed.
    ///
    /// # Safety
    /// `to[..size]` is writable until `queue` is synchronized.
    pub unsafe fn retrieve(&self, queue: &Arc<Queue>, to: *mut u8, from: u64, size: u64) -> Result<()> {
        self.alive()?;
        let read = |queue: &Arc<Queue>, open: &mut Open, at: u64, len: u64| {
            self.room(queue, open, COMMAND_MAX, len as usize)?;
            Writer(&mut open.message).push(Command::Read { from: from + at, len: len as u32 });
            open.targets.push(Target { at: to.wrapping_add(at as usize), len: len as usize });
            open.reply += len as usize;
            Ok(())
        };
        if !self.knows(from, size) {
            return self.unknown(queue, "read from", from, size, read);
        }
        if size as usize <= INLINE_MAX {
            let mut open = queue.open.lock();
            let at = self.stamp();
            read(queue, &mut open, 0, size)?;
            self.note(&mut open, at, What::Retrieve(size));
            return Ok(());
        }
        let at = self.stamp();
        let (here, there) = (self.engine.rank, self.port().rank);
        let lease = self.engine.lease(there, here, 1)?;
        let (rank, tag) = (here as u32, lease.tag());
        // SAFETY: the caller's promise.
        let span = unsafe { Span::new(to, size as usize) };
        let mut open = queue.open.lock();
        self.push(queue, &mut open, Command::Send { from, len: size, rank, tag })?;
        self.note(&mut open, at, What::Retrieve(size));
        self.close_with_bulk(queue, &mut open, (Peer { rank: there, tag }, lease), span, false)
    }

    /// A copy where only the device can tell whether the address is valid (a kernel's
    /// own heap or stack): in small pieces, done when the call returns, because the
    /// program does not always see the status of a later synchronize. It comes after
    /// what `after` has collected so far.
    fn unknown(
        &self,
        after: &Arc<Queue>,
        what: &str,
        at: u64,
        size: u64,
        piece: impl Fn(&Arc<Queue>, &mut Open, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let name = self.name();
        if at.checked_add(size).is_none() {
            return Err(Error::new(format!("can't {what} {at:#x} on {name}: it is no address")));
        }
        if self.space.owner(at).is_some() {
            return Err(Error::new(format!(
                "can't {what} {at:#x}: {size} bytes from there leave the memory of {name}"
            )));
        }
        self.flush(after)?;
        self.engine.wait(after)?;
        let queue = self.queue();
        let mut done = 0;
        let mut result = Ok(());
        while done < size && result.is_ok() {
            let len = (size - done).min(INLINE_MAX as u64);
            result = piece(&queue, &mut queue.open.lock(), done, len);
            done += len;
        }
        result = result.and_then(|()| self.flush(&queue));
        let waited = self.engine.wait(&queue);
        let failure = queue.take_failure();
        if waited.is_ok() {
            self.release(queue);
        }
        // Unlike a failed synchronize this leaves the device as it was.
        match failure {
            Some(e) => Err(e.context(format_args!("can't {what} {at:#x}"))),
            None => result.and(waited),
        }
    }

    /// Copies to another device or within this one, as a part of `queue`.
    ///
    /// # Errors
    /// An address that is not the devices', or a device that was lost.
    pub fn exchange(&self, queue: &Arc<Queue>, from: u64, other: &Device, to: u64, size: u64) -> Result<()> {
        self.alive()?;
        other.alive()?;
        for (device, at) in [(self, from), (other, to)] {
            if !device.knows(at, size) {
                let name = device.name();
                if self.space.owner(at).is_none() {
                    // A kernel's own heap: libomptarget then copies through the host,
                    // which can tell whether the address is valid.
                    debug!("{at:#x} is not within the memory of {name}: no direct copy");
                    return Err(Error::Told);
                }
                return Err(Error::new(format!("can't copy {size} bytes at {at:#x}: not within the memory of {name}")));
            }
        }
        let at = self.stamp();
        if self.number == other.number {
            let mut open = queue.open.lock();
            self.push(queue, &mut open, Command::Copy { to, from, len: size })?;
            self.note(&mut open, at, What::Exchange(size));
            return Ok(());
        }
        let (here, there) = (self.port().rank, other.port().rank);
        let lease = self.engine.lease(here, there, 1)?;
        let tag = lease.tag();
        let mut open = queue.open.lock();
        self.push(queue, &mut open, Command::Send { from, len: size, rank: there as u32, tag })?;
        self.note(&mut open, at, What::Exchange(size));
        open.extra = Extra { transfers: 0, elsewhere: true };
        open.lease = Some(lease);
        self.engine.close(queue, &mut open)?;
        // The other end is a queue of its own there: nothing that the other device has
        // to do holds the transfer up, and `queue` is complete when both ends are. The same
        // one for all of them, in the order of the sends: MPI lets data of different tags
        // overtake each other, and both may go to one place.
        let known = open.ends.iter().find(|end| end.port == other.number).cloned();
        let end = known.unwrap_or_else(|| {
            let end = other.new_queue();
            open.ends.push(end.clone());
            end
        });
        let received = &mut *end.open.lock_as::<{ order::OTHER_END }>();
        other.push(&end, received, Command::Receive { to, len: size, rank: here as u32, tag })?;
        self.engine.close_for(&end, received, queue, Some((queue.port, open.last)))
    }

    // ---- kernels ---------------------------------------------------------------

    /// Runs a kernel with these arguments, or with an array of pointers to these, as a part
    /// of `queue`.
    ///
    /// # Errors
    /// More arguments than a message holds, or a device that was lost.
    pub fn launch(
        &self,
        queue: &Arc<Queue>,
        kernel: u64,
        args: impl ExactSizeIterator<Item = u64>,
        array: bool,
    ) -> Result<()> {
        self.alive()?;
        let len = launch_len(args.len());
        if HEAD_LEN + len > MESSAGE_MAX {
            let (n, name) = (args.len(), self.port().kernel_name(kernel));
            return Err(Error::new(format!("kernel {name} has {n} arguments, more than a message holds")));
        }
        let mut open = queue.open.lock();
        let at = self.stamp();
        self.room(queue, &mut open, len, 0)?;
        self.note(&mut open, at, What::Launch(kernel));
        open.kernel = kernel;
        Writer(&mut open.message).launch(kernel, args, array);
        Ok(())
    }

    /// The name of a kernel, for messages.
    pub fn kernel_name(&self, kernel: u64) -> String {
        self.port().kernel_name(kernel)
    }

    // ---- images ----------------------------------------------------------------

    /// Starts what brings an image to the device, from a rank, and from here on to others;
    /// returns the message that is done when it is there, and its queue. `transfers` are those of
    /// which the program is the other end.
    ///
    /// # Errors
    /// The link is broken.
    pub fn receive_image(
        &self,
        image: u32,
        (from, lease, transfers): (Peer, Arc<Lease>, u32),
        (len, libraries): (u64, u64),
        to: [Option<(u32, u32)>; 2],
    ) -> Result<(u64, Arc<Queue>)> {
        let command = Command::Image { image, rank: from.rank as u32, tag: from.tag, len, libraries, to };
        self.apart(&[command], (Some(lease), Extra { transfers, elsewhere: false }))
    }

    /// Loads the image that message `received` brings and returns the addresses of the
    /// entries.
    ///
    /// # Errors
    /// An image or a library of it that can't be loaded there, or lacks an entry.
    pub fn load(&self, id: u32, received: u64, parsed: elf::Image, entries: &[Entry]) -> Result<Vec<u64>> {
        let queue = self.queue();
        let at = self.stamp();
        self.push(&queue, &mut queue.open.lock(), Command::Wait { seq: received })?;
        self.note(&mut queue.open.lock(), at, What::Load);
        let since = self.stamp();
        let mut answer = [0u8; 8];
        let mut result = self.ask(&queue, Command::Load { image: id }, &mut answer);
        // The device's place for the image must be free here too.
        let mut reserved = None;
        for _ in 0..MOVES {
            if result.is_err() {
                break;
            }
            let base = u64::from_le_bytes(answer);
            match Reservation::at(base + parsed.span.start, parsed.span.end - parsed.span.start) {
                Ok(r) => {
                    reserved = Some((base, r));
                    break;
                }
                Err(e) => {
                    debug!("{} has an image at {base:#x}, which the program has not free ({e})", self.name());
                    result = self.ask(&queue, Command::Move { image: id }, &mut answer);
                }
            }
        }
        self.waited(&queue, (since, self.stamp()), false);
        self.release(queue);
        result?;
        let (base, reserved) = reserved.ok_or_else(|| {
            Error::new(format!(
                "no addresses could be found for an image that {} and the program both have free",
                self.name()
            ))
        })?;
        let loaded = Loaded { id, base, file: parsed, reserved };
        let addresses: Vec<u64> = entries.iter().map(|e| loaded.address(&e.name, e.size)).collect::<Result<_>>()?;
        let mut kernels = self.port().kernels.lock();
        for (entry, &at) in entries.iter().zip(&addresses).filter(|(e, _)| e.size == 0) {
            kernels.insert(at, entry.name.clone());
        }
        drop(kernels);
        self.space.add_image(self.number, loaded.range());
        self.images.lock().push(loaded);
        self.redirect(entries.iter().zip(&addresses).filter_map(|(e, &at)| Some((e.indirect?, at))))?;
        Ok(addresses)
    }

    /// Lets kernels call functions by the addresses that these have in the program: for
    /// each such address, where the image has a pointer to its own version.
    fn redirect(&self, functions: impl Iterator<Item = (u64, u64)>) -> Result<()> {
        let mut functions = functions.peekable();
        if functions.peek().is_none() {
            return Ok(());
        }
        let queue = self.queue();
        let pushed = functions
            .try_for_each(|(from, to)| self.push(&queue, &mut queue.open.lock(), Command::Redirect { from, to }));
        self.synchronize(queue).and(pushed)
    }

    /// Device address of a function (`size` is 0) or global of a loaded image.
    ///
    /// # Errors
    /// An image or a name that is not there, or a global that is smaller there.
    pub fn symbol(&self, image: u32, name: &str, size: u64) -> Result<u64> {
        let images = self.images.lock();
        let loaded = images.iter().find(|l| l.id == image);
        let at = loaded.ok_or_else(|| Error::new(format!("there is no image {image}")))?.address(name, size)?;
        if size == 0 {
            self.port().kernels.lock().insert(at, name.to_string());
        }
        Ok(at)
    }

    /// Sends one command and waits for its 8 bytes of answer.
    fn ask(&self, queue: &Arc<Queue>, command: Command<'_>, answer: &mut [u8; 8]) -> Result<()> {
        let mut open = queue.open.lock();
        self.push(queue, &mut open, command)?;
        open.targets.push(Target { at: answer.as_mut_ptr(), len: answer.len() });
        open.reply += answer.len();
        self.engine.close(queue, &mut open)?;
        drop(open);
        self.engine.wait(queue)?;
        queue.take_failure().map_or(Ok(()), Err)
    }

    /// The numbers of the loaded images, the last one first.
    pub fn images(&self) -> Vec<u32> {
        self.images.lock().iter().rev().map(|l| l.id).collect()
    }

    /// Unloads an image; its addresses mean nothing from now on.
    ///
    /// # Errors
    /// An unload failed. A lost device has no images any more.
    pub fn unload(&self, id: u32, received: u64) -> Result<()> {
        let mut images = self.images.lock();
        if let Some(i) = images.iter().position(|l| l.id == id) {
            let range = images.remove(i).range();
            self.space.remove_image(self.number, range.start);
            self.port().kernels.lock().retain(|at, _| !range.contains(at));
        }
        drop(images);
        let Some(queue) = self.drop_image(id, received)? else { return Ok(()) };
        self.engine.wait(&queue)?;
        queue.take_failure().map_or(Ok(()), Err)
    }

    /// Starts to drop an image, loaded or not, once message `received` has brought it; the
    /// queue that does it, none on a lost device.
    ///
    /// # Errors
    /// The link is broken.
    pub fn drop_image(&self, id: u32, received: u64) -> Result<Option<Arc<Queue>>> {
        if self.port().alive().is_err() {
            return Ok(None);
        }
        let (_, queue) =
            self.apart(&[Command::Wait { seq: received }, Command::Unload { image: id }], Default::default())?;
        Ok(Some(queue))
    }

    /// Sends commands as a queue of their own; the number of the message, and the queue.
    fn apart(&self, commands: &[Command<'_>], bulk: (Option<Arc<Lease>>, Extra)) -> Result<(u64, Arc<Queue>)> {
        let queue = self.new_queue();
        let mut open = queue.open.lock();
        commands.iter().try_for_each(|&c| self.push(&queue, &mut open, c))?;
        (open.lease, open.extra) = bulk;
        self.engine.close(&queue, &mut open)?;
        let message = open.last;
        drop(open);
        Ok((message, queue))
    }

    // ---- events ----------------------------------------------------------------

    /// Records an event behind what `queue` has collected so far.
    pub fn record(&self, event: &Arc<Event>, queue: &Arc<Queue>) {
        event.record(queue, &mut queue.open.lock());
    }

    /// Lets `queue` go on only when the event is complete.
    ///
    /// # Errors
    /// The link is broken.
    pub fn wait_event(&self, event: &Arc<Event>, queue: &Arc<Queue>) -> Result<()> {
        match self.engine.settle(event, Some(queue))? {
            Some((port, seq)) if port == queue.port && !self.port().is_split(seq) => {
                self.push(queue, &mut queue.open.lock(), Command::Wait { seq })
            }
            // Devices do not know each other's events. libomptarget never asks for this.
            Some(_) => self.sync_event(event),
            None => Ok(()),
        }
    }

    /// Tells whether the event is complete.
    ///
    /// # Errors
    /// Its device was lost.
    pub fn query_event(&self, event: &Arc<Event>) -> Result<bool> {
        let Some((port, seq)) = self.engine.settle(event, None)? else { return Ok(true) };
        self.engine.poll()?;
        self.engine.check_alive(port)?;
        let complete = self.engine.ports[port].is_complete(seq);
        if !complete {
            self.engine.looked_in_vain();
        }
        Ok(complete)
    }

    /// Waits until the event is complete.
    ///
    /// # Errors
    /// Its device was lost.
    pub fn sync_event(&self, event: &Arc<Event>) -> Result<()> {
        if let Some((port, seq)) = self.engine.settle(event, None)? {
            self.engine.wait_until(None, &|| self.engine.ports[port].is_complete(seq))?;
            self.engine.check_alive(port)?;
        }
        Ok(())
    }
}
