// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! `--check`: what the launcher wants to know of this host.

use super::image;
use crate::base::node;
use crate::wire::check::{LIBRARY, MARK, NODE, VERSION};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Prints the answer; `libraries` are of the form NAME=PATH.
pub fn run(version: &str, libraries: &[String]) {
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
