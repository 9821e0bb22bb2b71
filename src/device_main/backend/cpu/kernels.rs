// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Calls kernels, which are functions of this process.

use libffi::middle::{Arg, Cif, CodePtr, Type};
use std::cell::RefCell;

thread_local! {
    /// Call interfaces by number of arguments. Preparing one costs more than a call.
    static CIFS: RefCell<Vec<Option<Cif>>> = const { RefCell::new(Vec::new()) };
}

/// Calls the kernel at an address in a loaded image, with these arguments or (`array`) with an array of pointers to
/// them. Does not return if the kernel faults, which parks the thread. Ending the thread (`pthread_exit`) is a fault
/// too, because the C library aborts where it can't unwind further.
#[inline]
pub(crate) fn run(kernel: u64, args: &[u64], array: bool) {
    if array {
        let pointers: Vec<*const u64> = args.iter().map(std::ptr::from_ref).collect();
        call(kernel, &[pointers.as_ptr() as u64]);
    } else {
        call(kernel, args);
    }
}

fn call(kernel: u64, args: &[u64]) {
    let cif = CIFS.with_borrow_mut(|cifs| {
        if cifs.len() <= args.len() {
            cifs.resize_with(args.len() + 1, || None);
        }
        cifs[args.len()].take().unwrap_or_else(|| Cif::new(args.iter().map(|_| Type::u64()), Type::void()))
    });
    let code = CodePtr(kernel as *mut _);
    let pointers: Vec<Arg<'_>> = args.iter().map(Arg::new).collect();
    // SAFETY: libomptarget's kernels take pointer-sized arguments and return nothing. The host
    // guarantees the address and the number of arguments.
    unsafe { cif.call::<()>(code, &pointers) };
    CIFS.with_borrow_mut(|cifs| cifs[args.len()] = Some(cif));
}

#[cfg(test)]
#[path = "../../../../test/rust/unit/device_main/backend/cpu/kernels.rs"]
mod tests;
