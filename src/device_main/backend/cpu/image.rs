// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Loads device images from sealed files in memory, by the dynamic loader.

use crate::base::{Error, Result, elf};
use crate::device_main::images::library::{FLAGS, find_library, keep};
use crate::device_main::images::pending_image::PendingImage;
use crate::sys::{mapping, node, node::memfd};
use crate::wire::command::libraries;
use libloading::os::unix::{Library, RTLD_LAZY};
use memmap2::Mmap;
use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals};
use std::collections::{BTreeMap, HashSet};
use std::ffi::{CString, c_void};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// The bytes and the number of holes that are reserved before an image is moved; both double with each move.
const FIRST_SKIP: usize = 64 << 20;
const HOLES: usize = 64;
const MAX_SKIPS: usize = 10;

pub(super) fn load(pending: &PendingImage, machine: u16) -> Result<Image> {
    let (image, list) = pending.contents();
    let mut parsed = elf::Image::parse(image, machine).map_err(|e| e.context("the image is"))?;
    let hints = libraries(list);
    let mut file = pending.file.try_clone()?;
    let libomptarget = hints.keys().find(|name| is_libomptarget(name));
    let is_called = libomptarget.is_some_and(|name| may_call(name, image, &parsed.needed, &hints));
    if let (Some(name), false) = (libomptarget, is_called)
        && let Some(copy) = copy_without(name, image)
    {
        file = copy;
        parsed.needed.retain(|needed| needed != name);
    }
    seal(&file)?;
    for name in parsed.needed.iter().filter(|name| is_runtime(name)) {
        load_from_program(name, &hints);
    }
    // clang 14 does not link images with libomptarget.
    if let Some(name) = libomptarget.filter(|name| is_called && !parsed.needed.contains(name)) {
        find_runtime(name, &hints);
    }
    let library = open(&file, FLAGS).or_else(|first| {
        for name in &parsed.needed {
            find_library(name, &hints, 0);
        }
        open(&file, FLAGS).map_err(|e| if e == first { e } else { e.context(first) })
    });
    let library = library.map_err(|e| {
        let host = node::host_name();
        Error::new(format!("the image can't be loaded on host {host}: {e}; install what is missing there"))
    })?;
    // libomp's threads outlive the image. The libraries are already loaded; this only changes their flags.
    for name in parsed.needed.iter().filter(|name| is_runtime(name)) {
        keep(name.as_ref(), RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
    }
    set_up_streams(&library);
    point_to_streams(&library);
    let base = load_address(&library)?;
    Ok(Image { parsed, base, file, library, moves: 0 })
}

/// True if an image that needs these libraries may call libomptarget, if libomptarget is loaded, or if its exports
/// can't be read.
fn may_call(libomptarget: &str, image: &[u8], needed: &[String], hints: &BTreeMap<String, PathBuf>) -> bool {
    let exports = hints.get(libomptarget).and_then(|path| elf::exports(&elf::map(path).ok()?).ok());
    let Some(functions) = exports.filter(|_| !is_loaded(libomptarget)) else { return true };
    // The image itself may be linked with libomptarget without calling it.
    let others: Vec<String> = needed.iter().filter(|name| !is_libomptarget(name)).cloned().collect();
    Callers { functions, hints, seen: HashSet::new() }.include(image, &others)
}

/// A copy of an image that loads without one of its libraries. clang links images with libomptarget, which needs
/// libLLVM, which takes longer to load than everything else.
fn copy_without(library: &str, image: &[u8]) -> Option<File> {
    let (at, entry) = elf::without_library(image, library)?;
    // Change a copy: other devices may be receiving the image from this one's file.
    let copy = copy(image).ok()?;
    copy.write_all_at(&entry, at).ok()?;
    Some(copy)
}

/// Searches for callers of libomptarget.
struct Callers<'a> {
    /// libomptarget's exports.
    functions: HashSet<String>,
    hints: &'a BTreeMap<String, PathBuf>,
    /// Libraries that were already checked.
    seen: HashSet<String>,
}

impl Callers<'_> {
    /// True if a file, or a library that it needs, may call libomptarget.
    fn include(&mut self, file: &[u8], needed: &[String]) -> bool {
        let Ok(imports) = elf::imports(file) else { return true };
        // A library that the file opens may be linked with libomptarget.
        let may =
            |name: &String| self.functions.contains(name) || ["dlopen", "dlmopen", "dlsym"].contains(&name.as_str());
        imports.iter().any(may) || needed.iter().any(|name| self.include_library(name))
    }

    fn include_library(&mut self, name: &str) -> bool {
        if is_libomptarget(name) {
            return true;
        }
        // A loaded library was checked when it was loaded. libomp imports none of the functions: it looks them up, and
        // does without them.
        if is_runtime(name) || is_loaded(name) || !self.seen.insert(name.to_string()) {
            return false;
        }
        let Some(library) = self.hints.get(name).and_then(|path| elf::map(path).ok()) else { return true };
        elf::needed_libraries(&library).map_or(true, |needed| self.include(&library, &needed))
    }
}

/// Initializes `std::cout` and the other streams, which clang 14 omits from the initializers of an image.
fn set_up_streams(library: &Library) {
    let constructor = b"_ZNSt8ios_base4InitC1Ev\0";
    // SAFETY: `std::ios_base::Init::Init()` may be called any number of times; its class has no members.
    unsafe {
        if let Ok(init) = library.get::<unsafe extern "C" fn(*mut c_void)>(constructor) {
            let mut object = 0u8;
            init((&raw mut object).cast());
        }
    }
}

/// Fills in the pointers by which regions reach `stdin`, `stdout` and `stderr` in a program with `requires
/// unified_shared_memory`, if they are null: clang 22's own `stdio.h` declares these variables for devices only, so
/// libomptarget, which fills in all other pointers, does not know them.
fn point_to_streams(library: &Library) {
    for name in ["stdin", "stdout", "stderr"] {
        let Some(variable) = library_symbol(name) else { continue };
        // SAFETY: this is the compiler's name for a pointer to the variable. No kernel of the image runs yet. (Its
        // constructors have run, and found null.)
        unsafe {
            if let Ok(pointer) = library.get::<*mut u64>(format!("{name}_decl_tgt_ref_ptr").as_bytes())
                && **pointer == 0
            {
                **pointer = variable;
            }
        }
    }
}

/// Loads these libraries except libomptarget, which few images call. A library that can't be loaded is reported when an
/// image needs it.
pub(super) fn preload(list: &[u8]) {
    let hints = libraries(list);
    for name in hints.keys().filter(|name| !is_libomptarget(name)) {
        find_runtime(name, &hints);
    }
}

/// True for libomp and libomptarget.
fn is_runtime(name: &str) -> bool {
    name.starts_with("libomp")
}

fn is_libomptarget(name: &str) -> bool {
    name.starts_with("libomptarget.so")
}

fn is_loaded(name: &str) -> bool {
    // SAFETY: nothing is loaded.
    unsafe { Library::open(Some(name), RTLD_LAZY | libc::RTLD_NOLOAD) }.is_ok()
}

/// Loads libomp or libomptarget from the program's path, if this node has it there. libomp has the same name in all
/// releases, and libomptarget takes the one beside it: the loader could find a different one, and two in a process
/// abort it.
fn load_from_program(name: &str, hints: &BTreeMap<String, PathBuf>) -> bool {
    hints.get(name).is_some_and(|path| keep(path.as_ref(), FLAGS))
}

/// Loads libomp or libomptarget from the program's path, or from wherever this node has it.
fn find_runtime(name: &str, hints: &BTreeMap<String, PathBuf>) {
    let _ = load_from_program(name, hints) || find_library(name, hints, 0);
}

/// A file in memory with these contents.
fn copy(bytes: &[u8]) -> Result<File> {
    let copy = memfd(c"omptarget-mpi-image", libc::MFD_ALLOW_SEALING)?;
    copy.write_all_at(bytes, 0)?;
    Ok(copy)
}

/// Makes the file immutable, even for this process. Before Linux 5.1, while another process copies from the file,
/// this descriptor still allows writing.
fn seal(file: &File) -> Result<()> {
    let add = |more| fcntl_add_seals(file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL | more);
    // Without writable mappings, FUTURE_WRITE (Linux 5.1) equals WRITE; but the kernel refuses WRITE while another
    // process, to which the image is passed on, copies from the file.
    let sealed = add(SealFlags::FUTURE_WRITE).or_else(|_| add(SealFlags::WRITE)).or_else(|_| add(SealFlags::empty()));
    sealed.or_else(|e| {
        // A lost worker, which this one replaces, may have sealed the file.
        let is_sealed = fcntl_get_seals(file).is_ok_and(|seals| seals.contains(SealFlags::SEAL));
        if is_sealed { Ok(()) } else { Err(Error::from(e).context("sealing an image")) }
    })
}

/// A path of an open file that was never used before: the loader takes a known path for a library that it has
/// loaded, and descriptors are reused, while images with C++'s unique symbols stay loaded.
fn new_path(file: &File) -> String {
    static USED: AtomicU32 = AtomicU32::new(0);
    let mut n = USED.fetch_add(1, Ordering::Relaxed);
    let mut path = "/proc/self/fd/".to_string();
    // The number in binary, as two spellings of ".".
    while n > 0 {
        path += if n % 2 == 1 { ".//" } else { "./" };
        n /= 2;
    }
    path + &file.as_raw_fd().to_string()
}

fn open(file: &File, flags: i32) -> Result<Library> {
    let path = new_path(file);
    // SAFETY: this runs the library's initializers: a device exists to execute its host's code.
    unsafe { Library::open(Some(&path), flags) }.map_err(|e| {
        // The loader's message is the error's source.
        let text = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
        let text = text.strip_prefix(&format!("{path}: ")).unwrap_or(&text);
        Error::new(text.to_string())
    })
}

fn load_address(library: &Library) -> Result<u64> {
    /// The head of glibc's `struct link_map` (link.h).
    #[repr(C)]
    struct LinkMap {
        addr: u64,
    }
    let mut map: *const LinkMap = std::ptr::null();
    // SAFETY: a bitwise copy of the handle, which `into_raw` releases without closing it.
    let handle = unsafe { std::ptr::read(library) }.into_raw();
    // SAFETY: the handle is open, and this request takes a pointer to a pointer.
    let rc = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    if rc != 0 || map.is_null() {
        return Err(Error::new("dlinfo does not say where an image was loaded"));
    }
    // SAFETY: the loader's record lives as long as the library is open.
    Ok(unsafe { (*map).addr })
}

/// The address of a symbol that a library of this process exports.
pub(super) fn library_symbol(symbol: &str) -> Option<u64> {
    let name = CString::new(symbol).ok()?;
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!found.is_null()).then_some(found as u64)
}

pub(super) struct Image {
    parsed: elf::Image,
    /// The load address, which the loader added to every address of the file.
    pub base: u64,
    file: File,
    library: Library,
    /// How often the image was relocated.
    moves: usize,
}

impl Image {
    /// An image whose kernels are functions of this process.
    #[cfg(test)]
    pub fn of_functions(functions: &[u64]) -> Image {
        let code = functions.iter().map(|&f| f..f + 1).collect();
        let parsed = elf::Image { code, ..elf::Image::default() };
        let file = memfd(c"no image", 0).unwrap();
        Image { parsed, base: 0, file, library: Library::this(), moves: 0 }
    }

    pub fn span(&self) -> Range<u64> {
        self.at(&self.parsed.span)
    }

    pub fn data(&self) -> impl Iterator<Item = Range<u64>> {
        self.parsed.data.iter().map(|r| self.at(r))
    }

    #[inline]
    pub fn has_code(&self, address: u64) -> bool {
        self.parsed.code.iter().any(|r| self.at(r).contains(&address))
    }

    /// The address of a function, if this image has it.
    pub fn function(&self, symbol: &str) -> Option<u64> {
        let at = self.base.wrapping_add(self.parsed.symbols.get(symbol)?.value);
        self.has_code(at).then_some(at)
    }

    pub fn kernels(&self) -> impl Iterator<Item = (u64, &str)> {
        let kernels = self.parsed.symbols.iter().filter(|(name, _)| name.starts_with("__omp_offloading_"));
        kernels.map(|(name, symbol)| (self.base.wrapping_add(symbol.value), name.as_str()))
    }

    fn at(&self, r: &Range<u64>) -> Range<u64> {
        self.base.wrapping_add(r.start)..self.base.wrapping_add(r.end)
    }

    pub fn relocate(self) -> Result<Image> {
        // The loader identifies files by device and inode: loading at another address needs another file.
        // SAFETY: the file is sealed.
        let copy = copy(&unsafe { Mmap::map(&self.file)? })?;
        seal(&copy)?;
        // While the old copy is loaded, symbols of the new one would resolve to it.
        drop(self.library);
        if open(&self.file, FLAGS | libc::RTLD_NOLOAD).is_ok() {
            return Err(Error::new(
                "an image is at addresses that the program uses, and can't be moved: the loader keeps it, for its unique symbols perhaps",
            ));
        }
        let reserved = reserve(self.parsed.span.end - self.parsed.span.start, self.moves);
        let library = open(&copy, FLAGS);
        for (at, len) in reserved {
            // SAFETY: `reserve` has mapped it, and nothing uses it.
            unsafe { mapping::unmap(at as u64, len as u64) };
        }
        let library = library?;
        point_to_streams(&library);
        let base = load_address(&library)?;
        Ok(Image { parsed: self.parsed, base, file: copy, library, moves: self.moves + 1 })
    }
}

/// Reserves the addresses that the loader would choose next for `size` bytes: first the holes between mappings, then
/// everything within a distance that doubles with each move. The host may have something large there.
pub(crate) fn reserve(size: u64, moves: usize) -> Vec<(*mut c_void, usize)> {
    let n = moves.min(MAX_SKIPS);
    let sizes = std::iter::repeat_n(size as usize, HOLES << n).chain([FIRST_SKIP << n]);
    sizes.filter_map(|len| Some((mapping::reserve(len as u64).ok()? as *mut c_void, len))).collect()
}
