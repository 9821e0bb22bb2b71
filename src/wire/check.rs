// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The lines by which a host answers the launcher's `--check`.

/// Begins each line of an answer: launchers and shells may print lines of their own. Then
/// comes one of the words below.
pub const MARK: &str = "omptarget-mpi-check ";
/// A file that is not there.
pub const MISSING: &str = "missing";
/// What the device executable is.
pub const VERSION: &str = "version";
/// What the host has.
pub const NODE: &str = "node";
/// A library that can't be loaded there.
pub const LIBRARY: &str = "library";
