// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A `Backend` owns the device's memory, loads images and runs kernels.
//!
//! The rest of the device is generic over it. Addresses are device addresses: the host's side chooses
//! the range of the arena and allocates in it. This process may or may not be able to access that
//! memory itself.

pub mod cpu;
#[cfg(test)]
pub(crate) mod shadow;

use super::pending_image::PendingImage;
use crate::base::Result;
use crate::wire::reply::Failure;
use std::fmt;
use std::time::Duration;

/// The images that a backend loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// `e_machine` of their ELF files.
    pub machine: u16,
    /// The processor's name, if the machine's number is not enough ("gfx90a").
    pub architecture: Option<&'static str>,
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ELF machine {}, architecture {}", self.machine, self.architecture.unwrap_or("any"))
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Launch<'a> {
    pub kernel: u64,
    pub args: &'a [u64],
    /// The kernel takes one argument, an array of pointers to `args`.
    pub array: bool,
}

/// A fault that ended all execution.
pub(crate) struct Fault {
    pub failure: &'static Failure,
    /// The slot of the faulting kernel's thread.
    pub slot: usize,
}

/// Owns memory, loads images, runs kernels. Several threads call it at once.
pub(crate) trait Backend: Send + Sync + 'static {
    /// Maps the arena at an address range that the host's side chose. Without success there is no arena.
    ///
    /// # Safety
    /// Nothing uses the arena of an earlier call, which is unmapped.
    unsafe fn start(&self, at: u64, len: u64) -> Result<()>;

    /// Returns unused memory of the arena to the system; it then reads as zeros.
    fn discard(&self, at: u64, len: u64);

    /// A pointer to the memory at an address, if this process can access it without faulting. Valid as
    /// long as the arena or the image exists.
    #[inline]
    fn direct(&self, _at: u64, _len: u64) -> Option<*mut u8> {
        None
    }

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

    fn target(&self) -> Target;

    /// Loads what images will need, given the host's list of libraries.
    fn preload(&self, _libraries: &[u8]) {}

    /// Loads an image and returns its base, which the host adds to the addresses in its file.
    fn load(&self, id: u32, image: &PendingImage) -> Result<u64>;

    /// Loads an image elsewhere because the host can't use its addresses; returns the new base.
    fn relocate(&self, id: u32) -> Result<u64>;

    fn unload(&self, id: u32);

    /// Makes a function of an image, to which `pointer` points, callable at `from`, its address in the program.
    fn redirect(&self, from: u64, pointer: u64) -> Result<()>;

    fn has_kernel(&self, address: u64) -> bool;

    /// Runs a kernel. May not return: a kernel can end its thread.
    fn run(&self, launch: &Launch<'_>) -> Result<()>;

    /// The calling thread will run kernels in that slot, one at a time.
    fn begin_thread(&self, _slot: usize) {}

    /// A kernel starts in a slot. If `timed`, [`Backend::check_time`] applies to it.
    #[inline]
    fn enter(&self, _slot: usize, _kernel: u64, _timed: bool) {}

    #[inline]
    fn leave(&self, _slot: usize) {}

    /// Treats a kernel that has run for longer than this as a fault.
    fn check_time(&self, _limit: Duration) {}

    /// The first fault. After it nothing is executed any more.
    #[inline]
    fn fault(&self) -> Option<Fault> {
        None
    }

    fn fault_reported(&self) {}

    /// For a forked process, in which no kernel runs.
    fn start_anew(&self) {}
}

#[cfg(test)]
mod tests {
    use super::cpu::Cpu;
    use super::shadow::Shadow;
    use super::*;

    const LEN: u64 = 1 << 20;

    extern "C" fn add(at: *mut u8, len: u64, number: u64) {
        // SAFETY: the tests pass bytes of the arena that nothing else uses.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at, len as usize) };
        bytes.iter_mut().for_each(|b| *b = b.wrapping_add(number as u8));
    }

    extern "C" fn add_of_array(args: &[&u64; 3]) {
        add(*args[0] as *mut u8, *args[1], *args[2]);
    }

    fn kernels() -> [u64; 2] {
        [add as *const () as u64, add_of_array as *const () as u64]
    }

    fn keeps_bytes_and_runs_kernels(backend: &impl Backend, at: u64) {
        // SAFETY: the first call; nothing else has these addresses.
        unsafe { backend.start(at, LEN) }.unwrap();
        let read = |from, len| {
            let mut out = b">".to_vec();
            backend.read(from, len, &mut out).map(|()| out)
        };
        backend.write(at + 16, b"hello").unwrap();
        backend.copy(at + 18, at + 16, 5).unwrap();
        assert_eq!(read(at + 16, 7).unwrap(), b">hehello");
        backend.write(at + LEN - 5, b"world").unwrap();
        backend.copy(at, at + LEN - 5, 5).unwrap();
        assert_eq!(read(at, 5).unwrap(), b">world");
        if let Some(direct) = backend.direct(at, 5) {
            // SAFETY: the backend says so.
            assert_eq!(unsafe { direct.cast::<[u8; 5]>().read() }, *b"world");
        }
        for (kernel, array) in kernels().into_iter().zip([false, true]) {
            assert!(backend.has_kernel(kernel) && !backend.has_kernel(kernel + 1));
            backend.run(&Launch { kernel, args: &[at, 3, 2], array }).unwrap();
        }
        assert_eq!(read(at, 5).unwrap(), b">{svld");
        for wild in [0, 16, u64::MAX - 3, 1 << 62] {
            assert!(read(wild, 8).is_err() && backend.write(wild, &[1; 8]).is_err());
            assert!(backend.copy(wild, at, 8).is_err() && backend.copy(at, wild, 8).is_err());
            assert!(backend.direct(wild, 8).is_none());
        }
        backend.discard(at, 4096);
        assert_eq!(read(at + 16, 1).unwrap(), b">\0");
        assert!(backend.relocate(7).is_err() && backend.fault().is_none());
        backend.unload(7);
    }

    #[test]
    fn the_processor_keeps_bytes_and_runs_kernels() {
        keeps_bytes_and_runs_kernels(&Cpu::with_kernels(&kernels()).unwrap(), 0x2355_0000_0000);
    }

    #[test]
    fn memory_out_of_reach_keeps_bytes_too() {
        let shadow = Shadow::new(&kernels());
        keeps_bytes_and_runs_kernels(&shadow, 0x2356_0000_0000);
        assert!(shadow.direct(0x2356_0000_0000, 1).is_none());
    }
}
