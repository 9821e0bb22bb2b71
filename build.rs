// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Link options of the shared library and of the device executable; `mpi-sys` finds the MPI (the compiler wrapper that
//! `MPICC` names).

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-env-changed=MPICC");
    // libomptarget's name for this plugin, which need not be the file's.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libomptarget.rtl.mpi.so");
    // Threads of MPI and exit handlers run in this library, so it must stay loaded.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    // Functions of libomp that the device executable replaces: it is not linked with libomp.
    println!("cargo:rustc-link-arg-bin=llvm-offload-mpi-device=-Wl,--export-dynamic-symbol=omp_*");
}
