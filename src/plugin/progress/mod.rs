// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Progress in MPI's sense: threads that send and wait drive the link, and handle arrivals.
//!
//! | file | contents |
//! | --- | --- |
//! | `engine` | sends the batches of queues, and waits for devices |
//! | `wait` | how a thread waits |
//! | `heartbeat` | distinguishes a lost device from a busy one |
//! | `connection` | the link to all devices: sends, dispatches arrivals, fails |
//! | `upcalls` | writes the output of regions, and answers the requests of devices |
//! | `progress_lock` | which of the waiting threads drives the link |

pub(crate) mod connection;
pub(crate) mod engine;
pub(crate) mod heartbeat;
pub(crate) mod progress_lock;
pub(crate) mod upcalls;
pub(crate) mod wait;
