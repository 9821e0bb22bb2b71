// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The message that a queue collects: its commands, and what the host needs to handle the reply.

use super::bulk_tags::Lease;
use crate::wire::MESSAGE_MAX;
use crate::wire::command::{Command, Head, Shape, Writer};
use crate::wire::control::Control;
use crate::wire::reply::DONE_LEN;
use std::sync::Arc;

/// A read that is pending until the reply arrives. Its bytes go to memory of the program or of a waiting caller.
#[derive(Debug)]
pub(crate) struct PendingRead {
    pub(crate) to: *mut u8,
    pub(crate) len: usize,
    pub(crate) source: Source,
}

/// Where the bytes of a read are when the reply arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// In the reply: a command of the message read them.
    Reply,
    /// In memory that the device shares with this process: at `here` in this process, at `device` on the device. The
    /// queue must execute nothing else until such a read is complete.
    Shared { here: *const u8, device: u64 },
}

// SAFETY: libomptarget keeps the memory until it has synchronized, whichever thread receives the reply; a queue is
// complete only when all its reads are. Shared memory stays mapped as long as the process runs.
unsafe impl Send for PendingRead {}

/// The parts of a message besides its answer; the message is complete when all of them are.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ExtraParts {
    /// Bulk transfers with the program.
    pub(crate) transfers: u32,
    /// A message to another device.
    pub(crate) elsewhere: bool,
}

/// What the host keeps of a message until it is complete.
#[derive(Default)]
pub(crate) struct Awaited {
    pub(super) reads: Vec<PendingRead>,
    /// The last kernel that the message runs, 0 if it runs none.
    pub(crate) kernel: u64,
    /// The tags of the message's bulk transfers, reserved until it is complete.
    pub(super) lease: Option<Arc<Lease>>,
    pub(super) extra: ExtraParts,
}

/// A message that is being collected.
#[derive(Default)]
pub(crate) struct Batch {
    queue: u32,
    /// A message was sent in this use of the queue.
    was_sent: bool,
    /// This use of the queue has no results to return, and no host memory is still in use.
    gives_nothing: bool,
    /// Empty if nothing was collected.
    message: Vec<u8>,
    /// Bytes of the message's reads in the reply.
    reply: usize,
    /// The message reads shared memory.
    shares: bool,
    awaited: Awaited,
}

impl Batch {
    pub(crate) fn new(queue: u32) -> Batch {
        Batch { queue, gives_nothing: true, ..Batch::default() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.message.is_empty()
    }

    /// True if there is room for a command of this length and for the bytes that it adds to the reply.
    #[inline]
    pub(crate) fn has_room(&self, command: usize, reply: usize) -> bool {
        self.message.len() + command <= MESSAGE_MAX && DONE_LEN + self.reply + reply <= MESSAGE_MAX
    }

    #[inline]
    pub(crate) fn begin(&mut self, buffer: Vec<u8>) {
        self.message = buffer;
        Head::begin(&mut self.message, self.queue, !self.was_sent);
    }

    /// True if this use of the queue has no results to return, and no host memory is still in use.
    pub(crate) fn gives_nothing(&self) -> bool {
        self.gives_nothing
    }

    /// Notes that this use of the queue gives the program something, though not in a reply.
    pub(crate) fn gives_something(&mut self) {
        self.gives_nothing = false;
    }

    /// Orders the message behind an unawaited one.
    pub(crate) fn wait_for_unawaited(&mut self, seq: u64) {
        Writer(&mut self.message).push(Command::Wait { seq });
    }

    /// Appends any command but a launch.
    #[inline]
    pub(crate) fn push(&mut self, command: Command<'_>) {
        self.gives_nothing &= matches!(command, Command::Write { .. });
        Writer(&mut self.message).push(command);
    }

    /// Appends an operation of the whole device, to a message of a control queue.
    pub(crate) fn control(&mut self, operation: Control<'_>) {
        Writer(&mut self.message).push(operation);
    }

    /// Appends the launch of a kernel, see [`Writer::launch`]. If it `is_left`, nobody waits for it.
    #[inline]
    pub(crate) fn launch(
        &mut self,
        kernel: u64,
        args: impl ExactSizeIterator<Item = u64>,
        (array, shape): (bool, Option<&Shape>),
        is_left: bool,
    ) {
        self.awaited.kernel = kernel;
        self.gives_nothing &= is_left;
        Writer(&mut self.message).launch(kernel, args, array, shape);
    }

    /// Directs the next `len` bytes of the reply to `to`.
    #[inline]
    pub(crate) fn read_into(&mut self, to: *mut u8, len: usize) {
        self.awaited.reads.push(PendingRead { to, len, source: Source::Reply });
        self.reply += len;
    }

    /// Adds a read of shared memory.
    pub(crate) fn read_shared(&mut self, read: PendingRead) {
        self.gives_nothing = false;
        self.awaited.reads.push(read);
        self.shares = true;
    }

    /// True if the message that is being collected reads shared memory.
    #[inline]
    pub(crate) fn shares(&self) -> bool {
        self.shares
    }

    /// Takes the reads of shared memory out of the message.
    pub(crate) fn take_shared(&mut self) -> Vec<PendingRead> {
        self.shares = false;
        self.awaited.reads.extract_if(.., |read| matches!(read.source, Source::Shared { .. })).collect()
    }

    /// Attaches the tags and parts of the bulk transfers that the message names.
    pub(crate) fn add_transfers(&mut self, lease: Option<Arc<Lease>>, extra: ExtraParts) {
        (self.awaited.lease, self.awaited.extra) = (lease, extra);
    }

    /// Takes the collected message for sending. `empty` becomes the next message's list of reads.
    #[inline]
    pub(crate) fn take(&mut self, empty: Vec<PendingRead>) -> (Vec<u8>, Awaited) {
        (self.reply, self.shares, self.was_sent) = (0, false, true);
        let awaited = std::mem::replace(&mut self.awaited, Awaited { reads: empty, ..Awaited::default() });
        (std::mem::take(&mut self.message), awaited)
    }

    /// Clears everything before the queue is reused; keeps the memory of its lists.
    pub(crate) fn reset(&mut self) {
        (self.reply, self.shares, self.was_sent, self.gives_nothing) = (0, false, false, true);
        self.message.clear();
        let mut reads = std::mem::take(&mut self.awaited.reads);
        reads.clear();
        self.awaited = Awaited { reads, ..Awaited::default() };
    }
}
