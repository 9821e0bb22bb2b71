// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Addresses of devices in the host process: reserved, never readable.
//!
//! A device address must never be a host address. Otherwise its misuse would go unnoticed, and
//! a `has_device_addr` pointer could not be distinguished from a host pointer.

use crate::base::sync::RwLock;
use crate::base::{Error, Result};
use crate::sys::mapping;
use crate::sys::process::Mappings;
use crate::wire::MESSAGE_MAX;
use std::ops::Range;

/// The first address tried for arenas: far from those that programs and loaders use.
pub(crate) const ARENAS: u64 = 0x1000_0000_0000;
/// The distance between two tries.
pub(crate) const ARENAS_STEP: u64 = 0x0800_0000_0000;
pub(crate) const ARENAS_TRIES: u64 = 8;

/// Addresses that nothing else in this process can get; unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    at: u64,
    len: u64,
}

impl Reservation {
    /// Reserves exactly these addresses, if they are free.
    pub(crate) fn at(at: u64, len: u64) -> Result<Reservation> {
        mapping::map_at(at, len, libc::PROT_NONE, None)?;
        Ok(Reservation { at, len })
    }

    fn contains(&self, range: &Range<u64>) -> bool {
        self.at <= range.start && range.end <= self.at + self.len
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        // SAFETY: the range was mapped by `at` and holds nothing.
        unsafe { mapping::unmap(self.at, self.len) };
    }
}

/// Which device an address belongs to.
#[derive(Debug)]
pub(crate) struct AddressMap {
    arenas: Range<u64>,
    stride: u64,
    /// Images, and arenas whose addresses an accelerator chose.
    images: RwLock<Vec<(Range<u64>, usize)>>,
    reserved: Vec<Reservation>,
    /// Addresses reserved for the devices' own memory.
    window: Vec<Reservation>,
}

impl AddressMap {
    /// Reserves `devices` arenas of `stride` bytes each, beginning at `at`.
    pub(crate) fn at(at: u64, stride: u64, devices: usize) -> Result<AddressMap> {
        let len = stride * devices as u64;
        let reserved = vec![Reservation::at(at, len)?];
        Ok(AddressMap { arenas: at..at + len, stride, images: RwLock::default(), reserved, window: Vec::new() })
    }

    /// Keeps the addresses of the devices' own memory reserved.
    pub(crate) fn keep_window(&mut self, window: Vec<Reservation>) {
        self.window = window;
    }

    /// The reserved addresses of the devices' own memory.
    pub(crate) fn window(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.window.iter().map(|window| window.at..window.at + window.len)
    }

    /// Reserves the addresses of an image and adds it. Fails if the program or another device has something there.
    pub(crate) fn reserve_image(&self, device: usize, range: &Range<u64>) -> Result<Option<Reservation>> {
        if !self.window.iter().any(|window| window.contains(range)) {
            let reserved = Reservation::at(range.start, range.end - range.start)?;
            self.add_image(device, range.clone());
            return Ok(Some(reserved));
        }
        let mut images = self.images.write();
        if let Some(other) = overlapping(&images, range) {
            return Err(Error::new(format!("device {other} has an image there")));
        }
        images.push((range.clone(), device));
        Ok(None)
    }

    /// All arenas at addresses that this process chose.
    pub(crate) fn arenas(&self) -> Range<u64> {
        self.arenas.clone()
    }

    /// Reserves an arena that an accelerator has allocated. Fails if the program has something else there.
    pub(crate) fn add_arena(&mut self, device: usize, range: Range<u64>) -> Result<()> {
        self.reserved.push(Reservation::at(range.start, range.end - range.start)?);
        self.add_image(device, range);
        Ok(())
    }

    pub(crate) fn arena(&self, device: usize) -> u64 {
        self.arenas.start + self.stride * device as u64
    }

    /// The device whose arena or image contains an address.
    #[inline]
    pub(crate) fn owner(&self, address: u64) -> Option<usize> {
        if self.arenas.contains(&address) {
            return Some(((address - self.arenas.start) / self.stride) as usize);
        }
        self.images.read().iter().find(|(range, _)| range.contains(&address)).map(|&(_, device)| device)
    }

    /// The addresses that this process has mapped, and those of other devices that this process did not choose. At most
    /// as many as fit into a message.
    pub(crate) fn of_others(&self, device: usize) -> Vec<Range<u64>> {
        const MOST: usize = MESSAGE_MAX / 2 / size_of::<Range<u64>>();
        let images = self.images.read();
        let of_devices = images.iter().filter(|(_, owner)| *owner != device).map(|(range, _)| range.clone());
        of_devices.chain(Mappings::now().accessible()).take(MOST).collect()
    }

    /// A device with an arena or image in this range.
    pub(crate) fn overlapping(&self, range: &Range<u64>) -> Option<usize> {
        overlapping(&self.images.read(), range)
    }

    /// True if an image of this device covers the whole range.
    pub(crate) fn in_image(&self, device: usize, range: Range<u64>) -> bool {
        let images = self.images.read();
        images.iter().any(|(image, d)| *d == device && image.start <= range.start && range.end <= image.end)
    }

    pub(crate) fn add_image(&self, device: usize, range: Range<u64>) {
        self.images.write().push((range, device));
    }

    pub(crate) fn remove_image(&self, device: usize, start: u64) {
        self.images.write().retain(|(range, d)| *d != device || range.start != start);
    }
}

fn overlapping(images: &[(Range<u64>, usize)], range: &Range<u64>) -> Option<usize> {
    let overlaps = |other: &Range<u64>| other.start < range.end && range.start < other.end;
    images.iter().find(|(other, _)| overlaps(other)).map(|&(_, device)| device)
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/addresses/address_map.rs"]
mod tests;
