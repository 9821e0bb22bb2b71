// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The lines by which a host answers the launcher's `--check`.

/// Begins each line of an answer, because launchers and shells may print lines of their own.
pub const MARK: &str = "omptarget-mpi-check ";
pub const MISSING: &str = "missing";
pub const VERSION: &str = "version";
pub const NODE: &str = "node";
pub const LIBRARY: &str = "library";
