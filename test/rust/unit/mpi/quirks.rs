// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/mpi/quirks.rs`.

use super::*;

#[test]
fn libraries_are_known_by_their_names() {
    assert_eq!(Library::of("Open MPI v4.1.4"), Library::OpenMpi(4));
    assert_eq!(Library::of("Open MPI v5.0.7rc1"), Library::OpenMpi(5));
    assert_eq!(Library::of("MPICH 4.2.1"), Library::Mpich("4.2.1".into()));
    for other in ["Intel(R) MPI Library 2021.19 for Linux* OS", "CRAY MPICH version 8.1.28", ""] {
        assert_eq!(Library::of(other), Library::Other);
    }
}
