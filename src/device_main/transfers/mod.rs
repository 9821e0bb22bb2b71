// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Bulk data, which travels in messages of its own.
//!
//! - `buffer`: memory for data in transit: on the heap, or pinned by an accelerator's driver.
//! - `completion`: what remains to be done after a transfer.
//! - `staging`: the buffers of a device, and how many messages may have one.
//! - `transfer`: begins the transfers of a message, and completes them.

pub(super) mod buffer;
pub(super) mod completion;
pub(super) mod staging;
pub(super) mod transfer;
