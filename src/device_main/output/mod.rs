// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What regions and libraries print.
//!
//! - `capture`: keeps standard output and error in memory until the host has written them.
//! - `libomptarget_errors`: finds the errors of libomptarget and its plugins in standard error.

pub(super) mod capture;
pub(super) mod libomptarget_errors;
