// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Functions of images at the addresses that they have in the program: a kernel calls them there if it
//! got a pointer to a `declare target indirect` function.

use crate::base::{Error, Result};
use crate::sys::{mapping, node::memfd};
use std::collections::hash_map::{Entry, HashMap};
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
const STUB: usize = 13;

/// Pages of thunks by address: shared mappings of files, to add a stub while other kernels execute the page.
#[derive(Default)]
pub(super) struct Thunks(HashMap<u64, File>);

impl Thunks {
    /// Redirects calls of `from` to `to`.
    pub fn set(&mut self, from: u64, to: u64) -> Result<()> {
        for (at, byte) in (from..).zip(stub(to)?) {
            self.page(at & !(PAGE - 1))?.write_all_at(&[byte], at % PAGE)?;
        }
        Ok(())
    }

    fn page(&mut self, at: u64) -> Result<&File> {
        Ok(match self.0.entry(at) {
            Entry::Occupied(page) => page.into_mut(),
            Entry::Vacant(place) => place.insert(map(at)?),
        })
    }
}

/// `movabs $to, %r11; jmp *%r11`: changes no other register and not the stack.
fn stub(to: u64) -> Result<[u8; STUB]> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Error::new("declare target indirect is supported on x86-64 devices only"));
    }
    let mut code = *b"\x49\xbb\0\0\0\0\0\0\0\0\x41\xff\xe3";
    code[2..10].copy_from_slice(&to.to_le_bytes());
    Ok(code)
}

fn map(at: u64) -> Result<File> {
    let file = memfd(c"omptarget-mpi-thunks", 0)?;
    file.set_len(PAGE)?;
    mapping::map_at(at, PAGE, libc::PROT_READ | libc::PROT_EXEC, Some(&file)).map_err(|_| {
        Error::new(format!(
            "an indirect function is at {at:#x} in the program, where the device has something else; \
             address space randomization makes that unlikely: is it switched off?"
        ))
    })?;
    Ok(file)
}

#[cfg(test)]
#[path = "../../../../test/rust/unit/device_main/backend/cpu/thunks.rs"]
mod tests;
