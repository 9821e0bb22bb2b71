// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Kernels, and the queues that all work goes through.

use super::images::DYN_PTR;
use super::memory::at_once;
use super::types::*;
use super::*;
use crate::plugin::device::Device;
use crate::plugin::queue::Queue;
use std::ffi::c_char;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The queue of an async info that has one; the count of its owners stays as it is.
///
/// # Safety
/// A `Queue` that is not null was put there by [`queue_of`].
#[inline]
unsafe fn peek(info: &AsyncInfo) -> Option<ManuallyDrop<Arc<Queue>>> {
    let queue = info.queue.cast::<Queue>().cast_const();
    // SAFETY: the caller's promise; ManuallyDrop leaves the async info its share.
    (!queue.is_null()).then(|| ManuallyDrop::new(unsafe { Arc::from_raw(queue) }))
}

/// The queue of an async info; made if it has none yet.
///
/// # Safety
/// `info` is null or points to an async info of libomptarget.
#[inline]
pub(super) unsafe fn queue_of(device: &Device, info: *mut AsyncInfo) -> Result<ManuallyDrop<Arc<Queue>>> {
    // SAFETY: the caller's promise.
    let info = unsafe { info.as_mut() }.ok_or_else(|| Error::new("the async info is null"))?;
    // SAFETY: only this function fills it.
    if let Some(queue) = unsafe { peek(info) } {
        if queue.port != device.number {
            return Err(Error::new(format!("the async info belongs to device {}, not {}", queue.port, device.number)));
        }
        return Ok(queue);
    }
    info.queue = Arc::into_raw(device.queue()).cast_mut().cast();
    // SAFETY: filled just now.
    unsafe { peek(info) }.ok_or(Error::Told)
}

/// What is launched: a kernel, its arguments (places and offsets to add), whether it takes
/// `dyn_ptr` before these, and whether it takes one argument, an array of pointers to these.
struct Launch<'a> {
    entry: u64,
    args: &'a [*mut c_void],
    offsets: Option<&'a [isize]>,
    dyn_ptr: bool,
    array: bool,
}

impl Launch<'_> {
    /// # Safety
    /// `args` and `offsets` have `n` elements, but `offsets` may be null: then all are 0.
    unsafe fn new<'a>(entry: *mut c_void, args: *mut *mut c_void, offsets: *mut isize, n: usize) -> Launch<'a> {
        // SAFETY: the caller's promise; without arguments both may be null.
        let (args, offsets) = unsafe {
            let args = if n == 0 { &[][..] } else { std::slice::from_raw_parts(args, n) };
            let offsets = if n == 0 || offsets.is_null() { None } else { Some(std::slice::from_raw_parts(offsets, n)) };
            (args, offsets)
        };
        let dyn_ptr = entry as usize & DYN_PTR != 0;
        Launch { entry: (entry as usize & !DYN_PTR) as u64, args, offsets, dyn_ptr, array: false }
    }

    fn on(&self, device: &Device, queue: &Arc<Queue>) -> Result<()> {
        /// What LLVM's own plugins pass where a kernel needs no environment of its launch.
        const NO_ENVIRONMENT: u64 = !0;
        let entry = self.entry;
        if log::wants_info(log::INFO_PLUGIN_KERNEL) || log::wants_debug() {
            log::info(
                device.number,
                format_args!("Launching kernel {} with {} arguments", device.kernel_name(entry), self.args.len()),
            );
        }
        let offset = |i| self.offsets.map_or(0, |offsets| offsets[i]);
        let arg = |i: usize| self.args[i].wrapping_byte_offset(offset(i)) as u64;
        let first = usize::from(self.dyn_ptr);
        let args = (0..first + self.args.len()).map(|i| if i < first { NO_ENVIRONMENT } else { arg(i - first) });
        device.launch(queue, entry, args, self.array)
    }
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
    /// The version of the kernel arguments from which on (LLVM 23) kernels of CPUs take one
    /// argument, an array of pointers to theirs.
    const ARRAY: u32 = 5;
    guard("launch_kernel", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise.
        let (queue, launch) = unsafe {
            let kernel = kernel.as_ref().ok_or_else(|| Error::new("the kernel arguments are null"))?;
            let launch = Launch::new(entry, args, offsets, kernel.num_args as usize);
            (queue_of(device, info)?, Launch { array: kernel.version >= ARRAY, ..launch })
        };
        done(launch.on(device, &queue))
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
    guard("run_target_region", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise.
        let launch = unsafe { Launch::new(entry, args, offsets, to_count(arg_num)?) };
        at_once(device, |queue| launch.on(device, queue))
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
    guard("run_target_region", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise.
        let (queue, launch) =
            unsafe { (queue_of(device, info)?, Launch::new(entry, args, offsets, to_count(arg_num)?)) };
        done(launch.on(device, &queue))
    })
}

/// Runs a kernel and waits for it. Nothing is done with the teams, threads and iterations
/// that the program asks for: the kernel asks libomp itself.
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

fn to_count(n: i32) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::new(format!("a kernel with {n} arguments")))
}

/// Waits for everything in a queue. Its device is the one to ask, which need not be `id`:
/// LLVM 14 and 15 name the source of a copy between devices when the queue is the target's.
///
/// # Safety
/// `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_synchronize(id: i32, info: *mut AsyncInfo) -> i32 {
    guard("synchronize", FAIL, || {
        let plugin = plugin()?;
        plugin.device(id)?;
        // SAFETY: the caller's promise; the queue was put there by `queue_of`, and the
        // async info gives its share up.
        let queue = unsafe {
            let info = info.as_mut().ok_or_else(|| Error::new("the async info is null"))?;
            let queue = peek(info);
            info.queue = ptr::null_mut();
            queue
        };
        let Some(queue) = queue.map(ManuallyDrop::into_inner) else { return Ok(SUCCESS) };
        done(plugin.devices[queue.port].synchronize(queue))
    })
}

/// Tells libomptarget, by a null `Queue`, whether everything in a queue is done.
///
/// # Safety
/// `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_query_async(id: i32, info: *mut AsyncInfo) -> i32 {
    guard("query_async", FAIL, || {
        let plugin = plugin()?;
        plugin.device(id)?;
        // SAFETY: the caller's promise.
        let info = unsafe { info.as_mut() }.ok_or_else(|| Error::new("the async info is null"))?;
        // SAFETY: put there by `queue_of`.
        let Some(queue) = (unsafe { peek(info) }) else { return Ok(SUCCESS) };
        let result = plugin.devices[queue.port].query(&queue);
        if !matches!(result, Ok(false)) {
            info.queue = ptr::null_mut();
            drop(ManuallyDrop::into_inner(queue));
        }
        done(result.map(drop))
    })
}

/// Makes an async info for an interop object.
///
/// # Safety
/// `info` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_init_async_info(_id: i32, info: *mut *mut AsyncInfo) -> i32 {
    guard("init_async_info", FAIL, || {
        // SAFETY: the caller's promise. libomptarget has no call that frees it.
        let info = unsafe { info.as_mut() }.ok_or_else(|| Error::new("the result pointer is null"))?;
        *info = Box::into_raw(Box::new(AsyncInfo { queue: ptr::null_mut() }));
        Ok(SUCCESS)
    })
}

/// MPI devices have no native handles for an interop object.
///
/// # Safety
/// `info` is null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_init_device_info(id: i32, info: *mut DeviceInfo, error: *mut *const c_char) -> i32 {
    let known = guard("init_device_info", FAIL, || done(plugin()?.device(id).map(drop)));
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
