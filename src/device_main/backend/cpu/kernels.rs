// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Calls kernels, which are functions of this process.

use libffi::middle::{Arg, Cif, CodePtr, Type};
use std::cell::RefCell;

thread_local! {
    /// Call interfaces by number of arguments. Preparing one costs more than a call.
    static CIFS: RefCell<Vec<Option<Cif>>> = const { RefCell::new(Vec::new()) };
}

/// Calls the kernel at an address in a loaded image, with these arguments or (`array`) with an array of
/// pointers to them. May not return: a kernel can end its thread.
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
mod tests {
    use super::*;

    extern "C" fn sum(out: &mut u64, a: u64, b: u64, c: u64, d: u64, e: u64, f: u64, g: u64) {
        *out = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g;
    }
    extern "C" fn nothing() {}

    #[test]
    fn arguments_arrive_in_order() {
        for _ in 0..3 {
            let mut out = 0u64;
            call(sum as *const () as u64, &[&raw mut out as u64, 1, 1, 1, 1, 1, 1, 10]);
            assert_eq!(out, 91);
            call(nothing as *const () as u64, &[]);
        }
    }
}
