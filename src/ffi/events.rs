// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Events: marks in queues that others wait for.

use super::kernels::queue_of;
use super::types::*;
use super::*;
use crate::plugin::queue::Event;
use std::mem::ManuallyDrop;
use std::sync::Arc;

/// The event that a handle stands for; its count of owners stays as it is.
///
/// # Safety
/// `event` is null or a handle of `create_event` that was not destroyed.
unsafe fn event_of(event: *mut c_void) -> Result<ManuallyDrop<Arc<Event>>> {
    if event.is_null() {
        return Err(Error::new("the event is null"));
    }
    // SAFETY: the caller's promise.
    Ok(ManuallyDrop::new(unsafe { Arc::from_raw(event.cast::<Event>().cast_const()) }))
}

/// Makes an event.
///
/// # Safety
/// `event` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_create_event(_id: i32, event: *mut *mut c_void) -> i32 {
    guard("create_event", FAIL, || {
        // SAFETY: the caller's promise.
        let event = unsafe { event.as_mut() }.ok_or_else(|| Error::new("the result pointer is null"))?;
        *event = Arc::into_raw(Arc::new(Event::default())).cast_mut().cast();
        Ok(SUCCESS)
    })
}

/// Records an event behind what is in a queue.
///
/// # Safety
/// `event` is a live event; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_record_event(id: i32, event: *mut c_void, info: *mut AsyncInfo) -> i32 {
    guard("record_event", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise.
        let (event, queue) = unsafe { (event_of(event)?, queue_of(device, info)?) };
        device.record(&event, &queue);
        Ok(SUCCESS)
    })
}

/// Lets a queue go on only when an event is complete.
///
/// # Safety
/// `event` is a live event; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_wait_event(id: i32, event: *mut c_void, info: *mut AsyncInfo) -> i32 {
    guard("wait_event", FAIL, || {
        let device = plugin()?.device(id)?;
        // SAFETY: the caller's promise.
        let (event, queue) = unsafe { (event_of(event)?, queue_of(device, info)?) };
        done(device.wait_event(&event, &queue))
    })
}

/// Tells whether an event is complete. (For LLVM 22 and later.)
///
/// # Safety
/// `event` is a live event; `complete` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_query_event(id: i32, event: *mut c_void, complete: *mut bool) -> i32 {
    guard("query_event", FAIL, || {
        // SAFETY: the caller's promise.
        let (event, complete) = unsafe { (event_of(event)?, complete.as_mut()) };
        let complete = complete.ok_or_else(|| Error::new("the result pointer is null"))?;
        *complete = plugin()?.device(id)?.query_event(&event)?;
        Ok(SUCCESS)
    })
}

/// Waits until an event is complete.
///
/// # Safety
/// `event` is a live event.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_sync_event(id: i32, event: *mut c_void) -> i32 {
    guard("sync_event", FAIL, || {
        // SAFETY: the caller's promise.
        let event = unsafe { event_of(event)? };
        done(plugin()?.device(id)?.sync_event(&event))
    })
}

/// Destroys an event.
///
/// # Safety
/// `event` is a live event; it is none from now on.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_destroy_event(_id: i32, event: *mut c_void) -> i32 {
    guard("destroy_event", FAIL, || {
        // SAFETY: the caller's promise.
        drop(ManuallyDrop::into_inner(unsafe { event_of(event)? }));
        Ok(SUCCESS)
    })
}
