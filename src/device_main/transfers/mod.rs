// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Bulk data, which travels in messages of its own.
//!
//! - `buffer`: memory for data on its way: on the heap, or pinned by an accelerator's driver.
//! - `completion`: what is left to do when a transfer has finished.
//! - `staging`: the buffers of a device, and how many messages may have one.
//! - `transfer`: begins the transfers of a message, and completes them.

pub(super) mod buffer;
pub(super) mod completion;
pub(super) mod staging;
pub(super) mod transfer;
