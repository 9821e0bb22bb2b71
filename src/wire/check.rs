// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The lines by which a host answers the launcher.

/// Begins each line of an answer, because launchers and shells may print lines of their own.
pub const MARK: &str = "omptarget-mpi-check ";
pub const MISSING: &str = "missing";
pub const VERSION: &str = "version";
pub const NODE: &str = "node";
pub const LIBRARY: &str = "library";
/// Followed by the number of what it executes, see `base::target`, and by its description.
pub const ACCELERATOR: &str = "accelerator";
/// Followed by a host's number of accelerators, and by its names among those that the launcher has asked about.
pub const ACCELERATORS: &str = "accelerators";
