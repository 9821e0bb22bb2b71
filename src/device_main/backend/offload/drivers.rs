// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The accelerators that drivers show to this process. Their libraries are those that libomptarget's plugins use, opened at
//! run time.

use crate::base::target::Target;
use libloading::os::unix::{Library, RTLD_NOW, Symbol};
use std::ffi::{CStr, c_char, c_int, c_void};

/// The accelerators of CUDA, in the driver's order; none without the driver.
pub(super) fn cuda() -> Vec<Target> {
    // SAFETY: the functions have these types.
    let found = open("libcuda.so").and_then(|library| unsafe {
        let init: Symbol<unsafe extern "C" fn(u32) -> c_int> = library.get(b"cuInit\0").ok()?;
        let count: Symbol<unsafe extern "C" fn(*mut c_int) -> c_int> = library.get(b"cuDeviceGetCount\0").ok()?;
        let device: Symbol<unsafe extern "C" fn(*mut c_int, c_int) -> c_int> = library.get(b"cuDeviceGet\0").ok()?;
        let attribute: Symbol<unsafe extern "C" fn(*mut c_int, c_int, c_int) -> c_int> =
            library.get(b"cuDeviceGetAttribute\0").ok()?;
        let mut n = 0;
        ((*init)(0) == 0 && (*count)(&mut n) == 0).then_some(())?;
        let target = |at| {
            /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
            const CAPABILITY: [c_int; 2] = [75, 76];
            let (mut number, mut values) = (0, [0; 2]);
            let is_known = (*device)(&mut number, at) == 0
                && CAPABILITY.iter().zip(&mut values).all(|(&which, value)| (*attribute)(value, which, number) == 0);
            is_known.then(|| Target::cuda(values[0] as u32, values[1] as u32))
        };
        (0..n).map(target).collect::<Option<Vec<Target>>>()
    });
    found.unwrap_or_default()
}

/// `hsa_agent_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Agent(u64);

/// The accelerators of AMD, in the driver's order; none without the driver.
pub(super) fn amd() -> Vec<Target> {
    type Info = unsafe extern "C" fn(Agent, c_int, *mut c_void) -> c_int;
    unsafe extern "C" fn each(agent: Agent, found: *mut c_void) -> c_int {
        /// `HSA_AGENT_INFO_NAME` and `_DEVICE`, and `HSA_DEVICE_TYPE_GPU`.
        const NAME: c_int = 0;
        const DEVICE: c_int = 17;
        const GPU: u32 = 1;
        let (mut name, mut kind): ([c_char; 64], u32) = ([0; 64], 0);
        // SAFETY: the driver passes on what `amd` gives it; the two properties have these sizes.
        unsafe {
            let (info, found) = &mut *found.cast::<(Info, Vec<Target>)>();
            let is_known =
                info(agent, NAME, (&raw mut name).cast()) == 0 && info(agent, DEVICE, (&raw mut kind).cast()) == 0;
            name[63] = 0;
            if is_known && kind == GPU {
                found.push(Target::amd(&CStr::from_ptr(name.as_ptr()).to_string_lossy()));
            }
        }
        0
    }
    // SAFETY: the functions have these types; `each` gets what it expects.
    let found = open("libhsa-runtime64.so").and_then(|library| unsafe {
        let init: Symbol<unsafe extern "C" fn() -> c_int> = library.get(b"hsa_init\0").ok()?;
        let iterate: Symbol<
            unsafe extern "C" fn(unsafe extern "C" fn(Agent, *mut c_void) -> c_int, *mut c_void) -> c_int,
        > = library.get(b"hsa_iterate_agents\0").ok()?;
        let info: Symbol<Info> = library.get(b"hsa_agent_get_info\0").ok()?;
        let mut found = (*info, Vec::new());
        ((*init)() == 0 && (*iterate)(each, (&raw mut found).cast()) == 0).then_some(found.1)
    });
    found.unwrap_or_default()
}

/// A driver's library, by the name that libomptarget's plugins open it by. It stays: it has threads.
fn open(name: &str) -> Option<&'static Library> {
    // SAFETY: this runs the library's initializers, as libomptarget does next.
    let library = unsafe { Library::open(Some(name), RTLD_NOW) };
    library.ok().map(|library| &*Box::leak(Box::new(library)))
}
