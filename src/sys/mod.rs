// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The operating system: processes, launchers, cgroups, memory mappings, cores and memory of the node, TCP
//! connections, deadlines, writes to memory.

pub(crate) mod cgroup;
pub(crate) mod crew;
pub(crate) mod deadline;
pub mod launchers;
pub(crate) mod layout;
pub(crate) mod mapping;
pub mod node;
pub mod process;
pub(crate) mod programs;
pub(crate) mod shared_file;
pub(crate) mod tcp_liveness;
