// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! How a job starts: MPI's bootstrap, the launcher's environment, hosts and placement.

pub(crate) mod bootstrap;
pub mod hosts;
pub(crate) mod slot;
pub(crate) mod spawned;
pub mod topology;
