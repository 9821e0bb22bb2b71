// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Runs the checks of the fuzz targets on their seeds, without a fuzzer.

#[path = "../../fuzz/checks.rs"]
mod checks;

use std::fs;
use std::path::Path;

/// At least `least` of the seeds must be valid: after a change of a format they have to be converted.
fn replay(corpus: &str, least: usize, check: fn(&[u8]) -> bool) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(corpus);
    let mut valid = 0;
    for file in fs::read_dir(&folder).unwrap() {
        let path = file.unwrap().path();
        println!("{}", path.display()); // shown if the check panics
        valid += usize::from(check(&fs::read(&path).unwrap()));
    }
    assert!(valid >= least, "{valid} are valid in {}", folder.display());
}

#[test]
fn messages() {
    replay("wire", 150, checks::wire);
}

#[test]
fn images() {
    replay("image", 3, checks::image);
}

#[test]
fn texts() {
    replay("text", 80, checks::text);
}
