// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Backends own the device's memory, load images and run kernels.
//!
//! - `cpu/`: the processor's own cores.
//! - `fake_accelerator`: an accelerator for tests, made of functions and memory of this process.
//! - `offload/`: an accelerator of this node, through the node's own libomptarget.
//!
//! The rest of the device is generic over `Backend`; an executor knows how a backend runs kernels. All addresses are
//! device addresses. The host's side or the accelerator chooses the range of the arena, and the host's side allocates
//! in it. This process need not be able to access that memory.

pub mod cpu;
#[cfg(test)]
pub(crate) mod fake_accelerator;
pub(crate) mod offload;

use super::crash::monitor::{self, Fault};
use super::images::pending_image::PendingImage;
use super::transfers::buffer::Buffer;
use super::transfers::staging::Staging;
use super::upcalls::interface::Upcalls;
use crate::base::Result;
use crate::base::target::Target;
use crate::link::{Peer, Span};
use crate::wire::command::{Obtained, Shape, SharedFile};
use crate::wire::record::Kind;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch<'a> {
    /// The number of the launch's message.
    pub message: u64,
    pub kernel: u64,
    pub args: &'a [u64],
    /// The kernel takes one argument, an array of pointers to `args`.
    pub array: bool,
    /// For an accelerator.
    pub shape: Option<Shape>,
}

/// Copies that belong to a launch: to the device before the kernel, and from it afterwards.
#[derive(Default)]
pub(crate) struct Copies {
    /// The bytes of all copies.
    pub bytes: Buffer,
    pub writes: Vec<Copied>,
    pub reads: Vec<Copied>,
}

/// `bytes` of [`Copies`], and the device address to or from which they are copied.
#[derive(Clone, Debug)]
pub(crate) struct Copied {
    pub bytes: Range<usize>,
    pub at: u64,
    /// The same bytes are copied both ways.
    pub is_both: bool,
}

impl Copies {
    /// One copy to the device.
    pub fn of(to: u64, bytes: Buffer) -> Copies {
        let whole = Copied { bytes: 0..bytes.len(), at: to, is_both: false };
        Copies { bytes, writes: vec![whole], reads: Vec::new() }
    }

    /// No copies yet, with this buffer.
    pub fn within(bytes: Buffer) -> Copies {
        Copies { bytes, ..Copies::default() }
    }

    pub fn write(&mut self, to: u64, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.resize(start + bytes.len());
        self.bytes[start..].copy_from_slice(bytes);
        self.writes.push(Copied { bytes: start..self.bytes.len(), at: to, is_both: false });
    }

    pub fn read(&mut self, from: u64, len: usize) {
        /// The number of writes to search: regions map few variables both ways.
        const FEW: usize = 16;
        let mut writes = self.writes.iter_mut().take(FEW);
        let written = writes.find(|write| write.at == from && write.bytes.len() == len && !write.is_both);
        let (bytes, is_both) = match written {
            Some(write) => {
                write.is_both = true;
                (write.bytes.clone(), true)
            }
            None => (self.bytes.len()..self.bytes.len() + len, false),
        };
        self.bytes.resize(self.bytes.len().max(bytes.end));
        self.reads.push(Copied { bytes, at: from, is_both });
    }
}

/// The arena that the host's side requests of an accelerator.
pub(crate) struct Wish {
    /// The arena's size in bytes if the accelerator does not report its free memory.
    pub len: u64,
    /// The arena must have that size.
    pub exact: bool,
    /// Addresses that have another use in the job.
    pub taken: Vec<Range<u64>>,
}

/// A function or global of an image, for an accelerator.
pub(crate) struct Entry {
    pub name: String,
    /// Bytes of a global; 0 for a function.
    pub size: u64,
    /// LLVM's `OpenMPOffloadingDeclareTargetFlags`.
    pub flags: u32,
}

/// A wait of a kernel: for the program's memory, or until its changes are sent to the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Exchange {
    pub kind: Kind,
    pub bytes: u64,
    pub begin: u64,
    pub end: u64,
}

/// Owns memory and loads images. Several threads call it at once.
pub(crate) trait Backend: Send + Sync + 'static {
    /// The state on the crash board while an image is loaded or unloaded.
    const LOADS_AS: u64;

    /// Maps the arena at an address range that the host's side chose. `shared` is a file and the number of its bytes that
    /// should become the arena's beginning; if they do not, the host's side finds out. After an error there is no arena.
    ///
    /// # Safety
    /// Nothing uses the arena of an earlier call, which is unmapped.
    unsafe fn start(&self, at: u64, len: u64, shared: (u64, SharedFile)) -> Result<()>;

    /// Moves pages of the arena to the shared file, from `offset` on; false if that is not possible. After an error
    /// the pages may be lost.
    ///
    /// # Safety
    /// Nothing uses these pages meanwhile.
    unsafe fn share(&self, _at: u64, _len: u64, _offset: u64) -> Result<bool> {
        Ok(false)
    }

    /// Lets kernels use the program's memory, if this backend supports that.
    fn connect(&self, _upcalls: Arc<dyn Upcalls>) {}

    /// Begins to trace the device.
    fn begin_trace(&self) {}

    /// Treats the program's standard streams, by their addresses there, as this process's own.
    fn use_streams(&self, _streams: [u64; 3]) {}

    /// Sets the device's number in the program, for its regions.
    fn use_number(&self, _number: u32) {}

    /// Returns unused memory of the arena to the system; it then reads as zeros.
    fn discard(&self, at: u64, len: u64);

    /// A pointer to the memory at an address, if MPI can access it in this process without faulting; unless it is an
    /// accelerator's, the process itself can too. Valid as long as the arena or the image exists.
    fn direct(&self, at: u64, len: u64) -> Option<*mut u8>;

    /// Writes bytes to an address. An error may leave some of them written.
    fn write(&self, to: u64, bytes: &[u8]) -> Result<()>;

    /// Appends the bytes at an address to `out`, which an error leaves unchanged.
    fn read(&self, from: u64, len: usize, out: &mut Vec<u8>) -> Result<()>;

    /// Copies bytes within the device; the ranges may overlap.
    fn copy(&self, to: u64, from: u64, len: u64) -> Result<()> {
        if let (Some(to), Some(from)) = (self.direct(to, len), self.direct(from, len)) {
            // SAFETY: both ranges can be accessed, and `copy` lets them overlap.
            unsafe { std::ptr::copy(from, to, len as usize) };
            return Ok(());
        }
        let mut bytes = Vec::new();
        self.read(from, usize::try_from(len).unwrap_or(usize::MAX), &mut bytes)?;
        self.write(to, &bytes)
    }

    /// The target of the images that the backend loads.
    fn target(&self) -> Target;

    /// Loads the libraries that images will need, given the host's list.
    fn preload(&self, _libraries: &[u8]) {}

    /// Loads an image and returns its base, which the host adds to the addresses in its file.
    fn load(&self, id: u32, image: &PendingImage) -> Result<u64>;

    /// Loads an image elsewhere because the host can't use its addresses; returns the new base.
    fn relocate(&self, id: u32) -> Result<u64>;

    fn unload(&self, id: u32);

    fn has_kernel(&self, address: u64) -> bool;

    /// The first fault. The device executes nothing after it.
    #[inline]
    fn fault(&self) -> Option<Fault> {
        monitor::fault()
    }
}

/// How long MPI may take for a first copy from or to an accelerator's memory.
pub(crate) const FIRST_COPY: Duration = Duration::from_secs(10);

/// [`Link::copy`](crate::link::Link::copy), to the first of both spans.
pub(crate) type CopyByMpi<'a> = &'a dyn Fn(Peer, Span, Span) -> Result<bool>;

/// A backend with memory that the processor does not access, which chooses addresses itself.
pub(crate) trait Accelerator: Backend {
    /// Allocates the arena at an address of the accelerator's choice, and frees the arena of an earlier call; finds out
    /// whether MPI itself can copy from and to it, and pins buffers. `libraries` lists the host's libomptarget.
    fn obtain(&self, wish: &Wish, libraries: &[u8], copy: CopyByMpi<'_>, staging: &Staging) -> Result<Obtained>;

    /// Keeps these addresses free in this process, because other devices of the job use them.
    fn avoid(&self, taken: &mut dyn Iterator<Item = Range<u64>>);

    /// Announces an entry of an image that will be loaded.
    fn announce(&self, image: u32, entry: Entry);

    /// The address of an announced entry of a loaded image; for a function, the value for [`Launch::kernel`].
    fn address(&self, image: u32, name: &str) -> Result<u64>;

    /// Reads the bytes at an address to a buffer.
    fn read_to(&self, from: u64, to: &mut [u8]) -> Result<()>;

    /// Runs a kernel with the copies around it, which cost less this way than separately. May not return: a kernel can
    /// end its thread.
    fn run(&self, launch: &Launch<'_>, copies: &mut Copies) -> Result<()>;
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/backend.rs"]
mod tests;
