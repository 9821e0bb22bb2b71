// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Upcalls: what a device asks the program for while a region runs.
//!
//! - `asker`: makes upcalls by messages: sends the request, and waits for the answer.
//! - `interface`: the upcalls that a backend can make, and what they return.

pub(super) mod asker;
pub(super) mod interface;
