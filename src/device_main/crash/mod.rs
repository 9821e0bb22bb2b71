// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Crashes and exits of a device process: what is noted while it runs, and who reports how it ended.
//!
//! - `board`: memory that the process shares with its parent, which says what the process ran.
//! - `exit`: exits this process, and has it killed with its parent.
//! - `host_exit`: the handler of `SIGABRT`, for MPI's aborts while the host exits.
//! - `monitor`: what each thread runs, and the handlers that note a kernel's fault for another thread to report.
//! - `stack`: where the stacks of threads are, so that an overflow is reported as one.
//! - `supervisor`: the parent process, which reports what the device itself cannot.

pub(crate) mod board;
pub(crate) mod exit;
pub(super) mod host_exit;
pub(super) mod monitor;
pub(super) mod stack;
pub(crate) mod supervisor;
