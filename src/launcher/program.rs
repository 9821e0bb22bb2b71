// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What a program's file tells: whether it offloads, through which libomptarget, and which
//! MPI it uses itself.

use super::install::Family;
use crate::base::{Error, Result, elf, programs};
use goblin::elf::Elf;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A program that is to be run.
#[derive(Debug)]
pub struct Program {
    /// Its file.
    pub path: PathBuf,
    /// False for a script: what it will start can't be told.
    pub is_elf: bool,
    /// Libraries that it needs, directly or not: name, and path if it was found.
    pub libraries: Vec<(String, Option<PathBuf>)>,
    /// The MPI that it calls itself.
    pub mpi: Option<Family>,
}

impl Program {
    /// Looks at the program that a shell would run under this name.
    ///
    /// # Errors
    /// There is none.
    pub fn find(name: &OsStr) -> Result<Program> {
        let path = programs::find(name).ok_or_else(|| {
            Error::new(format!("{}: there is no such program (or it is not executable)", name.to_string_lossy()))
        })?;
        let file = elf::map(&path).map_err(|e| e.context(path.display()))?;
        let Ok(parsed) = Elf::parse(&file) else {
            return Ok(Program { path, is_elf: false, libraries: Vec::new(), mpi: None });
        };
        let direct = || parsed.libraries.iter().map(|l| (l.to_string(), None)).collect();
        let libraries = resolve(&path).unwrap_or_else(direct);
        // Also an MPI that only a library of the program's uses.
        let mpi = libraries.iter().find_map(|(name, _)| Family::of_library(name));
        Ok(Program { path, is_elf: true, libraries, mpi })
    }

    /// True if its libomptarget, which is of LLVM 19 or later, has this project's plugin in it.
    pub fn has_plugin_built_in(&self) -> bool {
        const NAME: &[u8] = b"libomptarget.rtl.mpi.so";
        let path =
            self.libraries.iter().find_map(|(name, path)| path.as_ref().filter(|_| name.starts_with("libomptarget")));
        path.and_then(|path| elf::map(path).ok()).is_some_and(|file| file.windows(NAME.len()).any(|w| w == NAME))
    }

    /// The release of LLVM whose libomptarget it is linked with.
    pub fn llvm(&self) -> Option<u32> {
        /// The last one whose library has no number in its name.
        const UNNUMBERED: u32 = 14;
        self.libraries.iter().find_map(|(name, _)| {
            let rest = name.strip_prefix("libomptarget.so")?;
            let digits: String = rest.trim_start_matches('.').chars().take_while(char::is_ascii_digit).collect();
            Some(digits.parse().unwrap_or(UNNUMBERED))
        })
    }
}

/// The libraries of a program as the loader would find them; none if it can't be asked.
fn resolve(path: &Path) -> Option<Vec<(String, Option<PathBuf>)>> {
    let ldd = programs::tool("ldd")?;
    let out = Command::new(ldd).arg(path).env("LC_ALL", "C").output().ok().filter(|o| o.status.success())?;
    // "\tname => path (address)", or "not found" in the path's place; without an arrow it is
    // the kernel's or the loader itself.
    let text = String::from_utf8_lossy(&out.stdout);
    let lines = text.lines().filter_map(|line| line.trim().split_once(" => "));
    let path_of = |p: &str| p.rsplit_once(" (").map(|(path, _)| PathBuf::from(path));
    Some(lines.map(|(name, p)| (name.to_string(), path_of(p))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linked_with(name: &str) -> Program {
        Program { path: "p".into(), is_elf: true, libraries: vec![(name.to_string(), None)], mpi: None }
    }

    #[test]
    fn releases_are_read_from_the_librarys_name() {
        assert_eq!(linked_with("libomptarget.so.16").llvm(), Some(16));
        assert_eq!(linked_with("libomptarget.so.19.1").llvm(), Some(19));
        assert_eq!(linked_with("libomptarget.so").llvm(), Some(14));
        assert_eq!(linked_with("libomp.so.5").llvm(), None);
    }

    #[test]
    fn programs_are_found_as_a_shell_does() {
        let shell = Program::find(OsStr::new("sh")).unwrap();
        assert!(shell.is_elf && shell.llvm().is_none() && shell.mpi.is_none());
        assert!(shell.libraries.iter().any(|(name, path)| name.starts_with("libc.") && path.is_some()));
        assert!(Program::find(OsStr::new("/etc/passwd")).is_err());
        assert!(Program::find(OsStr::new("no such program")).is_err());
    }
}
