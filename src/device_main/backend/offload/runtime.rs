// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The node's own libomptarget, opened at run time: the interface that compilers and programs use.

use super::drivers::{self, Gpu};
use super::{Seat, Sharers, own_plugins};
use crate::base::target::{self, Target};
use crate::base::{Error, Result, elf};
use crate::device_main::backend::Copies;
use crate::sys::{node, process};
use crate::wire::command::{Shape, libraries};
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};
use std::ffi::{CString, c_char, c_int, c_void};
use std::mem::transmute_copy;
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Releases of LLVM with the layouts below.
const RELEASES: RangeInclusive<u32> = 16..=22;
/// The first version with this layout of [`KernelArgs`].
const ARGS_VERSION: u32 = 2;
/// From this release on entries are [`GenericEntry`].
const GENERIC_ENTRIES: u32 = 20;
/// `OMP_TGT_MAPTYPE_LITERAL` and `OMP_TGT_MAPTYPE_TARGET_PARAM`: the value itself is an argument of the kernel.
const LITERAL: i64 = 0x100 | 0x20;
/// Copies with a launch that are no arguments of the kernel: `OMP_TGT_MAPTYPE_ALWAYS` and `_TO` or `_FROM`.
const WRITE: i64 = 4 | 1;
const READ: i64 = 4 | 2;
/// The flag `NoWait` of a launch, which concerns only the program.
const NO_WAIT: u64 = 1;

/// An entry of a registered image: a kernel, whose size is 0, or a global.
pub(super) struct Registered {
    /// The address that libomptarget takes for the entry's address in the program.
    key: u64,
    name: CString,
    size: u64,
    flags: u32,
}

impl Registered {
    pub fn new(key: u64, name: &str, size: u64, flags: u32) -> Result<Registered> {
        let name = CString::new(name).map_err(|_| Error::new(format!("no symbol is called {name:?}")))?;
        Ok(Registered { key, name, size, flags })
    }
}

/// `__tgt_offload_entry`, up to LLVM 19.
#[repr(C)]
struct OffloadEntry {
    address: *mut c_void,
    name: *mut c_char,
    size: usize,
    flags: u32,
    data: u32,
}

impl From<Registered> for OffloadEntry {
    fn from(Registered { key, name, size, flags }: Registered) -> OffloadEntry {
        OffloadEntry { address: key as *mut c_void, name: name.into_raw(), size: size as usize, flags, data: 0 }
    }
}

/// `llvm::offloading::EntryTy`, the successor of [`OffloadEntry`].
#[repr(C)]
struct GenericEntry {
    reserved: u64,
    version: u16,
    kind: u16,
    flags: u32,
    address: *mut c_void,
    name: *mut c_char,
    size: u64,
    data: u64,
    auxiliary: *mut c_void,
}

impl From<Registered> for GenericEntry {
    fn from(Registered { key, name, size, flags }: Registered) -> GenericEntry {
        /// `OFK_OpenMP`.
        const OPENMP: u16 = 1;
        let (address, name, auxiliary) = (key as *mut c_void, name.into_raw(), ptr::null_mut());
        GenericEntry { reserved: 0, version: 1, kind: OPENMP, flags, address, name, size, data: 0, auxiliary }
    }
}

/// `__tgt_device_image`.
#[repr(C)]
struct DeviceImage {
    start: *const c_void,
    end: *const c_void,
    entries: *mut c_void,
    entries_end: *mut c_void,
}

/// `__tgt_bin_desc`.
#[repr(C)]
struct Descriptor {
    images: i32,
    image: *mut DeviceImage,
    entries: *mut c_void,
    entries_end: *mut c_void,
}

/// `KernelArgsTy`.
#[repr(C)]
struct KernelArgs {
    version: u32,
    count: u32,
    bases: *mut u64,
    values: *mut u64,
    sizes: *mut i64,
    types: *mut i64,
    names: *mut c_void,
    mappers: *mut c_void,
    tripcount: u64,
    flags: u64,
    teams: [u32; 3],
    threads: [u32; 3],
    dynamic_memory: u32,
}

/// Defines the table of libomptarget functions that this backend calls, and its lookup.
macro_rules! calls {
    ($( $name:ident: $symbol:ident($($argument:ty),*) $(-> $result:ty)?; )+) => {
        struct Calls {
            release: u32,
            $( $name: unsafe extern "C" fn($($argument),*) $(-> $result)?, )+
        }

        impl Calls {
            /// The functions of a libomptarget of this release; fails with the name of a missing function.
            fn of(library: &Library, release: u32) -> std::result::Result<Calls, &'static str> {
                Ok(Calls { release, $( $name: {
                    // SAFETY: the result is only copied, as a pointer to a function of this type.
                    let symbol = unsafe { library.get::<*const c_void>(concat!(stringify!($symbol), "\0").as_bytes()) };
                    let symbol = symbol.map_err(|_| stringify!($symbol))?.into_raw();
                    // SAFETY: the function has this type in all of `RELEASES`, and pointers have one size.
                    unsafe { transmute_copy(&symbol) }
                }, )+ })
            }
        }
    };
}

calls! {
    register: __tgt_register_lib(*mut Descriptor);
    begin_data: __tgt_target_data_begin_mapper(
        *mut c_void, i64, i32, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void, *mut c_void
    );
    kernel: __tgt_target_kernel(*mut c_void, i64, i32, i32, *const c_void, *mut KernelArgs) -> c_int;
    start_all: __tgt_init_all_rtls();
    devices: omp_get_num_devices() -> c_int;
    host: omp_get_initial_device() -> c_int;
    alloc: omp_target_alloc(usize, c_int) -> *mut c_void;
    free: omp_target_free(*mut c_void, c_int);
    copy: omp_target_memcpy(*mut c_void, *const c_void, usize, usize, usize, c_int, c_int) -> c_int;
    associate: omp_target_associate_ptr(*const c_void, *const c_void, usize, usize, c_int) -> c_int;
    disassociate: omp_target_disassociate_ptr(*const c_void, c_int) -> c_int;
    mapped: omp_get_mapped_ptr(*const c_void, c_int) -> *mut c_void;
}

impl Calls {
    /// The devices of the best available kind.
    ///
    /// libomptarget counts only devices that some registered image is for. LLVM 19's takes a first image that is for no
    /// device as a sign that all devices share the program's memory.
    fn accelerators(&self) -> Accelerators {
        // SAFETY: some image was registered; before that libomptarget would crash.
        let count = || unsafe { (self.devices)() };
        let show_all = |before: i32, gpus: Vec<Gpu>| {
            let shown = gpus.clone();
            let (images, gpus) = drivers::numbered(self.release, gpus);
            images.iter().for_each(|&image| self.register(Vec::leak(target::empty(image)), Vec::new()));
            let numbers = if images.is_empty() { before..before } else { before..count() };
            let unused = if numbers.is_empty() { shown } else { Vec::new() };
            Accelerators { numbers, gpus, unused }
        };
        let cuda = show_all(0, drivers::cuda());
        if !cuda.numbers.is_empty() {
            return cuda;
        }
        let own = show_all(0, vec![Gpu::of(Target::HOST)]);
        let (first, amd) = (own.numbers.end, drivers::amd());
        let amd = match self.release {
            // The AMD plugin of these releases would load an image without entries.
            ..19 if !amd.is_empty() => {
                // SAFETY: no condition.
                unsafe { (self.start_all)() };
                let numbers = first..count();
                let unused = if numbers.is_empty() { amd.clone() } else { Vec::new() };
                Accelerators { numbers, gpus: amd, unused }
            }
            _ => show_all(first, amd),
        };
        let unused = [cuda.unused, amd.unused].concat();
        if amd.numbers.is_empty() { Accelerators { unused, ..own } } else { Accelerators { unused, ..amd } }
    }

    /// Registers an image. It is never unregistered, because libomptarget 16 would then stop the plugin for all images.
    fn register(&self, image: &'static [u8], entries: Vec<Registered>) {
        let (entries, entries_end) = match self.release {
            ..GENERIC_ENTRIES => leak::<OffloadEntry>(entries),
            _ => leak::<GenericEntry>(entries),
        };
        let range = image.as_ptr_range();
        let (start, end) = (range.start.cast(), range.end.cast());
        let image = Box::leak(Box::new(DeviceImage { start, end, entries, entries_end }));
        let all = Descriptor { images: 1, image, entries, entries_end };
        // SAFETY: nothing of the descriptor is ever freed, and its entries have the layout of the release.
        unsafe { (self.register)(Box::leak(Box::new(all))) };
    }
}

/// The beginning and the end of entries that are never freed.
fn leak<E: From<Registered>>(entries: Vec<Registered>) -> (*mut c_void, *mut c_void) {
    let entries: Vec<E> = entries.into_iter().map(E::from).collect();
    let range = entries.leak().as_mut_ptr_range();
    (range.start.cast(), range.end.cast())
}

/// Functions outside of OpenMP for memory of this process that an accelerator's driver pins.
struct Pinned {
    alloc: unsafe extern "C" fn(usize, c_int) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void, c_int),
}

impl Pinned {
    fn of(library: &Library) -> Option<Pinned> {
        // SAFETY: the functions have these types in all of `RELEASES`.
        unsafe {
            let alloc = *library.get(b"llvm_omp_target_alloc_host\0").ok()?;
            Some(Pinned { alloc, free: *library.get(b"llvm_omp_target_free_host\0").ok()? })
        }
    }
}

/// Accelerators of one kind.
struct Accelerators {
    /// Their numbers in libomptarget.
    numbers: Range<i32>,
    /// Their descriptions by the driver, in the order of the numbers.
    gpus: Vec<Gpu>,
    /// Accelerators that drivers show, of kinds of which libomptarget numbers none.
    unused: Vec<Gpu>,
}

impl Accelerators {
    /// The accelerator at a place. If libomptarget and the driver have different numbers of accelerators, only their
    /// common properties are known.
    fn describe(&self, place: usize) -> Gpu {
        let Some(first) = self.gpus.first() else { return Gpu::of(Target::HOST) };
        let Target { machine, architecture } = first.target;
        match self.gpus.get(place) {
            Some(gpu) if self.numbers.len() == self.gpus.len() => gpu.clone(),
            _ if self.gpus.iter().all(|gpu| gpu.target == first.target) => Gpu::of(Target { machine, architecture }),
            _ => Gpu::of(Target { machine, architecture: 0 }),
        }
    }
}

/// A libomptarget, and its accelerator that is this device.
pub(super) struct Runtime {
    calls: Calls,
    /// The path of its file.
    path: String,
    device: i32,
    host: i32,
    pub gpu: Gpu,
    sharers: Sharers,
    /// Accelerators of other kinds that drivers show, but libomptarget does not.
    unused: Vec<Gpu>,
    pinned: Option<Pinned>,
    has_loaded: AtomicBool,
}

impl Runtime {
    /// Opens the libomptarget of the release that is in the program's list of libraries. This device is the accelerator
    /// at its place, modulo the node's count.
    pub fn open(list: &[u8], seat: &Seat) -> Result<Runtime> {
        let (library, release, path) = open(list)?;
        let at = node::host_name();
        let calls = Calls::of(&library, release).map_err(|symbol| {
            Error::new(format!("{path} on host {at} is no libomptarget of a known release: it has no {symbol}"))
        })?;
        let pinned = Pinned::of(&library);
        // Never close it: its plugins have threads and exit handlers.
        std::mem::forget(library);
        let found = calls.accelerators();
        if found.numbers.is_empty() {
            let missing = match found.unused.iter().find(|gpu| gpu.is_described()) {
                Some(gpu) => without_plugin(gpu),
                None if found.unused.is_empty() => {
                    "its plugin for that, the driver, or the accelerator is missing".into()
                }
                None => format!("the driver shows {}, but not what they execute", found.unused.len()),
            };
            return Err(Error::new(format!(
                "{path} on host {at} finds no accelerator: {missing} \
                 (llvm-omp-device-info lists what it finds there; LD_LIBRARY_PATH may have to name the folder of the \
                 plugins, libomptarget.rtl.*.so)"
            )));
        }
        let place = seat.place % found.numbers.len();
        // SAFETY: no condition.
        let (device, host) = (found.numbers.start + place as i32, unsafe { (calls.host)() });
        let (gpu, has_loaded) = (found.describe(place), AtomicBool::new(false));
        let sharers = seat.sharers(found.numbers.len(), gpu.target.machine);
        Ok(Runtime { calls, path, device, host, gpu, sharers, unused: found.unused, pinned, has_loaded })
    }

    /// Fails unless the accelerator can execute an image for this target.
    pub fn check(&self, image: Target) -> Result<()> {
        self.gpu.target.check(image).map_err(|e| {
            let better = self.unused.iter().find(|gpu| gpu.target.check(image).is_ok());
            let hint = better.map_or(String::new(), |gpu| format!("; {}", without_plugin(gpu)));
            Error::new(format!("{}: the image is: {e}{hint}", self.name()))
        })
    }

    /// Bytes for this device's arena, from the driver's count of free bytes. `None` if the driver does not tell.
    pub fn share(&self) -> Option<u64> {
        self.gpu.handle?;
        // libomptarget starts the accelerator at the first allocation, and then takes memory for itself.
        self.free(self.alloc(1)?);
        drivers::free_memory(&self.gpu).map(|free| self.sharers.arena(free, self.gpu.memory))
    }

    /// "accelerator 0 (…) of FILE", for error messages.
    pub fn name(&self) -> String {
        format!("accelerator {} ({}) of {}", self.device, self.gpu.target, self.path)
    }

    pub fn alloc(&self, len: u64) -> Option<u64> {
        // SAFETY: a plain call.
        let at = unsafe { (self.calls.alloc)(len as usize, self.device) };
        (!at.is_null()).then_some(at as u64)
    }

    pub fn free(&self, at: u64) {
        // SAFETY: `alloc` has returned the address; libomptarget takes it for a key.
        unsafe { (self.calls.free)(at as *mut c_void, self.device) };
    }

    /// Allocates memory of this node that the accelerator's driver pins. Nothing else uses it, and it is never freed.
    pub fn pin(&self, len: usize) -> Result<*mut u8> {
        let Some(pinned) = &self.pinned else {
            return Err(Error::new(format!("{} has no llvm_omp_target_alloc_host", self.path)));
        };
        // SAFETY: a plain call.
        let at = unsafe { (pinned.alloc)(len, self.device) }.cast::<u8>();
        if at.is_null() {
            return Err(Error::new(format!("{} pins no {len} bytes", self.name())));
        }
        let (mut byte, me) = (0, std::process::id() as i32);
        // SAFETY: the byte can be written.
        let read = unsafe { process::read_memory(me, at as u64, &raw mut byte, 1) };
        // MPI copies between processes of a node in this way. Memory of a driver's file may not allow that, nor access
        // by the network hardware.
        if read == -1 && std::io::Error::last_os_error().raw_os_error() == Some(libc::EFAULT) {
            // SAFETY: nothing uses it.
            unsafe { (pinned.free)(at.cast(), self.device) };
            return Err(Error::new(format!("{} pins memory that other processes can't copy from", self.name())));
        }
        Ok(at)
    }

    /// # Safety
    /// `from[..len]` is readable, and `to` is memory of the accelerator.
    pub unsafe fn write(&self, to: u64, from: *const u8, len: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy((to as *mut c_void, self.device), (from.cast(), self.host), len) }
    }

    /// # Safety
    /// `to[..len]` is writable, and `from` is memory of the accelerator.
    pub unsafe fn read(&self, to: *mut u8, from: u64, len: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy((to.cast(), self.host), (from as *const c_void, self.device), len) }
    }

    /// # Safety
    /// Both ranges are memory of the accelerator, and do not overlap.
    pub unsafe fn move_within(&self, to: u64, from: u64, len: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.copy((to as *mut c_void, self.device), (from as *const c_void, self.device), len) }
    }

    /// # Safety
    /// Both ranges belong to the device given with them.
    unsafe fn copy(&self, to: (*mut c_void, i32), from: (*const c_void, i32), len: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        match unsafe { (self.calls.copy)(to.0, from.0, len, 0, 0, to.1, from.1) } {
            0 => Ok(()),
            _ => Err(Error::new(format!("{} could not copy {len} bytes", self.name()))),
        }
    }

    /// Registers an image, and loads it on the accelerator. If that fails, libomptarget ends the process.
    pub fn load(&self, image: &'static [u8], entries: Vec<Registered>) -> Result<()> {
        if self.has_loaded.swap(true, Ordering::Relaxed) && self.calls.release == 18 {
            return Err(Error::new(format!(
                "{} loads one image only, as LLVM 18's libomptarget does once a device is in use: a library with regions needs \
                 another release, and a second try at other addresses too",
                self.name()
            )));
        }
        self.calls.register(image, entries);
        let none = ptr::null_mut();
        // SAFETY: mapping nothing starts the device if necessary, and loads the registered images.
        unsafe { (self.calls.begin_data)(none, self.device.into(), 0, none, none, none, none, none, none) };
        Ok(())
    }

    /// The address of the global with this key.
    pub fn global(&self, key: u64) -> Option<u64> {
        // SAFETY: libomptarget looks the key up.
        let at = unsafe { (self.calls.mapped)(key as *const c_void, self.device) };
        (!at.is_null()).then_some(at as u64)
    }

    /// Runs the kernel with this key together with the copies, so that the accelerator is synchronized once. If the
    /// kernel fails, libomptarget ends the process.
    pub fn run(&self, key: u64, args: &[u64], shape: Shape, copies: &mut Copies) -> Result<()> {
        let mut arguments = Arguments::new(args);
        let bytes = copies.bytes.as_mut_ptr();
        let (writes, reads) = (&copies.writes, &copies.reads);
        let written = writes.iter().map(|copy| (copy, if copy.is_both { WRITE | READ } else { WRITE }));
        let all = written.chain(reads.iter().filter(|copy| !copy.is_both).map(|copy| (copy, READ)));
        let mut associated = Vec::with_capacity(copies.writes.len() + copies.reads.len());
        let mut result = Ok(());
        for (copy, kind) in all.filter(|(copy, _)| !copy.bytes.is_empty()) {
            let (here, len) = (bytes.wrapping_add(copy.bytes.start).cast::<c_void>(), copy.bytes.len());
            // SAFETY: libomptarget only notes that memory of the accelerator belongs to this part of the buffer.
            match unsafe { (self.calls.associate)(here, copy.at as *const c_void, len, 0, self.device) } {
                0 => associated.push(here),
                _ => result = Err(Error::new(format!("{} can't associate {len} bytes", self.name()))),
            }
            arguments.push(here as u64, len as i64, kind);
        }
        if result.is_ok() {
            // SAFETY: the parts of the buffer are as long as the copies, and it outlives the call.
            result = unsafe { self.launch(key, arguments, shape) };
        }
        for here in associated {
            // SAFETY: all copies are complete.
            unsafe { (self.calls.disassociate)(here, self.device) };
        }
        result
    }

    /// # Safety
    /// Copies among the arguments are from and to memory that is valid for them.
    unsafe fn launch(&self, key: u64, mut arguments: Arguments, shape: Shape) -> Result<()> {
        let mut kernel = KernelArgs {
            // From version 3 on (LLVM 19), libomptarget puts the launch environment before the arguments; LLVM 18's
            // plugins do so at any version.
            version: shape.version.max(ARGS_VERSION),
            count: arguments.values.len() as u32,
            bases: arguments.values.as_mut_ptr(),
            values: arguments.values.as_mut_ptr(),
            sizes: arguments.sizes.as_mut_ptr(),
            types: arguments.types.as_mut_ptr(),
            names: ptr::null_mut(),
            mappers: ptr::null_mut(),
            tripcount: shape.tripcount,
            flags: shape.flags & !NO_WAIT,
            teams: shape.teams,
            threads: shape.threads,
            dynamic_memory: shape.dynamic_memory,
        };
        let (teams, threads) = (shape.teams[0].cast_signed(), shape.threads[0].cast_signed());
        let key = key as *const c_void;
        // SAFETY: the arrays have `count` elements and outlive the call, which ends after the kernel; for copies, the
        // caller's promise.
        match unsafe { (self.calls.kernel)(ptr::null_mut(), self.device.into(), teams, threads, key, &raw mut kernel) }
        {
            0 => Ok(()),
            status => Err(Error::new(format!("{} could not run it (status {status})", self.name()))),
        }
    }
}

/// Describes an accelerator that its driver shows, but libomptarget does not find.
fn without_plugin(gpu: &Gpu) -> String {
    let machine = elf::machine_name(gpu.target.machine);
    format!("the driver shows {gpu}, but libomptarget's plugin for {machine} is missing there, or can't use it")
}

/// The arguments of a launch in libomptarget's form.
struct Arguments {
    values: Vec<u64>,
    sizes: Vec<i64>,
    types: Vec<i64>,
}

impl Arguments {
    /// Arguments of the kernel.
    fn new(args: &[u64]) -> Arguments {
        let n = args.len();
        Arguments { values: args.to_vec(), sizes: vec![size_of::<u64>() as i64; n], types: vec![LITERAL; n] }
    }

    fn push(&mut self, value: u64, size: i64, kind: i64) {
        self.values.push(value);
        self.sizes.push(size);
        self.types.push(kind);
    }
}

/// Opens libomp, and then the libomptarget in the list of the program's libraries. If the list has none, because there
/// is no program, takes the latest available release. Returns libomptarget, its release and its file.
fn open(list: &[u8]) -> Result<(Library, u32, String)> {
    let known = libraries(list);
    let Some((name, path)) = known.iter().find(|(name, _)| name.starts_with("libomptarget.so")) else {
        // From LLVM 18 on, its name also contains the minor version.
        let name = |release| format!("libomptarget.so.{release}{}", if release < 18 { "" } else { ".1" });
        let find = |release| open_release(release, &name(release), None);
        let mut earlier = RELEASES.rev().skip(1);
        return find(*RELEASES.end()).or_else(|e| earlier.find_map(|release| find(release).ok()).ok_or(e));
    };
    let release = name.strip_prefix("libomptarget.so.").and_then(|version| version.split('.').next()?.parse().ok());
    let Some(release) = release.filter(|release| RELEASES.contains(release)) else {
        return Err(Error::new(format!(
            "OMPTARGET_MPI_BACKEND=offload serves programs of LLVM {} to {}, and this one uses {name}",
            RELEASES.start(),
            RELEASES.end()
        )));
    };
    open_release(release, name, path.parent())
}

/// Opens a libomptarget and the libomp beside it: in a folder of LD_LIBRARY_PATH, in the program's folder, in the usual
/// ones, or where the loader looks. A libomptarget beside this project's plugin is the last choice: it may have no
/// other plugin.
fn open_release(release: u32, name: &str, first: Option<&Path>) -> Result<(Library, u32, String)> {
    let usual = [format!("/usr/lib/llvm-{release}/lib"), "/usr/local/lib".into()].map(PathBuf::from);
    let folders = own_plugins::search_path().into_iter().chain(first.map(Path::to_path_buf)).chain(usual);
    let mut folders: Vec<PathBuf> = folders.filter(|folder| folder.join(name).exists()).collect();
    folders.sort_by_key(|folder| own_plugins::are_in(folder));
    let (omp, path) = match folders.first() {
        Some(folder) => (folder.join("libomp.so.5"), folder.join(name)),
        None => (PathBuf::new(), name.into()),
    };
    let omp = if omp.exists() { omp } else { "libomp.so.5".into() };
    let load = |path: &Path| {
        // SAFETY: this runs the library's initializers, as intended.
        unsafe { Library::open(Some(path), RTLD_NOW | RTLD_GLOBAL) }.map_err(|e| {
            let text = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
            Error::new(format!(
                "host {} has no {name} that can be opened, as OMPTARGET_MPI_BACKEND=offload needs: {text}; install the OpenMP \
                 runtime of LLVM {release} there, or set LD_LIBRARY_PATH to where it is",
                node::host_name()
            ))
        })
    };
    std::mem::forget(load(&omp)?);
    Ok((load(&path)?, release, path.display().to_string()))
}
