// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Finds programs.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The file that a shell would run under this name.
pub(crate) fn find(name: &OsStr) -> Option<PathBuf> {
    let runs = |path: &Path| path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0);
    if name.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(name)).filter(|p| runs(p));
    }
    let folders = std::env::var_os("PATH")?;
    std::env::split_paths(&folders).map(|folder| folder.join(name)).find(|p| runs(p))
}

/// A tool of the system or of MPI. Relative folders in `PATH` do not count.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    find(OsStr::new(name)).filter(|path| path.is_absolute())
}
