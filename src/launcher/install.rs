// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The builds of this project that are installed beside the launcher, one for each MPI.

use crate::base::{Error, Result, elf, programs};
use goblin::elf::Elf;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// MPI libraries that have a binary interface in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Open MPI.
    OpenMpi,
    /// MPICH, and what has its binary interface.
    Mpich,
}

impl Family {
    /// The family of a library, from the name that programs link: Open MPI's is libmpi.so.40
    /// (or .20), MPICH's libmpich.so.12 or, as its binary interface's name, libmpi.so.12.
    pub fn of_library(name: &str) -> Option<Family> {
        match name {
            "libmpi.so.12" => Some(Family::Mpich),
            _ if name.starts_with("libmpich.so") => Some(Family::Mpich),
            _ if name.starts_with("libmpi.so") => Some(Family::OpenMpi),
            _ => None,
        }
    }

    /// The family's launcher on this machine: the first of its usual names that is one.
    pub fn launcher(self) -> Option<PathBuf> {
        // Open MPI's calls itself "OpenRTE" unless its name is mpirun.
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
    /// What it is called: the name of its folder.
    pub name: String,
    /// The MPI that it is for.
    pub family: Family,
    /// The device executable.
    pub device: PathBuf,
    /// The plugin.
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

    /// The folder that a program's LD_LIBRARY_PATH needs, so that its libomptarget, which is
    /// of this release of LLVM if that is known, finds the plugin; none where it is built in.
    ///
    /// # Errors
    /// There is no plugin for that release.
    pub fn slot(&self, llvm: Option<u32>) -> Result<Option<PathBuf>> {
        let name = match llvm {
            Some(19..) => return Ok(None),
            Some(18) => "llvm18",
            Some(14..=17) | None => "llvm17",
            Some(n) => {
                return Err(Error::new(format!("libomptarget {n} is not supported: LLVM 14 is the oldest that is")));
            }
        };
        let folder = self.plugin.with_file_name(name);
        if !folder.is_dir() {
            if llvm.is_none() {
                return Ok(None);
            }
            return Err(Error::new(format!("{} is missing: install omptarget-mpi again", folder.display())));
        }
        Ok(Some(folder))
    }
}

/// All builds in a prefix; the one that its plain commands belong to comes first.
pub fn builds(prefix: &Path) -> Vec<Build> {
    let folders =
        |at: &str| std::fs::read_dir(prefix.join(at)).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut found: Vec<Build> = folders("lib/omptarget-mpi").filter_map(|folder| Build::at(&folder)).collect();
    let device = prefix.join("bin/llvm-offload-mpi-device");
    let plain = device.canonicalize().unwrap_or_default();
    found.sort_by_key(|b| (b.device.canonicalize().unwrap_or_default() != plain, b.name.clone()));
    if found.is_empty() {
        // LLVM's own build installs one, without slots, in lib or in lib/TARGET.
        let plugin = |folder: PathBuf| folder.join("libomptarget.rtl.mpi.so");
        let places = ["lib", "lib64"].map(|name| prefix.join(name)).into_iter().chain(folders("lib"));
        let plugin = places.map(plugin).find(|p| p.exists());
        found.extend(plugin.and_then(|plugin| Build::of(device, plugin, "mpi".into())));
    }
    found
}

/// The build to use: the one asked for, that of the program's own MPI, or the first whose
/// launcher is there.
///
/// # Errors
/// None fits.
pub fn choose(builds: &[Build], asked: Option<&str>, program: Option<Family>, any_launcher: bool) -> Result<Build> {
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
    if let Some(family) = program {
        let build = builds.iter().find(|b| b.family == family).cloned();
        return build
            .ok_or_else(|| Error::new(format!("the program is linked with {family}; installed are: {}", names())));
    }
    let build = builds.iter().find(|b| any_launcher || b.family.launcher().is_some()).cloned();
    build.ok_or_else(|| {
        Error::new(format!("no mpirun or mpiexec of {} was found: is it on the PATH?", builds[0].family))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(name: &str, family: Family) -> Build {
        let folder = Path::new("/p/lib/omptarget-mpi").join(name);
        let (device, plugin) = (folder.join("device"), folder.join("plugin"));
        Build { name: name.into(), family, device, plugin }
    }

    #[test]
    fn families_are_told_by_the_library() {
        assert_eq!(Family::of_library("libmpi.so.40"), Some(Family::OpenMpi));
        assert_eq!(Family::of_library("libmpi.so.12"), Some(Family::Mpich));
        assert_eq!(Family::of_library("libmpich.so.12"), Some(Family::Mpich));
        assert_eq!(Family::of_library("libmpfr.so.6"), None);
    }

    #[test]
    fn the_program_decides_unless_it_does_not_care() {
        let builds = [build("openmpi", Family::OpenMpi), build("mpich", Family::Mpich)];
        let name = |asked, program| choose(&builds, asked, program, true).map(|b| b.name).map_err(|e| e.to_string());
        assert_eq!(name(None, None).unwrap(), "openmpi");
        assert_eq!(name(None, Some(Family::Mpich)).unwrap(), "mpich");
        assert_eq!(name(Some("mpich"), None).unwrap(), "mpich");
        assert!(name(Some("intel"), None).unwrap_err().contains("openmpi, mpich"));
        assert!(name(Some("mpich"), Some(Family::OpenMpi)).unwrap_err().contains("linked with Open MPI"));
        assert!(choose(&builds[..1], None, Some(Family::Mpich), true).is_err());
        assert!(choose(&[], None, None, true).is_err());
    }

    #[test]
    fn slots_follow_the_release() {
        let b = build("openmpi", Family::OpenMpi);
        assert_eq!(b.slot(Some(19)).unwrap(), None);
        assert!(b.slot(Some(13)).unwrap_err().to_string().contains("LLVM 14"));
        assert!(b.slot(Some(16)).unwrap_err().to_string().contains("omptarget-mpi/openmpi/llvm17"));
    }
}
