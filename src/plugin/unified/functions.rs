// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The symbols of the program's functions, by their addresses.

use crate::base::{Error, Result, elf};
use crate::sys::process::{self, Mappings};
use std::ffi::{CString, c_void};

/// The symbol of the function at an address, if there is exactly one such function, and whether a library exports it.
pub(super) fn name_of(at: u64) -> Result<(String, bool)> {
    let file = Mappings::now().file_at(at as usize);
    let (Some(file), Some(base)) = (file, load_base(at)) else {
        return Err(Error::new(format!("a region calls {at:#x}, where the program has no function")));
    };
    let mapped = elf::map(&file)?;
    let place = || format!("the program's function at {:#x} of {}", at - base, file.display());
    let symbol = elf::function_at(&mapped, at - base).map_err(|e| e.context(place()))?;
    let symbol = symbol.map_or_else(|| chosen(&mapped, at), |symbol| Ok(Some(symbol)))?;
    let Some(symbol) = symbol else {
        return Err(Error::new(format!(
            "a region calls {}, which has no symbol: make it declare target, and export it or do without strip",
            place()
        )));
    };
    let is_program = std::fs::read_link(process::EXECUTABLE).is_ok_and(|program| program == file);
    let is_exported = !is_program && elf::has_export(&mapped, &symbol);
    Ok((symbol, is_exported))
}

/// The symbol of a function with several versions, of which the loader chose the one at this address for this processor
/// (`strcmp`).
fn chosen(file: &[u8], at: u64) -> Result<Option<String>> {
    let is_here = |name: &String| {
        let name = CString::new(name.as_str()).unwrap_or_default();
        // SAFETY: the name is a C string.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) as u64 == at }
    };
    Ok(elf::indirect_functions(file)?.into_iter().find(is_here))
}

/// The load address of the file that an address belongs to.
fn load_base(at: u64) -> Option<u64> {
    /// The head of glibc's `struct link_map` (link.h).
    #[repr(C)]
    struct LinkMap {
        addr: u64,
    }
    unsafe extern "C" {
        fn dladdr1(
            address: *const c_void,
            info: *mut libc::Dl_info,
            extra: *mut *const LinkMap,
            flags: libc::c_int,
        ) -> libc::c_int;
    }
    const RTLD_DL_LINKMAP: libc::c_int = 2;
    let mut map = std::ptr::null();
    // SAFETY: both results are writable. With this flag the extra one is a link map, which lives as long as the file is
    // loaded.
    unsafe {
        let mut info = std::mem::zeroed();
        let found = dladdr1(at as *const c_void, &mut info, &mut map, RTLD_DL_LINKMAP) != 0 && !map.is_null();
        found.then(|| (*map).addr)
    }
}
