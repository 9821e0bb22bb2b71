// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A backend for tests whose memory this process can't access, like that of a GPU: the arena is only reserved, and its
//! contents are elsewhere. Kernels are functions of this process. Arguments that are addresses of the arena are
//! translated for them.

use super::cpu::kernels;
use super::{Accelerator, Backend, Copied, Copies, CopyByMpi, Entry, Launch, Target, Wish};
use crate::base::{Error, Result};
use crate::device_main::crash::board::IMAGE_CODE;
use crate::device_main::images::pending_image::PendingImage;
use crate::device_main::transfers::staging::Staging;
use crate::sys::mapping;
use crate::wire::command::{Obtained, SharedFile};
use memmap2::{MmapOptions, MmapRaw};
use std::ops::Range;
use std::sync::OnceLock;

pub(crate) struct FakeAccelerator {
    arena: OnceLock<(u64, MmapRaw)>,
    kernels: Vec<u64>,
}

impl FakeAccelerator {
    pub fn new(kernels: &[u64]) -> FakeAccelerator {
        FakeAccelerator { arena: OnceLock::new(), kernels: kernels.to_vec() }
    }

    /// The address of the contents of a range of the arena.
    fn place(&self, at: u64, len: u64) -> Result<*mut u8> {
        let (start, contents) = self.arena.get().ok_or_else(|| nowhere(at, len))?;
        let offset = at.checked_sub(*start).filter(|&offset| offset <= contents.len() as u64);
        let offset = offset.filter(|&offset| len <= contents.len() as u64 - offset).ok_or_else(|| nowhere(at, len))?;
        Ok(contents.as_mut_ptr().wrapping_add(offset as usize))
    }
}

impl Backend for FakeAccelerator {
    const LOADS_AS: u64 = IMAGE_CODE;

    unsafe fn start(&self, at: u64, len: u64, _: (u64, SharedFile)) -> Result<()> {
        mapping::map_at(at, len, libc::PROT_NONE, None)?;
        let contents = MmapRaw::from(MmapOptions::new().len(len as usize).no_reserve_swap().map_anon()?);
        self.arena.set((at, contents)).map_err(|_| Error::new("there is an arena already"))
    }

    fn discard(&self, at: u64, len: u64) {
        if let Ok(place) = self.place(at, len) {
            // SAFETY: the range is within the contents. If this fails, the memory stays in use.
            unsafe { libc::madvise(place.cast(), len as usize, libc::MADV_DONTNEED) };
        }
    }

    fn direct(&self, _: u64, _: u64) -> Option<*mut u8> {
        None
    }

    fn write(&self, to: u64, bytes: &[u8]) -> Result<()> {
        let place = self.place(to, bytes.len() as u64)?;
        // SAFETY: the range is within the contents; if kernels access it meanwhile, that is the program's race.
        unsafe { place.copy_from(bytes.as_ptr(), bytes.len()) };
        Ok(())
    }

    fn read(&self, from: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let place = self.place(from, len as u64)?;
        out.reserve(len);
        // SAFETY: as in `write`; the capacity was reserved.
        unsafe {
            out.as_mut_ptr().add(out.len()).copy_from(place, len);
            out.set_len(out.len() + len);
        }
        Ok(())
    }

    fn target(&self) -> Target {
        Target::HOST
    }

    fn load(&self, id: u32, _: &PendingImage) -> Result<u64> {
        Err(Error::new(format!("image {id} can't be loaded: this backend has no loader")))
    }

    fn relocate(&self, id: u32) -> Result<u64> {
        Err(Error::new(format!("there is no image {id}")))
    }

    fn unload(&self, _: u32) {}

    fn has_kernel(&self, address: u64) -> bool {
        self.kernels.contains(&address)
    }
}

impl Accelerator for FakeAccelerator {
    fn obtain(&self, _: &Wish, _: &[u8], _: CopyByMpi<'_>, _: &Staging) -> Result<Obtained> {
        Err(Error::new("tests choose where the arena is"))
    }

    fn avoid(&self, _: &mut dyn Iterator<Item = Range<u64>>) {}

    fn announce(&self, _: u32, _: Entry) {}

    fn address(&self, _: u32, name: &str) -> Result<u64> {
        Err(Error::new(format!("there is no {name}")))
    }

    fn read_to(&self, from: u64, to: &mut [u8]) -> Result<()> {
        let place = self.place(from, to.len() as u64)?;
        // SAFETY: as in `write`.
        unsafe { place.copy_to(to.as_mut_ptr(), to.len()) };
        Ok(())
    }

    fn run(&self, launch: &Launch<'_>, copies: &mut Copies) -> Result<()> {
        let Copies { bytes, writes, reads } = copies;
        let place = |copied: &Copied| self.write(copied.at, &bytes[copied.bytes.clone()]);
        writes.iter().try_for_each(place)?;
        let translated = |&arg: &u64| self.place(arg, 1).map_or(arg, |place| place as u64);
        let args: Vec<u64> = launch.args.iter().map(translated).collect();
        kernels::run(launch.kernel, &args, launch.array);
        reads.iter().try_for_each(|read| self.read_to(read.at, &mut bytes[read.bytes.clone()]))
    }
}

fn nowhere(at: u64, len: u64) -> Error {
    Error::new(format!("{len} bytes at {at:#x} are not of this device"))
}
