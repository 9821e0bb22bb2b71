// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The queues of async infos, and of calls without an async info.

use super::handle::Handle;
use super::types::AsyncInfo;
use super::{Device, Error, Result, SUCCESS, on_device, plugin};
use crate::plugin::messages::queue::Queue;
use std::ffi::c_void;

/// The field of an async info that holds the handle of its queue.
///
/// # Safety
/// `info` is null or an async info of libomptarget, whose `queue` only this library fills.
#[inline]
pub(super) unsafe fn slot_of<'a>(info: *mut AsyncInfo) -> Result<&'a mut *mut c_void> {
    // SAFETY: the caller's promise.
    let info = unsafe { info.as_mut() }.ok_or_else(|| Error::new("the async info is null"))?;
    Ok(&mut info.queue)
}

/// Returns the queue of an async info, and creates it on the first call.
///
/// # Safety
/// As for [`slot_of`].
#[inline]
pub(super) unsafe fn queue_of(device: &Device, info: *mut AsyncInfo) -> Result<Handle<Queue>> {
    // SAFETY: the caller's promise.
    let slot = unsafe { slot_of(info)? };
    // SAFETY: this function filled it, if it is not null.
    let known = unsafe { Handle::<Queue>::borrow(*slot) };
    let queue = known.unwrap_or_else(|| Handle::give(device.queues.queue(), slot));
    if queue.port() != device.number {
        let (owner, number) = (queue.port(), device.number);
        return Err(Error::new(format!("the async info belongs to device {owner}, not {number}")));
    }
    Ok(queue)
}

/// Waits for everything in the queue of an async info, on the queue's device.
///
/// # Safety
/// As for [`slot_of`].
pub(super) unsafe fn synchronize(operation: &str, id: i32, info: *mut AsyncInfo) -> i32 {
    on_device(operation, id, |_| {
        // SAFETY: the caller's promise; `queue_of` filled it.
        let queue = unsafe { Handle::<Queue>::take(slot_of(info)?) };
        queue.map_or(Ok(()), |queue| plugin()?.devices[queue.port()].queues.synchronize(queue))
    })
}

/// Makes an asynchronous call on a temporary queue and waits for it.
pub(super) fn at_once(operation: &str, id: i32, call: impl FnOnce(*mut AsyncInfo) -> i32) -> i32 {
    let mut info = AsyncInfo { queue: std::ptr::null_mut() };
    let called = call(&raw mut info);
    if info.queue.is_null() {
        return called;
    }
    // SAFETY: only `call` has used the async info.
    let done = unsafe { synchronize(operation, id, &raw mut info) };
    if called == SUCCESS { done } else { called }
}
