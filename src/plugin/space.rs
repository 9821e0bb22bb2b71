// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Addresses of devices in the host process: reserved, never readable.
//!
//! A device address must never be a host address, or a wrong use of it would go
//! unnoticed, and `has_device_addr` could not be told from a host pointer.

use crate::base::{Error, Result, node};
use parking_lot::RwLock;
use std::ops::Range;

/// Where arenas are tried first: far from what programs and loaders use by themselves.
pub const ARENAS: u64 = 0x1000_0000_0000;
/// Distance of the next try, and the number of tries.
pub const ARENAS_STEP: u64 = 0x0800_0000_0000;
/// See [`ARENAS_STEP`].
pub const ARENAS_TRIES: u64 = 8;

/// Addresses that nothing else of this process can get; given up when dropped.
#[derive(Debug)]
pub struct Reservation {
    at: u64,
    len: usize,
}

impl Reservation {
    /// Reserves exactly these addresses.
    ///
    /// # Errors
    /// Something of this process lies there.
    pub fn at(at: u64, len: u64) -> Result<Reservation> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
        // SAFETY: NOREPLACE: the call changes nothing that is mapped already.
        let got = unsafe { libc::mmap(at as *mut _, len as usize, libc::PROT_NONE, flags, -1, 0) };
        if got == libc::MAP_FAILED {
            return Err(std::io::Error::last_os_error().into());
        }
        let reservation = Reservation { at: got as u64, len: len as usize };
        // A kernel before 4.17 takes the address for a mere hint.
        if reservation.at == at { Ok(reservation) } else { Err(Error::new("the addresses are in use")) }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `at` and holds nothing.
        unsafe { libc::munmap(self.at as *mut _, self.len) };
    }
}

/// Which device an address belongs to.
#[derive(Debug)]
pub struct Space {
    arenas: Range<u64>,
    stride: u64,
    images: RwLock<Vec<(Range<u64>, usize)>>,
    _reserved: Reservation,
}

impl Space {
    /// Reserves `devices` arenas of `stride` bytes each, beginning at `at`.
    ///
    /// # Errors
    /// Something of this process lies there.
    pub fn at(at: u64, stride: u64, devices: usize) -> Result<Space> {
        let len = stride * devices as u64;
        let reserved = Reservation::at(at, len)?;
        Ok(Space { arenas: at..at + len, stride, images: RwLock::default(), _reserved: reserved })
    }

    /// Where a device's arena begins.
    pub fn arena(&self, device: usize) -> u64 {
        self.arenas.start + self.stride * device as u64
    }

    /// The device whose arena or image an address lies in.
    #[inline]
    pub fn owner(&self, address: u64) -> Option<usize> {
        if self.arenas.contains(&address) {
            return Some(((address - self.arenas.start) / self.stride) as usize);
        }
        self.images.read().iter().find(|(range, _)| range.contains(&address)).map(|&(_, device)| device)
    }

    /// True if an image of this device covers the whole range.
    pub fn in_image(&self, device: usize, range: Range<u64>) -> bool {
        let images = self.images.read();
        images.iter().any(|(image, d)| *d == device && image.start <= range.start && range.end <= image.end)
    }

    /// A device has loaded an image here.
    pub fn add_image(&self, device: usize, range: Range<u64>) {
        self.images.write().push((range, device));
    }

    /// A device gives an image up.
    pub fn remove_image(&self, device: usize, start: u64) {
        self.images.write().retain(|(range, d)| *d != device || range.start != start);
    }
}

/// What of this process lies at an address, in words, if anything readable does.
pub fn host_mapping(address: u64) -> Option<String> {
    node::mapping(address).and_then(|(readable, what)| readable.then_some(what))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_addresses_are_nobodys() {
        // The first place is taken where AddressSanitizer runs this.
        let at = ARENAS + ARENAS_STEP;
        let r = Reservation::at(at, 1 << 40).unwrap();
        assert!(Reservation::at(at + (1 << 30), 4096).is_err());
        assert_eq!(host_mapping(at), None);
        drop(r);
        Reservation::at(at + (1 << 30), 4096).unwrap();
    }

    #[test]
    fn own_memory_has_a_name() {
        let own = 7u64;
        assert!(host_mapping(&raw const own as u64).is_some());
        assert_eq!(host_mapping(16), None);
    }
}
