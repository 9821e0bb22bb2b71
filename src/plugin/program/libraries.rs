// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The shared libraries of this process, which images also need on devices.

use crate::sys::process::{self, Mappings};
use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_int, c_void};
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The names and paths of the libraries of this process that are `wanted`, each ended by a NUL byte.
pub(crate) fn library_list(wanted: impl Fn(&str) -> bool) -> Vec<u8> {
    let libraries = loaded_libraries().into_iter().filter(|(name, _)| wanted(name));
    libraries.flat_map(|(name, path)| [name.as_bytes(), b"\0", path.as_os_str().as_bytes(), b"\0"].concat()).collect()
}

/// File name and path of every shared object in this process, except those with names that are not UTF-8:
/// no image refers to such a name.
pub(crate) fn loaded_libraries() -> BTreeMap<String, PathBuf> {
    /// An object's name in the loader, and an address inside the object.
    type Object = (PathBuf, usize);
    unsafe extern "C" fn each(info: *mut libc::dl_phdr_info, _: usize, found: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record with `dlpi_phnum` headers, and the pointer given
        // below; the name is a C string or null.
        unsafe {
            let info = &*info;
            let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
            let loaded = headers.iter().find(|h| h.p_type == libc::PT_LOAD);
            if let (Some(loaded), false) = (loaded, info.dlpi_name.is_null()) {
                let name = process::path_of(CStr::from_ptr(info.dlpi_name).to_bytes());
                (*found.cast::<Vec<Object>>()).push((name, info.dlpi_addr.wrapping_add(loaded.p_vaddr) as usize));
            }
        }
        0
    }
    let mut found: Vec<Object> = Vec::new();
    // SAFETY: `each` gets `found`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(each), (&raw mut found).cast()) };
    let mappings = OnceCell::new();
    // A path may be relative to the directory that was current when the library was loaded.
    let path_of = |name: PathBuf, address| match name.is_absolute() {
        true => Some(name),
        false => mappings.get_or_init(Mappings::now).file_at(address),
    };
    // Only the vDSO, which is the kernel's own, has a name without a folder.
    let found = found.into_iter().filter(|(name, _)| name.as_os_str().as_bytes().contains(&b'/'));
    found.filter_map(|(name, at)| Some((name.file_name()?.to_str()?.to_string(), path_of(name, at)?))).collect()
}

/// The number of shared objects that this process has loaded so far, including unloaded ones.
pub(crate) fn loads() -> u64 {
    unsafe extern "C" fn first(info: *mut libc::dl_phdr_info, _: usize, loads: *mut c_void) -> c_int {
        // SAFETY: the loader passes a valid record, and the pointer given below.
        unsafe { *loads.cast::<u64>() = (*info).dlpi_adds };
        1
    }
    let mut loads = 0;
    // SAFETY: `first` gets `loads`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut loads).cast()) };
    loads
}

/// True if the program uses LLVM's Offload API.
pub(crate) fn uses_offload_api() -> bool {
    // SAFETY: the name is a C string.
    !unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"olInit".as_ptr()) }.is_null()
}

/// The addresses of libomptarget's code, if the program or one of its libraries is linked with libomptarget.
pub(crate) fn code_of_libomptarget() -> Option<Range<usize>> {
    // SAFETY: the name is a C string.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__tgt_register_lib".as_ptr()) };
    let code = Mappings::now().around(function as u64)?;
    Some(code.start as usize..code.end as usize)
}
