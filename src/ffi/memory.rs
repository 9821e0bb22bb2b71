// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Memory of devices, and copies from and to it.

use super::queue::{at_once, queue_of};
use super::*;
use crate::debug;
use crate::plugin::program::libraries;
use crate::plugin::unified;

fn to_bytes(size: i64, device: &Device) -> Result<u64> {
    u64::try_from(size).map_err(|_| Error::new(format!("a size of {size} bytes on {}", device.name())))
}

/// Allocates memory of a kind (`TargetAllocTy`); null on failure.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_data_alloc(id: i32, size: i64, host: *mut c_void, kind: i32) -> *mut c_void {
    guard("data_alloc", ptr::null_mut(), || {
        lifecycle::note_use();
        let plugin = plugin()?;
        let device = plugin.device(id)?;
        let size = to_bytes(size, device)?;
        let kind =
            if kind == ALLOC_DEFAULT && host.is_null() && device.shares_allocations() { ALLOC_HOST } else { kind };
        let at = match kind {
            ALLOC_DEFAULT | ALLOC_DEVICE | ALLOC_DEVICE_NON_BLOCKING => device.memory.alloc(size, host as u64)?,
            ALLOC_SHARED if libraries::uses_offload_api() => {
                return Err(Error::new("programs of the Offload API can't allocate managed memory on MPI devices"));
            }
            ALLOC_HOST | ALLOC_SHARED => {
                unified::require();
                if kind == ALLOC_SHARED {
                    device.check_shared(size)?;
                }
                plugin.host_memory().alloc(size)?
            }
            other => return Err(Error::new(format!("unknown kind {other} of memory"))),
        };
        debug!("{}: {size} bytes of kind {kind} at {at:#x}", device.name());
        Ok(at as *mut c_void)
    })
}

/// Frees memory. (LLVM 14 and 15 do not pass the kind, which is not needed.)
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_data_delete(id: i32, at: *mut c_void, _kind: i32) -> i32 {
    status("data_delete", || {
        if lifecycle::is_closed() {
            // LLVM 19 keeps memory for reuse even after a program's MPI_Finalize, when the memory is gone.
            return Ok(());
        }
        let plugin = plugin()?;
        debug!("device {id}: {at:p} is free");
        plugin.free(plugin.device(id)?, at as u64)
    })
}

/// Does nothing: copies need no locked host memory.
///
/// # Safety
/// `locked` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_lock(_id: i32, host: *mut c_void, _size: i64, locked: *mut *mut c_void) -> i32 {
    // SAFETY: the caller's promise.
    let Some(locked) = (unsafe { locked.as_mut() }) else { return FAIL };
    *locked = host;
    SUCCESS
}

/// The counterpart of `data_lock`.
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_data_unlock(_id: i32, _host: *mut c_void) -> i32 {
    SUCCESS
}

/// Copies to the device.
///
/// # Safety
/// `host[..size]` is readable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_submit(id: i32, target: *mut c_void, host: *mut c_void, size: i64) -> i32 {
    // SAFETY: the caller's promise.
    at_once("data_submit", id, |info| unsafe { __tgt_rtl_data_submit_async(id, target, host, size, info) })
}

/// Copies to the device as a part of a queue.
///
/// # Safety
/// `host[..size]` is readable, and if large, until the queue is synchronized; `info` is
/// an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_submit_async(
    id: i32,
    target: *mut c_void,
    host: *mut c_void,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    on_device("data_submit", id, |device| {
        let size = to_bytes(size, device)?;
        debug!("device {id}: {size} bytes from host {host:p} to {target:p}");
        if size == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe {
            let queue = queue_of(device, info)?;
            plugin()?.submit((device, target as u64), host.cast(), size, &queue)
        }
    })
}

/// Copies from the device.
///
/// # Safety
/// `host[..size]` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_retrieve(id: i32, host: *mut c_void, target: *mut c_void, size: i64) -> i32 {
    // SAFETY: the caller's promise.
    at_once("data_retrieve", id, |info| unsafe { __tgt_rtl_data_retrieve_async(id, host, target, size, info) })
}

/// Copies from the device as a part of a queue.
///
/// # Safety
/// `host[..size]` is writable until the queue is synchronized; `info` is an async info
/// of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_retrieve_async(
    id: i32,
    host: *mut c_void,
    target: *mut c_void,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    on_device("data_retrieve", id, |device| {
        let size = to_bytes(size, device)?;
        debug!("device {id}: {size} bytes from {target:p} to host {host:p}");
        if size == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe {
            let queue = queue_of(device, info)?;
            plugin()?.retrieve(host.cast(), (device, target as u64), size, &queue)?;
            match libomptarget::generation() {
                Ok(Generation::Llvm14) => device.queues.drain(&queue),
                _ => Ok(()),
            }
        }
    })
}

/// Fills `size` bytes of the device with a pattern, as a part of a queue. (For LLVM 22 and later.)
///
/// # Safety
/// `pattern[..pattern_size]` is readable; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_data_fill_async(
    id: i32,
    target: *mut c_void,
    pattern: *const c_void,
    pattern_size: i64,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    on_device("data_fill", id, |device| {
        let (size, pattern_size) = (to_bytes(size, device)?, to_bytes(pattern_size, device)?);
        if size == 0 {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        let (queue, pattern) =
            unsafe { (queue_of(device, info)?, std::slice::from_raw_parts(pattern.cast(), pattern_size as usize)) };
        device.memory.fill(&queue, target as u64, pattern, size)
    })
}

/// 1: any two devices can copy to each other. (LLVM's spelling.)
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_is_data_exchangable(source: i32, destination: i32) -> i32 {
    guard("is_data_exchangable", 0, || {
        let plugin = plugin()?;
        plugin.device(source).and(plugin.device(destination)).map(|_| 1)
    })
}

/// Copies between devices.
#[expect(clippy::not_unsafe_ptr_arg_deref, reason = "these are addresses of devices")]
#[unsafe(no_mangle)]
pub extern "C" fn __tgt_rtl_data_exchange(
    source: i32,
    from: *mut c_void,
    destination: i32,
    to: *mut c_void,
    size: i64,
) -> i32 {
    at_once("data_exchange", source, |info| {
        // SAFETY: `at_once` gives an async info.
        unsafe { __tgt_rtl_data_exchange_async(source, from, destination, to, size, info) }
    })
}

/// Copies between devices as a part of a queue of the source.
///
/// # Safety
/// `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_data_exchange_async(
    source: i32,
    from: *mut c_void,
    destination: i32,
    to: *mut c_void,
    size: i64,
    info: *mut AsyncInfo,
) -> i32 {
    guard("data_exchange", FAIL, || {
        let plugin = plugin()?;
        let (device, other) = (plugin.device(source)?, plugin.device(destination)?);
        let size = to_bytes(size, device)?;
        debug!("{size} bytes from device {source} {from:p} to device {destination} {to:p}");
        if size == 0 {
            return Ok(SUCCESS);
        }
        // SAFETY: the caller's promise.
        let queue = unsafe { queue_of(device, info)? };
        let is_begun = plugin.exchange((device, from as u64), (other, to as u64), size, &queue)?;
        // After a failure libomptarget copies through this process.
        Ok(if is_begun { SUCCESS } else { FAIL })
    })
}
