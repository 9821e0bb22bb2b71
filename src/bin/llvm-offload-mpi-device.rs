// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The device executable: one process of it is one OpenMP device.

fn main() -> std::process::ExitCode {
    omptarget_mpi::device_main::main()
}
