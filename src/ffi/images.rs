// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Images, and the kernels and globals in them.

use super::*;
use crate::base::elf;
use crate::base::sync::Mutex;
use crate::debug;
use crate::plugin::devices::images::Entry;
use crate::plugin::{image_compatibility, unified};
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::ops::Range;

pub(super) static LOADED: Mutex<Vec<LoadedImage>> = Mutex::new(Vec::new());

/// The addresses of the images that this plugin took, even if they are unloaded by now.
static TAKEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// An image that was loaded on a device, and its table for libomptarget.
pub(super) struct LoadedImage {
    pub(super) device: i32,
    /// The image's address in the program.
    pub(super) image: usize,
    pub(super) id: u32,
    table: Box<TargetTable>,
    /// The entries that `table` points to.
    _entries: Box<[OffloadEntry]>,
}

// SAFETY: the pointers lead to constants of the program and into the entries beside them.
unsafe impl Send for LoadedImage {}

/// The images of a program or library.
///
/// # Safety
/// `desc` is null or points to a descriptor with as many images as it says.
pub(super) unsafe fn images_of<'a>(desc: *const BinDesc) -> &'a [DeviceImage] {
    // SAFETY: the caller's promise.
    unsafe { desc.as_ref().map_or(&[], |d| array(d.device_images, d.num_device_images.max(0) as usize)) }
}

pub(super) fn range_of(image: &DeviceImage) -> Range<usize> {
    image.image_start as usize..image.image_end as usize
}

/// The entries of an image.
///
/// # Safety
/// The image's entries lie between the two pointers.
pub(super) unsafe fn entries_of(image: &DeviceImage) -> &[OffloadEntry] {
    let n = (image.entries_end as usize).saturating_sub(image.entries_begin as usize) / size_of::<OffloadEntry>();
    // SAFETY: the caller's promise.
    unsafe { array(image.entries_begin, n) }
}

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
        image_compatibility::head(&range_of(image))?.ok_or_else(|| Error::new("the image's library has gone"))?;
        Ok(std::slice::from_raw_parts(image.image_start.cast(), len))
    }
}

/// 1 if the image is for these devices.
///
/// # Safety
/// `image` is null or points to an image descriptor of the program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_is_valid_binary(image: *mut DeviceImage) -> i32 {
    // SAFETY: the caller's promise.
    guard("is_valid_binary", 0, || unsafe { take(image, None) })
}

/// 1 if the image is for that device or, with `None`, for any device.
///
/// # Safety
/// As `is_valid_binary`.
unsafe fn take(image: *mut DeviceImage, device: Option<usize>) -> Result<i32> {
    if matches!(choice(), Choice::Stock) {
        return Ok(0);
    }
    lifecycle::note_image();
    if device.is_none_or(|device| device == 0) {
        lifecycle::check_libraries();
    }
    // SAFETY: the caller's promise.
    let place = unsafe { image.as_ref() }.map_or(0..0, range_of);
    // With 0, the stock plugin would take the image without any message.
    let Some(head) = image_compatibility::head(&place).unwrap_or_else(|e| give_up(e)) else {
        // LLVM 15 to 18 show images of unloaded libraries again and again.
        // SAFETY: the caller's promise.
        return Ok(i32::from(unsafe { take_again(image) }));
    };
    let taken = image_compatibility::is_for(&place, &head, device);
    if taken {
        TAKEN.lock().insert(place.start);
    }
    Ok(taken.into())
}

/// Whether to take an image of an unloaded library once more. LLVM 15 to 17 show it to each plugin
/// until one takes it, and LLVM's own plugins would read its unmapped bytes, so the plugin that took it
/// before must take it again. libomptarget then looks for constructors among the entries of its copy of
/// the descriptor. The entries are unmapped too, so this function empties the copy's list.
///
/// # Safety
/// `image` is null or points to libomptarget's copy of an image descriptor.
unsafe fn take_again(image: *mut DeviceImage) -> bool {
    // SAFETY: the caller's promise.
    let Some(image) = (unsafe { image.as_mut() }) else { return false };
    let again = generation() == Generation::Llvm15 && TAKEN.lock().contains(&(image.image_start as usize));
    if again {
        image.entries_end = image.entries_begin;
    }
    again
}

/// `e_machine` of the images that devices execute; of the first device's if they differ. (For LLVM 19 and later.)
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_mpi_machine() -> u16 {
    guard("machine", elf::MACHINE, || {
        let targets = lifecycle::accelerators().unwrap_or_default();
        Ok(targets.first().map_or(elf::MACHINE, |target| target.machine))
    })
}

/// 1 if the image is for this device. (For LLVM 19 and later.)
///
/// # Safety
/// As `is_valid_binary`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_is_for_device(id: i32, image: *mut DeviceImage) -> i32 {
    // SAFETY: the caller's promise.
    guard("is_for_device", 0, || unsafe { take(image, usize::try_from(id).ok()) })
}

/// Like `is_valid_binary`; `info` names the processor that the image was built for, as the image itself does.
///
/// # Safety
/// As `is_valid_binary`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_is_valid_binary_info(image: *mut DeviceImage, _info: *mut ImageInfo) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { __tgt_rtl_is_valid_binary(image) }
}

/// 0: these devices need no images without code.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_supports_empty_images() -> i32 {
    0
}

/// Notes the requirements of a `requires` directive.
pub(super) fn note_requires(flags: i64) {
    /// `OMP_REQ_UNIFIED_SHARED_MEMORY`.
    const UNIFIED_SHARED_MEMORY: i64 = 8;
    if flags & UNIFIED_SHARED_MEMORY != 0 {
        unified::note_directive();
    }
}

/// Loads an image on a device. Returns its number, and the addresses of its entries there.
fn load(device: &Device, file: &[u8], entries: &[OffloadEntry]) -> Result<(u32, Vec<u64>)> {
    /// `OMP_DECLARE_TARGET_INDIRECT`: the entry's host address is the function's.
    const INDIRECT: i32 = 8;
    let entry = |e: &OffloadEntry| Entry {
        // SAFETY: entry names are C strings of the program.
        name: unsafe { text(e.name) },
        size: e.size as u64,
        flags: e.flags.cast_unsigned(),
        indirect: (e.flags & INDIRECT != 0 && e.size == size_of::<usize>()).then_some(e.addr as u64),
    };
    let entries: Vec<Entry> = entries.iter().map(entry).collect();
    lifecycle::note_use();
    let loaded = plugin()?.load(device, file, &entries)?;
    debug!("{} loaded an image of {} bytes with {} entries", device.name(), file.len(), entries.len());
    Ok(loaded)
}

/// # Safety
/// `string` is a C string.
unsafe fn text(string: *const c_char) -> String {
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(string) }.to_string_lossy().into_owned()
}

/// Loads an image on a device. LLVM 14 to 17 pass two arguments and expect a table of the
/// image's entries, null on failure; LLVM 18 passes a third one, a handle to fill, and takes
/// the lower half of the result as a status.
///
/// # Safety
/// `image` points to an image descriptor of the program; `binary` is writable if LLVM 18's
/// libomptarget calls. An argument that was not given is whatever the register holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_load_binary(
    id: i32,
    image: *mut DeviceImage,
    binary: *mut DeviceBinary,
) -> *mut TargetTable {
    ending::with_locks(|| match generation() {
        Generation::Llvm14 | Generation::Llvm15 => {
            // SAFETY: the caller's promise.
            guard("load_binary", ptr::null_mut(), || unsafe { load_table(id, image) })
        }
        Generation::Llvm18 => {
            // SAFETY: the caller's promise.
            let status = on_device("load_binary", id, |device| unsafe { load_for_llvm18(device, image, binary) });
            ptr::without_provenance_mut(status.cast_unsigned() as usize)
        }
    })
}

/// Loads an image on a device for LLVM 18's libomptarget, and makes a handle that says whether its kernels take
/// `dyn_ptr`.
///
/// # Safety
/// As `mpi_load_binary`.
unsafe fn load_for_llvm18(device: &Device, image: *mut DeviceImage, binary: *mut DeviceBinary) -> Result<()> {
    const OLDER: &str = "LLVM 18's libomptarget can't run kernels of older compilers on an accelerator";
    lifecycle::unload_at_end();
    // SAFETY: the caller's promise.
    let takes_dyn_ptr = takes_dyn_ptr(unsafe { bytes_of(image)? });
    if !takes_dyn_ptr && device.is_accelerator() {
        return Err(Error::new(OLDER));
    }
    // SAFETY: the caller's promise.
    let binary = unsafe { load_handle(device, image, binary)? };
    if takes_dyn_ptr {
        binary.handle |= DYN_PTR;
    }
    Ok(())
}

/// Whether the kernels of an image take an argument `dyn_ptr` before all others, which LLVM 18's
/// libomptarget leaves to the plugin. Kernels of clang 18 do, older ones do not. The program calls both
/// alike (kernel arguments of version 2), so the compiler that the image names decides. If it names
/// none, or several, the kernels take it, as LLVM 18's own plugins assume.
fn takes_dyn_ptr(file: &[u8]) -> bool {
    let releases = elf::clang_releases(file);
    releases.is_empty() || releases.iter().any(|&release| release >= 18)
}

/// Loads an image on a device. Returns a table of its entries, which stays valid until the program
/// or library unregisters its images.
///
/// # Safety
/// `image` points to an image descriptor of the program.
unsafe fn load_table(id: i32, image: *mut DeviceImage) -> Result<*mut TargetTable> {
    let device = plugin()?.device(id)?;
    // SAFETY: the caller's promise; `bytes_of` refuses null.
    let (file, host) = unsafe { (bytes_of(image)?, entries_of(&*image)) };
    let key = file.as_ptr() as usize;
    let mut loaded = LOADED.lock();
    if let Some(l) = loaded.iter_mut().find(|l| l.device == id && l.image == key) {
        return Ok(&raw mut *l.table);
    }
    let (image_id, addresses) = load(device, file, host)?;
    if unified::is_required() {
        // SAFETY: the caller's promise.
        unsafe { point_to_program(device, host, &addresses)? };
    }
    let on_device = |(e, at): (&OffloadEntry, u64)| OffloadEntry { addr: at as *mut c_void, ..*e };
    let mut entries: Box<[OffloadEntry]> = host.iter().zip(addresses).map(on_device).collect();
    let range = entries.as_mut_ptr_range();
    let mut table = Box::new(TargetTable { entries_begin: range.start, entries_end: range.end });
    let result = &raw mut *table;
    loaded.push(LoadedImage { device: id, image: key, id: image_id, table, _entries: entries });
    Ok(result)
}

/// Fills in the pointers through which the regions of an image reach the program's own `declare target` variables.
/// Later releases of libomptarget do this themselves.
///
/// # Safety
/// The entries are those of the program.
unsafe fn point_to_program(device: &Device, entries: &[OffloadEntry], addresses: &[u64]) -> Result<()> {
    /// The end of these pointers' names.
    const POINTER: &str = "_decl_tgt_ref_ptr";
    let queue = device.queues.queue();
    // SAFETY: entry names are C strings of the program.
    let is_pointer = |e: &OffloadEntry| e.size == size_of::<usize>() && unsafe { text(e.name) }.ends_with(POINTER);
    for (entry, &at) in entries.iter().zip(addresses).filter(|(e, at)| is_pointer(e) && **at != 0) {
        // SAFETY: the program has this pointer too, which leads to its variable.
        unsafe { plugin()?.submit((device, at), entry.addr.cast(), entry.size as u64, &queue)? };
    }
    device.queues.synchronize(queue)
}

/// Loads an image on a device and makes a handle of it, as LLVM 18 and later expect;
/// `deinit_device` unloads it.
///
/// # Safety
/// `image` points to an image descriptor of the program; `binary` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_load_binary(id: i32, image: *mut DeviceImage, binary: *mut DeviceBinary) -> i32 {
    // SAFETY: the caller's promise.
    let load = |device: &Device| unsafe { load_handle(device, image, binary).map(drop) };
    ending::with_locks(|| on_device("load_binary", id, load))
}

/// Loads an image on a device and makes a handle of it.
///
/// # Safety
/// As `mpi_load_binary`.
unsafe fn load_handle<'a>(
    device: &Device,
    image: *mut DeviceImage,
    binary: *mut DeviceBinary,
) -> Result<&'a mut DeviceBinary> {
    /// `OMP_REGISTER_REQUIRES`.
    const REQUIRES: i32 = 16;
    // SAFETY: the caller's promise; `bytes_of` refuses null.
    let (file, entries, binary) = unsafe { (bytes_of(image)?, entries_of(&*image), result(binary)?) };
    // Since LLVM 19 some entries are no symbols but `requires` directives.
    let mut entries = entries.to_vec();
    entries.extract_if(.., |e| e.flags & REQUIRES != 0).for_each(|e| note_requires(e.data.into()));
    let (image, _) = load(device, file, &entries)?;
    *binary = DeviceBinary { handle: device.number << 32 | image as usize };
    Ok(binary)
}

/// Unloads what `mpi_load_binary` loaded.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_mpi_unload_binary(binary: DeviceBinary) -> i32 {
    let unload = || {
        if lifecycle::is_closed() {
            return Ok(());
        }
        plugin()?.unload(binary.device()?, binary.image())
    };
    ending::with_locks(|| status("unload_binary", unload))
}

/// Lets kernels call functions by their addresses in the program. The table, in the device's
/// memory, has `n` pairs: such an address, and the function's on the device. (For LLVM 22 and
/// later; earlier releases mark such functions in an image's entries.)
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_mpi_redirect(id: i32, table: usize, n: u64) -> i32 {
    on_device("redirect", id, |device| {
        let mut pairs = vec![[0u64; 2]; n as usize];
        let (to, len) = (pairs.as_mut_ptr().cast(), size_of_val(pairs.as_slice()) as u64);
        let queue = device.queues.queue();
        // SAFETY: the pairs have `len` bytes; the queue is synchronized below.
        let retrieved = unsafe { device.memory.retrieve(&queue, to, table as u64, len) };
        device.queues.synchronize(queue).and(retrieved)?;
        let pointers = (table as u64 + size_of::<u64>() as u64..).step_by(size_of::<[u64; 2]>());
        device.images.redirect(pairs.iter().map(|&[from, _]| from).zip(pointers))
    })
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
    status("get_global", || unsafe { symbol(binary, name, size, address) })
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
    status("get_function", || unsafe { symbol(binary, name, 0, kernel) })
}

/// # Safety
/// `name` is null or a C string; `address` is null or writable.
unsafe fn symbol(binary: DeviceBinary, name: *const c_char, size: u64, address: *mut *mut c_void) -> Result<()> {
    if name.is_null() {
        return Err(Error::new("the name is null"));
    }
    // SAFETY: the caller's promise.
    let (name, address) = unsafe { (text(name), result(address)?) };
    let mut at = binary.device()?.images.symbol(binary.image(), &name, size)?;
    if size == 0 && binary.handle & DYN_PTR != 0 {
        at |= DYN_PTR as u64;
    }
    *address = at as *mut c_void;
    Ok(())
}

impl DeviceBinary {
    fn device(self) -> Result<&'static Device> {
        plugin()?.device(((self.handle & !DYN_PTR) >> 32) as i32)
    }

    fn image(self) -> u32 {
        self.handle as u32
    }
}
