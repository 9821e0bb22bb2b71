// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The builds of this project in the launcher's installation, one for each MPI.

use crate::base::elf::{self, is_mpi_of_cray};
use crate::base::{Error, Result};
use crate::sys::programs;
use goblin::elf::Elf;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// MPI libraries with the same binary interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    OpenMpi,
    /// MPICH and its derivatives.
    Mpich,
}

impl Family {
    /// The family of a library with this name: Open MPI's is libmpi.so.40 (or .20), MPICH's is
    /// libmpich.so.12 or, as the common name of its binary interface, libmpi.so.12.
    pub fn of_library(name: &str) -> Option<Family> {
        match name {
            "libmpi.so.12" => Some(Family::Mpich),
            _ if name.starts_with("libmpich.so") => Some(Family::Mpich),
            _ if name.starts_with("libmpi.so") => Some(Family::OpenMpi),
            _ => is_mpi_of_cray(name).then_some(Family::Mpich),
        }
    }

    /// The family's launcher on this machine.
    pub fn launcher(self) -> Option<PathBuf> {
        // Open MPI's launcher calls itself "OpenRTE" unless its name is mpirun.
        let (names, word): (&[&str], &str) = match self {
            Family::OpenMpi => (&["mpirun.openmpi", "mpirun", "mpiexec"], "Open"),
            Family::Mpich => (&["mpiexec.hydra", "mpiexec.mpich", "mpirun.mpich", "mpiexec", "mpirun"], "HYDRA"),
        };
        let says = |path: &PathBuf| {
            let out = Command::new(path).arg("--version").output();
            out.is_ok_and(|o| String::from_utf8_lossy(&o.stdout).contains(word))
        };
        names.iter().filter_map(|name| programs::tool(name)).find(says)
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Family::OpenMpi => "Open MPI",
            Family::Mpich => "MPICH",
        })
    }
}

/// The plugin and the device executable of one build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Build {
    /// The name of its folder.
    pub name: String,
    pub family: Family,
    pub device: PathBuf,
    pub plugin: PathBuf,
}

impl Build {
    fn at(folder: &Path) -> Option<Build> {
        let (device, plugin) = (folder.join("llvm-offload-mpi-device"), folder.join("libomptarget.rtl.mpi.so"));
        Build::of(device, plugin, folder.file_name()?.to_string_lossy().into_owned())
    }

    fn of(device: PathBuf, plugin: PathBuf, name: String) -> Option<Build> {
        let file = elf::map(&device).ok().filter(|_| plugin.exists())?;
        let libraries = Elf::parse(&file).ok()?.libraries;
        let family = libraries.iter().find_map(|l| Family::of_library(l))?;
        Some(Build { name, family, device, plugin })
    }

    /// True if the file is in one of this installation's folders for LD_LIBRARY_PATH, for any MPI.
    pub fn owns(&self, file: &Path) -> bool {
        let folder = self.plugin.parent().and_then(Path::parent).filter(|folder| folder.ends_with("lib/omptarget-mpi"));
        folder.is_some_and(|folder| file.starts_with(folder))
    }

    /// The folder for LD_LIBRARY_PATH in which the libomptarget of this release of LLVM (`None`:
    /// unknown) finds the plugin. From LLVM 19 on libomptarget contains its plugins: the folder has a
    /// replacement for `library`, which the program is linked with. `None` if this installation has
    /// no such folders.
    pub fn slot(&self, llvm: Option<u32>, library: &str) -> Result<Option<PathBuf>> {
        let folder = |name: &str| self.plugin.with_file_name(name);
        let folder = match llvm {
            Some(n @ 19..) => {
                let folder = folder(&format!("llvm{n}"));
                if !folder.join(library).exists() {
                    let remedy = match n {
                        ..=22 => format!(
                            "make it with `make llvm{n}` in the sources of omptarget-mpi (on Debian; elsewhere see \
                             \"Building the plugin into your own libomptarget\" in docs/user/configuration.md), then \
                             install that as before"
                        ),
                        _ => {
                            "link them with the libomptarget of LLVM 22, if docs/user/compatibility.md says that this works"
                                .into()
                        }
                    };
                    return Err(Error::new(format!(
                        "there is no {} with the plugin 'mpi' in it, which is what programs of clang {n} need: {remedy}",
                        folder.join(library).display()
                    )));
                }
                return Ok(Some(folder));
            }
            Some(18) => folder("llvm18"),
            Some(14..=17) | None => folder("llvm17"),
            Some(n) => {
                return Err(Error::new(format!("libomptarget {n} is not supported: LLVM 14 is the oldest that is")));
            }
        };
        match llvm {
            _ if folder.is_dir() => Ok(Some(folder)),
            None => Ok(None),
            Some(_) => Err(Error::new(format!("{} is missing: install omptarget-mpi again", folder.display()))),
        }
    }
}

/// All builds in a prefix; the build of the commands in `bin` comes first.
pub fn builds(prefix: &Path) -> Vec<Build> {
    let folders =
        |at: &str| std::fs::read_dir(prefix.join(at)).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<Build> = folders("lib/omptarget-mpi").filter_map(|folder| Build::at(&folder)).collect();
    let device = prefix.join("bin/llvm-offload-mpi-device");
    let plain = device.canonicalize().unwrap_or_default();
    found.sort_by_key(|b| (b.device.canonicalize().unwrap_or_default() != plain, b.name.clone()));
    if found.is_empty() {
        // LLVM's own build installs one plugin, in lib or in lib/TARGET, and no folders for programs.
        let plugin = |folder: PathBuf| folder.join("libomptarget.rtl.mpi.so");
        let places = ["lib", "lib64"].map(|name| prefix.join(name)).into_iter().chain(folders("lib"));
        let plugin = places.map(plugin).find(|p| p.exists());
        found.extend(plugin.and_then(|plugin| Build::of(device, plugin, "mpi".into())));
    }
    found
}

/// The build that the user requests, or the one for the program's own MPI, or the first one that has a
/// launcher. If the user `asks_srun`, or there is no other, the launcher is srun.
pub fn choose(builds: &[Build], asked: Option<&str>, program: Option<Family>, asks_srun: bool) -> Result<Build> {
    let names = || builds.iter().map(|b| b.name.as_str()).collect::<Vec<_>>().join(", ");
    if builds.is_empty() {
        return Err(Error::new("no plugin and device executable are installed beside this launcher"));
    }
    if let Some(name) = asked {
        let build = builds.iter().find(|b| b.name == name);
        let build = build.ok_or_else(|| Error::new(format!("--mpi {name}: there are builds for {}", names())))?;
        if let Some(program) = program.filter(|&p| p != build.family) {
            return Err(Error::new(format!("--mpi {name}: the program is linked with {program}")));
        }
        return Ok(build.clone());
    }
    let first = &builds[0];
    let found = match program {
        Some(program) => builds.iter().find(|b| b.family == program),
        None if asks_srun => Some(first),
        None => {
            let own = builds.iter().find(|b| b.family.launcher().is_some());
            own.or_else(|| programs::tool("srun").map(|_| first))
        }
    };
    found.cloned().ok_or_else(|| match program {
        Some(program) => Error::new(format!("the program is linked with {program}; installed are: {}", names())),
        None => Error::new(format!("no mpirun or mpiexec of {} was found, nor srun: is it on the PATH?", first.family)),
    })
}

#[cfg(test)]
#[path = "../../test/rust/unit/launcher/install.rs"]
mod tests;
