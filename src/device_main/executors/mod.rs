// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What executes commands: the processor's own cores, or an accelerator.

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
