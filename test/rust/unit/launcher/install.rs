// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/launcher/install.rs`.

use super::*;

fn build(name: &str, family: Family) -> Build {
    let folder = Path::new("/p/lib/omptarget-mpi").join(name);
    let (device, plugin) = (folder.join("device"), folder.join("plugin"));
    Build { name: name.into(), family, device, plugin }
}

#[test]
fn the_library_determines_the_family() {
    assert_eq!(Family::of_library("libmpi.so.40"), Some(Family::OpenMpi));
    assert_eq!(Family::of_library("libmpi.so.12"), Some(Family::Mpich));
    assert_eq!(Family::of_library("libmpich.so.12"), Some(Family::Mpich));
    assert_eq!(Family::of_library("libmpi_gnu_91.so.12"), Some(Family::Mpich));
    assert_eq!(Family::of_library("libmpi_cray.so.12"), Some(Family::Mpich));
    assert_eq!(Family::of_library("libmpi_mpifh.so.40"), None);
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
    let error = |llvm, library| b.slot(Some(llvm), library).unwrap_err().to_string();
    assert!(error(13, "libomptarget.so.13").contains("LLVM 14"));
    assert!(error(16, "libomptarget.so.16").contains("omptarget-mpi/openmpi/llvm17"));
    assert!(b.owns(Path::new("/p/lib/omptarget-mpi/llvm22/libomptarget.so.22.1")));
    assert!(!b.owns(Path::new("/p/lib/libomptarget.so.22.1")));
    let missing = error(22, "libomptarget.so.22.1");
    assert!(missing.contains("omptarget-mpi/openmpi/llvm22/libomptarget.so.22.1"), "{missing}");
    assert!(missing.contains("`make llvm22`"), "{missing}");
    let missing = error(23, "libomptarget.so.23.1");
    assert!(missing.contains("the libomptarget of LLVM 22"), "{missing}");
}
