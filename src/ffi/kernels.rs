// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Kernels, and queues.

use super::queue::{at_once, queue_of, slot_of, synchronize};
use super::*;
use crate::plugin::messages::queue::Queue;
use crate::wire::command::Shape;
use std::ffi::c_char;

/// Launches a kernel as a part of a queue, with an array of pointers to its arguments if it `takes_array`.
///
/// # Safety
/// `args` and `offsets` have `n` elements, but `offsets` may be null: then all of them are 0; `info` is
/// an async info of libomptarget.
unsafe fn launch(
    device: &Device,
    entry: *mut c_void,
    args: *mut *mut c_void,
    offsets: *mut isize,
    n: usize,
    (takes_array, shape): (bool, Option<Shape>),
    info: *mut AsyncInfo,
) -> Result<()> {
    /// The value that LLVM's own plugins pass to a kernel that needs no launch environment.
    const NO_ENVIRONMENT: u64 = !0;
    // SAFETY: the caller's promise.
    let queue = unsafe { queue_of(device, info)? };
    // SAFETY: the caller's promise.
    let (args, offsets) = unsafe { (array(args, n), (!offsets.is_null()).then(|| array(offsets, n))) };
    let (kernel, takes_dyn_ptr) = ((entry as usize & !DYN_PTR) as u64, entry as usize & DYN_PTR != 0);
    if log::wants_info(log::INFO_PLUGIN_KERNEL) || log::wants_debug() {
        let name = device.kernel_symbol(kernel);
        log::info(device.number, format_args!("Launching kernel {name} with {n} arguments"));
    }
    let arg = |i: usize| args[i].wrapping_byte_offset(offsets.map_or(0, |offsets| offsets[i])) as u64;
    let first = usize::from(takes_dyn_ptr && shape.is_none());
    let args = (0..first + n).map(|i| if i < first { NO_ENVIRONMENT } else { arg(i - first) });
    device.queues.launch(&queue, kernel, args, (takes_array, shape.as_ref()))
}

/// From this version of kernel arguments on (LLVM 19), libomptarget puts the launch environment before them.
const ENVIRONMENT: u32 = 3;
/// From this version on (LLVM 23), kernels of CPUs take an array of pointers to their arguments.
const ARRAY: u32 = 5;

/// The shape of a launch on an accelerator; no other device needs it.
///
/// # Safety
/// `kernel` points to a record of its version.
unsafe fn shape_of(device: &Device, kernel: *const KernelArgs) -> Result<Option<Shape>> {
    /// The flag of CUDA and HIP kernels.
    const IS_CUDA: u64 = 2;
    if !device.is_accelerator() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let all = unsafe { ((*kernel).version >= 2).then(|| &*kernel.cast::<KernelArgs2>()) };
    let Some(all) = all else { return Ok(Some(Shape::default())) };
    if all.head.version >= ARRAY || all.flags & IS_CUDA != 0 {
        return Err(Error::new(format!(
            "{} can't run kernels of clang 23 or later, nor of CUDA, HIP or the Offload API (OMPTARGET_MPI_BACKEND=offload)",
            device.name()
        )));
    }
    Ok(Some(Shape {
        version: all.head.version,
        tripcount: all.tripcount,
        flags: all.flags,
        teams: all.num_teams,
        threads: all.thread_limit,
        dynamic_memory: all.dyn_cgroup_mem,
    }))
}

/// Launches a kernel as a part of a queue. (For LLVM 16 and later.)
///
/// # Safety
/// `args` and `offsets` have as many elements as `kernel` says, but `offsets` may be null:
/// then all of them are 0; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_launch_kernel(
    id: i32,
    entry: *mut c_void,
    args: *mut *mut c_void,
    offsets: *mut isize,
    kernel: *mut KernelArgs,
    info: *mut AsyncInfo,
) -> i32 {
    on_device("launch_kernel", id, |device| {
        // SAFETY: the caller's promise.
        unsafe {
            let head = kernel.as_ref().ok_or_else(|| Error::new("the kernel arguments are null"))?;
            let (shape, n) = (shape_of(device, kernel)?, head.num_args as usize);
            let has_environment = n > 0 && head.version >= ENVIRONMENT && entry as usize & DYN_PTR == 0;
            // An accelerator's own libomptarget adds the environment.
            let skipped = usize::from(has_environment && shape.is_some());
            let offsets = if offsets.is_null() { offsets } else { offsets.add(skipped) };
            let form = (head.version >= ARRAY, shape);
            launch(device, entry, args.wrapping_add(skipped), offsets, n - skipped, form, info)
        }
    })
}

/// Runs a kernel and waits for it. (This and the next three are for LLVM 14 and 15, which
/// have no `launch_kernel`.)
///
/// # Safety
/// `args` and `offsets` have `arg_num` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_run_target_region(
    id: i32,
    entry: *mut c_void,
    args: *mut *mut c_void,
    offsets: *mut isize,
    arg_num: i32,
) -> i32 {
    at_once("run_target_region", id, |info| {
        // SAFETY: the caller's promise.
        unsafe { __tgt_rtl_run_target_region_async(id, entry, args, offsets, arg_num, info) }
    })
}

/// Launches a kernel as a part of a queue.
///
/// # Safety
/// `args` and `offsets` have `arg_num` elements; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_run_target_region_async(
    id: i32,
    entry: *mut c_void,
    args: *mut *mut c_void,
    offsets: *mut isize,
    arg_num: i32,
    info: *mut AsyncInfo,
) -> i32 {
    on_device("run_target_region", id, |device| {
        let n = usize::try_from(arg_num).map_err(|_| Error::new(format!("a kernel with {arg_num} arguments")))?;
        // SAFETY: the caller's promise.
        unsafe { launch(device, entry, args, offsets, n, (false, None), info) }
    })
}

/// Runs a kernel and waits for it. The numbers of teams, threads and iterations are ignored: the
/// kernel asks libomp itself.
///
/// # Safety
/// As `run_target_region`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_run_target_team_region(
    id: i32,
    entry: *mut c_void,
    args: *mut *mut c_void,
    offsets: *mut isize,
    arg_num: i32,
    _team_num: i32,
    _thread_limit: i32,
    _loop_tripcount: u64,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { __tgt_rtl_run_target_region(id, entry, args, offsets, arg_num) }
}

/// Launches a kernel as a part of a queue; the rest is as for `run_target_team_region`.
///
/// # Safety
/// As `run_target_region_async`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_run_target_team_region_async(
    id: i32,
    entry: *mut c_void,
    args: *mut *mut c_void,
    offsets: *mut isize,
    arg_num: i32,
    _team_num: i32,
    _thread_limit: i32,
    _loop_tripcount: u64,
    info: *mut AsyncInfo,
) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { __tgt_rtl_run_target_region_async(id, entry, args, offsets, arg_num, info) }
}

/// Waits for everything in a queue, on the queue's device. That need not be `id`: LLVM 14 and 15
/// name the source of a copy between devices when the queue is the target's.
///
/// # Safety
/// `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_synchronize(id: i32, info: *mut AsyncInfo) -> i32 {
    // SAFETY: the caller's promise.
    unsafe { synchronize("synchronize", id, info) }
}

/// Sets `queue` to null if everything in a queue is done.
///
/// # Safety
/// `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_query_async(id: i32, info: *mut AsyncInfo) -> i32 {
    on_device("query_async", id, |_| {
        // SAFETY: the caller's promise.
        let slot = unsafe { slot_of(info)? };
        // SAFETY: `queue_of` filled it.
        let Some(queue) = (unsafe { Handle::<Queue>::borrow(*slot) }) else { return Ok(()) };
        let result = plugin()?.devices[queue.port()].queues.query(&queue);
        if !matches!(result, Ok(false)) {
            // SAFETY: as above; the queue is no longer used.
            drop(unsafe { Handle::<Queue>::take(slot) });
        }
        result.map(drop)
    })
}

/// Creates an async info for an interop object.
///
/// # Safety
/// `info` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_init_async_info(_id: i32, info: *mut *mut AsyncInfo) -> i32 {
    status("init_async_info", || {
        // SAFETY: the caller's promise. libomptarget has no call that frees it.
        *unsafe { result(info)? } = Box::into_raw(Box::new(AsyncInfo { queue: ptr::null_mut() }));
        Ok(())
    })
}

/// Gives no handles for an interop object: MPI devices have no native ones.
///
/// # Safety
/// `info` and `error` are null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_init_device_info(id: i32, info: *mut DeviceInfo, error: *mut *const c_char) -> i32 {
    let known = on_device("init_device_info", id, |_| Ok(()));
    // SAFETY: the caller's promise.
    unsafe {
        if let Some(info) = info.as_mut() {
            *info = DeviceInfo { context: ptr::null_mut(), device: ptr::null_mut() };
        }
        if known != SUCCESS && !error.is_null() {
            *error = c"there is no such MPI device".as_ptr();
        }
    }
    known
}
