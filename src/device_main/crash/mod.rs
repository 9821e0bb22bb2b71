// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Crashes and exits of a device process: notes for its parent while it runs, and reports of how it ended.
//!
//! - `board`: memory that the process shares with its parent, with the process's running kernels.
//! - `exit`: exits this process, and makes it die with its parent.
//! - `host_exit`: the handler of `SIGABRT`, for MPI's aborts while the host exits.
//! - `monitor`: notes what each thread runs, and a kernel's fault for another thread to report.
//! - `stack`: the addresses of threads' stacks, to recognize an overflow.
//! - `supervisor`: the parent process, which reports what the device itself cannot.

pub(crate) mod board;
pub(crate) mod exit;
pub(super) mod host_exit;
pub(super) mod monitor;
pub(super) mod stack;
pub(crate) mod supervisor;
