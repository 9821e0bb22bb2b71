// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! An incoming image: a file in memory that bulk transfers fill and a backend loads.

use crate::base::Result;
use crate::sys::node::memfd;
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::fs::File;

/// An image that is being received, or that was received and not loaded yet.
pub(crate) struct PendingImage {
    /// The file, which begins with the image.
    pub file: File,
    /// The received bytes, to be passed on to other devices. A private mapping does not prevent sealing.
    bytes: Mmap,
    libraries: usize,
}

impl PendingImage {
    /// Room for `len` bytes, of which the last `libraries` are the host's library list. The caller fills the
    /// returned mapping, and must drop it before the image is loaded.
    pub fn new(len: u64, libraries: u64) -> Result<(PendingImage, MmapMut)> {
        let file = memfd(c"omptarget-mpi-image", libc::MFD_ALLOW_SEALING)?;
        file.set_len(len)?;
        // SAFETY: nothing else uses this file, and each part is read only after it was received.
        let (room, bytes) = unsafe { (MmapMut::map_mut(&file)?, MmapOptions::new().map_copy_read_only(&file)?) };
        Ok((PendingImage { file, bytes, libraries: libraries as usize }, room))
    }

    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The image and the list of the host's libraries.
    pub fn contents(&self) -> (&[u8], &[u8]) {
        self.bytes.split_at(self.bytes.len() - self.libraries)
    }
}
