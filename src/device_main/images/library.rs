// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Loads the libraries that images need. They are never unloaded.

use crate::base::elf;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::path::PathBuf;

/// The flags with which LLVM's host plugin loads images: undefined functions do no harm unless they are
/// called, and images see each other's symbols as their host parts do.
pub(crate) const FLAGS: i32 = RTLD_LAZY | RTLD_GLOBAL;

/// Loads a library that is never unloaded, as later images may need it too; false if that fails.
pub(crate) fn keep(library: &OsStr, flags: i32) -> bool {
    // SAFETY: this runs the library's initializers: a device exists to execute its host's code.
    unsafe { Library::open(Some(library), flags) }.map(std::mem::forget).is_ok()
}

/// Loads a library permanently; if necessary from its path in the host process, after the libraries that it needs.
pub(crate) fn find_library(name: &str, hints: &BTreeMap<String, PathBuf>, depth: u32) -> bool {
    if keep(name.as_ref(), FLAGS) {
        return true;
    }
    let Some(path) = hints.get(name).filter(|_| depth < 16) else { return false };
    let needed = elf::map(path).ok().and_then(|file| elf::needed_libraries(&file).ok());
    for dependency in needed.iter().flatten() {
        find_library(dependency, hints, depth + 1);
    }
    keep(path.as_ref(), FLAGS)
}
