// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The host side: the devices of this program, and what belongs to none of them alone.

pub mod arena;
pub mod device;
pub mod engine;
pub mod image;
pub mod queue;
pub mod space;
pub mod start;

use crate::base::{Error, Result};
use device::Device;
use engine::Engine;
use parking_lot::Mutex;
use queue::Queue;
use space::Space;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How long the devices may take to end.
const END_PATIENCE: Duration = Duration::from_secs(10);
/// Host memory is handed out at multiples of this.
const HOST_ALIGN: usize = 64;

/// A started plugin.
pub struct Plugin {
    engine: Arc<Engine>,
    space: Arc<Space>,
    /// The devices in the order of their numbers.
    pub devices: Vec<Device>,
    /// Host memory that was handed out as such: address to layout.
    host_memory: Mutex<HashMap<usize, Layout>>,
    finished: AtomicBool,
}

impl Plugin {
    fn new(engine: Arc<Engine>, space: Arc<Space>, devices: Vec<Device>) -> Plugin {
        Plugin { engine, space, devices, host_memory: Mutex::default(), finished: AtomicBool::new(false) }
    }

    /// The device with this number.
    ///
    /// # Errors
    /// There is none.
    #[inline]
    pub fn device(&self, id: i32) -> Result<&Device> {
        let device = usize::try_from(id).ok().and_then(|id| self.devices.get(id));
        device.ok_or_else(|| Error::new(format!("there is no device {id}; there are {}", self.devices.len())))
    }

    /// [`Device::submit`], or a copy between devices if `from` is a device address.
    ///
    /// # Errors
    /// As those.
    ///
    /// # Safety
    /// As those, unless `from` is a device address.
    #[inline]
    pub unsafe fn submit(&self, to: (&Device, u64), from: *const u8, size: u64, queue: &Arc<Queue>) -> Result<()> {
        match self.space.owner(from as u64) {
            // SAFETY: the caller's promise.
            None => unsafe { to.0.submit(queue, to.1, from, size) },
            Some(owner) => self.copy((&self.devices[owner], from as u64), to, size, queue),
        }
    }

    /// [`Device::retrieve`], or a copy between devices if `to` is a device address.
    ///
    /// # Errors
    /// As those.
    ///
    /// # Safety
    /// As those, unless `to` is a device address.
    #[inline]
    pub unsafe fn retrieve(&self, to: *mut u8, from: (&Device, u64), size: u64, queue: &Arc<Queue>) -> Result<()> {
        match self.space.owner(to as u64) {
            // SAFETY: the caller's promise.
            None => unsafe { from.0.retrieve(queue, to, from.1, size) },
            Some(owner) => self.copy(from, (&self.devices[owner], to as u64), size, queue),
        }
    }

    /// A copy between devices on a queue of whichever device.
    fn copy(&self, from: (&Device, u64), to: (&Device, u64), size: u64, queue: &Arc<Queue>) -> Result<()> {
        if queue.port == from.0.number {
            return from.0.exchange(queue, from.1, to.0, to.1, size);
        }
        // The queue is the receiver's; what it has done so far comes first.
        self.engine.close(queue, &mut queue.open.lock())?;
        self.engine.wait(queue)?;
        let own = from.0.queue();
        let started = from.0.exchange(&own, from.1, to.0, to.1, size);
        from.0.synchronize(own).and(started)
    }

    /// Host memory that devices can't reach but copies can.
    ///
    /// # Errors
    /// The host has not that much.
    pub fn alloc_host(&self, size: u64) -> Result<u64> {
        let layout = Layout::from_size_align(size.max(1) as usize, HOST_ALIGN);
        // SAFETY: the layout's size is not zero.
        let at = layout.as_ref().ok().map(|&l| unsafe { alloc(l) }).filter(|p| !p.is_null());
        match (at, layout) {
            (Some(at), Ok(layout)) => {
                self.host_memory.lock().insert(at as usize, layout);
                Ok(at as u64)
            }
            _ => Err(Error::new(format!("no room for {size} bytes on the host"))),
        }
    }

    /// Gives memory back, of a device or of the host.
    ///
    /// # Errors
    /// An address that was not handed out.
    pub fn free(&self, device: &Device, at: u64) -> Result<()> {
        let host = self.host_memory.lock().remove(&(at as usize));
        match host {
            Some(layout) => {
                // SAFETY: `alloc_host` allocated it with this layout, and forgets it now.
                unsafe { dealloc(at as *mut u8, layout) };
                Ok(())
            }
            None => match self.space.owner(at) {
                Some(owner) => self.devices[owner].free(at),
                None => device.free(at),
            },
        }
    }

    /// Ends the devices and MPI; later calls do nothing.
    pub fn finish(&self) {
        if !self.finished.swap(true, Ordering::SeqCst) {
            let controls: Vec<_> = self.devices.iter().map(|d| d.control.clone()).collect();
            self.engine.shut_down(&controls, END_PATIENCE);
        }
    }
}

/// Prints to the program's standard output, in order with what it prints itself.
pub fn print(text: &[u8]) {
    engine::print(crate::wire::reply::Stream::Out, text);
}
