// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The lines of a host's answer to the launcher.

/// Begins each line of an answer, because launchers and shells may print other lines.
pub const MARK: &str = "omptarget-mpi-check ";
pub const MISSING: &str = "missing";
pub const VERSION: &str = "version";
pub const NODE: &str = "node";
pub const LIBRARY: &str = "library";
/// Followed by the number of the accelerator's target, see `base::target`, and by its description.
pub const ACCELERATOR: &str = "accelerator";
/// Followed by a host's number of accelerators, and by those of the host names in the launcher's question that are its
/// own.
pub const ACCELERATORS: &str = "accelerators";
