// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Memory files that processes of one node share. The owner sends another process its process id, the file's descriptor
//! and the random number at the beginning of the file; the other process opens the file through `/proc`.

use super::node::memfd;
use crate::base::{Error, Result};
use rustix::fs::{SealFlags, fcntl_add_seals};
use rustix::process::{Resource, getrlimit};
use rustix::rand::{GetRandomFlags, getrandom};
use std::ffi::CStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

/// The name of all these files, and its form in `/proc`.
const NAME: &CStr = c"omptarget-mpi-shared";
const LINK: &[u8] = b"/memfd:omptarget-mpi-shared";

/// Creates a file of `len` bytes: its random number, then zeros.
pub(crate) fn create(len: u64) -> Result<(File, u64)> {
    if getrlimit(Resource::Fsize).current.is_some_and(|most| most < len) {
        // The system would end this process (SIGXFSZ).
        return Err(Error::new(format!("ulimit -f does not allow a file of {len} bytes")));
    }
    let file = memfd(NAME, libc::MFD_ALLOW_SEALING)?;
    file.set_len(len)?;
    // Processes that map it rely on its size.
    let _ = fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL);
    let mut nonce = [0u8; 8];
    // If this fails, the number is zero.
    let _ = getrandom(&mut nonce, GetRandomFlags::empty());
    file.write_all_at(&nonce, 0)?;
    Ok((file, u64::from_ne_bytes(nonce)))
}

/// Opens a file of `len` bytes that another process of this node created.
///
/// # Errors
/// The file is out of reach, or the pid or descriptor means something else here (containers).
pub(crate) fn open((pid, descriptor, nonce): (u32, u32, u64), len: u64) -> Result<File> {
    let other = || Error::new(format!("process {pid} shares no such file"));
    // Any thread will do: the main thread shows no files after its `pthread_exit`.
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))?.filter_map(|thread| Some(thread.ok()?.path()));
    let mut paths = threads.map(|thread| thread.join(format!("fd/{descriptor}")));
    // Check the link before opening it: a wrong descriptor may stand for any file.
    let is_shared = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|link| link.as_os_str().as_encoded_bytes().starts_with(LINK))
    };
    let file = File::options().read(true).write(true).open(paths.find(is_shared).ok_or_else(other)?)?;
    let mut first = [0u8; 8];
    let is_it = file.metadata()?.len() == len && file.read_exact_at(&mut first, 0).is_ok();
    // Without a random number any file of that length would pass.
    if is_it && nonce != 0 && first == nonce.to_ne_bytes() { Ok(file) } else { Err(other()) }
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/shared_file.rs"]
mod tests;
