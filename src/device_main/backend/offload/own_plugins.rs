// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Keeps this project's own plugin out of the libomptarget of a device.
//!
//! In a device, this plugin reports no devices. But on the program's library path, which devices inherit, it may hide
//! another plugin: for LLVM 18 it has the name of the host plugin, and from LLVM 19 on it is part of a libomptarget
//! that may contain no other.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

const PATH: &str = "LD_LIBRARY_PATH";
const PLUGIN: &str = "libomptarget.rtl.mpi.so";
/// The file name of LLVM's own host plugin in libomptarget 18.
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

/// True if this project's plugin has the name of LLVM's host plugin there.
fn hides_host_plugin(folder: &Path) -> bool {
    let plugin = fs::canonicalize(folder.join(HOST_PLUGIN));
    plugin.is_ok_and(|file| file.file_name().is_some_and(|name| name == PLUGIN))
}

/// Removes folders in which the plugin hides LLVM's host plugin from LD_LIBRARY_PATH; returns true if there were any.
/// The loader reads that variable only when a process executes a program. Must be called before any thread starts.
pub(crate) fn leave() -> bool {
    let (own, others): (Vec<PathBuf>, Vec<PathBuf>) = search_path().into_iter().partition(|f| hides_host_plugin(f));
    let Ok(others) = env::join_paths(others) else { return false };
    if !own.is_empty() {
        // SAFETY: no other thread runs yet.
        unsafe { env::set_var(PATH, others) };
    }
    !own.is_empty()
}
