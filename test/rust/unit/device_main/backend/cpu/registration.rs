// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/registration.rs`.

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
