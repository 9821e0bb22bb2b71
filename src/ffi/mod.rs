// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The C interface: the `__tgt_rtl_*` functions of a libomptarget plugin that LLVM 14 to 18 look
//! for, and those that `cmake/offload-plugin` needs for later releases.
//!
//! A function checks its arguments, catches panics, reports failures to the user, and calls
//! one function of a lower layer. No logic here.

pub mod events;
mod handle;
pub mod images;
pub mod kernels;
mod libomptarget;
pub mod memory;
mod queue;
pub mod start;
mod types;

use crate::base::{Error, Result, log};
use crate::plugin::devices::device::Device;
use crate::plugin::lifecycle::{self, choice, give_up, plugin};
use crate::plugin::program::boundary::{catch, guard};
use crate::plugin::program::ending;
use crate::plugin::start::Choice;
use handle::Handle;
use libomptarget::Generation;
use std::ffi::c_void;
use std::ptr;
use types::*;

/// The status of a function: success (`OFFLOAD_SUCCESS`) or failure (`OFFLOAD_FAIL`).
const SUCCESS: i32 = 0;
const FAIL: i32 = !0;

/// Set in LLVM 18's handle of an image or a kernel if the kernels take `dyn_ptr`, see [`images`]. No device
/// address has this bit.
const DYN_PTR: usize = 1 << 63;

/// Makes a call for C and returns its status.
#[inline]
fn status(operation: &str, call: impl FnOnce() -> Result<()>) -> i32 {
    guard(operation, FAIL, || call().map(|()| SUCCESS))
}

/// Makes a call for C that concerns one device, and returns its status.
#[inline]
fn on_device(operation: &str, id: i32, call: impl FnOnce(&'static Device) -> Result<()>) -> i32 {
    status(operation, || call(plugin()?.device(id)?))
}

/// The place for a result to C.
///
/// # Safety
/// `at` is null or writable.
unsafe fn result<'a, T>(at: *mut T) -> Result<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { at.as_mut() }.ok_or_else(|| Error::new("the result pointer is null"))
}

/// # Safety
/// `at` has `n` elements; it may be null if that is 0.
unsafe fn array<'a, T>(at: *const T, n: usize) -> &'a [T] {
    // SAFETY: the caller's promise.
    if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(at, n) } }
}

/// The generation of the calling libomptarget. Ends the process if it is unknown, because no result of
/// `load_binary` means failure to all generations. Never panics.
fn generation() -> Generation {
    let known = catch(|| libomptarget::generation().clone());
    known.unwrap_or_else(|e| give_up(e.context("this libomptarget can't use MPI devices")))
}
