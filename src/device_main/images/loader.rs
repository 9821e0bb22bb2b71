// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Loads images and libraries, one at a time. Keeps received images until the host requests their loading.

use super::pending_image::PendingImage;
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::debug;
use crate::device_main::backend::Backend;
use crate::device_main::threads::pool::{Me, Pool};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The images and libraries that were not loaded yet, and the right to load.
#[derive(Default)]
pub(crate) struct Loader {
    pending: Mutex<BTreeMap<u32, Arc<PendingImage>>, { order::LEAF }>,
    libraries: Mutex<Option<Vec<u8>>, { order::LEAF }>,
    /// Held while libraries and images are loaded.
    loading: Mutex<(), { order::LOADING }>,
}

impl Loader {
    pub fn insert(&self, id: u32, image: Arc<PendingImage>) {
        self.pending.lock().insert(id, image);
    }

    #[cfg(test)]
    pub fn pending(&self, id: u32) -> Option<Arc<PendingImage>> {
        self.pending.lock().get(&id).cloned()
    }

    /// Notes libraries to load when there is time before the first image.
    pub fn preload_later(&self, libraries: &[u8]) {
        *self.libraries.lock() = Some(libraries.to_vec());
    }

    /// Loads those libraries. Not for a thread that exits: libomp takes the calling thread for the program's main
    /// thread.
    pub fn preload(&self, backend: &impl Backend, pool: &Pool, me: &mut Me) {
        // Another thread may be loading.
        let Some(_loading) = self.loading.try_lock() else { return };
        let libraries = self.libraries.lock().take();
        if let Some(libraries) = libraries {
            pool.settle(me);
            pool.long(me, || backend.preload(&libraries));
            // Claim now, before another thread can load an image and run its kernels.
            pool.claim(me);
        }
    }

    pub fn load(&self, backend: &impl Backend, id: u32) -> Result<u64> {
        let image = self.pending.lock().remove(&id);
        let image = image.ok_or_else(|| Error::new(format!("image {id} was not received")))?;
        let _loading = self.loading.lock();
        // The image loads the libraries that it needs. Preloading them afterwards could move the next kernel to another
        // thread.
        *self.libraries.lock() = None;
        let base = backend.load(id, &image)?;
        debug!("image {id} is at {base:#x}");
        Ok(base)
    }

    /// Loads an image elsewhere; returns its new base.
    pub fn relocate(&self, backend: &impl Backend, id: u32) -> Result<u64> {
        let _loading = self.loading.lock();
        backend.relocate(id)
    }

    /// Drops an image, loaded or not.
    pub fn unload(&self, backend: &impl Backend, id: u32) {
        self.pending.lock().remove(&id);
        backend.unload(id);
    }

    /// Prevents all loading while the returned value lives.
    pub fn hold_loading(&self) -> impl Sized {
        self.loading.lock()
    }
}
