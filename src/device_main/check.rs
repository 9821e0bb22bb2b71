// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! `--check`: reports to the launcher what this host has.

use super::backend::cpu::image;
use crate::sys::node;
use crate::wire::check::{LIBRARY, MARK, NODE, VERSION};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Prints the report; `libraries` have the form NAME=PATH.
pub(super) fn run(version: &str, libraries: &[String]) {
    println!("{MARK}{VERSION} {version}");
    let gib = node::memory() as f64 / f64::from(1 << 30);
    println!("{MARK}{NODE} {}: {} cores, {gib:.1} GiB of memory", node::host_name(), node::cores().len());
    let libraries: BTreeMap<String, PathBuf> =
        libraries.iter().filter_map(|l| l.split_once('=').map(|(n, p)| (n.to_string(), p.into()))).collect();
    for (name, path) in &libraries {
        if !image::find_library(name, &libraries, 0) {
            println!("{MARK}{LIBRARY} {name} can't be loaded (the program has {})", path.display());
        }
    }
}
