// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Link options of the shared library; `mpi-sys` finds the MPI (the compiler wrapper that
//! `MPICC` names).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=MPICC");
    // The name that libomptarget knows it by, whatever the file is called.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libomptarget.rtl.mpi.so");
    // Never unloaded: threads of MPI and exit handlers run in it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
