// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What C sees: the `__tgt_rtl_*` functions of a libomptarget plugin, as LLVM 16 defines
//! them in `omptargetplugin.h`.
//!
//! A function checks its arguments, catches panics, tells the user what failed, and
//! calls one function below. No logic here.

pub mod types;

use crate::base::{Error, Result, elf, log};
use crate::debug;
use crate::plugin::device::Device;
use crate::plugin::image::Entry;
use crate::plugin::queue::{Event, Queue};
use crate::plugin::{Plugin, start};
use parking_lot::Mutex;
use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use types::*;

/// What a function returns when it has done its work (`OFFLOAD_SUCCESS`).
const SUCCESS: i32 = 0;
/// What it returns otherwise (`OFFLOAD_FAIL`).
const FAIL: i32 = !0;

static PLUGIN: OnceLock<Option<Plugin>> = OnceLock::new();
/// Programs and libraries with images that are registered now.
static REGISTERED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());
/// Some device was used.
static USED: AtomicBool = AtomicBool::new(false);
/// The process runs its exit handlers.
static EXITING: AtomicBool = AtomicBool::new(false);
/// This process is a child, by fork, of the one that started MPI.
static FORKED: AtomicBool = AtomicBool::new(false);
static LOADED: Mutex<Vec<LoadedImage>> = Mutex::new(Vec::new());

/// A program or library with images.
struct Registered {
    /// Address of its descriptor.
    desc: usize,
    /// It may use devices until it goes: it has destructor kernels, or was there before
    /// any device was used, as a part of the program, whose destructors may have regions.
    needs_devices: bool,
}

/// An image that was loaded on a device, and the table that libomptarget reads of it.
struct LoadedImage {
    device: i32,
    /// Identifies it to libomptarget.
    image: usize,
    id: u32,
    table: Box<TargetTable>,
    /// What `table` points to.
    _entries: Box<[OffloadEntry]>,
}

// SAFETY: the pointers lead to constants of the program and into the entries beside them.
unsafe impl Send for LoadedImage {}

/// The boundary of every export: no panic and no error leaves it but as `failure`.
#[inline]
fn guard<R>(operation: &str, failure: R, call: impl FnOnce() -> Result<R>) -> R {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(Ok(result)) => result,
        Ok(Err(Error::Told)) => failure,
        Ok(Err(Error::Text(text))) => {
            log::error(format_args!("{operation}: {text}"));
            failure
        }
        Err(_) => {
            log::error(format_args!("{operation}: internal error, see above"));
            failure
        }
    }
}

#[inline]
fn done(result: Result<()>) -> Result<i32> {
    result.map(|()| SUCCESS)
}

/// The plugin, started by the first call.
fn plugin() -> Result<&'static Plugin> {
    let plugin = PLUGIN.get_or_init(|| match start::start() {
        Ok(None) => None,
        Ok(Some(plugin)) => {
            notice_exit();
            notice_exit_of_main_thread();
            // SAFETY: as for the exit handler.
            unsafe { libc::pthread_atfork(None, None, Some(on_fork)) };
            Some(plugin)
        }
        Err(e) => {
            if let Error::Text(text) = e {
                log::error(text);
            }
            // The user asked for MPI devices; without them the program must not go on
            // as if it had them. SAFETY: nothing of this process needs an orderly end.
            unsafe { libc::_exit(1) }
        }
    });
    if FORKED.load(Ordering::Relaxed) {
        return Err(Error::new("a child process can't use the MPI devices of its parent"));
    }
    plugin.as_ref().ok_or(Error::Told)
}

extern "C" fn on_fork() {
    FORKED.store(true, Ordering::Relaxed);
}

/// Ends the devices and MPI, if nobody needs them any more.
fn finish_if_unused() {
    if !REGISTERED.lock().iter().any(|r| r.needs_devices)
        && !FORKED.load(Ordering::Relaxed)
        && let Some(Some(plugin)) = PLUGIN.get()
    {
        plugin.finish();
    }
}

/// Lets [`on_exit`] run.
///
/// MPI must end behind the program's last region, which may be in an exit handler or a
/// destructor kernel, and before the destructors of MPI's own libraries. The loader runs
/// the destructors, the program's first, from an exit handler that it registers before
/// `main`; LLVM 16 starts its plugins before that, so a handler registered then comes too
/// late to tell that an `unregister_lib` is one of the end. Hence one is registered on
/// several occasions, of which one is late enough.
fn notice_exit() {
    // SAFETY: the handler is a function of this library, which is never unloaded.
    unsafe { libc::atexit(on_exit) };
}

/// Lets the main thread's call of `exit` be noticed before it runs any handler.
///
/// From LLVM 19 on a library whose constructor started the plugin, before the loader
/// registered its own exit handler, says that it goes when it is too late for the handler
/// of [`notice_exit`] to have run, if no device was ever used.
fn notice_exit_of_main_thread() {
    unsafe extern "C" {
        /// glibc's: `function(argument)` is called when the calling thread ends.
        fn __cxa_thread_atexit_impl(
            function: extern "C" fn(*mut c_void),
            argument: *mut c_void,
            library: *const c_void,
        ) -> i32;
    }
    extern "C" fn note(_: *mut c_void) {
        EXITING.store(true, Ordering::SeqCst);
    }
    // SAFETY: plain calls; the function is of this library, which is never unloaded.
    unsafe {
        if libc::gettid() == libc::getpid() {
            __cxa_thread_atexit_impl(note, ptr::null_mut(), note as *const c_void);
        }
    }
}

extern "C" fn on_exit() {
    EXITING.store(true, Ordering::SeqCst);
    if REGISTERED.lock().is_empty() {
        guard("exit", (), || {
            finish_if_unused();
            Ok(())
        });
    }
}

/// The images of a program or library.
///
/// # Safety
/// `desc` is null or points to a descriptor with as many images as it says.
unsafe fn images_of<'a>(desc: *const BinDesc) -> &'a [DeviceImage] {
    // SAFETY: the caller's promise.
    unsafe {
        match desc.as_ref() {
            Some(d) if d.num_device_images > 0 => {
                std::slice::from_raw_parts(d.device_images, d.num_device_images as usize)
            }
            _ => &[],
        }
    }
}

/// The entries of an image.
///
/// # Safety
/// The image's entries lie between the two pointers.
unsafe fn entries_of(image: &DeviceImage) -> &[OffloadEntry] {
    let n = (image.entries_end as usize).saturating_sub(image.entries_begin as usize) / size_of::<OffloadEntry>();
    // SAFETY: the caller's promise; without entries the pointers may be null.
    if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(image.entries_begin, n) } }
}

/// True if any of these images has kernels to run when it goes.
fn have_destructors(images: &[DeviceImage]) -> bool {
    /// `OMP_DECLARE_TARGET_DTOR`.
    const DTOR: i32 = 4;
    // SAFETY: libomptarget registers only images with an entry table.
    images.iter().any(|i| unsafe { entries_of(i) }.iter().any(|e| e.flags & DTOR != 0))
}

/// The queue of an async info that has one; the count of its owners stays as it is.
///
/// # Safety
/// A `Queue` that is not null was put there by [`queue_of`].
#[inline]
unsafe fn peek(info: &AsyncInfo) -> Option<ManuallyDrop<Arc<Queue>>> {
    let queue = info.queue.cast::<Queue>().cast_const();
    // SAFETY: the caller's promise; ManuallyDrop leaves the async info its share.
    (!queue.is_null()).then(|| ManuallyDrop::new(unsafe { Arc::from_raw(queue) }))
}

/// The queue of an async info; made if it has none yet.
///
/// # Safety
/// `info` is null or points to an async info of libomptarget.
#[inline]
unsafe fn queue_of(device: &Device, info: *mut AsyncInfo) -> Result<ManuallyDrop<Arc<Queue>>> {
    // SAFETY: the caller's promise.
    let info = unsafe { info.as_mut() }.ok_or_else(|| Error::new("the async info is null"))?;
    // SAFETY: only this function fills it.
    if let Some(queue) = unsafe { peek(info) } {
        if queue.port != device.number {
            return Err(Error::new(format!("the async info belongs to device {}, not {}", queue.port, device.number)));
        }
        return Ok(queue);
    }
    info.queue = Arc::into_raw(device.queue()).cast_mut().cast();
    // SAFETY: filled just now.
    unsafe { peek(info) }.ok_or(Error::Told)
}

/// Does something on a queue of its own and waits for it.
fn at_once(device: &Device, call: impl FnOnce(&Arc<Queue>) -> Result<()>) -> Result<i32> {
    let queue = device.queue();
    let called = call(&queue);
    done(device.synchronize(queue).and(called))
}

fn to_bytes(size: i64, device: &Device) -> Result<u64> {
    u64::try_from(size).map_err(|_| Error::new(format!("a size of {size} bytes on {}", device.name())))
}

// ---- start and end -----------------------------------------------------------------

/// Starts the plugin: MPI, and the meeting of all ranks of the job.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_init_plugin() -> i32 {
    guard("starting", FAIL, || {
        let _ = plugin();
        Ok(SUCCESS)
    })
}

/// libomptarget calls this once per library that goes; the end comes with the process's.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_deinit_plugin() -> i32 {
    SUCCESS
}

/// Number of MPI devices; 0 lets libomptarget use its own host plugin.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_number_of_devices() -> i32 {
    guard("number_of_devices", 0, || Ok(plugin()?.devices.len() as i32))
}

/// A program or library with images appears.
///
/// # Safety
/// `desc` is null or points to a descriptor of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_register_lib(desc: *mut BinDesc) -> i32 {
    // SAFETY: the caller's promise.
    let destructors = have_destructors(unsafe { images_of(desc) });
    let early = !USED.load(Ordering::SeqCst);
    REGISTERED.lock().push(Registered { desc: desc as usize, needs_devices: destructors || early });
    if early {
        notice_exit();
    }
    SUCCESS
}

/// A program or library with images goes: the devices unload them.
///
/// # Safety
/// `desc` is what `register_lib` was called with.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_unregister_lib(desc: *mut BinDesc) -> i32 {
    guard("unregister_lib", FAIL, || {
        // SAFETY: the caller's promise.
        let images = unsafe { images_of(desc) };
        // What was loaded may be a part of what was registered: LLVM unpacks images.
        let covers = |i: &DeviceImage, at| (i.image_start as usize..i.image_end as usize).contains(&at);
        let gone = |l: &mut LoadedImage| images.iter().any(|i| covers(i, l.image));
        let gone: Vec<LoadedImage> = LOADED.lock().extract_if(.., gone).collect();
        REGISTERED.lock().retain(|r| r.desc != desc as usize);
        if EXITING.load(Ordering::SeqCst) || FORKED.load(Ordering::Relaxed) {
            // The devices will be gone before anyone misses the memory.
            finish_if_unused();
            return Ok(SUCCESS);
        }
        let plugin = plugin()?;
        done(gone.iter().try_for_each(|l| plugin.unload(plugin.device(l.device)?, l.id)))
    })
}

/// Takes the program's `requires` directives.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_init_requires(flags: i64) -> i64 {
    note_requires(flags);
    flags
}

fn note_requires(flags: i64) {
    /// `OMP_REQ_UNIFIED_SHARED_MEMORY`.
    const UNIFIED_SHARED_MEMORY: i64 = 8;
    static SAID: AtomicBool = AtomicBool::new(false);
    if flags & UNIFIED_SHARED_MEMORY != 0 && !SAID.swap(true, Ordering::Relaxed) {
        log::warning(
            "the program requires unified_shared_memory, but MPI devices have memory of their own: \
             a region that uses unmapped host memory will fail",
        );
    }
}

/// Starts a device; the plugin's start did so already.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_init_device(id: i32) -> i32 {
    guard("init_device", FAIL, || {
        let device = plugin()?.device(id)?;
        debug!("{} is used", device.name());
        if !USED.swap(true, Ordering::SeqCst) {
            notice_exit();
        }
        Ok(SUCCESS)
    })
}

/// Ends the use of a device: its images are unloaded. (LLVM up to 18 never calls this.)
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_deinit_device(id: i32) -> i32 {
    guard("deinit_device", FAIL, || {
        if FORKED.load(Ordering::Relaxed) {
            return Ok(SUCCESS);
        }
        let plugin = plugin()?;
        done(plugin.unload_all(plugin.device(id)?))
    })
}

/// Sets what `LIBOMPTARGET_INFO` would.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_set_info_flag(flags: u32) {
    log::set_info_level(flags);
}

/// Prints what is known of a device.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_print_device_info(id: i32) {
    guard("print_device_info", (), || {
        let lines = plugin()?.device(id)?.info();
        let lines: String = lines.iter().map(|(what, value)| format!("    {what:<36}{value}\n")).collect();
        crate::plugin::print(lines.as_bytes());
        Ok(())
    });
}

/// Tells what is known of a device: calls `tell` with `context`, a property's name and
/// its value, for each of them. (For LLVM 19 and later, which prints them itself.)
///
/// # Safety
/// `tell` may be called with `context`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_device_info(
    id: i32,
    tell: Option<unsafe extern "C" fn(context: *mut c_void, name: *const c_char, value: *const c_char)>,
    context: *mut c_void,
) -> i32 {
    guard("device_info", FAIL, || {
        let tell = tell.ok_or_else(|| Error::new("the function to tell is null"))?;
        for (name, value) in plugin()?.device(id)?.info() {
            let (name, value) = (CString::new(name).unwrap_or_default(), CString::new(value).unwrap_or_default());
            // SAFETY: the caller's promise.
            unsafe { tell(context, name.as_ptr(), value.as_ptr()) };
        }
        Ok(SUCCESS)
    })
}

// ---- images ------------------------------------------------------------------------

/// The bytes of an image.
///
/// # Safety
/// `image` is null or points to an image descriptor of the program.
unsafe fn bytes_of<'a>(image: *const DeviceImage) -> Result<&'a [u8]> {
    // SAFETY: the caller's promise; the image is a constant of the program.
    unsafe {
        let image = image.as_ref().ok_or_else(|| Error::new("the image is null"))?;
        let len = (image.image_end as usize).checked_sub(image.image_start as usize);
        let len = len.filter(|_| !image.image_start.is_null()).ok_or_else(|| Error::new("the image has no bytes"))?;
        Ok(std::slice::from_raw_parts(image.image_start.cast(), len))
    }
}

/// 1 if the image is for these devices.
///
/// # Safety
/// `image` is null or points to an image descriptor of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_is_valid_binary(image: *mut DeviceImage) -> i32 {
    guard("is_valid_binary", 0, || {
        let machine = plugin()?.device(0)?.hello.machine;
        // SAFETY: the caller's promise.
        let checked = elf::check(unsafe { bytes_of(image) }?, machine);
        checked.as_ref().unwrap_or_else(|e| {
            debug!("an image is not for MPI devices: {e}");
            &()
        });
        Ok(i32::from(checked.is_ok()))
    })
}

/// The same; `info` says for which processor the image was built, which the image does
/// as well.
///
/// # Safety
/// As `is_valid_binary`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_is_valid_binary_info(image: *mut DeviceImage, _info: *mut ImageInfo) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { __tgt_rtl_is_valid_binary(image) }
}

/// 1 if images without code are wanted.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_supports_empty_images() -> i32 {
    0
}

/// Loads an image on a device; its number, and the addresses of its entries there.
fn load(device: &Device, file: &[u8], entries: &[OffloadEntry]) -> Result<(u32, Vec<u64>)> {
    /// `OMP_DECLARE_TARGET_INDIRECT`: the entry's host address is the function's.
    const INDIRECT: i32 = 8;
    let entry = |e: &OffloadEntry| Entry {
        // SAFETY: entry names are C strings of the program.
        name: unsafe { text(e.name) },
        size: e.size as u64,
        indirect: (e.flags & INDIRECT != 0 && e.size == size_of::<usize>()).then_some(e.addr as u64),
    };
    let entries: Vec<Entry> = entries.iter().map(entry).collect();
    let loaded = plugin()?.load(device, file, &entries)?;
    debug!("{} loaded an image of {} bytes with {} entries", device.name(), file.len(), entries.len());
    Ok(loaded)
}

/// A C string's text.
///
/// # Safety
/// `string` is a C string.
unsafe fn text(string: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

/// Loads an image on a device; null on failure.
///
/// # Safety
/// `image` points to an image descriptor of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_load_binary(id: i32, image: *mut DeviceImage) -> *mut TargetTable {
    guard("load_binary", ptr::null_mut(), || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise; `bytes_of` refuses null.
        let (file, host) = unsafe { (bytes_of(image)?, entries_of(&*image)) };
        let key = file.as_ptr() as usize;
        let mut loaded = LOADED.lock();
        if let Some(l) = loaded.iter_mut().find(|l| l.device == id && l.image == key) {
            return Ok(&raw mut *l.table);
        }
        let (image_id, addresses) = load(device, file, host)?;
        let on_device = |(e, at): (&OffloadEntry, u64)| OffloadEntry { addr: at as *mut c_void, ..*e };
        let mut entries: Box<[OffloadEntry]> = host.iter().zip(addresses).map(on_device).collect();
        let range = entries.as_mut_ptr_range();
        let mut table = Box::new(TargetTable { entries_begin: range.start, entries_end: range.end });
        let result = &raw mut *table;
        loaded.push(LoadedImage { device: id, image: key, id: image_id, table, _entries: entries });
        Ok(result)
    })
}

/// Loads an image on a device and makes a handle of it, as LLVM 18's `load_binary` does
/// and later ones want; `deinit_device` unloads it.
///
/// # Safety
/// `image` points to an image descriptor of the program; `binary` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_load_binary(id: i32, image: *mut DeviceImage, binary: *mut DeviceBinary) -> i32 {
    /// `OMP_REGISTER_REQUIRES`.
    const REQUIRES: i32 = 16;
    guard("load_binary", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise; `bytes_of` refuses null.
        let (file, entries) = unsafe { (bytes_of(image)?, entries_of(&*image)) };
        // SAFETY: the caller's promise.
        let binary = unsafe { binary.as_mut() }.ok_or_else(|| Error::new("the result pointer is null"))?;
        // Since LLVM 18 some entries are no symbols but `requires` directives.
        let mut entries = entries.to_vec();
        entries.extract_if(.., |e| e.flags & REQUIRES != 0).for_each(|e| note_requires(e.data.into()));
        let (image, _) = load(device, file, &entries)?;
        *binary = DeviceBinary::of(id, image);
        Ok(SUCCESS)
    })
}

/// Unloads what `mpi_load_binary` loaded.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_mpi_unload_binary(binary: DeviceBinary) -> i32 {
    guard("unload_binary", FAIL, || done(plugin()?.unload(binary.device()?, binary.image())))
}

/// The device's address of a global of a loaded image.
///
/// # Safety
/// `name` is a C string; `address` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_get_global(
    binary: DeviceBinary,
    size: u64,
    name: *const c_char,
    address: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    guard("get_global", FAIL, || unsafe { symbol(binary, name, size, address) })
}

/// What `launch_kernel` takes for a kernel of a loaded image.
///
/// # Safety
/// `name` is a C string; `kernel` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_get_function(
    binary: DeviceBinary,
    name: *const c_char,
    kernel: *mut *mut c_void,
) -> i32 {
    // SAFETY: the caller's promise.
    guard("get_function", FAIL, || unsafe { symbol(binary, name, 0, kernel) })
}

/// # Safety
/// `name` is null or a C string; `address` is null or writable.
unsafe fn symbol(binary: DeviceBinary, name: *const c_char, size: u64, address: *mut *mut c_void) -> Result<i32> {
    if name.is_null() {
        return Err(Error::new("the name is null"));
    }
    // SAFETY: the caller's promise.
    let (name, address) = unsafe { (text(name), address.as_mut()) };
    let address = address.ok_or_else(|| Error::new("the result pointer is null"))?;
    *address = binary.device()?.symbol(binary.image(), &name, size)? as *mut c_void;
    Ok(SUCCESS)
}

impl DeviceBinary {
    fn of(device: i32, image: u32) -> DeviceBinary {
        DeviceBinary { handle: (device as usize) << 32 | image as usize }
    }

    fn device(self) -> Result<&'static Device> {
        plugin()?.device((self.handle >> 32) as i32)
    }

    fn image(self) -> u32 {
        self.handle as u32
    }
}

// ---- memory ------------------------------------------------------------------------

/// Takes memory of a kind (`TargetAllocTy`); null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_data_alloc(id: i32, size: i64, host: *mut c_void, kind: i32) -> *mut c_void {
    guard("data_alloc", ptr::null_mut(), || {
        let plugin = plugin()?;
        let device = plugin.device(id)?;
        let size = to_bytes(size, device)?;
        let at = match kind {
            ALLOC_DEFAULT | ALLOC_DEVICE | ALLOC_DEVICE_NON_BLOCKING => device.alloc(size, host as u64)?,
            ALLOC_HOST => plugin.alloc_host(size)?,
            ALLOC_SHARED => {
                return Err(Error::new(format!(
                    "no memory can be shared between the program and {}; allocate it on one side and map it",
                    device.name()
                )));
            }
            other => return Err(Error::new(format!("unknown kind {other} of memory"))),
        };
        debug!("{}: {size} bytes of kind {kind} at {at:#x}", device.name());
        Ok(at as *mut c_void)
    })
}

/// Gives memory back.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_data_delete(id: i32, at: *mut c_void, _kind: i32) -> i32 {
    guard("data_delete", FAIL, || {
        let plugin = plugin()?;
        debug!("device {id}: {at:p} is free");
        done(plugin.free(plugin.device(id)?, at as u64))
    })
}

/// Host memory needs no lock to be copied from and to.
///
/// # Safety
/// `locked` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_lock(_id: i32, host: *mut c_void, _size: i64, locked: *mut *mut c_void) -> i32 {
    if locked.is_null() {
        return FAIL;
    }
    // SAFETY: the caller's promise.
    unsafe { *locked = host };
    SUCCESS
}

/// The counterpart of `data_lock`.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_data_unlock(_id: i32, _host: *mut c_void) -> i32 {
    SUCCESS
}

// ---- transfers ---------------------------------------------------------------------

/// Copies to the device.
///
/// # Safety
/// `host[..size]` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_submit(id: i32, target: *mut c_void, host: *mut c_void, size: i64) -> i32 {
    guard("data_submit", FAIL, || {
        let plugin = plugin()?;
        let device = plugin.device(id)?;
        let size = to_bytes(size, device)?;
        if size == 0 {
            return Ok(SUCCESS);
        }
        // SAFETY: the caller's promise; the queue is synchronized before the return.
        at_once(device, |queue| unsafe { plugin.submit((device, target as u64), host.cast(), size, queue) })
    })
}

/// Copies to the device as a part of a queue.
///
/// # Safety
/// `host[..size]` is readable, and if large, until the queue is synchronized; `info` is
/// an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_submit_async(
    id: i32,
    target: *mut c_void,
    host: *mut c_void,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    guard("data_submit", FAIL, || {
        let plugin = plugin()?;
        let device = plugin.device(id)?;
        let size = to_bytes(size, device)?;
        debug!("device {id}: {size} bytes from host {host:p} to {target:p}");
        if size == 0 {
            return Ok(SUCCESS);
        }
        // SAFETY: the caller's promise.
        unsafe {
            let queue = queue_of(device, info)?;
            done(plugin.submit((device, target as u64), host.cast(), size, &queue))
        }
    })
}

/// Copies from the device.
///
/// # Safety
/// `host[..size]` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_retrieve(id: i32, host: *mut c_void, target: *mut c_void, size: i64) -> i32 {
    guard("data_retrieve", FAIL, || {
        let plugin = plugin()?;
        let device = plugin.device(id)?;
        let size = to_bytes(size, device)?;
        if size == 0 {
            return Ok(SUCCESS);
        }
        // SAFETY: the caller's promise; the queue is synchronized before the return.
        at_once(device, |queue| unsafe { plugin.retrieve(host.cast(), (device, target as u64), size, queue) })
    })
}

/// Copies from the device as a part of a queue.
///
/// # Safety
/// `host[..size]` is writable until the queue is synchronized; `info` is an async info
/// of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_retrieve_async(
    id: i32,
    host: *mut c_void,
    target: *mut c_void,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    guard("data_retrieve", FAIL, || {
        let plugin = plugin()?;
        let device = plugin.device(id)?;
        let size = to_bytes(size, device)?;
        debug!("device {id}: {size} bytes from {target:p} to host {host:p}");
        if size == 0 {
            return Ok(SUCCESS);
        }
        // SAFETY: the caller's promise.
        unsafe {
            let queue = queue_of(device, info)?;
            done(plugin.retrieve(host.cast(), (device, target as u64), size, &queue))
        }
    })
}

/// Repeats a pattern all over `size` bytes of the device, as a part of a queue. (For LLVM
/// 22 and later.)
///
/// # Safety
/// `pattern[..pattern_size]` is readable; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_data_fill_async(
    id: i32,
    target: *mut c_void,
    pattern: *const c_void,
    pattern_size: i64,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    guard("data_fill", FAIL, || {
        let device = plugin()?.device(id)?;
        let (size, pattern_size) = (to_bytes(size, device)?, to_bytes(pattern_size, device)?);
        if size == 0 {
            return Ok(SUCCESS);
        }
        // SAFETY: the caller's promise.
        let (queue, pattern) =
            unsafe { (queue_of(device, info)?, std::slice::from_raw_parts(pattern.cast(), pattern_size as usize)) };
        done(device.fill(&queue, target as u64, pattern, size))
    })
}

/// 1: any two devices can copy to each other. (LLVM's spelling.)
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_is_data_exchangable(source: i32, destination: i32) -> i32 {
    guard("is_data_exchangable", 0, || {
        let plugin = plugin()?;
        plugin.device(source).and(plugin.device(destination)).map(|_| 1)
    })
}

/// Copies between devices.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_data_exchange(
    source: i32,
    from: *mut c_void,
    destination: i32,
    to: *mut c_void,
    size: i64,
) -> i32 {
    guard("data_exchange", FAIL, || {
        let plugin = plugin()?;
        let (device, other) = (plugin.device(source)?, plugin.device(destination)?);
        let size = to_bytes(size, device)?;
        if size == 0 {
            return Ok(SUCCESS);
        }
        at_once(device, |queue| device.exchange(queue, from as u64, other, to as u64, size))
    })
}

/// Copies between devices as a part of a queue of the source.
///
/// # Safety
/// `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_exchange_async(
    source: i32,
    from: *mut c_void,
    destination: i32,
    to: *mut c_void,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    guard("data_exchange", FAIL, || {
        let plugin = plugin()?;
        let (device, other) = (plugin.device(source)?, plugin.device(destination)?);
        let size = to_bytes(size, device)?;
        debug!("{size} bytes from device {source} {from:p} to device {destination} {to:p}");
        if size == 0 {
            return Ok(SUCCESS);
        }
        // SAFETY: the caller's promise.
        let queue = unsafe { queue_of(device, info)? };
        done(device.exchange(&queue, from as u64, other, to as u64, size))
    })
}

// ---- kernels and queues ------------------------------------------------------------

/// Launches a kernel as a part of a queue.
///
/// # Safety
/// `args` and `offsets` have as many elements as `kernel` says, but `offsets` may be null:
/// then all of them are 0; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_launch_kernel(
    id: i32,
    entry: *mut c_void,
    args: *mut *mut c_void,
    offsets: *mut isize,
    kernel: *mut KernelArgs,
    info: *mut AsyncInfo,
) -> i32 {
    /// The version of the kernel arguments from which on (LLVM 23) kernels of CPUs take one
    /// argument, an array of pointers to theirs.
    const ARRAY: u32 = 5;
    guard("launch_kernel", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise.
        let (queue, args, offsets, version) = unsafe {
            let kernel = kernel.as_ref().ok_or_else(|| Error::new("the kernel arguments are null"))?;
            let n = kernel.num_args as usize;
            let args = if n == 0 { &[][..] } else { std::slice::from_raw_parts(args, n) };
            let offsets = if n == 0 || offsets.is_null() { None } else { Some(std::slice::from_raw_parts(offsets, n)) };
            (queue_of(device, info)?, args, offsets, kernel.version)
        };
        if log::wants_info(log::INFO_PLUGIN_KERNEL) || log::wants_debug() {
            log::info(
                device.number,
                format_args!("Launching kernel {} with {} arguments", device.kernel_name(entry as u64), args.len()),
            );
        }
        let offset = |i| offsets.map_or(0, |offsets| offsets[i]);
        let args = args.iter().enumerate().map(|(i, arg)| arg.wrapping_byte_offset(offset(i)) as u64);
        done(device.launch(&queue, entry as u64, args, version >= ARRAY))
    })
}

/// Waits for everything in a queue.
///
/// # Safety
/// `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_synchronize(id: i32, info: *mut AsyncInfo) -> i32 {
    guard("synchronize", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise; the queue was put there by `queue_of`, and the
        // async info gives its share up.
        let queue = unsafe {
            let info = info.as_mut().ok_or_else(|| Error::new("the async info is null"))?;
            let queue = peek(info);
            info.queue = ptr::null_mut();
            queue
        };
        done(queue.map_or(Ok(()), |queue| device.synchronize(ManuallyDrop::into_inner(queue))))
    })
}

/// Tells libomptarget, by a null `Queue`, whether everything in a queue is done.
///
/// # Safety
/// `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_query_async(id: i32, info: *mut AsyncInfo) -> i32 {
    guard("query_async", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise.
        let info = unsafe { info.as_mut() }.ok_or_else(|| Error::new("the async info is null"))?;
        // SAFETY: put there by `queue_of`.
        let Some(queue) = (unsafe { peek(info) }) else { return Ok(SUCCESS) };
        let result = device.query(&queue);
        if !matches!(result, Ok(false)) {
            info.queue = ptr::null_mut();
            drop(ManuallyDrop::into_inner(queue));
        }
        done(result.map(drop))
    })
}

/// Makes an async info for an interop object.
///
/// # Safety
/// `info` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_init_async_info(_id: i32, info: *mut *mut AsyncInfo) -> i32 {
    guard("init_async_info", FAIL, || {
        // SAFETY: the caller's promise. libomptarget has no call that frees it.
        let info = unsafe { info.as_mut() }.ok_or_else(|| Error::new("the result pointer is null"))?;
        *info = Box::into_raw(Box::new(AsyncInfo { queue: ptr::null_mut() }));
        Ok(SUCCESS)
    })
}

/// MPI devices have no native handles for an interop object.
///
/// # Safety
/// `info` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_init_device_info(id: i32, info: *mut DeviceInfo, error: *mut *const c_char) -> i32 {
    let known = guard("init_device_info", FAIL, || done(plugin()?.device(id).map(drop)));
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(info) = info.as_mut() {
            *info = DeviceInfo { context: ptr::null_mut(), device: ptr::null_mut() };
        }
        if known != SUCCESS && !error.is_null() {
            *error = c"there is no such MPI device".as_ptr();
        }
    }
    known
}

// ---- events ------------------------------------------------------------------------

/// The event that a handle stands for; its count of owners stays as it is.
///
/// # Safety
/// `event` is null or a handle of `create_event` that was not destroyed.
unsafe fn event_of(event: *mut c_void) -> Result<ManuallyDrop<Arc<Event>>> {
    if event.is_null() {
        return Err(Error::new("the event is null"));
    }
    // SAFETY: the caller's promise.
    Ok(ManuallyDrop::new(unsafe { Arc::from_raw(event.cast::<Event>().cast_const()) }))
}

/// Makes an event.
///
/// # Safety
/// `event` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_create_event(_id: i32, event: *mut *mut c_void) -> i32 {
    guard("create_event", FAIL, || {
        // SAFETY: the caller's promise.
        let event = unsafe { event.as_mut() }.ok_or_else(|| Error::new("the result pointer is null"))?;
        *event = Arc::into_raw(Arc::new(Event::default())).cast_mut().cast();
        Ok(SUCCESS)
    })
}

/// Records an event behind what is in a queue.
///
/// # Safety
/// `event` is a live event; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_record_event(id: i32, event: *mut c_void, info: *mut AsyncInfo) -> i32 {
    guard("record_event", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise.
        let (event, queue) = unsafe { (event_of(event)?, queue_of(device, info)?) };
        device.record(&event, &queue);
        Ok(SUCCESS)
    })
}

/// Lets a queue go on only when an event is complete.
///
/// # Safety
/// `event` is a live event; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_wait_event(id: i32, event: *mut c_void, info: *mut AsyncInfo) -> i32 {
    guard("wait_event", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise.
        let (event, queue) = unsafe { (event_of(event)?, queue_of(device, info)?) };
        done(device.wait_event(&event, &queue))
    })
}

/// Tells whether an event is complete. (For LLVM 22 and later.)
///
/// # Safety
/// `event` is a live event; `complete` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_query_event(id: i32, event: *mut c_void, complete: *mut bool) -> i32 {
    guard("query_event", FAIL, || {
        // SAFETY: the caller's promise.
        let (event, complete) = unsafe { (event_of(event)?, complete.as_mut()) };
        let complete = complete.ok_or_else(|| Error::new("the result pointer is null"))?;
        *complete = plugin()?.device(id)?.query_event(&event)?;
        Ok(SUCCESS)
    })
}

/// Waits until an event is complete.
///
/// # Safety
/// `event` is a live event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_sync_event(id: i32, event: *mut c_void) -> i32 {
    guard("sync_event", FAIL, || {
        // SAFETY: the caller's promise.
        let event = unsafe { event_of(event)? };
        done(plugin()?.device(id)?.sync_event(&event))
    })
}

/// Destroys an event.
///
/// # Safety
/// `event` is a live event; it is none from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_destroy_event(_id: i32, event: *mut c_void) -> i32 {
    guard("destroy_event", FAIL, || {
        // SAFETY: the caller's promise.
        drop(ManuallyDrop::into_inner(unsafe { event_of(event)? }));
        Ok(SUCCESS)
    })
}
