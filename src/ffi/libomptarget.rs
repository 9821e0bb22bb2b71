// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Which release of libomptarget loaded this library.
//!
//! Most calls are the same in all releases that load plugins by file name, LLVM 14 to 18,
//! or differ in what is not looked at; [`Generation`] names what is not. From LLVM 19 on
//! `cmake/offload-plugin` calls this library, and none of what differs.

use crate::base::{Error, Result, elf};
use crate::plugin::image::loaded_libraries;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Releases that call this library alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generation {
    /// LLVM 14: as 15, but what it retrieves must be there when `data_retrieve_async`
    /// returns, for it writes pointers of the host into it before it synchronizes.
    Llvm14,
    /// LLVM 15 to 17: `load_binary` has two arguments and returns a table of addresses, null
    /// on failure.
    Llvm15,
    /// LLVM 18: `load_binary` has a third argument, a handle to fill, and returns a status,
    /// 0 on success. So no value means failure to all generations.
    Llvm18,
}

/// What tells one libomptarget from another.
#[derive(Default)]
struct Traits {
    /// Its `DT_SONAME`.
    soname: String,
    /// It has `__tgt_interop_init`, as from LLVM 14 on.
    interop: bool,
    /// It has `__tgt_target_kernel`, as from LLVM 15 on.
    kernels: bool,
}

impl Traits {
    /// `None` if the file is no libomptarget.
    fn read(path: &Path) -> Option<Traits> {
        let file = elf::map(path).ok()?;
        let soname = elf::soname(&file)?;
        soname.starts_with("libomptarget.so").then(|| Traits {
            soname,
            interop: elf::exports(&file, "__tgt_interop_init"),
            kernels: elf::exports(&file, "__tgt_target_kernel"),
        })
    }

    /// LLVM's major version.
    fn release(&self) -> Option<u32> {
        match self.soname.strip_prefix("libomptarget.so.") {
            Some(version) => {
                let digits = version.find(|c: char| !c.is_ascii_digit()).unwrap_or(version.len());
                version[..digits].parse().ok()
            }
            // LLVM 14 is the last one whose soname has no number.
            None => (self.soname == "libomptarget.so" && self.interop && !self.kernels).then_some(14),
        }
    }
}

/// Decides by all that are loaded (path and traits).
fn decide(loaded: &BTreeMap<String, Traits>) -> Result<Generation> {
    let advice = "use that of LLVM 14 to 18; for a later one see cmake/offload-plugin";
    let mut decision = None;
    for (path, traits) in loaded {
        let this = match traits.release() {
            Some(14) => Generation::Llvm14,
            Some(15..=17) => Generation::Llvm15,
            Some(18) => Generation::Llvm18,
            Some(other) => {
                return Err(Error::new(format!(
                    "{path} is of LLVM {other}, which loads no plugins this way: {advice}"
                )));
            }
            None => return Err(Error::new(format!("it is not known which LLVM {path} is of: {advice}"))),
        };
        if decision.is_some_and(|d| d != this) {
            let paths: Vec<&str> = loaded.keys().map(String::as_str).collect();
            return Err(Error::new(format!(
                "these can't share a plugin in one process: {}; link the program and its libraries with one of them",
                paths.join(", ")
            )));
        }
        decision = Some(this);
    }
    decision.ok_or_else(|| Error::new(format!("no libomptarget.so is loaded in this process: {advice}")))
}

/// The generation of this process's libomptarget, or why there is none: no libomptarget,
/// an unknown one, or two that differ.
pub fn generation() -> &'static Result<Generation> {
    static GENERATION: OnceLock<Result<Generation>> = OnceLock::new();
    GENERATION.get_or_init(|| {
        let named = loaded_libraries().into_iter().filter(|(name, _)| name.starts_with("libomptarget.so"));
        let traits = |path: PathBuf| Traits::read(&path).map(|traits| (path.to_string_lossy().into_owned(), traits));
        decide(&named.filter_map(|(_, path)| traits(path)).collect())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(sonames: &[(&str, bool, bool)]) -> Result<Generation> {
        let traits = |&(soname, interop, kernels): &(&str, bool, bool)| {
            (format!("/lib/{soname}"), Traits { soname: soname.into(), interop, kernels })
        };
        decide(&sonames.iter().map(traits).collect())
    }

    #[test]
    fn releases_are_known_by_the_soname_and_14_by_what_it_exports() {
        let table = ["libomptarget.so.15", "libomptarget.so.16", "libomptarget.so.17", "libomptarget.so.17git"];
        for soname in table {
            assert_eq!(decided(&[(soname, true, true)]), Ok(Generation::Llvm15), "{soname}");
        }
        for soname in ["libomptarget.so.18", "libomptarget.so.18.1"] {
            assert_eq!(decided(&[(soname, true, true)]), Ok(Generation::Llvm18), "{soname}");
        }
        assert_eq!(decided(&[("libomptarget.so", true, false)]), Ok(Generation::Llvm14));
    }

    #[test]
    fn what_is_unknown_is_refused_by_name() {
        let unknown =
            [("libomptarget.so", true, true), ("libomptarget.so", false, false), ("libomptarget.so.x", true, true)];
        for one in unknown {
            assert!(decided(&[one]).unwrap_err().to_string().contains("not known which LLVM /lib/libomptarget.so"));
        }
        for soname in ["libomptarget.so.13", "libomptarget.so.19.1"] {
            assert!(decided(&[(soname, true, true)]).unwrap_err().to_string().contains("loads no plugins this way"));
        }
        assert!(decided(&[]).unwrap_err().to_string().contains("no libomptarget.so is loaded"));
    }

    #[test]
    fn two_may_meet_if_they_call_alike() {
        let (a, b, c) = (
            ("libomptarget.so.16", true, true),
            ("libomptarget.so.17", true, true),
            ("libomptarget.so.18.1", true, true),
        );
        assert_eq!(decided(&[a, b]), Ok(Generation::Llvm15));
        let both = decided(&[a, c]).unwrap_err().to_string();
        assert!(both.contains("libomptarget.so.16, /lib/libomptarget.so.18.1"), "{both}");
    }
}
