// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Images on the host side: what libomptarget registers, and what travels to a device.

use super::queue::Queue;
use super::space::Reservation;
use crate::base::proc::{self, Mappings};
use crate::base::{Error, Result, elf};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// An entry that libomptarget wants the device's address of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Symbol name.
    pub name: String,
    /// Bytes of a global; 0 for a function.
    pub size: u64,
    /// Of a global that holds the address of a `declare target indirect` function: the
    /// address that the function has in the program.
    pub indirect: Option<u64>,
}

/// An image on one device.
#[derive(Debug)]
pub struct Loaded {
    /// Its number on that device.
    pub id: u32,
    /// What was added to every address of the ELF file.
    pub base: u64,
    /// What the file says.
    pub file: elf::Image,
    /// Keeps the device's addresses from being host addresses.
    pub reserved: Reservation,
}

impl Loaded {
    /// The device's addresses of the image.
    pub fn range(&self) -> Range<u64> {
        self.base + self.file.span.start..self.base + self.file.span.end
    }

    /// Device address of a function (`size` is 0) or global.
    ///
    /// # Errors
    /// A name that the image lacks, or a global that is smaller there.
    pub fn address(&self, name: &str, size: u64) -> Result<u64> {
        let symbol = self.file.symbols.get(name);
        let symbol = symbol.ok_or_else(|| Error::new(format!("symbol {name} is missing in the image")))?;
        if symbol.size != 0 && size > symbol.size {
            let there = symbol.size;
            return Err(Error::new(format!("{name} has {size} bytes in the program, {there} in the image")));
        }
        Ok(self.base + symbol.value)
    }
}

/// An image that was sent to the devices.
pub struct Sent {
    /// Its number on all of them.
    pub id: u32,
    /// Hash of its bytes.
    pub hash: u128,
    /// Of each device the message that brings it there; none if it is not there.
    pub messages: Vec<Option<u64>>,
    /// Devices on which it is loaded.
    pub loaded: usize,
}

/// An image that a device gets.
pub struct Coming {
    /// Its number.
    pub id: u32,
    /// The message that is done when it is there.
    pub message: u64,
    /// Its bytes, to be kept until the queue is idle; none if another device sends them.
    pub parcel: Option<(Vec<u8>, Arc<Queue>)>,
}

/// The way of an image to one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Who gets it.
    pub device: usize,
    /// From whom; none is the program.
    pub from: Option<usize>,
    /// To whom it goes on.
    pub to: [Option<usize>; 2],
}

/// The way of an image to devices, of which the first gets it from the program. Each
/// device stands for a part of the list and passes the image on to the first of each half
/// of the rest: neighbours in the list get it from each other.
pub fn route(devices: &[usize]) -> Vec<Hop> {
    fn add(devices: &[usize], from: Option<usize>, hops: &mut Vec<Hop>) {
        let Some((&device, rest)) = devices.split_first() else { return };
        let (left, right) = rest.split_at(rest.len().div_ceil(2));
        hops.push(Hop { device, from, to: [left.first().copied(), right.first().copied()] });
        add(left, Some(device), hops);
        add(right, Some(device), hops);
    }
    let mut hops = Vec::with_capacity(devices.len());
    add(devices, None, &mut hops);
    hops
}

/// The bytes of an image as they travel: the ELF file, then the list of this process's
/// libraries (of each name and path: where the device may look for what the image
/// needs); and the bytes of that list.
pub fn parcel(file: &[u8]) -> (Vec<u8>, u64) {
    let list = library_list(|_| true);
    ([file, &list].concat(), list.len() as u64)
}

/// The libraries of this process with such names: of each its name and its path, both ended
/// by a NUL byte.
pub fn library_list(wanted: impl Fn(&str) -> bool) -> Vec<u8> {
    let libraries = loaded_libraries().into_iter().filter(|(name, _)| wanted(name));
    libraries.flat_map(|(name, path)| [name.as_bytes(), b"\0", path.as_os_str().as_bytes(), b"\0"].concat()).collect()
}

/// The file that this very code was loaded from, where it is and not where a slot links to it.
pub fn own_path() -> Option<PathBuf> {
    Mappings::now().file_at(own_path as *const () as usize)
}

/// File name and path of every shared object in this process. (One whose file name is no
/// text is left out: no image names it so.)
pub fn loaded_libraries() -> BTreeMap<String, PathBuf> {
    /// As the loader names it, and an address that it covers.
    type Object = (PathBuf, usize);
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record, with as many headers as it says, and our
        // own pointer; the name is a C string or null.
        unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let loaded = headers.iter().find(|h| h.p_type == libc::PT_LOAD);
            if let (Some(loaded), false) = (loaded, info.dlpi_name.is_null()) {
                let name = proc::path_of(CStr::from_ptr(info.dlpi_name).to_bytes());
                (*found.cast::<Vec<Object>>()).push((name, info.dlpi_addr.wrapping_add(loaded.p_vaddr) as usize));
            }
        }
        0
    }
    let mut found: Vec<Object> = Vec::new();
    // SAFETY: `each` gets the list that lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    let mappings = OnceCell::new();
    // A folder may be relative to what was the current directory when the library was loaded.
    let path_of = |name: PathBuf, address| match name.is_absolute() {
        true => Some(name),
        false => mappings.get_or_init(Mappings::now).file_at(address),
    };
    // Only the kernel's own has a name without a folder.
    let found = found.into_iter().filter(|(name, _)| name.as_os_str().as_bytes().contains(&b'/'));
    found.filter_map(|(name, at)| Some((name.file_name()?.to_str()?.to_string(), path_of(name, at)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_reaches_every_device_once_from_one_that_has_it() {
        for n in 0..70 {
            let devices: Vec<usize> = (0..n).map(|i| 100 - i).collect();
            let hops = route(&devices);
            let mut reached = Vec::new();
            for hop in &hops {
                assert!(hop.from.is_none() == reached.is_empty() && !reached.contains(&hop.device));
                assert!(
                    hop.from.is_none_or(|f| hops.iter().any(|h| h.device == f && h.to.contains(&Some(hop.device))))
                );
                reached.push(hop.device);
            }
            reached.sort_unstable_by_key(|d| 100 - d);
            assert_eq!(reached, devices);
            assert_eq!(hops.iter().flat_map(|h| h.to).flatten().count(), n.saturating_sub(1));
        }
    }

    #[test]
    fn the_parcel_is_the_file_and_names_the_libc() {
        let (parcel, libraries) = parcel(b"ELF...");
        let (file, list) = parcel.split_at(parcel.len() - libraries as usize);
        assert_eq!(file, b"ELF...");
        assert!(list.split(|b| *b == 0).any(|part| part.starts_with(b"libc.so")));
    }
}
