// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The addresses of the program and of each device.
//!
//! | file | contents |
//! | --- | --- |
//! | `address_map` | the addresses of all devices, reserved in this process |
//! | `arena` | the allocator of one device's memory |
//! | `host_allocations` | the program's memory for regions: shared and host memory |

pub(crate) mod address_map;
pub(crate) mod arena;
pub(crate) mod host_allocations;
