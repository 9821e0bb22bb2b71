// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The devices as libomptarget knows them, and the operations that it requests of each.
//!
//! | file | contents |
//! | --- | --- |
//! | `image_distribution` | sends images to all devices, from device to device |
//! | `device` | one device: its queues, memory, images, and properties |
//! | `images` | its images: loads them, finds their symbols, unloads them |
//! | `memory` | its memory: allocates it, and copies from and to it |
//! | `queues` | its queues: creates and reuses them, and waits for them and their events |
//! | `shared_memory` | its memory that this process also maps, if it is on this node |

pub(crate) mod device;
pub(crate) mod image_distribution;
pub(crate) mod images;
pub(crate) mod memory;
pub(crate) mod queues;
pub(crate) mod shared_memory;
