// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Events: marks in queues that others wait for.

use super::queue::queue_of;
use super::*;
use crate::plugin::messages::queue::Event;

/// The event that a handle stands for.
///
/// # Safety
/// `event` is null or from `create_event`.
unsafe fn event_of(event: *mut c_void) -> Result<Handle<Event>> {
    // SAFETY: the caller's promise; a destroyed event stays in memory.
    unsafe { Handle::borrow(event) }.ok_or_else(is_null)
}

fn is_null() -> Error {
    Error::new("the event is null")
}

/// Creates an event.
///
/// # Safety
/// `event` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_create_event(_id: i32, event: *mut *mut c_void) -> i32 {
    status("create_event", || {
        // SAFETY: the caller's promise.
        *unsafe { result(event)? } = Handle::into_raw(Event::create());
        Ok(())
    })
}

/// Records an event behind what is in a queue.
///
/// # Safety
/// `event` is a live event; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_record_event(id: i32, event: *mut c_void, info: *mut AsyncInfo) -> i32 {
    on_device("record_event", id, |device| {
        // SAFETY: the caller's promise.
        let (event, queue) = unsafe { (event_of(event)?, queue_of(device, info)?) };
        event.record(&queue);
        Ok(())
    })
}

/// Makes a queue wait until an event is complete.
///
/// # Safety
/// `event` is from `create_event`; `info` is an async info of libomptarget.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_wait_event(id: i32, event: *mut c_void, info: *mut AsyncInfo) -> i32 {
    on_device("wait_event", id, |device| {
        // SAFETY: the caller's promise.
        let (event, queue) = unsafe { (event_of(event)?, queue_of(device, info)?) };
        device.queues.wait_event(&event, &queue)
    })
}

/// Sets `complete` to whether an event is complete. (For LLVM 22 and later.)
///
/// # Safety
/// `event` is from `create_event`; `complete` is writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_mpi_query_event(id: i32, event: *mut c_void, complete: *mut bool) -> i32 {
    on_device("query_event", id, |device| {
        // SAFETY: the caller's promise.
        let (event, complete) = unsafe { (event_of(event)?, result(complete)?) };
        *complete = device.queues.query_event(&event)?;
        Ok(())
    })
}

/// Waits until an event is complete.
///
/// # Safety
/// `event` is from `create_event`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_sync_event(id: i32, event: *mut c_void) -> i32 {
    on_device("sync_event", id, |device| {
        // SAFETY: the caller's promise.
        let event = unsafe { event_of(event)? };
        device.queues.sync_event(&event)
    })
}

/// Destroys an event.
///
/// # Safety
/// `event` is a live event, which the call ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __tgt_rtl_destroy_event(_id: i32, mut event: *mut c_void) -> i32 {
    status("destroy_event", || {
        // SAFETY: the caller's promise.
        unsafe { Handle::<Event>::take(&mut event) }.map(Event::destroy).ok_or_else(is_null)
    })
}
