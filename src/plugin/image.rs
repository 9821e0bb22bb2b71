// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Images on the host side: what libomptarget registers, and what travels to a device.

use super::space::Reservation;
use crate::base::{Error, Result, elf};
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::path::Path;

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

/// The bytes of an image as they travel: the ELF file, then the list of this process's
/// libraries (lines of name, tab, path: where the device may look for what the image
/// needs); and the bytes of that list.
pub fn parcel(file: &[u8]) -> (Vec<u8>, u64) {
    let mut parcel = Vec::with_capacity(file.len() + 8192);
    parcel.extend_from_slice(file);
    for (name, path) in loaded_libraries() {
        parcel.extend_from_slice(format!("{name}\t{path}\n").as_bytes());
    }
    let libraries = (parcel.len() - file.len()) as u64;
    (parcel, libraries)
}

/// File name and path of every shared object in this process.
pub fn loaded_libraries() -> BTreeMap<String, String> {
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record and our own pointer; the name is a C
        // string or null.
        let (found, name) = unsafe {
            let name = (*info).dlpi_name;
            (&mut *found.cast::<BTreeMap<String, String>>(), if name.is_null() { c"" } else { CStr::from_ptr(name) })
        };
        let path = name.to_string_lossy();
        if path.starts_with('/')
            && let Some(file) = Path::new(&*path).file_name()
        {
            found.insert(file.to_string_lossy().into_owned(), path.clone().into_owned());
        }
        0
    }
    let mut found = BTreeMap::new();
    // SAFETY: `each` gets the map that lives through the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parcel_is_the_file_and_names_the_libc() {
        let (parcel, libraries) = parcel(b"ELF...");
        let (file, list) = parcel.split_at(parcel.len() - libraries as usize);
        assert_eq!(file, b"ELF...");
        assert!(std::str::from_utf8(list).unwrap().lines().any(|l| l.starts_with("libc.so")));
    }
}
