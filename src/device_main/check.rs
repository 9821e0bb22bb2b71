// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! `--check` and `--accelerators`: reports about this host, for the launcher.

use super::backend::offload::{drivers, visible_devices};
use super::images::library::find_library;
use crate::job::hosts;
use crate::sys::node;
use crate::wire::check::{ACCELERATOR, ACCELERATORS, LIBRARY, MARK, NODE, VERSION};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Prints the report; `libraries` have the form NAME=PATH.
pub(super) fn run(version: &str, libraries: &[String]) {
    println!("{MARK}{VERSION} {version}");
    let gib = node::memory() as f64 / f64::from(1 << 30);
    println!("{MARK}{NODE} {}: {} cores, {gib:.1} GiB of memory", node::host_name(), node::cores().len());
    for gpu in drivers::all() {
        println!("{MARK}{ACCELERATOR} {} {gpu}", gpu.target.to_number());
    }
    let libraries: BTreeMap<String, PathBuf> =
        libraries.iter().filter_map(|l| l.split_once('=').map(|(n, p)| (n.to_string(), p.into()))).collect();
    for (name, path) in &libraries {
        if !find_library(name, &libraries, 0) {
            println!("{MARK}{LIBRARY} {name} can't be loaded (the program has {})", path.display());
        }
    }
}

/// Prints the number of this host's accelerators, and which of these names are this host's.
pub(super) fn count_accelerators(names: &[String]) {
    let own = names.iter().filter(|name| hosts::is_here(name)).map(|name| format!(" {name}"));
    let shown = drivers::all().len();
    let parts = std::env::var("CUDA_VISIBLE_DEVICES").map_or(0, |value| visible_devices::parts_in(&value));
    let all = if shown == 0 { 0 } else { shown.max(parts) };
    println!("{MARK}{ACCELERATORS} {all}{}", own.collect::<String>());
}
