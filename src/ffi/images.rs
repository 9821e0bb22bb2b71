// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Images, and the kernels and globals in them.

use super::start::note_requires;
use super::types::*;
use super::*;
use crate::base::{elf, node};
use crate::debug;
use crate::plugin::device::Device;
use crate::plugin::image::Entry;
use std::collections::BTreeSet;
use std::ffi::{CStr, c_char};
use std::ops::Range;

pub(super) static LOADED: Mutex<Vec<LoadedImage>> = Mutex::new(Vec::new());

/// Where images begin, or did, that were said to be for these devices.
static TAKEN: Mutex<BTreeSet<usize>> = Mutex::new(BTreeSet::new());

/// Of what LLVM 18's libomptarget knows an image or a kernel by: its kernels take `dyn_ptr`, see
/// [`takes_dyn_ptr`]. No device's address has this bit.
pub(super) const DYN_PTR: usize = 1 << 63;

/// An image that was loaded on a device, and the table that libomptarget reads of it.
pub(super) struct LoadedImage {
    pub(super) device: i32,
    /// Identifies it to libomptarget.
    pub(super) image: usize,
    pub(super) id: u32,
    table: Box<TargetTable>,
    /// What `table` points to.
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
    unsafe {
        match desc.as_ref() {
            Some(d) if d.num_device_images > 0 => {
                std::slice::from_raw_parts(d.device_images, d.num_device_images as usize)
            }
            _ => &[],
        }
    }
}

/// Where an image lies.
pub(super) fn range_of(image: &DeviceImage) -> Range<usize> {
    image.image_start as usize..image.image_end as usize
}

/// The entries of an image.
///
/// # Safety
/// The image's entries lie between the two pointers.
pub(super) unsafe fn entries_of(image: &DeviceImage) -> &[OffloadEntry] {
    let n = (image.entries_end as usize).saturating_sub(image.entries_begin as usize) / size_of::<OffloadEntry>();
    // SAFETY: the caller's promise; without entries the pointers may be null.
    if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(image.entries_begin, n) } }
}

/// The first bytes of what lies at these addresses, or `None` if nothing readable does.
fn head(place: &Range<usize>) -> Result<Option<([u8; elf::HEADER], usize)>> {
    let mut head = [0u8; elf::HEADER];
    let len = head.len().min(place.len());
    // SAFETY: the array has as many bytes.
    let n = unsafe { node::read_any(place.start as u64, head.as_mut_ptr(), len) };
    if n == len as isize {
        return Ok(Some((head, len)));
    }
    let e = std::io::Error::last_os_error();
    if n >= 0 || e.raw_os_error() == Some(libc::EFAULT) {
        return Ok(None);
    }
    Err(Error::from(e).context("an image can't be read (process_vm_readv); allow that call here"))
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
        head(&range_of(image))?.ok_or_else(|| Error::new("the image's library has gone"))?;
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
        if matches!(choice(), Choice::Stock) {
            return Ok(0);
        }
        // SAFETY: the caller's promise.
        let place = unsafe { image.as_ref() }.map_or(0..0, range_of);
        // "No" would leave the image to the stock plugin, without a word.
        let Some((head, len)) = head(&place).unwrap_or_else(|e| give_up(e)) else {
            // LLVM 15 to 18 show images of libraries that have gone again and again.
            // SAFETY: the caller's promise.
            return Ok(i32::from(unsafe { take_again(image) }));
        };
        // Devices are of the program's own kind: no others are met.
        let checked = elf::check(&head[..len], elf::MACHINE);
        match &checked {
            Ok(()) => {
                TAKEN.lock().insert(place.start);
            }
            Err(e) => debug!("an image is not for MPI devices: {e}"),
        }
        Ok(i32::from(checked.is_ok()))
    })
}

/// Whether an image whose library has gone shall be taken once more. LLVM 15 to 17 show it to
/// each plugin until one takes it, and LLVM's own plugins read it where it no longer lies: so
/// who took it before has to. libomptarget then looks for constructors among the entries of
/// its copy of the descriptor, which have gone too: the copy is left with none.
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
    if !USED.swap(true, Ordering::SeqCst) {
        // `init_device` would be too early: LLVM 18 calls it where a library's constructor registers
        // its images. Images are loaded by a device's first use.
        notice_exit(false);
    }
    let loaded = ending::load(|| plugin()?.load(device, file, &entries))?;
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

/// Loads an image on a device. LLVM 14 to 17 give two arguments and take a table of the
/// image's entries, null on failure; LLVM 18 gives a third one, a handle to fill, and takes
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
    match generation() {
        Generation::Llvm14 | Generation::Llvm15 => {
            // SAFETY: the caller's promise.
            guard("load_binary", ptr::null_mut(), || unsafe { load_table(id, image) })
        }
        Generation::Llvm18 => {
            LEAVES_IMAGES.store(true, Ordering::Relaxed);
            // SAFETY: the caller's promise.
            let status = unsafe {
                let status = __tgt_rtl_mpi_load_binary(id, image, binary);
                if status == SUCCESS && bytes_of(image).is_ok_and(takes_dyn_ptr) {
                    (*binary).handle |= DYN_PTR;
                }
                status
            };
            ptr::without_provenance_mut(status.cast_unsigned() as usize)
        }
    }
}

/// Whether the kernels of an image take an argument `dyn_ptr` before all others, which LLVM 18's
/// libomptarget leaves to the plugin. Kernels of clang 18 do, older ones do not, and the calls of the
/// program are the same for both (kernel arguments of version 2), so the compiler that the image names
/// decides. If it names none, or several, the kernels take it, as LLVM 18's own plugins assume.
fn takes_dyn_ptr(file: &[u8]) -> bool {
    let releases = elf::clang_releases(file);
    releases.is_empty() || releases.iter().any(|&release| release >= 18)
}

/// Loads an image on a device; a table of its entries, which stays until the program's or
/// library's images go.
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
    let on_device = |(e, at): (&OffloadEntry, u64)| OffloadEntry { addr: at as *mut c_void, ..*e };
    let mut entries: Box<[OffloadEntry]> = host.iter().zip(addresses).map(on_device).collect();
    let range = entries.as_mut_ptr_range();
    let mut table = Box::new(TargetTable { entries_begin: range.start, entries_end: range.end });
    let result = &raw mut *table;
    loaded.push(LoadedImage { device: id, image: key, id: image_id, table, _entries: entries });
    Ok(result)
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
        // Since LLVM 19 some entries are no symbols but `requires` directives.
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
    guard("unload_binary", FAIL, || {
        if is_closed() {
            return Ok(SUCCESS);
        }
        done(plugin()?.unload(binary.device()?, binary.image()))
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
    let mut at = binary.device()?.symbol(binary.image(), &name, size)?;
    if size == 0 && binary.handle & DYN_PTR != 0 {
        at |= DYN_PTR as u64;
    }
    *address = at as *mut c_void;
    Ok(SUCCESS)
}

impl DeviceBinary {
    fn of(device: i32, image: u32) -> DeviceBinary {
        DeviceBinary { handle: (device as usize) << 32 | image as usize }
    }

    fn device(self) -> Result<&'static Device> {
        plugin()?.device(((self.handle & !DYN_PTR) >> 32) as i32)
    }

    fn image(self) -> u32 {
        self.handle as u32
    }
}
