// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The size of every table, window and number space that can fill up or wrap around.
//!
//! A normal run never reaches most of these limits. The cargo feature `tiny-limits` makes all of them
//! so small that tags, rings and buffers fill and numbers wrap within a second of every test. Both
//! ends of a job must be built with the same limits, which the handshake checks by [`VERSION`].
//!
//! Numbers of 64 bits do not wrap: at a billion a second they last 580 years.

/// `normal`, unless this is a build with tiny limits.
const fn limit(normal: usize, tiny: usize) -> usize {
    if cfg!(feature = "tiny-limits") { tiny } else { normal }
}

/// The version of this crate, with a suffix if its limits are tiny.
pub const VERSION: &str = if cfg!(feature = "tiny-limits") {
    concat!(env!("CARGO_PKG_VERSION"), "+tiny-limits")
} else {
    env!("CARGO_PKG_VERSION")
};

// ---- wire ------------------------------------------------------------------------

/// The maximum size of a message in bytes. One byte above the eager limit of a transport (64 KiB with Open MPI over
/// TCP) costs an extra round trip; more data is sent in several messages.
pub const MESSAGE_MAX: usize = limit(32 << 10, 8 << 10);
/// The maximum size of a piece of user data inside a message, in bytes.
pub const INLINE_MAX: usize = limit(16 << 10, 512);
/// The maximum size of a copy to or from a device of another node that travels in messages, in several pieces, in
/// bytes: this saves round trips.
pub const INLINE_FAR_MAX: usize = limit(64 << 10, 2 << 10);
/// The maximum size of these pieces in bytes: a message with two of them fits in two frames of 16 KiB.
pub const INLINE_FAR_PIECE: usize = INLINE_MAX - limit(128, 64);
/// The maximum size of a piece of bulk data to or from an accelerator, in bytes: each piece goes through a buffer.
pub const STAGED: u64 = limit(4 << 20, 2 << 10) as u64;
/// The number of buffers of bulk data to and from an accelerator beyond one for each queue: they hold data that arrived
/// before its turn, or that is in flight to another process while its queue continues.
pub const STAGED_AHEAD: usize = limit(2, 1);
/// The maximum amount of pinned memory, in bytes, that a device has for these buffers and for small data; further
/// buffers are ordinary memory.
pub const PINNED: usize = limit(64 << 20, 100 << 10);
/// From this size on, a copy within a device takes long, bytes.
pub const LONG_COPY: u64 = limit(1 << 20, 1 << 10) as u64;
/// From this size on, a copy to or from an accelerator takes long, bytes: MPI could move the next piece meanwhile.
pub const LONG_STAGED_COPY: u64 = limit(128 << 10, 1 << 10) as u64;
/// The smallest page of memory on any machine, bytes.
pub const PAGE: u64 = 4 << 10;
/// The number of a link's first message. In a tiny build the numbers soon exceed 32 bits.
pub const FIRST_MESSAGE: u64 = limit(1, u32::MAX as usize - 20) as u64;
/// The number of the first image of a program.
pub const FIRST_IMAGE: u32 = limit(1, u32::MAX as usize - 2) as u32;
/// The maximum number of parts of an image in transit; each part has its own tag.
pub const IMAGE_PARTS: usize = limit(32, 1);

// ---- link ------------------------------------------------------------------------

/// Tags of bulk data between two ranks, see `mpi::TAG_BULK`.
pub const BULK_TAGS: u32 = limit(32_000, 8) as u32;
/// Receives for messages that are posted ahead.
pub const POSTED: usize = limit(8, 1);
/// The maximum number of frames of a message, see `link::Endpoint`: more would take longer than one large send.
pub const FRAMES: usize = limit(5, 2);
/// Pieces of one bulk transfer that are in flight at once.
pub const WINDOW: usize = limit(4, 1);
/// Message buffers kept for reuse, and how many of them only the driving thread can reach.
pub const SPARE_BUFFERS: usize = limit(64, 2);
/// See [`SPARE_BUFFERS`].
pub const OWN_SPARE_BUFFERS: usize = limit(8, 1);

// ---- host ------------------------------------------------------------------------

/// The maximum amount of a device's memory, in bytes, that a program on the same node also maps, for small data.
pub const SHARED_MEMORY: u64 = limit(64 << 20, 1 << 20) as u64;
/// The maximum amount of a device's other memory, in bytes, that the program maps because it often copies there.
pub const SHARED_WINDOWS: u64 = limit(16 << 20, 256 << 10) as u64;
/// After this many copies from or to one page the program maps that page and the next ones, which takes as long as
/// about twenty copies.
pub const COPIES_TO_SHARE: u32 = limit(32, 2) as u32;

/// With this many incomplete messages of one device, a further one waits a moment. More than the threads of most
/// programs, each of which has one message of a blocking region.
pub const IN_FLIGHT: usize = limit(1024, 2);

// ---- device ----------------------------------------------------------------------

/// Threads of a device: one receives, while the others run a kernel each.
pub const THREADS: usize = limit(32, 4);
/// The maximum amount of the program's memory, in bytes, that a device keeps for later regions.
pub const MEMORY_KEPT: u64 = limit(1 << 30, 1 << 20) as u64;
/// The minimum number of bytes of the program's memory that a device moves to their addresses, where a region writes in
/// order: fewer have no large page, and each move leaves a separate mapping, of which Linux allows a process 65,530.
pub const MOVED_MIN: u64 = limit(2 << 20, 64 << 10) as u64;
/// The maximum amount of moved memory, in bytes, that a device keeps for later regions: an array of this size is
/// written without new memory.
pub const MOVED_KEPT: u64 = limit(256 << 20, 1 << 20) as u64;
/// The maximum size, in bytes, of a piece of the program's memory that travels as bulk data between a program and a
/// device; and the minimum size, because bulk data takes one more round trip than messages do.
pub const MEMORY_PIECE: usize = limit(1 << 20, 128 << 10);
/// See [`MEMORY_PIECE`].
pub const MEMORY_PIECE_MIN: usize = limit(256 << 10, 64 << 10);
/// Pieces of changed memory that are in flight at once.
pub const MEMORY_AHEAD: usize = limit(16, 1);
/// Messages with changes of which a device keeps a copy until the program has merged them.
pub const UNMERGED: usize = limit(64, 2);
/// Kernels for which a device remembers the program's memory that they used.
pub const KERNELS_REMEMBERED: usize = limit(64, 2);
/// The maximum number of parts, and of bytes, that a device remembers for one kernel.
pub const PARTS_REMEMBERED: usize = limit(2048, 16);
pub const MEMORY_REMEMBERED: u64 = limit(64 << 20, 1 << 20) as u64;
/// Ranges of the program's memory that a device requests at once.
pub const MEMORY_ASKED: usize = limit(64, 2);
/// Trace events, about 50 bytes each, that the program keeps of each device, and each device of itself; further ones
/// are only counted.
pub const TRACE_EVENTS: u64 = limit(1 << 20, 3 << 10) as u64;
/// Bytes for the names of kernels; messages show a kernel by its address if its name does not fit.
pub const NAMES: usize = limit(1 << 20, 4 << 10);
/// While this many printed bytes are unacknowledged by the host, a running kernel's further output waits.
pub const OUTPUT_AHEAD: usize = limit(128 << 10, 8 << 10);
/// While this many printed bytes are unacknowledged, further output that must reach the host before a reply waits.
pub const OUTPUT_BEFORE_REPLY: usize = limit(512 << 10, 16 << 10);
/// The host acknowledges this many printed bytes at a time.
pub const OUTPUT_STEP: usize = OUTPUT_AHEAD / 4;
