// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! An accelerator of this node, or any other device for which its libomptarget has a plugin. This process is a client
//! of that libomptarget, as a program is.
//!
//! - `arena`: the block of the accelerator's memory that is the arena.
//! - `direct`: large copies that MPI makes itself, directly from and to the accelerator's memory.
//! - `drivers`: the accelerators that drivers show to this process.
//! - `own_plugins`: keeps this project's own plugin out of that libomptarget.
//! - `runtime`: the interface of that libomptarget, which is opened at run time.
//! - `visible_devices`: sets `CUDA_VISIBLE_DEVICES` or its counterpart to this device's accelerator.
//!
//! This process does not access the accelerator's memory; MPI may. It registers images again, with keys in place of the
//! addresses of a program's entries, which libomptarget uses only as keys. The program's side uses the keys as
//! addresses of kernels. Constructors and destructors are kernels like others: the program's own libomptarget launches
//! them.

mod arena;
mod direct;
pub(crate) mod drivers;
pub(crate) mod own_plugins;
mod runtime;
pub(crate) mod visible_devices;

use super::cpu::image;
use super::{Accelerator, Backend, Copies, CopyByMpi, Entry, Launch, Wish};
use crate::base::lock::{Mutex, order};
use crate::base::sync::RwLock;
use crate::base::target::{LargeCopies, Target, is_bitcode};
use crate::base::{Error, Result, elf};
use crate::debug;
use crate::device_main::crash::board::{CrashBoard, RUNTIME_CODE};
use crate::device_main::crash::monitor::{self, Fault};
use crate::device_main::images::library::find_library;
use crate::device_main::images::pending_image::PendingImage;
use crate::device_main::output::libomptarget_errors;
use crate::device_main::transfers::staging::Staging;
use crate::job::topology::Turn;
use crate::sys::{mapping, node};
use crate::wire::command::{Obtained, Shape, SharedFile, libraries};
use crate::wire::reply::Failure;
use arena::{Arena, Avoided};
pub(crate) use direct::Direct;
use memmap2::MmapOptions;
use runtime::{Registered, Runtime};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::OnceLock;
use visible_devices::Choices;

/// `OMP_DECLARE_TARGET_CTOR` and `OMP_DECLARE_TARGET_DTOR`.
const RUNS_BY_ITSELF: u32 = 2 | 4;
/// Added to an image's number of moves, so that its first move already goes far: the memory of the program and other
/// devices near it is large.
const FAR: usize = 3;
/// Keys have this alignment.
const KEY: u64 = 16;

pub(crate) struct Offload {
    seat: Seat,
    direct: Direct,
    /// Gets the names of kernels, for the supervisor.
    board: &'static CrashBoard,
    runtime: OnceLock<Runtime>,
    arena: Mutex<Arena, { order::LEAF }>,
    avoided: Mutex<Avoided, { order::LEAF }>,
    /// Entries of images that are not loaded yet, by image.
    announced: Mutex<BTreeMap<u32, Vec<Entry>>, { order::LEAF }>,
    loaded: RwLock<Loaded>,
}

/// A device's place among the devices of its node that are accelerators.
pub(crate) struct Seat {
    /// The place.
    pub place: usize,
    /// The number of accelerators from which it chose, if known.
    pub choices: Choices,
    /// The places of the devices that choose from the same accelerators, itself included.
    pub rivals: Vec<(usize, Turn)>,
}

/// The devices that share an accelerator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sharers {
    /// Devices of the same program that already have memory, and that have none yet, including this device.
    with_memory: u64,
    without: u64,
    /// All devices, including those of other programs.
    all: u64,
}

impl Seat {
    /// The devices with the same accelerator, if this many accelerators of that machine are visible to each.
    fn sharers(&self, visible: usize, machine: u16) -> Sharers {
        let chosen_from = self.choices.iter().filter(|(other, _)| *other == machine).map(|(_, n)| *n).sum::<usize>();
        let among = chosen_from.max(visible).max(1);
        let count = |turn| {
            let sharers = self.rivals.iter().filter(|r| r.1 == turn && r.0 % among == self.place % among);
            sharers.count() as u64
        };
        let (with_memory, without) = (count(Turn::Earlier), count(Turn::Later).max(1));
        Sharers { with_memory, without, all: with_memory + without + count(Turn::Unknown) }
    }
}

impl Sharers {
    /// Bytes for this device's arena if `free` bytes are free, of a total that may be unknown (0). All devices get the
    /// same share. A sixteenth of each share stays free beside the arena: kernels need it for their heap and, mostly,
    /// for the stacks of all threads that may run at once. (An H100 runs 270,000 threads, with 1 KiB each unless
    /// kernels need more, and a sixteenth of its memory is 5 GiB.) Devices of other programs may or may not have taken
    /// theirs: each gets a share of the total.
    fn arena(self, free: u64, total: u64) -> u64 {
        let of_free = free / (16 * self.without + self.with_memory);
        let of_total = if total == 0 { of_free } else { total / (16 * self.all) };
        15 * of_free.min(of_total)
    }
}

/// The accelerator's arena, images and kernels.
#[derive(Default)]
struct Loaded {
    arena: Range<u64>,
    images: BTreeMap<u32, Image>,
    kernels: HashMap<u64, String>,
}

/// A registered image.
struct Image {
    file: &'static [u8],
    entries: Vec<Entry>,
    places: HashMap<String, Place>,
    /// How often the image was registered again.
    moves: usize,
}

/// The place of an entry: its address, or the key of a kernel; and the bytes of a global.
#[derive(Clone, Copy)]
struct Place {
    at: u64,
    size: u64,
}

impl Loaded {
    fn is_in_arena(&self, at: u64, len: u64) -> bool {
        self.arena.start <= at && at.checked_add(len).is_some_and(|end| end <= self.arena.end)
    }

    /// True if the range is memory of the accelerator.
    fn has(&self, at: u64, len: u64) -> bool {
        let Some(end) = at.checked_add(len) else { return false };
        let globals = self.images.values().flat_map(|image| image.places.values());
        self.is_in_arena(at, len) || globals.into_iter().any(|g| g.size > 0 && g.at <= at && end <= g.at + g.size)
    }
}

impl Offload {
    pub fn new(seat: Seat, direct: Direct, board: &'static CrashBoard) -> Offload {
        let (runtime, arena, avoided, announced, loaded) = Default::default();
        Offload { seat, direct, board, runtime, arena, avoided, announced, loaded }
    }

    fn runtime(&self) -> Result<&Runtime> {
        self.runtime.get().ok_or_else(|| Error::new("this device has no memory yet"))
    }

    /// The libomptarget that the host lists, opened at the first call.
    fn open(&self, libraries: &[u8]) -> Result<&Runtime> {
        if let Some(runtime) = self.runtime.get() {
            return Ok(runtime);
        }
        let runtime = Runtime::open(libraries, &self.seat)?;
        // Register the exit handler again, to run before those of libomptarget.
        monitor::notice_exit();
        debug!("this device is {}", runtime.name());
        Ok(self.runtime.get_or_init(|| runtime))
    }

    /// Allocates the arena in place of an earlier one.
    fn allocate(&self, runtime: &Runtime, wish: &Wish) -> Result<Range<u64>> {
        let mut arena = self.arena.lock();
        self.loaded.write().arena = 0..0;
        arena.obtain(runtime, wish)?;
        self.loaded.write().arena = arena.range.clone();
        Ok(arena.range.clone())
    }

    fn insert(&self, id: u32, image: Image) {
        let mut loaded = self.loaded.write();
        let kernels = image.places.iter().filter(|(_, place)| place.size == 0);
        self.board.add_names(kernels.clone().map(|(name, place)| (place.at, name.as_str())));
        loaded.kernels.extend(kernels.map(|(name, place)| (place.at, name.clone())));
        loaded.images.insert(id, image);
    }

    /// Forgets an image, which libomptarget keeps.
    fn take(&self, id: u32) -> Option<Image> {
        let mut loaded = self.loaded.write();
        let image = loaded.images.remove(&id)?;
        image.places.values().for_each(|place| drop(loaded.kernels.remove(&place.at)));
        self.board.forget_names();
        self.board.add_names(loaded.kernels.iter().map(|(&at, name)| (at, name.as_str())));
        Some(image)
    }

    /// The libomptarget, for access to memory of the accelerator.
    fn access(&self, at: u64, len: u64) -> Result<&Runtime> {
        let runtime = self.runtime()?;
        match self.loaded.read().has(at, len) {
            true => Ok(runtime),
            false => Err(Error::new(format!(
                "{len} bytes at {at:#x} are neither in the device's memory nor in a global: what a kernel allocates on an \
                 accelerator can't be copied"
            ))),
        }
    }
}

impl Accelerator for Offload {
    fn obtain(&self, wish: &Wish, libraries: &[u8], copy: CopyByMpi<'_>, staging: &Staging) -> Result<Obtained> {
        self.avoid(&mut wish.taken.iter().cloned());
        let runtime = self.open(libraries)?;
        let arena = self.allocate(runtime, wish)?;
        let is_direct = self.direct.settle(runtime, arena.clone(), copy)?;
        self.board.set_direct(is_direct);
        // SAFETY: the accelerator's driver pins this memory, which is never freed.
        let large = match (is_direct, unsafe { staging.pin(is_direct, |len| runtime.pin(len)) }) {
            (true, _) => LargeCopies::Direct,
            (false, true) => LargeCopies::Pinned,
            (false, false) => LargeCopies::Buffered,
        };
        Ok(Obtained { arena, target: self.target(), description: runtime.gpu.to_string(), large })
    }

    fn avoid(&self, taken: &mut dyn Iterator<Item = Range<u64>>) {
        self.avoided.lock().add(taken);
    }

    fn announce(&self, image: u32, entry: Entry) {
        self.announced.lock().entry(image).or_default().push(entry);
    }

    fn address(&self, image: u32, name: &str) -> Result<u64> {
        let loaded = self.loaded.read();
        let place = loaded.images.get(&image).and_then(|image| image.places.get(name));
        place.map(|place| place.at).ok_or_else(|| Error::new(format!("the image has no {name} on the accelerator")))
    }

    fn read_to(&self, from: u64, to: &mut [u8]) -> Result<()> {
        let runtime = self.access(from, to.len() as u64)?;
        // SAFETY: the range was just checked.
        unsafe { runtime.read(to.as_mut_ptr(), from, to.len()) }
            .map_err(|e| e.context(format_args!("reading from {from:#x}")))
    }

    fn run(&self, launch: &Launch<'_>, copies: &mut Copies) -> Result<()> {
        // LLVM's plugins up to 15 have a separate function for one team.
        let shape = launch.shape.unwrap_or(Shape { teams: [1, 0, 0], ..Shape::default() });
        for copied in copies.writes.iter().chain(&copies.reads) {
            self.access(copied.at, copied.bytes.len() as u64)?;
        }
        self.runtime()?.run(launch.kernel, launch.args, shape, copies)
    }
}

impl Backend for Offload {
    const LOADS_AS: u64 = RUNTIME_CODE;

    unsafe fn start(&self, _: u64, _: u64, _: (u64, SharedFile)) -> Result<()> {
        Err(Error::new("the accelerator chooses where its memory is"))
    }

    /// An accelerator's memory is in use or free; no part of a block can be given back.
    fn discard(&self, _: u64, _: u64) {}

    /// Only the arena, because not every MPI accesses the globals of images; nothing after a fault, which may have
    /// destroyed the context.
    fn direct(&self, at: u64, len: u64) -> Option<*mut u8> {
        let is_direct = self.direct.works() && monitor::fault().is_none() && self.loaded.read().is_in_arena(at, len);
        is_direct.then_some(at as *mut u8)
    }

    fn write(&self, to: u64, bytes: &[u8]) -> Result<()> {
        let runtime = self.access(to, bytes.len() as u64)?;
        // SAFETY: the range was just checked.
        unsafe { runtime.write(to, bytes.as_ptr(), bytes.len()) }
            .map_err(|e| e.context(format_args!("writing to {to:#x}")))
    }

    fn read(&self, from: u64, len: usize, out: &mut Vec<u8>) -> Result<()> {
        let runtime = self.access(from, len as u64)?;
        out.reserve(len);
        let to = out.spare_capacity_mut().as_mut_ptr().cast::<u8>();
        // SAFETY: the range was just checked, and the capacity is reserved.
        unsafe { runtime.read(to, from, len) }.map_err(|e| e.context(format_args!("reading from {from:#x}")))?;
        // SAFETY: `len` bytes after the old end were just written.
        unsafe { out.set_len(out.len() + len) };
        Ok(())
    }

    fn copy(&self, to: u64, from: u64, len: u64) -> Result<()> {
        let runtime = self.access(from, len).and_then(|_| self.access(to, len))?;
        if to.abs_diff(from) >= len {
            // SAFETY: the ranges were just checked.
            return unsafe { runtime.move_within(to, from, len as usize) };
        }
        let mut bytes = Vec::new();
        self.read(from, len as usize, &mut bytes)?;
        self.write(to, &bytes)
    }

    fn target(&self) -> Target {
        // The target is known only once the device has memory.
        self.runtime.get().map_or(Target { machine: 0, architecture: 0 }, |runtime| runtime.gpu.target)
    }

    fn load(&self, id: u32, pending: &PendingImage) -> Result<u64> {
        let runtime = self.runtime()?;
        let entries = self.announced.lock().remove(&id).unwrap_or_default();
        let (bytes, list) = pending.contents();
        let target =
            Target::of_image(bytes).map_err(|e| e.context(format_args!("{}: the image is", runtime.name())))?;
        runtime.check(target)?;
        let loads_here = runtime.gpu.target == Target::HOST && !is_bitcode(bytes);
        if loads_here {
            // The plugin loads this image into this process, and finds only libraries that are already loaded.
            let hints = libraries(list);
            for name in elf::needed_libraries(bytes)? {
                if !find_library(&name, &hints, 0) {
                    let host = node::host_name();
                    return Err(Error::new(format!(
                        "the image needs {name}, which host {host} lacks: install it there"
                    )));
                }
            }
        }
        // SAFETY: nothing writes to the file from now on.
        let mut file = unsafe { MmapOptions::new().len(bytes.len()).map_copy(&pending.file)? };
        if loads_here {
            // LLVM's host plugin makes the symbols of all images global, and an image that moved is loaded twice.
            elf::prefer_own_symbols(&mut file);
        }
        let image = Image { file: Box::leak(Box::new(file)), entries, places: HashMap::new(), moves: 0 };
        self.insert(id, register(runtime, image)?);
        Ok(0)
    }

    /// Registers the image again while the free addresses around its earlier place are reserved.
    fn relocate(&self, id: u32) -> Result<u64> {
        let runtime = self.runtime()?;
        let image = self.take(id).ok_or_else(|| Error::new(format!("there is no image {id}")))?;
        // The size that the loader would look for, if the loader loads the image.
        let span = elf::Image::parse(image.file, elf::MACHINE).map_or(0..image.file.len() as u64, |parsed| parsed.span);
        let reserved = image::reserve(span.end - span.start, image.moves + FAR);
        let placed = register(runtime, Image { moves: image.moves + 1, ..image });
        for (at, len) in reserved {
            // SAFETY: `reserve` has mapped it, and nothing uses it.
            unsafe { mapping::unmap(at as u64, len as u64) };
        }
        self.insert(id, placed?);
        Ok(0)
    }

    fn unload(&self, id: u32) {
        self.announced.lock().remove(&id);
        self.take(id);
    }

    fn has_kernel(&self, address: u64) -> bool {
        self.loaded.read().kernels.contains_key(&address)
    }

    fn fault(&self) -> Option<Fault> {
        fault_of(|| self.runtime.get().map(Runtime::name))
    }
}

/// The first fault, with the accelerator's name and the output of libomptarget, which itself ends the process after a
/// failure.
fn fault_of(accelerator: impl FnOnce() -> Option<String>) -> Option<Fault> {
    static FAILURE: OnceLock<Failure> = OnceLock::new();
    let fault = monitor::fault()?;
    let failure = FAILURE.get_or_init(|| {
        let (mut failure, said) = (fault.failure.clone(), libomptarget_errors::lately());
        if let Some(name) = accelerator() {
            failure.text = format!("{name}: {}", failure.text);
        }
        if !said.is_empty() {
            failure.text += &said;
            // Otherwise the host's words about the address would follow libomptarget's.
            failure.address = 0;
        }
        failure
    });
    Some(Fault { failure, ..fault })
}

/// Registers an image under new keys, makes the accelerator load it, and finds its globals.
fn register(runtime: &Runtime, image: Image) -> Result<Image> {
    let mut key = keys(&image.entries)?;
    let mut places = HashMap::new();
    let mut registered = Vec::new();
    for entry in &image.entries {
        registered.push(Registered::new(key, &entry.name, entry.size, entry.flags & !RUNS_BY_ITSELF)?);
        places.insert(entry.name.clone(), Place { at: key, size: entry.size });
        key += room(entry);
    }
    runtime.load(image.file, registered)?;
    monitor::notice_exit();
    monitor::notice_exceptions();
    for (name, global) in places.iter_mut().filter(|(_, place)| place.size > 0) {
        let at = runtime.global(global.at);
        global.at = at.ok_or_else(|| Error::new(format!("{} has no address for global {name}", runtime.name())))?;
    }
    Ok(Image { places, ..image })
}

/// The bytes of keys that an entry needs: libomptarget takes a global's key for the beginning of a range.
fn room(entry: &Entry) -> u64 {
    entry.size.max(1).next_multiple_of(KEY)
}

/// Addresses for the keys of all entries. They are never released, so nothing else in this process can get them.
fn keys(entries: &[Entry]) -> Result<u64> {
    let len = entries.iter().map(room).sum::<u64>().max(1) as usize;
    let keys = MmapOptions::new().len(len).no_reserve_swap().map_anon()?;
    Ok(Box::leak(Box::new(keys)).as_ptr() as u64)
}

#[cfg(test)]
#[path = "../../../../test/rust/unit/device_main/backend/offload.rs"]
mod tests;
