// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! OpenMP target offloading to other machines over MPI.
//!
//! To LLVM's `libomptarget` a device is local; in fact it is a process somewhere else, reached over MPI.
//! The host side is this crate's shared library, which libomptarget loads as a plugin; the device side
//! is the executable `llvm-offload-mpi-device`.
//!
//! Each module uses only modules below it (`test/rust/layers.rs` checks that):
//!
//! | module | contents |
//! | --- | --- |
//! | [`ffi`] | the `__tgt_rtl_*` exports and C structs |
//! | [`plugin`] | the program's side: devices, queues, events, images |
//! | `workers` | several device processes behind one rank, snapshots, replay |
//! | [`device_main`] | the device's side: the server and what executes regions |
//! | [`launcher`] | `llvm-offload-mpirun`: the command that starts a job |
//! | [`job`] | how a job starts: MPI bootstrap, hosts, placement |
//! | [`link`] | ordered messages and bulk data between two ranks |
//! | [`wire`] | every message, defined once, with its validator |
//! | [`mpi`] | the only module that names MPI |
//! | [`sys`] | what the operating system reports and does |
//! | [`base`] | clock, errors, log lines, settings, ELF files, locks |
//!
//! `test/rust/simulation.rs` runs program and devices in one process.

pub mod base;
pub mod device_main;
pub mod ffi;
pub mod job;
pub mod launcher;
pub mod link;
pub mod mpi;
pub mod plugin;
#[cfg(test)]
#[path = "../test/rust/simulation.rs"]
mod simulation;
pub mod sys;
pub mod wire;
pub mod workers;
