// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The errors that libomptarget and its plugins print: lines of standard error, which is a file in memory here.

use std::fs::File;
use std::io::stderr;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

/// The number of bytes at the end of the file that are searched.
const TAIL: u64 = 16 << 10;
/// How these lines begin, before `error`, `fatal error` or, for an AMD accelerator's faults since LLVM 20, `ERROR`.
const SPEAKERS: [&str; 7] =
    ["Libomptarget", "omptarget", "\"PluginInterface\"", "PluginInterface", "CUDA", "AMDGPU", "OFFLOAD"];
/// Advice that libomptarget adds to each error.
const ADVICE: [&str; 2] = ["Consult https://", "Source location information"];

/// The last errors, see [`errors_in`].
pub(crate) fn lately() -> String {
    let Ok(file) = stderr().as_fd().try_clone_to_owned().map(File::from) else { return String::new() };
    let end = file.metadata().map_or(0, |file| file.len());
    let start = end.saturating_sub(TAIL);
    let mut tail = vec![0; (end - start) as usize];
    match file.read_exact_at(&mut tail, start) {
        Ok(()) => errors_in(&String::from_utf8_lossy(&tail)),
        Err(_) => String::new(),
    }
}

/// True if a line, which may be incomplete, begins like an error of libomptarget or its plugins.
pub(crate) fn is_error(line: &[u8]) -> bool {
    let is_of = |speaker: &&str| {
        let rest = line.strip_prefix(speaker.as_bytes());
        rest.is_some_and(|rest| {
            let number = rest.strip_prefix(b" fatal error ");
            let is_fatal = number.is_some_and(|number| number.first().is_none_or(u8::is_ascii_digit));
            is_fatal || rest.starts_with(b" error:") || rest.starts_with(b" ERROR:")
        })
    };
    SPEAKERS.iter().any(is_of)
}

/// Joins lines such as `Libomptarget error: …`, `Libomptarget fatal error 1: …` and `"PluginInterface" error: …` into
/// one, to append to an error message. Returns an empty string if `text` has no error lines.
pub(crate) fn errors_in(text: &str) -> String {
    let error = |line: &str| {
        let (source, what) = line.split_once("error").or_else(|| line.split_once("ERROR"))?;
        let is_name = source.len() < 40 && source.trim_end().split(' ').count() <= 3;
        let what = what.trim_start_matches(|c: char| c == ' ' || c.is_ascii_digit()).strip_prefix(':')?;
        let what = what.trim_start();
        let is_known = is_name && !source.is_empty() && !ADVICE.iter().any(|advice| what.starts_with(advice));
        is_known.then(|| what.trim_end().to_string())
    };
    let errors: Vec<String> = text.lines().filter_map(error).collect();
    if errors.is_empty() { String::new() } else { format!("; libomptarget says: {}", errors.join("; ")) }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/output/libomptarget_errors.rs"]
mod tests;
