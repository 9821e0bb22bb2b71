// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Functions at the addresses that they have in the program: a kernel that was given a
//! pointer to a `declare target indirect` function calls it there.

use crate::base::node::memfd;
use crate::base::{Error, Result};
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
/// Bytes of a stub.
const STUB: usize = 13;

/// Pages of stubs, by their addresses. They are shared mappings of files, so that a stub
/// can be added to a page that other kernels execute from.
#[derive(Default)]
pub struct Stubs(HashMap<u64, File>);

impl Stubs {
    /// Makes calls of `from` go to `to`.
    ///
    /// # Errors
    /// This process has something else at that address.
    pub fn set(&mut self, from: u64, to: u64) -> Result<()> {
        for (at, byte) in (from..).zip(stub(to)?) {
            self.page(at & !(PAGE - 1))?.write_all_at(&[byte], at % PAGE)?;
        }
        Ok(())
    }

    fn page(&mut self, at: u64) -> Result<&File> {
        match self.0.entry(at) {
            std::collections::hash_map::Entry::Occupied(page) => Ok(page.into_mut()),
            std::collections::hash_map::Entry::Vacant(place) => Ok(place.insert(map(at)?)),
        }
    }
}

/// `movabs $to, %r11; jmp *%r11`: no other register and no stack is touched.
fn stub(to: u64) -> Result<[u8; STUB]> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Error::new("declare target indirect is supported on x86-64 devices only"));
    }
    let mut code = *b"\x49\xbb\0\0\0\0\0\0\0\0\x41\xff\xe3";
    code[2..10].copy_from_slice(&to.to_le_bytes());
    Ok(code)
}

fn map(at: u64) -> Result<File> {
    let file = memfd(c"omptarget-mpi-stubs", 0)?;
    file.set_len(PAGE)?;
    let flags = libc::MAP_SHARED | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: NOREPLACE: the call changes nothing that is mapped already.
    let got = unsafe { libc::mmap(at as *mut _, PAGE as usize, protection, flags, file.as_raw_fd(), 0) };
    if got as u64 == at {
        return Ok(file);
    }
    if got != libc::MAP_FAILED {
        // SAFETY: this page was mapped just now and nobody knows of it.
        unsafe { libc::munmap(got, PAGE as usize) };
    }
    Err(Error::new(format!(
        "an indirect function is at {at:#x} in the program, where the device has something else; \
         address space randomization makes that unlikely: is it switched off?"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn add_one(n: u64) -> u64 {
        n + 1
    }

    extern "C" fn add_two(n: u64) -> u64 {
        n + 2
    }

    fn call(at: u64, n: u64) -> u64 {
        // SAFETY: the tests put a stub there that leads to a function of this type.
        unsafe { std::mem::transmute::<u64, extern "C" fn(u64) -> u64>(at)(n) }
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn functions_are_called_where_they_are_not() {
        let mut stubs = Stubs::default();
        // The second one reaches into the next page.
        let (a, b) = (0x1234_5678_9000, 0x1234_5678_9ff8);
        stubs.set(a, add_one as extern "C" fn(u64) -> u64 as usize as u64).unwrap();
        stubs.set(b, add_two as extern "C" fn(u64) -> u64 as usize as u64).unwrap();
        assert_eq!((call(a, 1), call(b, 1)), (2, 3));
        stubs.set(a, add_two as extern "C" fn(u64) -> u64 as usize as u64).unwrap();
        assert_eq!(call(a, 1), 3);
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn what_is_there_stays_there() {
        let own = add_one as extern "C" fn(u64) -> u64 as usize as u64;
        assert!(Stubs::default().set(own, 1).unwrap_err().to_string().contains("has something else"));
        assert_eq!(call(own, 1), 2);
    }
}
