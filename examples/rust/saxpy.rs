// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! saxpy: y = a x + y, the vectors split over all devices; kernel.rs is what runs there.
//!
//!     saxpy [LENGTH]

#![feature(core_intrinsics)]
#![allow(internal_features)]

use std::ffi::c_int;
use std::process::{self, ExitCode};
use std::{env, thread};

#[link(name = "omptarget")]
#[link(name = "omp")]
unsafe extern "C" {
    safe fn omp_get_num_devices() -> c_int;
    safe fn omp_set_default_device(device: c_int);
}

mod device {
    unsafe extern "Rust" {
        /// Never called: its name is the kernel's, and its types tell what is copied: `&` to the
        /// device, `&mut` there and back.
        pub fn saxpy(a: f32, x: &[f32], y: &mut [f32]);
    }
}

/// Runs the kernel on the thread's default device and returns when `y` is back. The intrinsic
/// itself does not compare its arguments with the kernel's types; this function's are the same.
fn saxpy(a: f32, x: &[f32], y: &mut [f32]) {
    // Grid and blocks mean nothing to a CPU.
    core::intrinsics::offload(device::saxpy, [1, 1, 1], [1, 1, 1], (a, x, y))
}

fn main() -> ExitCode {
    let length = env::args().nth(1).map_or(Ok(4_000_000), |word| word.parse::<usize>());
    let devices = omp_get_num_devices();
    let (Ok(n @ 1..), 1..) = (length, devices) else {
        eprintln!("usage: saxpy [LENGTH], with a device or more");
        return ExitCode::from(2);
    };
    let a = 2.5;
    let x: Vec<f32> = (0..n).map(|i| (i % 1000) as f32).collect();
    let mut y = vec![1.0; n];

    // A region waits for its device, so each device has a thread here.
    let part = n.div_ceil(devices as usize);
    thread::scope(|scope| {
        for (device, (x, y)) in x.chunks(part).zip(y.chunks_mut(part)).enumerate() {
            scope.spawn(move || {
                omp_set_default_device(device as c_int);
                saxpy(a, x, y);
            });
        }
    });

    let wrong = x.iter().zip(&y).filter(|&(x, y)| *y != a * x + 1.0).count();
    println!("program: {n} elements on {devices} devices, in process {}", process::id());
    println!("result: {}", if wrong == 0 { "right" } else { "WRONG" });
    ExitCode::from(u8::from(wrong != 0))
}
