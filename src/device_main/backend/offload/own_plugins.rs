// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Keeps this project's own plugin out of the libomptarget of a device.
//!
//! Loaded there, it reports no devices. But on the library path of the program, which devices inherit, it may hide
//! another plugin: for LLVM 18 it has the name of the host's, and from LLVM 19 on it is part of a libomptarget that
//! need not have any other.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

const PATH: &str = "LD_LIBRARY_PATH";
const PLUGIN: &str = "libomptarget.rtl.mpi.so";
/// What libomptarget 18 calls LLVM's own host plugin.
const HOST_PLUGIN: &str = "libomptarget.rtl.x86_64.so";

/// The folders of LD_LIBRARY_PATH.
pub(super) fn search_path() -> Vec<PathBuf> {
    let path = env::var_os(PATH).unwrap_or_default();
    env::split_paths(&path).filter(|folder| folder.is_absolute()).collect()
}

/// True if the folder has this project's plugin.
pub(super) fn are_in(folder: &Path) -> bool {
    folder.join(PLUGIN).exists()
}

/// True if this project's plugin stands for LLVM's host plugin there.
fn hides_host_plugin(folder: &Path) -> bool {
    let plugin = fs::canonicalize(folder.join(HOST_PLUGIN));
    plugin.is_ok_and(|file| file.file_name().is_some_and(|name| name == PLUGIN))
}

/// Takes folders in which the plugin hides LLVM's host plugin off LD_LIBRARY_PATH; returns true if there were any. The
/// loader looks at that only when a process executes its program. Must be called before any thread starts.
pub(crate) fn leave() -> bool {
    let (own, others): (Vec<PathBuf>, Vec<PathBuf>) = search_path().into_iter().partition(|f| hides_host_plugin(f));
    let Ok(others) = env::join_paths(others) else { return false };
    if !own.is_empty() {
        // SAFETY: no other thread runs yet.
        unsafe { env::set_var(PATH, others) };
    }
    !own.is_empty()
}
