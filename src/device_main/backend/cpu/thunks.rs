// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Functions of images at their addresses in the program: a kernel calls them there if it got a pointer to a `declare
//! target indirect` function.
//!
//! A stub that jumps is longer than some functions of the program. Where another function may begin within the stub,
//! and everywhere else on its page, there are traps, which the fault handler resolves: that takes a microsecond or two.

use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::sys::{mapping, node::memfd};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
const STUB: u64 = 13;
/// The alignment of functions, unless the compiler optimizes for size: then functions follow each other without a gap.
const ALIGNMENT: u64 = 16;
/// `int3`
const TRAP: u8 = 0xcc;

/// The thunks of this process.
pub(crate) static THUNKS: Mutex<Thunks, { order::LEAF }> = Mutex::new(Thunks::new());

/// The target of a kernel's call that hit a trap.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Called {
    /// A function that an image has, at this address.
    Function(u64),
    /// Another function of the program.
    Other,
}

pub(crate) struct Thunks {
    /// Addresses in images by those in the program.
    functions: BTreeMap<u64, u64>,
    /// Pages by address, with their places in the file.
    pages: BTreeMap<u64, u64>,
    /// Mapped shared, to add a stub while other kernels execute the page.
    file: Option<File>,
}

impl Thunks {
    const fn new() -> Thunks {
        Thunks { functions: BTreeMap::new(), pages: BTreeMap::new(), file: None }
    }

    /// Redirects calls of `from` to `to`.
    pub fn set(&mut self, from: u64, to: u64) -> Result<()> {
        let stub = stub(to)?;
        if let Some((&before, &to)) = self.functions.range(..from).next_back()
            && from - before < STUB
            && self.has_room(before, to)
        {
            self.write(before, &[TRAP; STUB as usize])?;
        }
        self.functions.insert(from, to);
        self.write(from, if self.has_room(from, to) { &stub } else { &[TRAP] })
    }

    /// True if no function begins within the stub of this one, as far as can be known. The positions of functions that
    /// are not indirect are unknown, so this requires the function to be aligned in both program and image. If neither
    /// was compiled with aligned functions, that holds by chance in 1 of 256 cases.
    fn has_room(&self, from: u64, to: u64) -> bool {
        let mut next = self.functions.range(from + 1..from.saturating_add(STUB));
        next.next().is_none() && (from | to).is_multiple_of(ALIGNMENT)
    }

    /// The target of a kernel's call that hit a trap at this address; `None` if the trap is not one of these.
    /// For a signal handler: allocates nothing.
    pub fn called(&self, at: u64) -> Option<Called> {
        self.pages.get(&(at & !(PAGE - 1)))?;
        Some(self.functions.get(&at).map_or(Called::Other, |&to| Called::Function(to)))
    }

    /// Writes the first byte last: until then the code is a trap.
    fn write(&mut self, at: u64, code: &[u8]) -> Result<()> {
        for (i, byte) in code.iter().enumerate().rev() {
            let at = at + i as u64;
            let place = self.page(at & !(PAGE - 1))? + at % PAGE;
            self.file()?.write_all_at(&[*byte], place)?;
        }
        Ok(())
    }

    fn file(&mut self) -> Result<&File> {
        match &mut self.file {
            Some(file) => Ok(file),
            none => Ok(none.insert(memfd(c"omptarget-mpi-thunks", 0)?)),
        }
    }

    /// The place of a page in the file; maps it if it is new.
    fn page(&mut self, at: u64) -> Result<u64> {
        if let Some(&place) = self.pages.get(&at) {
            return Ok(place);
        }
        let place = self.pages.len() as u64 * PAGE;
        let file = self.file()?;
        file.write_all_at(&[TRAP; PAGE as usize], place)?;
        mapping::map_at(at, PAGE, libc::PROT_READ | libc::PROT_EXEC, Some((file, place))).map_err(|_| {
            Error::new(format!(
                "an indirect function is at {at:#x} in the program, where the device has something else; \
                 address space randomization makes that unlikely: is it switched off?"
            ))
        })?;
        self.pages.insert(at, place);
        Ok(place)
    }
}

/// `movabs $to, %r11; jmp *%r11`: changes no other register and not the stack.
fn stub(to: u64) -> Result<[u8; STUB as usize]> {
    if !cfg!(target_arch = "x86_64") {
        return Err(Error::new("declare target indirect is supported on x86-64 devices only"));
    }
    let mut code = *b"\x49\xbb\0\0\0\0\0\0\0\0\x41\xff\xe3";
    code[2..10].copy_from_slice(&to.to_le_bytes());
    Ok(code)
}

#[cfg(test)]
#[path = "../../../../test/rust/unit/device_main/backend/cpu/thunks.rs"]
mod tests;
