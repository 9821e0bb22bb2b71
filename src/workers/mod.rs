// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Several device processes (workers) behind one rank, their snapshots, and replay after a loss.
//!
//! `rank` is the rank: it has one `proxy` for each worker. `worker` is the other end.
//! `snapshot` has the sources of a lost worker's successor. Each file imports only files below it:
//! `rank`, `proxy`, `snapshot`, then `uplink`, `process`, `worker` and `packet`.

pub mod entry;
pub mod packet;
mod process;
mod proxy;
pub(crate) mod rank;
mod snapshot;
mod uplink;
pub(crate) mod worker;
