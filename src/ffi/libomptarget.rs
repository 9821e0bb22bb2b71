// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Finds out which release of libomptarget loaded this library.
//!
//! LLVM 14 to 18 load plugins by file name. Most of their calls are alike, or differ only in details that
//! this library ignores; [`Generation`] distinguishes the others. From LLVM 19 on `cmake/offload-plugin`
//! calls this library, and uses none of these.

use crate::base::{Error, Result, elf};
use crate::plugin::program::libraries::loaded_libraries;
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Releases that call this library in the same way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Generation {
    /// LLVM 14: as 15, but retrieved data must have arrived when `data_retrieve_async` returns, because
    /// libomptarget writes host pointers into it before it synchronizes.
    Llvm14,
    /// LLVM 15 to 17: `load_binary` returns a table of addresses, null on failure.
    Llvm15,
    /// LLVM 18: `load_binary` fills a handle and returns a status, 0 on success. Hence no value means
    /// failure to all generations.
    Llvm18,
}

/// LLVM's major version, if it is known. LLVM 14 is the last one whose soname has no number:
/// `__tgt_interop_init` came with it, and `__tgt_target_kernel` with LLVM 15.
fn release(soname: &str, exports: impl Fn(&str) -> bool) -> Option<u32> {
    match soname.strip_prefix("libomptarget.so.") {
        Some(version) => version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok(),
        None => {
            let is_14 = soname == "libomptarget.so" && exports("__tgt_interop_init") && !exports("__tgt_target_kernel");
            is_14.then_some(14)
        }
    }
}

/// Determines the generation from the path and release of every loaded libomptarget.
fn decide(loaded: &BTreeMap<String, Option<u32>>) -> Result<Generation> {
    let advice = "use that of LLVM 14 to 18; for a later one see cmake/offload-plugin";
    let generation = |(path, release): (&String, &Option<u32>)| match release {
        Some(14) => Ok(Generation::Llvm14),
        Some(15..=17) => Ok(Generation::Llvm15),
        Some(18) => Ok(Generation::Llvm18),
        Some(n) => Err(Error::new(format!("{path} is of LLVM {n}, which loads no plugins this way: {advice}"))),
        None => Err(Error::new(format!("it is not known which LLVM {path} is of: {advice}"))),
    };
    let mut generations = loaded.iter().map(generation).collect::<Result<Vec<_>>>()?;
    generations.dedup();
    match generations[..] {
        [] => Err(Error::new(format!("no libomptarget.so is loaded in this process: {advice}"))),
        [generation] => Ok(generation),
        _ => Err(Error::new(format!(
            "these can't share a plugin in one process: {}; link the program and its libraries with one of them",
            loaded.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
        ))),
    }
}

/// The generation of this process's libomptarget, or the reason why this plugin can't serve it.
pub(super) fn generation() -> &'static Result<Generation> {
    static GENERATION: OnceLock<Result<Generation>> = OnceLock::new();
    GENERATION.get_or_init(|| {
        let mut loaded = BTreeMap::new();
        for (_, path) in loaded_libraries().into_iter().filter(|(name, _)| name.starts_with("libomptarget.so")) {
            let Ok(file) = elf::map(&path) else { continue };
            if let Some(soname) = elf::soname(&file).filter(|soname| soname.starts_with("libomptarget.so")) {
                let release = release(&soname, |symbol| elf::has_export(&file, symbol));
                loaded.insert(path.to_string_lossy().into_owned(), release);
            }
        }
        decide(&loaded)
    })
}

#[cfg(test)]
#[path = "../../test/rust/unit/ffi/libomptarget.rs"]
mod tests;
