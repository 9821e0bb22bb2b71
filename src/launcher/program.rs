// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Finds out from a program's file whether it offloads, through which libomptarget, and which MPI it
//! uses itself. The command may begin with a starter (`env`, `time`, `numactl`, `gdb --args`, a shell,
//! a script): then the program is usually one of the arguments.

use super::install::Family;
use crate::base::{Error, Result, elf};
use crate::sys::programs;
use goblin::elf::Elf;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Shells and other interpreters: like a script, they may start any program.
const INTERPRETERS: [&str; 12] =
    ["sh", "ash", "bash", "busybox", "csh", "dash", "fish", "ksh", "perl", "python", "tcsh", "zsh"];

#[derive(Debug)]
pub struct Program {
    pub path: PathBuf,
    /// The program that starts this one.
    pub starter: Option<PathBuf>,
    /// The program, or its starter, is a script or an interpreter, which may start any program, and several.
    pub is_script: bool,
    /// All libraries that it needs: name, and path if found.
    pub libraries: Vec<(String, Option<PathBuf>)>,
    /// The MPI that it uses itself.
    pub mpi: Option<Family>,
}

impl Program {
    /// The program that a command runs: the one that the user named, or the first word if that offloads, or
    /// the first argument that does.
    pub fn of(command: &[OsString], named: Option<&Path>, force: bool) -> Result<Program> {
        let first = Program::find(&command[0])?;
        if let Some(path) = named {
            let program = Program::at(path.to_path_buf()).map_err(|e| e.context("--program"))?;
            if program.llvm().is_none() && !force {
                let path = path.display();
                return Err(Error::new(format!("--program {path}: it is linked with no libomptarget")));
            }
            return Ok(Program { starter: Some(first.path), ..program });
        }
        if first.llvm().is_some() {
            return Ok(first);
        }
        let mut is_script = first.is_script;
        for (i, word) in command.iter().enumerate().skip(1) {
            for program in names_in(word).iter().filter_map(|name| Program::find(name).ok()) {
                if program.llvm().is_some() {
                    if !force && !program.has_plugin_built_in() {
                        check_words(&first.path, &command[1..i])?;
                    }
                    return Ok(Program { starter: Some(first.path), is_script, ..program });
                }
                is_script |= program.is_script;
            }
        }
        Ok(Program { is_script, ..first })
    }

    /// The program that a shell would run under this name.
    fn find(name: &OsStr) -> Result<Program> {
        let path = programs::find(name).ok_or_else(|| {
            Error::new(format!("{}: there is no such program (or it is not executable)", name.to_string_lossy()))
        })?;
        Program::at(path)
    }

    fn at(path: PathBuf) -> Result<Program> {
        let file = elf::map(&path).map_err(|e| e.context(path.display()))?;
        let is_script = is_interpreter(&path);
        let Ok(parsed) = Elf::parse(&file) else {
            return Ok(Program { path, starter: None, is_script: true, libraries: Vec::new(), mpi: None });
        };
        let direct = || parsed.libraries.iter().map(|l| (l.to_string(), None)).collect();
        let libraries = resolve(&path, None).unwrap_or_else(direct);
        // Includes an MPI that only one of the program's libraries uses.
        let mpi = libraries.iter().find_map(|(name, _)| Family::of_library(name));
        Ok(Program { path, starter: None, is_script, libraries, mpi })
    }

    /// The name of the library through which the program offloads, and its path if found.
    pub fn offload_library(&self) -> Option<(&str, Option<&Path>)> {
        /// liboffload, LLVM's own interface from 21 on, comes second: a program with both uses OpenMP.
        const NAMES: [&str; 2] = ["libomptarget.so", "libLLVMOffload.so"];
        let named = |prefix| self.libraries.iter().find(move |(name, _)| name.starts_with(prefix));
        NAMES.into_iter().find_map(named).map(|(name, path)| (name.as_str(), path.as_deref()))
    }

    /// True if the library through which the program offloads contains the plugin (LLVM 19 and later).
    pub fn has_plugin_built_in(&self) -> bool {
        const NAME: &[u8] = b"libomptarget.rtl.mpi.so";
        let path = self.offload_library().and_then(|(_, path)| path);
        path.and_then(|path| elf::map(path).ok()).is_some_and(|file| file.windows(NAME.len()).any(|w| w == NAME))
    }

    /// The release of LLVM whose libomptarget or liboffload the program is linked with.
    pub fn llvm(&self) -> Option<u32> {
        /// The last release whose library has no number in its name.
        const UNNUMBERED: u32 = 14;
        let (_, rest) = self.offload_library()?.0.split_once(".so")?;
        let digits: String = rest.trim_start_matches('.').chars().take_while(char::is_ascii_digit).collect();
        Some(digits.parse().unwrap_or(UNNUMBERED))
    }

    /// The program with the libraries that this LD_LIBRARY_PATH finds; see [`resolve`].
    pub fn with_library_path(&self, library_path: &OsStr) -> Option<Program> {
        let libraries = resolve(&self.path, Some(library_path))?;
        Some(Program { path: self.path.clone(), starter: self.starter.clone(), libraries, ..*self })
    }
}

/// The possible names of programs in an argument: the argument, and the words of a shell's command
/// (`sh -c 'cd x; exec ./p'`).
fn names_in(argument: &OsStr) -> Vec<&OsStr> {
    let parts = argument.as_bytes().split(|b| b.is_ascii_whitespace() || b";|&()<>'\"`".contains(b));
    let mut names = vec![argument];
    names.extend(parts.map(OsStr::from_bytes).filter(|part| *part != argument));
    // An option is no program.
    names.retain(|name| !name.is_empty() && !name.as_bytes().starts_with(b"-"));
    names
}

/// Rejects arguments of a starter (`env`) that hide the plugin from the program.
fn check_words(starter: &Path, words: &[OsString]) -> Result<()> {
    if !words.iter().any(|word| word.as_bytes().starts_with(b"LD_LIBRARY_PATH=")) {
        return Ok(());
    }
    Err(Error::new(format!(
        "{} sets LD_LIBRARY_PATH, so that the program would not find the plugin: set it for llvm-offload-mpirun, \
         which adds to it (--force starts it nevertheless)",
        starter.display()
    )))
}

/// True for a shell or another interpreter of any release (`python3.11`).
fn is_interpreter(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    INTERPRETERS.contains(&name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

/// The libraries of a program as the loader finds them, with another LD_LIBRARY_PATH if one is given;
/// `None` if ldd fails.
fn resolve(path: &Path, library_path: Option<&OsStr>) -> Option<Vec<(String, Option<PathBuf>)>> {
    let mut ldd = Command::new(programs::tool("ldd")?);
    ldd.arg(path).env("LC_ALL", "C").envs(library_path.map(|path| ("LD_LIBRARY_PATH", path)));
    let out = ldd.output().ok().filter(|o| o.status.success())?;
    // "\tname => path (address)", or "not found" instead of the path. A line without an arrow is the
    // kernel's library or the loader.
    let text = String::from_utf8_lossy(&out.stdout);
    let lines = text.lines().filter_map(|line| line.trim().split_once(" => "));
    let path_of = |p: &str| p.rsplit_once(" (").map(|(path, _)| PathBuf::from(path));
    Some(lines.map(|(name, p)| (name.to_string(), path_of(p))).collect())
}

#[cfg(test)]
#[path = "../../test/rust/unit/launcher/program.rs"]
mod tests;
