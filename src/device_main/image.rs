// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Loading device images: from a sealed file in memory, by the system's loader.

use crate::base::node::memfd;
use crate::base::{Error, Result, elf, node};
use crate::wire::command::libraries;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};
use memmap2::{Mmap, MmapMut, MmapOptions};
use std::collections::BTreeMap;
use std::ffi::{OsStr, c_void};
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// As LLVM's host plugin loads images: undefined functions that are never called do no
/// harm, and images see each other's symbols as their host halves do.
const FLAGS: i32 = RTLD_LAZY | RTLD_GLOBAL;

/// Addresses skipped when an image is moved: this many bytes, and this many holes, both
/// doubled each time.
const FIRST_SKIP: usize = 64 << 20;
const HOLES: usize = 64;
const MAX_SKIPS: usize = 10;

/// An image on its way in.
pub struct Parcel {
    file: File,
    /// What was received, for those to whom it is passed on: a private mapping, which
    /// does not keep the file from being sealed.
    bytes: Mmap,
    libraries: usize,
}

impl Parcel {
    /// Room for `len` bytes, the last `libraries` of which are the host's library list; and
    /// the memory to fill, which must be gone before the image is loaded.
    ///
    /// # Errors
    /// No memory for it.
    pub fn new(len: u64, libraries: u64) -> Result<(Parcel, MmapMut)> {
        let file = memfd(c"omptarget-mpi-image", libc::MFD_ALLOW_SEALING)?;
        file.set_len(len)?;
        // SAFETY: nobody else has this file; who reads a part knows that it was received.
        let (room, bytes) = unsafe { (MmapMut::map_mut(&file)?, MmapOptions::new().map_copy_read_only(&file)?) };
        Ok((Parcel { file, bytes, libraries: libraries as usize }, room))
    }

    /// What was received.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Loads what was received.
    ///
    /// # Errors
    /// No image for this machine, or a library or symbol that is missing here.
    pub fn load(&self) -> Result<Image> {
        let (image, list) = self.bytes.split_at(self.bytes.len() - self.libraries);
        let parsed = elf::Image::parse(image, elf::MACHINE).map_err(|e| e.context("the image is"))?;
        let hints = libraries(list);
        let file = self.file.try_clone()?;
        seal(&file)?;
        let library = open(&file).or_else(|first| {
            for name in &parsed.needed {
                find_library(name, &hints, 0);
            }
            open(&file).map_err(|e| if e == first { e } else { e.context(first) })
        });
        let library = library.map_err(|e| {
            Error::new(format!(
                "the image can't be loaded on host {}: {e}; install what is missing there",
                node::host_name()
            ))
        })?;
        parsed.needed.iter().filter(|name| name.starts_with("libomp")).for_each(|name| pin(name));
        set_up_streams(&library);
        let base = load_address(&library)?;
        Ok(Image { parsed, base, file, library, rejected: Vec::new() })
    }
}

/// Makes `std::cout` and its like usable, which initialisers of a C++ program do and, with
/// clang 14, those of an image do not.
fn set_up_streams(library: &Library) {
    let constructor = b"_ZNSt8ios_base4InitC1Ev\0";
    // SAFETY: `std::ios_base::Init::Init()`, which may be called any number of times, and
    // whose class has no members.
    unsafe {
        if let Ok(init) = library.get::<unsafe extern "C" fn(*mut c_void)>(constructor) {
            let mut object = 0u8;
            init((&raw mut object).cast());
        }
    }
}

/// Loads libraries in the order of their names, which has libomp before libomptarget: this
/// uses it in its constructor without saying that it needs it. What can't be loaded is told
/// when an image needs it.
pub fn preload(list: &[u8]) {
    let hints = libraries(list);
    for name in hints.keys() {
        find_library(name, &hints, 0);
    }
}

/// Keeps a library that an image brought in when the image goes: libomp's threads run on.
fn pin(name: &str) {
    let flags = RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE;
    // SAFETY: the library is loaded already; only its flags change.
    if let Ok(library) = unsafe { Library::open(Some(name), flags) } {
        std::mem::forget(library);
    }
}

/// Nobody, this process included, can change the file from here on; before Linux 5.1, while
/// another process copies from it, nobody but who has this very descriptor.
fn seal(file: &File) -> Result<()> {
    let seals = libc::F_SEAL_GROW | libc::F_SEAL_SHRINK | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open; the call takes plain numbers.
    let add = |more: libc::c_int| unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals | more) } == 0;
    // No writable mapping is left, so that both mean the same; but the second is refused while
    // another process, to which the image is passed on, copies from it. The first is known
    // since Linux 5.1.
    if add(libc::F_SEAL_FUTURE_WRITE) || add(libc::F_SEAL_WRITE) || add(0) {
        return Ok(());
    }
    // SAFETY: as above. A worker that was lost, and of which this one is a copy, may have done it.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals > 0 && seals & libc::F_SEAL_SEAL != 0 {
        return Ok(());
    }
    Err(Error::from(std::io::Error::last_os_error()).context("sealing an image"))
}

/// A path of an open file that was never used before. The loader takes a known path for
/// a library that it has loaded, but descriptors are reused, and images stay loaded
/// longer than asked for (unique symbols of C++).
fn new_path(file: &File) -> String {
    static USED: AtomicU32 = AtomicU32::new(0);
    let mut n = USED.fetch_add(1, Ordering::Relaxed);
    let mut path = "/proc/self/fd/".to_string();
    // The number in binary: two spellings of "here".
    while n > 0 {
        path += if n % 2 == 1 { ".//" } else { "./" };
        n /= 2;
    }
    path + &file.as_raw_fd().to_string()
}

fn open(file: &File) -> Result<Library> {
    let path = new_path(file);
    // SAFETY: loading runs the initialisers of what is loaded: that a device executes
    // what its host sends is its purpose.
    unsafe { Library::open(Some(&path), FLAGS) }.map_err(|e| {
        // The loader's own words are the error's source.
        let text = std::error::Error::source(&e).map_or_else(|| e.to_string(), ToString::to_string);
        let text = text.strip_prefix(&format!("{path}: ")).unwrap_or(&text);
        Error::new(text.to_string())
    })
}

/// Loads a library that the loader did not find for an image, from where the host
/// process has it, after what it needs itself; false if that is not possible.
pub fn find_library(name: &str, hints: &BTreeMap<String, PathBuf>, depth: u32) -> bool {
    // SAFETY: as in `open`.
    let load = |what: &OsStr| unsafe { Library::open(Some(what), FLAGS) };
    if let Ok(found) = load(name.as_ref()) {
        // Never unloaded: later images may need it too.
        std::mem::forget(found);
        return true;
    }
    let Some(path) = hints.get(name).filter(|_| depth < 16) else { return false };
    let needed = elf::map(path).ok().and_then(|file| elf::needed_libraries(&file).ok());
    for dependency in needed.iter().flatten() {
        find_library(dependency, hints, depth + 1);
    }
    load(path.as_ref()).map(std::mem::forget).is_ok()
}

fn load_address(library: &Library) -> Result<u64> {
    /// The head of glibc's `struct link_map` (link.h).
    #[repr(C)]
    struct LinkMap {
        addr: u64,
    }
    let mut map: *const LinkMap = std::ptr::null();
    // A dlopen handle is private to libloading; a second open of the same library by its
    // own means would need its name. RTLD_DI_LINKMAP takes the handle itself.
    let handle = raw_handle(library);
    // SAFETY: the handle is open and the out parameter is a pointer, as this request wants.
    let rc = unsafe { libc::dlinfo(handle, libc::RTLD_DI_LINKMAP, (&raw mut map).cast()) };
    if rc != 0 || map.is_null() {
        return Err(Error::new("dlinfo can't tell where an image was loaded"));
    }
    // SAFETY: the loader's record lives as long as the library is open.
    Ok(unsafe { (*map).addr })
}

fn raw_handle(library: &Library) -> *mut c_void {
    // SAFETY: read the handle without taking it: from_raw and into_raw are inverse, and
    // the copy is taken apart again at once without closing it.
    unsafe { std::ptr::read(library) }.into_raw()
}

/// A loaded image.
pub struct Image {
    parsed: elf::Image,
    base: u64,
    file: File,
    library: Library,
    /// Copies at addresses that the host could not have; they keep the loader from
    /// choosing those again.
    rejected: Vec<Library>,
}

impl Image {
    /// No image, but functions of this process that are called as its kernels are.
    #[cfg(test)]
    pub fn of_functions(functions: &[u64]) -> Image {
        let code = functions.iter().map(|&f| f..f + 1).collect();
        let parsed = elf::Image { code, ..elf::Image::default() };
        let file = memfd(c"no image", 0).unwrap();
        Image { parsed, base: 0, file, library: Library::this(), rejected: Vec::new() }
    }

    /// What the loader added to every address of the file.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// All addresses of the image.
    pub fn span(&self) -> Range<u64> {
        self.at(&self.parsed.span)
    }

    /// Its writable memory.
    pub fn data(&self) -> impl Iterator<Item = Range<u64>> {
        self.parsed.data.iter().map(|r| self.at(r))
    }

    /// True if `address` is code of this image.
    #[inline]
    pub fn has_code(&self, address: u64) -> bool {
        self.parsed.code.iter().any(|r| self.at(r).contains(&address))
    }

    /// Addresses and symbols of its kernels.
    pub fn kernels(&self) -> impl Iterator<Item = (u64, &str)> {
        let kernels = self.parsed.symbols.iter().filter(|(name, _)| name.starts_with("__omp_offloading_"));
        kernels.map(|(name, symbol)| (self.base.wrapping_add(symbol.value), name.as_str()))
    }

    fn at(&self, r: &Range<u64>) -> Range<u64> {
        self.base.wrapping_add(r.start)..self.base.wrapping_add(r.end)
    }

    /// Loads the image once more, elsewhere.
    ///
    /// # Errors
    /// As [`Parcel::load`].
    pub fn relocate(&mut self) -> Result<()> {
        // The loader knows files by device and inode: a new place needs a new file.
        let copy = memfd(c"omptarget-mpi-image", libc::MFD_ALLOW_SEALING)?;
        // SAFETY: the file is sealed.
        let bytes = unsafe { Mmap::map(&self.file)? };
        std::io::Write::write_all(&mut &copy, &bytes)?;
        seal(&copy)?;
        let skipped = self.skip();
        let library = open(&copy);
        for (at, len) in skipped {
            // SAFETY: mapped by `skip`, used by nobody.
            unsafe { libc::munmap(at, len) };
        }
        let library = library?;
        self.base = load_address(&library)?;
        self.rejected.push(std::mem::replace(&mut self.library, library));
        self.file = copy;
        Ok(())
    }

    /// Takes the places that the loader would choose next, first the holes between what
    /// is mapped, then all within a distance that doubles each time: the host may have
    /// something large just there.
    fn skip(&self) -> Vec<(*mut c_void, usize)> {
        let n = self.rejected.len().min(MAX_SKIPS);
        let size = (self.parsed.span.end - self.parsed.span.start) as usize;
        let sizes = std::iter::repeat_n(size, HOLES << n).chain([FIRST_SKIP << n]);
        let take = |len| {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            // SAFETY: a new mapping of the system's choice, without memory.
            let at = unsafe { libc::mmap(std::ptr::null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
            (at != libc::MAP_FAILED).then_some((at, len))
        };
        sizes.filter_map(take).collect()
    }
}
