// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The registration of LLVM's libomp, in anonymous memory.
//!
//! While libomp is loaded, it keeps a file `/dev/shm/__KMP_REGISTERED_LIB_PID_UID`, by which it detects
//! a second copy of itself in the process (`__kmp_register_library_startup` in kmp_runtime.cpp). It
//! removes the file at exit; if the process is killed, the file stays. Nobody may remove it while the
//! process runs: libomp asserts that it exists before it aborts, and hangs otherwise. So the devices'
//! executable defines `shm_open` and `shm_unlink`, which libraries find before the system's: these files
//! become memfds, which disappear with the process.

use crate::base::sync::Mutex;
use crate::sys::node;
use std::ffi::{CStr, CString, c_char, c_int};
use std::fs::File;
use std::mem;
use std::os::fd::IntoRawFd;
use std::sync::MutexGuard;

const PREFIX: &[u8] = b"/__KMP_REGISTERED_LIB_";

struct Registration {
    /// The process that made the registration. This one may be a fork of that process.
    process: u32,
    name: CString,
    file: File,
}

static REGISTRATIONS: Mutex<Vec<Registration>> = Mutex::new(Vec::new());

/// # Safety
/// As for the system's `shm_open`, which this replaces in this process.
pub unsafe fn open(name: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    type Open = unsafe extern "C" fn(*const c_char, c_int, libc::mode_t) -> c_int;
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    if name.to_bytes().starts_with(PREFIX) {
        return open_registration(name, flags).unwrap_or_else(fail);
    }
    // SAFETY: the system's function has this type; the caller's promise.
    unsafe { next::<Open>(c"shm_open").map_or_else(|| fail(libc::ENOSYS), |open| open(name.as_ptr(), flags, mode)) }
}

/// # Safety
/// As for the system's `shm_unlink`, which this replaces in this process.
pub unsafe fn unlink(name: *const c_char) -> c_int {
    type Unlink = unsafe extern "C" fn(*const c_char) -> c_int;
    // SAFETY: the caller's promise.
    let name = unsafe { CStr::from_ptr(name) };
    if name.to_bytes().starts_with(PREFIX) {
        return unlink_registration(name).map_or_else(fail, |()| 0);
    }
    // SAFETY: the system's function has this type; the caller's promise.
    unsafe { next::<Unlink>(c"shm_unlink").map_or_else(|| fail(libc::ENOSYS), |unlink| unlink(name.as_ptr())) }
}

/// The system's function of this name, which comes after the executable's own.
///
/// # Safety
/// `F` is the type of a pointer to that function.
pub(super) unsafe fn next<F>(name: &CStr) -> Option<F> {
    // SAFETY: a C string.
    let symbol = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    // SAFETY: the caller's promise.
    (!symbol.is_null()).then(|| unsafe { mem::transmute_copy(&symbol) })
}

/// Sets `errno` and returns -1, as a failing C function does.
fn fail(code: c_int) -> c_int {
    // SAFETY: the calling thread's own number.
    unsafe { *libc::__errno_location() = code };
    -1
}

/// This process's own registrations. Drops those of a process of which it is a fork.
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
#[path = "../../../../test/rust/unit/device_main/backend/cpu/registration.rs"]
mod tests;
