// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What every floor may use: a clock, limits of time, errors, lists of hosts, sizes of tables,
//! locks, log lines, names of kernels, places of programs, settings, facts of this process, its
//! node, cgroup, network and launcher, ELF reading.

pub mod cgroup;
pub mod clock;
pub mod deadline;
pub mod elf;
pub mod error;
pub mod hosts;
pub mod launcher;
pub mod limits;
pub mod lock;
pub mod log;
pub mod manual;
pub mod name;
pub mod network;
pub mod node;
pub mod proc;
pub mod programs;
pub mod settings;
pub mod sync;

pub use error::{Error, Result};
