// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! OpenMP target offloading to other machines over MPI.
//!
//! A program under LLVM's `libomptarget` thinks that it talks to N local devices; each
//! device is a process somewhere else, reached over MPI. The host half is this crate's
//! shared library, which libomptarget loads as a plugin; the device half is the
//! executable `llvm-offload-mpi-device`.
//!
//! The modules are floors; each uses only floors below it:
//!
//! | floor | module | what it is |
//! | --- | --- | --- |
//! | 5 | [`ffi`] | the `__tgt_rtl_*` exports |
//! | 4 | [`plugin`] | the host side: devices, queues, events, images |
//! | 4 | [`device_main`] | the device side: arena, images, running kernels |
//! | 4 | [`launcher`] | `llvm-offload-mpirun`: the command that starts a job |
//! | 3 | [`link`] | ordered messages and bulk data between host and devices |
//! | 2 | [`wire`] | every message, defined once, with its validator |
//! | 1 | [`mpi`] | the only place that names MPI |
//! | 0 | [`base`] | a clock, errors, log lines, settings, facts of the node, ELF reading |
//!
//! `both_ends.rs` tests host and device side against each other.

pub mod base;
#[cfg(test)]
mod both_ends;
pub mod device_main;
pub mod ffi;
pub mod launcher;
pub mod link;
pub mod mpi;
pub mod plugin;
pub mod wire;
