// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The memory of one device: allocating it, and copying from and to it.

use super::queues::Queues;
use super::shared_memory::{NewWindow, SharedMemory};
use crate::base::limits::{INLINE_FAR_MAX, INLINE_FAR_PIECE, PAGE, STAGED};
use crate::base::{Error, Result};
use crate::debug;
use crate::link::{Peer, Span};
use crate::plugin::addresses::address_map::AddressMap;
use crate::plugin::addresses::arena::Arena;
use crate::plugin::messages::batch::ExtraParts;
use crate::plugin::messages::queue::{Open, Queue};
use crate::plugin::messages::queue_trace::What;
use crate::wire::command::{COMMAND_MAX, Command, HEAD_LEN};
use crate::wire::control::Control;
use crate::wire::{Bytes, INLINE_MAX, MESSAGE_MAX};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

// A message with two pieces fits in two frames.
const _: () = assert!(HEAD_LEN + 2 * (COMMAND_MAX + INLINE_FAR_PIECE) <= MESSAGE_MAX);

pub(crate) struct Memory {
    queues: Arc<Queues>,
    addresses: Arc<AddressMap>,
    range: Range<u64>,
    control: Arc<Queue>,
    /// Memory of the device that this process can access itself.
    shared: SharedMemory,
    /// Large copies from and to these addresses do not go through the device's buffers.
    unbuffered: Range<u64>,
}

impl Memory {
    /// The memory of a device whose arena was mapped at `range`.
    pub(crate) fn new(
        queues: Arc<Queues>,
        addresses: Arc<AddressMap>,
        range: Range<u64>,
        control: Arc<Queue>,
        shared: SharedMemory,
        unbuffered: Range<u64>,
    ) -> Self {
        *queues.port().arena.lock() = Arena::new(range.clone());
        Self { queues, addresses, range, control, shared, unbuffered }
    }

    pub(crate) fn capacity(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Allocates device memory. `like` is the address of the corresponding host memory, 0 if there is
    /// none.
    pub(crate) fn alloc(&self, size: u64, like: u64) -> Result<u64> {
        /// Where glibc's malloc puts large blocks: most copies are from or to such memory.
        const MALLOC: u64 = 16;
        let like = if like == 0 { MALLOC } else { like };
        self.queues.check_alive()?;
        let mut arena = self.queues.port().arena.lock();
        if self.queues.engine.leaves_kernels {
            self.discard(&mut arena)?;
        }
        arena.alloc(size, like).ok_or_else(|| {
            let free = self.capacity() - arena.used;
            let (name, all) = (&self.queues.port().name, self.capacity());
            let how = if free < size { "" } else { ", not in one piece" };
            let of_all = format_args!("{free} of its {all} bytes (OMPTARGET_MPI_MEMORY) are free");
            Error::new(format!("no room for {size} bytes on {name}: {of_all}{how}"))
        })
    }

    pub(crate) fn free(&self, at: u64) -> Result<()> {
        // Locked until the discards are sent: they must precede all later writes to these addresses.
        let mut arena = self.queues.port().arena.lock();
        if !arena.free(at) {
            return Err(Error::new(format!("{at:#x} is not allocated on {}", self.queues.port().name)));
        }
        self.discard(&mut arena)
    }

    /// Makes the device return unused memory to its system, once there is enough of it.
    fn discard(&self, arena: &mut Arena) -> Result<()> {
        if self.queues.engine.leaves_kernels && !self.has_no_unawaited() {
            // A kernel may still use that memory: a later call discards it, unless it is reused before.
            return Ok(());
        }
        for some in arena.take_discards().chunks(MESSAGE_MAX / 2 / COMMAND_MAX) {
            self.queues.engine.connection.control(&self.control, |batch| {
                some.iter().for_each(|r| batch.control(Control::Discard { at: r.start, len: r.end - r.start }));
            })?;
        }
        Ok(())
    }

    /// True if the range lies within the device's arena or one of its images.
    fn knows(&self, at: u64, len: u64) -> bool {
        let Some(end) = at.checked_add(len) else { return false };
        (self.range.start <= at && end <= self.range.end) || self.addresses.in_image(self.queues.number, at..end)
    }

    /// True if a large copy from or to this range goes through the device's buffers.
    fn is_buffered(&self, at: u64, len: u64) -> bool {
        !(self.unbuffered.start <= at && at + len <= self.unbuffered.end)
    }

    /// The address at which this process itself can access these bytes now, as a part of `queue`, if it can.
    fn direct(&self, queue: &Queue, at: u64, len: u64) -> Result<Option<*mut u8>> {
        if !self.shared.is_possible(len) {
            return Ok(None);
        }
        let is_mapped = self.shared.mapped(at, len).is_some();
        // Bytes that go by message in any case are not worth a wait.
        if !self.is_settled(queue, if is_mapped { len } else { 0 })? {
            return Ok(None);
        }
        if !is_mapped {
            self.shared.new_window(at).map_or(Ok(()), |window| self.share(window))?;
        }
        let Some(here) = self.shared.mapped(at, len) else { return Ok(None) };
        if self.shared.is_answer_due() {
            // Copies alone would never notice a dead or silent device: it must answer an empty message.
            let queue = self.queues.queue();
            self.queues.engine.reserve(&queue, &mut queue.open(), 0, 0)?.gives_something();
            self.queues.synchronize(queue)?;
        }
        Ok(Some(here))
    }

    /// Makes the device move these pages to memory that this process can access, if it executes nothing.
    #[cold]
    fn share(&self, window: NewWindow<'_>) -> Result<()> {
        let share = Control::Share { at: window.at, len: window.len, offset: window.offset };
        // This process must not write there before the device has answered.
        if self.queues.engine.request(&self.control, share, Duration::MAX)? == 1 {
            debug!("{} bytes at {:#x} of {} are mapped here", window.len, window.at, self.queues.port().name);
            window.add();
        }
        Ok(())
    }

    /// True if no pending operation must precede a copy of `len` bytes that this process makes as a part of `queue`.
    fn is_settled(&self, queue: &Queue, len: u64) -> Result<bool> {
        let port = self.queues.port();
        // The control queue may still have to discard this memory's previous contents.
        let is_idle = || queue.is_idle() && self.control.pending.is_idle() && !port.failures.has_unseen();
        if len > INLINE_MAX as u64 && is_idle() {
            // As bulk data, the copy would wait for these messages too, and only then start on the device.
            let is_over = port.when_unawaited_are_over();
            if !is_over() {
                self.queues.engine.wait_until(None, &is_over)?;
            }
        }
        Ok(is_idle() && self.has_no_unawaited())
    }

    /// True if the device has answered all messages that nobody waits for.
    fn has_no_unawaited(&self) -> bool {
        let port = self.queues.port();
        port.unawaited.is_empty(|seq| port.is_complete(seq))
    }

    /// Reads shared memory for the program after all earlier operations of `queue`; false if this process can't.
    fn read_shared(&self, queue: &Arc<Queue>, from: u64, to: *mut u8, size: u64) -> Result<bool> {
        let Some(read) = self.shared.read(from, to, size) else { return Ok(false) };
        // An empty message is enough: its answer shows that everything before the read is complete.
        self.queues.engine.reserve(queue, &mut queue.open(), 0, 0)?.read_shared(read);
        Ok(true)
    }

    /// Copies from the program's memory to the device, as a part of `queue`.
    ///
    /// # Safety
    /// `from[..size]` is readable, and if larger than [`INLINE_MAX`], until `queue` is synchronized.
    pub(crate) unsafe fn submit(&self, queue: &Arc<Queue>, to: u64, from: *const u8, size: u64) -> Result<()> {
        let write = |queue: &Arc<Queue>, open: &mut Open, at: u64, len: u64| {
            // SAFETY: the caller's promise; all pieces lie within `from[..size]`.
            let bytes = unsafe { std::slice::from_raw_parts(from.add(at as usize), len as usize) };
            self.queues.engine.unshare(queue, open)?;
            let batch = self.queues.engine.reserve(queue, open, COMMAND_MAX + bytes.len(), 0)?;
            batch.push(Command::Write { to: to.wrapping_add(at), bytes: Bytes(bytes) });
            Ok(())
        };
        // SAFETY: the caller's promise.
        unsafe { self.copy(queue, to, from.cast_mut(), size, true, write) }
    }

    /// Copies from the device to the program's memory, as a part of `queue`.
    ///
    /// # Safety
    /// `to[..size]` is writable until `queue` is synchronized.
    pub(crate) unsafe fn retrieve(&self, queue: &Arc<Queue>, to: *mut u8, from: u64, size: u64) -> Result<()> {
        let read = |queue: &Arc<Queue>, open: &mut Open, at: u64, len: u64| {
            let to = (to.wrapping_add(at as usize), len as usize);
            // An earlier read of shared memory may have the same destination.
            self.queues.engine.unshare(queue, open)?;
            self.queues.engine.read(queue, open, from.wrapping_add(at), to)
        };
        // SAFETY: the caller's promise.
        unsafe { self.copy(queue, from, to, size, false, read) }
    }

    /// Copies between the device's memory at `device` and the program's at `host`; `piece` adds the
    /// inline copy of some bytes at an offset to a batch.
    ///
    /// # Safety
    /// As for [`Memory::submit`] if `to_device`, else as for [`Memory::retrieve`].
    unsafe fn copy(
        &self,
        queue: &Arc<Queue>,
        device: u64,
        host: *mut u8,
        size: u64,
        to_device: bool,
        piece: impl Fn(&Arc<Queue>, &mut Open, u64, u64) -> Result<()>,
    ) -> Result<()> {
        self.queues.check_alive()?;
        if size == 0 {
            return Ok(());
        }
        if !self.knows(device, size) {
            let what = if to_device { "write to" } else { "read from" };
            return self.copy_unknown(queue, what, device, size, piece);
        }
        if let Some(here) = self.direct(queue, device, size)? {
            let (to, from) = if to_device { (here, host) } else { (host, here) };
            // SAFETY: the caller's promise. If the device accesses these bytes meanwhile, that is the program's race.
            unsafe { to.copy_from(from, size as usize) };
            return Ok(());
        }
        if !to_device && self.read_shared(queue, device, host, size)? {
            return Ok(());
        }
        let engine = &self.queues.engine;
        let what = if to_device { What::Submit(size) } else { What::Retrieve(size) };
        let is_far = self.queues.port().is_far;
        let (most, step) = if is_far { (INLINE_FAR_MAX, INLINE_FAR_PIECE) } else { (INLINE_MAX, INLINE_MAX) };
        if size as usize <= most {
            let mut open = self.queues.open(queue)?;
            let at = engine.tracing().stamp();
            let mut starts = (0..size).step_by(step);
            starts.try_for_each(|at| piece(queue, &mut open, at, (size - at).min(step as u64)))?;
            open.note(engine.tracing(), at, what);
            return Ok(());
        }
        let pieces = if self.is_buffered(device, size) { staged_pieces(size, to_device) } else { vec![size] };
        let mut at = 0;
        pieces.into_iter().try_for_each(|len| {
            let (there, here) = (device + at, host.wrapping_add(at as usize));
            at += len;
            // SAFETY: the caller's promise; the pieces add up to `size`.
            unsafe { self.transfer(queue, there, here, len, to_device) }
        })
    }

    /// A bulk transfer between the device's memory at `device` and the program's at `host`.
    ///
    /// # Safety
    /// As for [`Memory::copy`].
    unsafe fn transfer(
        &self,
        queue: &Arc<Queue>,
        device: u64,
        host: *mut u8,
        size: u64,
        to_device: bool,
    ) -> Result<()> {
        let engine = &self.queues.engine;
        let what = if to_device { What::Submit(size) } else { What::Retrieve(size) };
        let at = engine.tracing().stamp();
        let (here, there) = (engine.connection.rank, self.queues.port().rank);
        let (from, to) = if to_device { (here, there) } else { (there, here) };
        let lease = engine.lease(from, to, 1)?;
        let (rank, tag) = (here as u32, lease.tag());
        let command = match to_device {
            true => Command::Receive { to: device, len: size, rank, tag },
            false => Command::Send { from: device, len: size, rank, tag },
        };
        // SAFETY: the caller's promise; a send does not write to the program's memory.
        let span = unsafe { Span::new(host, size as usize) };
        let mut open = self.queues.open(queue)?;
        engine.push(queue, &mut open, command)?;
        open.note(engine.tracing(), at, what);
        open.batch().add_transfers(Some(lease.clone()), ExtraParts { transfers: 1, elsewhere: false });
        engine.flush(queue, &mut open)?;
        engine.connection.start_transfer(queue.message(open.last), (Peer { rank: there, tag }, lease), span, to_device)
    }

    /// Fills `size` bytes of device memory with a repeated pattern, as a part of `queue`.
    pub(crate) fn fill(&self, queue: &Arc<Queue>, to: u64, pattern: &[u8], size: u64) -> Result<()> {
        let len = pattern.len();
        if len == 0 || len > INLINE_MAX || !size.is_multiple_of(len as u64) {
            return Err(Error::new(format!("{size} bytes can't be filled with a pattern of {len}")));
        }
        let piece = pattern.repeat(INLINE_MAX / len);
        for at in (0..size).step_by(piece.len()) {
            let n = (size - at).min(piece.len() as u64);
            // SAFETY: `piece` has at least `n` bytes, and `n` bytes are copied during the call.
            unsafe { self.submit(queue, to + at, piece.as_ptr(), n)? };
        }
        Ok(())
    }

    /// Copies memory whose addresses only the device can validate (a kernel's own heap or stack): in small
    /// pieces, after the operations of `after`. The copy completes before the call returns, because the
    /// program does not always see the status of a later synchronize.
    fn copy_unknown(
        &self,
        after: &Arc<Queue>,
        what: &str,
        at: u64,
        size: u64,
        piece: impl Fn(&Arc<Queue>, &mut Open, u64, u64) -> Result<()>,
    ) -> Result<()> {
        let name = &self.queues.port().name;
        if at.checked_add(size).is_none() {
            return Err(Error::new(format!("can't {what} {at:#x} on {name}: it is no address")));
        }
        if self.addresses.owner(at).is_some() {
            return Err(Error::new(format!(
                "can't {what} {at:#x}: {size} bytes from there leave the memory of {name}"
            )));
        }
        let engine = &self.queues.engine;
        self.queues.complete(after)?;
        let queue = self.queues.queue();
        let copied = (0..size).step_by(INLINE_MAX).try_for_each(|done| {
            let len = (size - done).min(INLINE_MAX as u64);
            piece(&queue, &mut queue.open(), done, len)
        });
        let sent = copied.and_then(|()| self.queues.flush(&queue));
        let waited = engine.wait(&queue);
        let failure = self.queues.port().failures.take(queue.id);
        if waited.is_ok() {
            self.queues.release(queue);
        }
        // Unlike a failed synchronize, this does not lose the device.
        self.queues.check_unseen()?;
        match failure {
            Some(e) => Err(e.context(format_args!("can't {what} {at:#x}"))),
            None => sent.and(waited),
        }
    }

    /// Copies to another device or within this one, as a part of `queue`. Returns false if only the devices can tell
    /// whether both addresses are valid.
    pub(crate) fn exchange(&self, queue: &Arc<Queue>, from: u64, other: &Memory, to: u64, size: u64) -> Result<bool> {
        self.queues.check_alive()?;
        other.queues.check_alive()?;
        for (memory, at) in [(self, from), (other, to)] {
            if !memory.knows(at, size) {
                let name = &memory.queues.port().name;
                if self.addresses.owner(at).is_none() {
                    // Perhaps a kernel's own heap: libomptarget then copies through the host,
                    // where `copy_unknown` finds out whether the address is valid.
                    debug!("{at:#x} is not within the memory of {name}: no direct copy");
                    return Ok(false);
                }
                return Err(Error::new(format!("can't copy {size} bytes at {at:#x}: not within the memory of {name}")));
            }
        }
        let engine = &self.queues.engine;
        if self.queues.number == other.queues.number {
            let at = engine.tracing().stamp();
            let mut open = self.queues.open(queue)?;
            engine.push(queue, &mut open, Command::Copy { to, from, len: size })?;
            open.note(engine.tracing(), at, What::Exchange(size));
            return Ok(true);
        }
        if let (Some(target), Some(source)) = (other.direct(queue, to, size)?, self.direct(queue, from, size)?) {
            // SAFETY: both are mapped here for as long as the process lives.
            unsafe { target.copy_from(source, size as usize) };
            return Ok(true);
        }
        let is_buffered = self.is_buffered(from, size) || other.is_buffered(to, size);
        let piece = if is_buffered { staged_piece(size) } else { size };
        if size <= piece {
            return self.send_to(queue, from, other, to, size).map(|()| true);
        }
        (0..size)
            .step_by(piece as usize)
            .try_for_each(|done| self.send_to(queue, from + done, other, to + done, (size - done).min(piece)))
            .map(|()| true)
    }

    /// A bulk transfer to another device, as a part of `queue`.
    fn send_to(&self, queue: &Arc<Queue>, from: u64, other: &Memory, to: u64, size: u64) -> Result<()> {
        let engine = &self.queues.engine;
        let at = engine.tracing().stamp();
        let (here, there) = (self.queues.port().rank, other.queues.port().rank);
        let lease = engine.lease(here, there, 1)?;
        let tag = lease.tag();
        let mut open = self.queues.open(queue)?;
        engine.push(queue, &mut open, Command::Send { from, len: size, rank: there as u32, tag })?;
        open.note(engine.tracing(), at, What::Exchange(size));
        open.batch().add_transfers(Some(lease), ExtraParts { transfers: 0, elsewhere: true });
        engine.flush(queue, &mut open)?;
        // The receiving end has a queue of its own on the other device, so that no other work there
        // delays the transfer; `queue` is complete when both ends are. All copies to that device share
        // this queue, in the order of the sends: MPI lets data of different tags overtake each other,
        // and two copies may have the same destination.
        let receiver = open.receiver(other.queues.number, || other.queues.new_queue());
        let receiving = &mut *receiver.open_receiver();
        engine.push(&receiver, receiving, Command::Receive { to, len: size, rank: here as u32, tag })?;
        // Not collected: this device's send waits for the receive.
        engine.connection.send(&receiver, receiving, queue, Some(queue.message(open.last)))
    }
}

/// The sizes of the pieces of a copy between the program and a device that goes through buffers. The accelerator idles
/// while MPI moves the first piece to the device, or the last one from it: hence that piece is small. MPI moves each
/// further piece while the accelerator copies the one before, so a piece can exceed its predecessor by the factor by
/// which MPI is faster than an accelerator's slow copies. Splitting less than 2 MiB gains nothing.
fn staged_pieces(size: u64, to_device: bool) -> Vec<u64> {
    const GROWTH: u64 = 3;
    if size < STAGED / 2 {
        return vec![size];
    }
    let (first, page) = (STAGED / 8, PAGE.min(STAGED / 8));
    let most = staged_piece(size).max(STAGED / 2);
    let (mut pieces, mut left, mut next) = (Vec::new(), size, first);
    while left > 0 {
        // A small remainder gets no piece of its own.
        let len = match left {
            _ if left >= next + first => next,
            ..=STAGED => left,
            _ => left / 2 / page * page,
        };
        pieces.push(len);
        left -= len;
        next = (GROWTH * next).min(most);
    }
    if !to_device {
        pieces.reverse();
        // All pieces begin at the same offset in a page.
        let (rest, last) = (pieces[0] % page, pieces.len() - 1);
        pieces[0] -= rest;
        pieces[last] += rest;
    }
    pieces
}

/// The size of the pieces of a copy between two devices that goes through buffers. An accelerator idles while MPI moves
/// the first or the last piece, and each piece costs a message and a synchronization of the accelerator. The sum of
/// both costs is least if the size of a piece grows as the square root of the copy's: 1 MiB of 4 MiB, and the largest
/// of 64 MiB. A piece has at least 1 MiB, or the whole copy: smaller pieces gain nothing.
fn staged_piece(size: u64) -> u64 {
    let best = size.saturating_mul(STAGED / 16).isqrt().clamp(STAGED / 4, STAGED);
    let pieces = (size / best).max(size.div_ceil(STAGED)).max(1);
    size.div_ceil(pieces).next_multiple_of(PAGE).min(STAGED)
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/devices/memory.rs"]
mod tests;
