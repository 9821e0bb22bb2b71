// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The launcher: runs a program together with its devices.

fn main() -> std::process::ExitCode {
    omptarget_mpi::launcher::main()
}
