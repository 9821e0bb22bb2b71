// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The device's part: a shared library for the devices' CPUs, with a symbol for each kernel.
//!
//! Arguments come as libomptarget passes them: a pointer that is LLVM's own first, then a
//! register for each: of a slice the address and then the length, of a scalar its bits.

use std::{ffi::c_void, process, slice, thread};

/// y = a x + y
///
/// # Safety
/// `x` and `y` are the copies of the program's slices in the device's memory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn saxpy(_: *mut c_void, a: u64, x: *const f32, x_len: usize, y: *mut f32, y_len: usize) {
    println!("kernel: {x_len} elements, in process {}", process::id());
    let a = f32::from_bits(a as u32);
    // SAFETY: as above, and nobody else uses them while the kernel runs.
    let (x, y) = unsafe { (slice::from_raw_parts(x, x_len), slice::from_raw_parts_mut(y, y_len)) };
    // A CPU runs a kernel once, whatever the grid: the threads are the kernel's own.
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let part = y.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        for (x, y) in x.chunks(part).zip(y.chunks_mut(part)) {
            scope.spawn(move || {
                for (x, y) in x.iter().zip(y) {
                    *y += a * x;
                }
            });
        }
    });
}
