// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/launchers/mod.rs`.

use super::*;

#[test]
fn launchers_are_known_by_their_variables() {
    let of = |set: &[(&str, &str)]| launcher_in(|name| Some(set.iter().find(|v| v.0 == name)?.1.to_string()));
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "3"), ("PMIX_RANK", "0")]), Some((Launcher::OpenMpi, Some(3))));
    assert_eq!(of(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some((Launcher::Pmi, Some(2))));
    assert_eq!(of(&[("PMIX_RANK", "1")]), Some((Launcher::Pmix, None)));
    for name in VARIABLES {
        assert!(of(&[(name, "1")]).is_some(), "{name}");
    }
}

#[test]
fn launchers_number_the_devices_of_a_node() {
    let place = |set: &[(&str, u32)], rank, programs| {
        place_in(|name| Some(set.iter().find(|v| v.0 == name)?.1), rank, programs)
    };
    let open_mpi = |rank, local, programs| {
        place(&[("OMPI_COMM_WORLD_LOCAL_RANK", local), ("OMPI_COMM_WORLD_RANK", rank)], rank, programs)
    };
    // On the program's node, on another one, and where there is no program before the devices.
    assert_eq!((open_mpi(1, 1, 1), open_mpi(5, 0, 1), open_mpi(3, 3, 0)), (Some(0), Some(0), Some(3)));
    // The node has one of two programs.
    assert_eq!((open_mpi(3, 2, 2), open_mpi(2, 1, 2)), (Some(1), Some(0)));
    assert_eq!(place(&[("MPI_LOCALRANKID", 2), ("PMI_RANK", 2)], 2, 1), Some(1));
    // A batch script's own variables, and none.
    assert_eq!(place(&[("SLURM_LOCALID", 0), ("SLURM_PROCID", 0)], 3, 1), None);
    assert_eq!((place(&[("SLURM_LOCALID", 1), ("SLURM_PROCID", 5)], 5, 1), place(&[], 1, 1)), (Some(1), None));
    assert_eq!(open_mpi(1, 2, 0), None);
}

#[test]
fn numbers_of_another_launcher_are_ignored() {
    let local = |set: &[(&str, u32)], rank| local_in(|name| Some(set.iter().find(|v| v.0 == name)?.1), rank);
    // A job of MPICH's in a process of Open MPI's.
    let open_mpi = [("OMPI_COMM_WORLD_RANK", 5), ("OMPI_COMM_WORLD_LOCAL_RANK", 1), ("OMPI_COMM_WORLD_LOCAL_SIZE", 4)];
    let mpich = [("PMI_RANK", 3), ("MPI_LOCALRANKID", 2), ("MPI_LOCALNRANKS", 3)];
    let both = [&open_mpi[..], &mpich].concat();
    assert_eq!((local(&both, 5), local(&both, 3), local(&both, 4)), (Some((1, 4)), Some((2, 3)), None));
    assert_eq!(local(&[("SLURM_PROCID", 1), ("SLURM_LOCALID", 1)], 1), Some((1, 2)));
}
