// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Executes the commands of messages. Each kind of backend has its own executor.
//!
//! - `accelerator`: for an accelerator, whose memory this process does not access.
//! - `cores`: for the processor's own cores.

mod accelerator;
mod cores;

use crate::base::Error;

#[cold]
fn no_kernel(at: u64) -> Error {
    Error::new(format!("no image has a kernel at {at:#x}"))
}

#[cold]
fn no_room() -> Error {
    Error::new("the host reads more than a reply holds")
}
