// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The processor's own cores: this process loads images and runs their kernels.
//!
//! - `calls`: functions of the C library that a kernel calls with memory of the program.
//! - `image`: loads images from files in memory, by the dynamic loader.
//! - `kernels`: calls a kernel, which is a function of this process.
//! - `memory`: reads and writes the arena, images and a kernel's own memory.
//! - `number`: this device's number in the program.
//! - `registration`: keeps libomp's registration in memory instead of a file that could stay behind.
//! - `threads`: prepares each thread that a kernel starts.
//! - `thunks`: functions of images at their addresses in the program.
//! - `unified/`: kernels that use the program's memory at the program's addresses.

pub mod calls;
pub(crate) mod image;
pub(crate) mod kernels;
mod memory;
pub mod number;
pub mod registration;
pub mod threads;
pub(crate) mod thunks;
pub(crate) mod unified;

use super::{Backend, Exchange, Launch, Target};
use crate::base::sync::RwLock;
use crate::base::{Error, Result, name};
use crate::device_main::crash::board::{CrashBoard, IMAGE_CODE};
use crate::device_main::crash::monitor;
use crate::device_main::images::pending_image::PendingImage;
use crate::device_main::upcalls::interface::{Function, Upcalls};
use crate::wire::command::SharedFile;
use image::Image;
use memory::Memory;
use std::collections::BTreeMap;
use std::sync::Arc;
use thunks::THUNKS;
use unified::Unified;

pub(crate) struct Cpu {
    memory: Memory,
    /// By number. Locked for writing while names are added to the board, so that additions do not overlap.
    images: Arc<RwLock<BTreeMap<u32, Image>>>,
    unified: Arc<Unified>,
    /// Gets the names of kernels, for the supervisor.
    board: &'static CrashBoard,
}

impl Cpu {
    pub fn new(board: &'static CrashBoard) -> Cpu {
        let (memory, images, unified) = Default::default();
        Cpu { memory, images, unified, board }
    }

    /// A backend with functions of this process as kernels.
    #[cfg(test)]
    pub fn with_kernels(kernels: &[u64]) -> Result<Cpu> {
        let cpu = Cpu::new(CrashBoard::new()?);
        // The program assigns this number last.
        cpu.insert(crate::base::limits::FIRST_IMAGE - 1, Image::of_functions(kernels));
        Ok(cpu)
    }

    /// Adds an image that was just loaded; returns its base.
    fn insert_loaded(&self, id: u32, image: Image) -> u64 {
        // Register the exit handler again, to run before those of the image.
        monitor::notice_exit();
        monitor::notice_exceptions();
        self.insert(id, image)
    }

    /// Makes a function of an image, to which `pointer` points, callable at `from`, its address in the program.
    pub fn redirect(&self, from: u64, pointer: u64) -> Result<()> {
        let mut to = Vec::new();
        self.memory.read(pointer, size_of::<u64>(), &mut to)?;
        let to = to.first_chunk().map_or(0, |b| u64::from_le_bytes(*b));
        match self.images.read().values().find(|image| image.span().contains(&to)) {
            Some(image) if image.has_code(to) => THUNKS.lock().set(from, to),
            // LLVM 22 also passes entries of virtual function tables, which are not code and need nothing.
            Some(_) => Ok(()),
            None => Err(Error::new(format!("an indirect function at {to:#x} is in no image"))),
        }
    }

    /// Runs a kernel. May not return: a kernel can end its thread.
    #[inline]
    pub fn run(&self, launch: &Launch<'_>) -> Result<()> {
        let slot = monitor::own_slot();
        let waits = self.unified.takes_turns();
        if waits {
            monitor::end_timer(slot);
        }
        self.unified.begin(slot)?;
        self.unified.prefetch(slot, launch);
        if waits {
            monitor::begin_timer(slot);
        }
        kernels::run(launch.kernel, launch.args, launch.array);
        // The time limit does not cover the rest, which takes as long as the link does.
        monitor::end_timer(slot);
        self.unified.end(slot, launch, || monitor::fault().is_some())
    }

    /// Takes the records about the program's memory for the kernel that has run on a slot.
    pub fn exchanges(&self, slot: usize) -> Vec<Exchange> {
        self.unified.exchanges(slot)
    }

    fn insert(&self, id: u32, image: Image) -> u64 {
        self.memory.add_data(image.data());
        let base = image.base;
        let mut images = self.images.write();
        self.board.add_names(image.kernels());
        images.insert(id, image);
        base
    }

    fn take(&self, id: u32) -> Result<Image> {
        let mut images = self.images.write();
        let image = images.remove(&id).ok_or_else(|| Error::new(format!("there is no image {id}")))?;
        self.board.forget_names();
        images.values().for_each(|image| self.board.add_names(image.kernels()));
        drop(images);
        self.memory.remove_data(&image.span());
        Ok(image)
    }
}

/// The address of a function of the program: in an image or, if it is a library's, in this process's copy of that
/// library.
fn find_function(images: &BTreeMap<u32, Image>, Function { symbol, is_exported }: &Function) -> Result<u64> {
    let name = name::demangled(symbol);
    let mut found = images.values().filter_map(|image| image.function(symbol));
    match (found.next(), found.next()) {
        (Some(_), Some(_)) => Err(Error::new(format!("several images have a function {name}"))),
        (Some(at), None) => Ok(at),
        (None, _) => {
            let in_library = is_exported.then(|| image::library_symbol(symbol)).flatten();
            in_library.ok_or_else(|| {
                Error::new(format!("no image has the function {name}: make it declare target, or use it in a region"))
            })
        }
    }
}

impl Backend for Cpu {
    const LOADS_AS: u64 = IMAGE_CODE;

    unsafe fn start(&self, at: u64, len: u64, shared: (u64, SharedFile)) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.memory.start(at, len, shared) }
    }

    unsafe fn share(&self, at: u64, len: u64, offset: u64) -> Result<bool> {
        // SAFETY: the caller's promise.
        unsafe { self.memory.share(at, len, offset) }
    }

    fn connect(&self, upcalls: Arc<dyn Upcalls>) {
        let images = self.images.clone();
        self.unified.connect(upcalls, move |function| find_function(&images.read(), function));
    }

    fn begin_trace(&self) {
        self.unified.begin_trace();
    }

    fn use_streams(&self, streams: [u64; 3]) {
        calls::set_streams(streams);
    }

    fn use_number(&self, number: u32) {
        number::set(number);
    }

    fn discard(&self, at: u64, len: u64) {
        self.memory.discard(at, len);
    }

    #[inline]
    fn direct(&self, at: u64, len: u64) -> Option<*mut u8> {
        self.memory.is_plain(at, len).then_some(at as *mut u8)
    }

    #[inline]
    fn write(&self, to: u64, bytes: &[u8]) -> Result<()> {
        self.memory.write(to, bytes)
    }

    #[inline]
    fn read(&self, from: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        self.memory.read(from, len, out)
    }

    fn target(&self) -> Target {
        Target::HOST
    }

    fn preload(&self, libraries: &[u8]) {
        image::preload(libraries);
    }

    fn load(&self, id: u32, image: &PendingImage) -> Result<u64> {
        Ok(self.insert_loaded(id, image::load(image, self.target().machine)?))
    }

    fn relocate(&self, id: u32) -> Result<u64> {
        // The image is not in the table meanwhile: loading runs its code.
        let image = self.take(id)?.relocate()?;
        Ok(self.insert_loaded(id, image))
    }

    fn unload(&self, id: u32) {
        let _ = self.take(id);
    }

    #[inline]
    fn has_kernel(&self, address: u64) -> bool {
        self.images.read().values().any(|image| image.has_code(address))
    }
}
