// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The registration of LLVM's libomp, in anonymous memory.
//!
//! libomp notes in `/dev/shm/__KMP_REGISTERED_LIB_PID_UID` that it is loaded, so that a second
//! copy of it in one process is noticed (`__kmp_register_library_startup` in kmp_runtime.cpp). It
//! removes the file when the process exits, and nobody does when the process is killed. While the
//! process runs nobody may remove it: libomp asserts that it is there before it aborts, and hangs
//! otherwise. So the devices' executable has a `shm_open` and a `shm_unlink` of its own, which
//! libraries find before the system's: these files are memfds, of which nothing can be left.

use crate::base::node;
use parking_lot::{Mutex, MutexGuard};
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs::File;
use std::mem;
use std::os::fd::IntoRawFd;

/// How the names of such files begin.
const PREFIX: &[u8] = b"/__KMP_REGISTERED_LIB_";

/// A file that libomp has made.
struct Registration {
    /// The process that made it, of which this one may be a fork.
    process: u32,
    name: CString,
    file: File,
}

static REGISTRATIONS: Mutex<Vec<Registration>> = Mutex::new(Vec::new());

/// `shm_open` for all of this process.
///
/// # Safety
/// As the system's.
pub unsafe fn open(name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    type Open = unsafe extern "C" fn(*const c_char, c_int, libc::mode_t) -> c_int;
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    if name.to_bytes().starts_with(PREFIX) {
        return open_registration(name, flags).unwrap_or_else(fail);
    }
    // SAFETY: what has this name has this type.
    let systems = unsafe { mem::transmute::<*mut libc::c_void, Option<Open>>(find(c"shm_open")) };
    // SAFETY: the caller's promise.
    systems.map_or_else(|| fail(libc::ENOSYS), |systems| unsafe { systems(name.as_ptr(), flags, mode) })
}

/// `shm_unlink` for all of this process.
///
/// # Safety
/// As the system's.
pub unsafe fn unlink(name: *const c_char) -> c_int {
    type Unlink = unsafe extern "C" fn(*const c_char) -> c_int;
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    if name.to_bytes().starts_with(PREFIX) {
        return unlink_registration(name).map_or_else(fail, |()| 0);
    }
    // SAFETY: what has this name has this type.
    let systems = unsafe { mem::transmute::<*mut libc::c_void, Option<Unlink>>(find(c"shm_unlink")) };
    // SAFETY: the caller's promise.
    systems.map_or_else(|| fail(libc::ENOSYS), |systems| unsafe { systems(name.as_ptr()) })
}

/// The system's function of that name.
fn find(name: &CStr) -> *mut libc::c_void {
    // SAFETY: a C string.
    unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) }
}

/// What a C function returns that fails for a reason in `errno`.
fn fail(code: c_int) -> c_int {
    // SAFETY: the calling thread's own number.
    unsafe { *libc::__errno_location() = code };
    -1
}

/// This process's own registrations: those of the process that it is a fork of are dropped.
fn registrations() -> MutexGuard<'static, Vec<Registration>> {
    let mut all = REGISTRATIONS.lock();
    all.retain(|r| r.process == std::process::id());
    all
}

fn open_registration(name: &CStr, flags: c_int) -> Result<c_int, c_int> {
    let mut all = registrations();
    if let Some(known) = all.iter().find(|r| r.name.as_c_str() == name) {
        return if flags & libc::O_EXCL != 0 { Err(libc::EEXIST) } else { share(&known.file) };
    }
    if flags & libc::O_CREAT == 0 {
        return Err(libc::ENOENT);
    }
    let file = node::memfd(c"libomp-registration", 0).map_err(|_| libc::ENFILE)?;
    let descriptor = share(&file)?;
    all.push(Registration { process: std::process::id(), name: name.into(), file });
    Ok(descriptor)
}

/// A descriptor for the caller to close.
fn share(file: &File) -> Result<c_int, c_int> {
    let copy = file.try_clone().map_err(|e| e.raw_os_error().unwrap_or(libc::EMFILE))?;
    Ok(copy.into_raw_fd())
}

fn unlink_registration(name: &CStr) -> Result<(), c_int> {
    let mut all = registrations();
    let before = all.len();
    all.retain(|r| r.name.as_c_str() != name);
    if all.len() < before { Ok(()) } else { Err(libc::ENOENT) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Seek, Write};
    use std::os::fd::FromRawFd;

    const NAME: &CStr = c"/__KMP_REGISTERED_LIB_1_2";

    fn opened(name: &CStr, flags: c_int) -> Result<File, i32> {
        // SAFETY: a C string; the descriptor is ours alone.
        match unsafe { open(name.as_ptr(), flags, 0o600) } {
            -1 => Err(std::io::Error::last_os_error().raw_os_error().unwrap()),
            // SAFETY: as above.
            fd => Ok(unsafe { File::from_raw_fd(fd) }),
        }
    }

    fn unlinked(name: &CStr) -> bool {
        // SAFETY: a C string.
        unsafe { unlink(name.as_ptr()) == 0 }
    }

    #[test]
    fn a_registration_is_a_file_without_a_name() {
        let create = libc::O_CREAT | libc::O_EXCL | libc::O_RDWR;
        assert_eq!(opened(NAME, libc::O_RDONLY).unwrap_err(), libc::ENOENT);
        opened(NAME, create).unwrap().write_all(b"here").unwrap();
        assert!(!std::path::Path::new("/dev/shm").join("__KMP_REGISTERED_LIB_1_2").exists());
        assert_eq!(opened(NAME, create).unwrap_err(), libc::EEXIST);
        let (mut again, mut text) = (opened(NAME, libc::O_RDONLY).unwrap(), String::new());
        again.rewind().unwrap();
        again.read_to_string(&mut text).unwrap();
        assert_eq!(text, "here");
        assert!(unlinked(NAME) && !unlinked(NAME));
        assert_eq!(opened(NAME, libc::O_RDWR).unwrap_err(), libc::ENOENT);
    }

    #[test]
    fn other_names_are_the_systems() {
        let name = format!("/omptarget-mpi-test-{}", std::process::id());
        let (path, name) = (format!("/dev/shm{name}"), CString::new(name).unwrap());
        let file = opened(&name, libc::O_CREAT | libc::O_EXCL | libc::O_RDWR).unwrap();
        let is_there = std::path::Path::new(&path).exists();
        assert!(unlinked(&name) && is_there && !std::path::Path::new(&path).exists());
        drop(file);
    }
}
