// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What libomptarget and its plugins say of errors: lines on standard error, which is a file in memory here.

use std::fs::File;
use std::io::stderr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// Bytes at the end of the file that are searched.
const TAIL: u64 = 4096;
/// Advice that libomptarget adds to each error.
const ADVICE: [&str; 2] = ["Consult https://", "Source location information"];

/// The last errors in one line, to be appended to another; empty if nothing is found.
pub(super) fn lately() -> String {
    let Ok(file) = stderr().as_fd().try_clone_to_owned().map(File::from) else { return String::new() };
    let end = file.metadata().map_or(0, |file| file.len());
    let start = end.saturating_sub(TAIL);
    let mut tail = vec![0; (end - start) as usize];
    match file.read_exact_at(&mut tail, start) {
        Ok(()) => errors_in(&String::from_utf8_lossy(&tail)),
        Err(_) => String::new(),
    }
}

/// Lines such as `Libomptarget error: …`, `Libomptarget fatal error 1: …`, `"PluginInterface" error: …`.
fn errors_in(text: &str) -> String {
    let error = |line: &str| {
        let (source, what) = line.split_once("error")?;
        let is_name = source.len() < 40 && source.trim_end().split(' ').count() <= 3;
        let what = what.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()).strip_prefix(": ")?;
        let is_known = is_name && !source.is_empty() && !ADVICE.iter().any(|advice| what.starts_with(advice));
        is_known.then(|| what.trim_end().to_string())
    };
    let errors: Vec<String> = text.lines().filter_map(error).collect();
    if errors.is_empty() { String::new() } else { format!("; libomptarget says: {}", errors.join("; ")) }
}

#[cfg(test)]
#[path = "../../../../test/rust/unit/device_main/backend/offload/said.rs"]
mod tests;
