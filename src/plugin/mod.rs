// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The host side: the devices of this program, and the state that they share.
//!
//! Each module uses only modules below it, and each folder lists its files from top to bottom:
//!
//! | module | contents |
//! | --- | --- |
//! | `image_compatibility` | which images of the program this process's devices can execute |
//! | `lifecycle` | the plugin of this process, from the first call to the last |
//! | `start` | decides whether this process offloads over MPI, and starts the plugin |
//! | `Plugin` | in this file: operations on several devices |
//! | `shutdown` | ends the use of the devices |
//! | `trace` | statistics and traces |
//! | `devices` | devices as libomptarget knows them: queues, memory, images |
//! | `progress` | sends, receives and waits |
//! | `unified` | regions that use the program's memory at the program's addresses |
//! | `messages` | queues, the messages that they send, and the state of each device |
//! | `addresses` | the addresses of the program and of each device |
//! | `program` | the program's process: calls from it, what it prints, its end |

pub(crate) mod addresses;
pub(crate) mod devices;
pub(crate) mod image_compatibility;
pub(crate) mod lifecycle;
pub(crate) mod messages;
pub(crate) mod program;
pub(crate) mod progress;
pub(crate) mod shutdown;
pub(crate) mod start;
mod trace;
pub(crate) mod unified;

use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, elf, log};
use addresses::address_map::AddressMap;
use addresses::host_allocations::Allocations;
use devices::device::Device;
use devices::image_distribution::{ComingImage, Distribution};
use devices::images::Entry;
use messages::queue::Queue;
use program::ending;
use progress::engine::Engine;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use trace::Trace;

/// How long the devices may take to shut down.
const END_PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Plugin {
    engine: Arc<Engine>,
    addresses: Arc<AddressMap>,
    /// The devices in the order of their numbers.
    pub(crate) devices: Vec<Device>,
    distribution: Distribution,
    /// Present until the end if anything is traced.
    trace: Mutex<Option<Trace>, { order::TRACE }>,
    finished: AtomicBool,
}

impl Plugin {
    pub(crate) fn new(
        engine: Arc<Engine>,
        addresses: Arc<AddressMap>,
        devices: Vec<Device>,
        trace: Option<Trace>,
    ) -> Plugin {
        Plugin {
            engine,
            addresses,
            devices,
            distribution: Distribution::default(),
            trace: Mutex::new(trace),
            finished: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(crate) fn device(&self, id: i32) -> Result<&Device> {
        let device = usize::try_from(id).ok().and_then(|id| self.devices.get(id));
        device.ok_or_else(|| Error::new(format!("there is no device {id}; there are {}", self.devices.len())))
    }

    /// [`Memory::submit`](devices::memory::Memory::submit), or a copy between devices if `from` is a device address.
    ///
    /// # Safety
    /// As for that function, unless `from` is a device address.
    #[inline]
    pub(crate) unsafe fn submit(
        &self,
        to: (&Device, u64),
        from: *const u8,
        len: u64,
        queue: &Arc<Queue>,
    ) -> Result<()> {
        match self.addresses.owner(from as u64) {
            // SAFETY: the caller's promise; the memory is allocated.
            None if self.is_host_memory(to.1, len) => unsafe { self.copy_here(queue, to.1 as *mut u8, from, len) },
            // SAFETY: the caller's promise.
            None => unsafe { to.0.memory.submit(queue, to.1, from, len) },
            Some(owner) => self.copy((&self.devices[owner], from as u64), to, len, queue),
        }
    }

    /// [`Memory::retrieve`](devices::memory::Memory::retrieve), or a copy between devices if `to` is a device address.
    ///
    /// # Safety
    /// As for that function, unless `to` is a device address.
    #[inline]
    pub(crate) unsafe fn retrieve(
        &self,
        to: *mut u8,
        from: (&Device, u64),
        len: u64,
        queue: &Arc<Queue>,
    ) -> Result<()> {
        match self.addresses.owner(to as u64) {
            // SAFETY: the caller's promise; the memory is allocated.
            None if self.is_host_memory(from.1, len) => unsafe { self.copy_here(queue, to, from.1 as *const u8, len) },
            // SAFETY: the caller's promise.
            None => unsafe { from.0.memory.retrieve(queue, to, from.1, len) },
            Some(owner) => self.copy(from, (&self.devices[owner], to as u64), len, queue),
        }
    }

    /// Memory of the program that regions may use.
    pub(crate) fn host_memory(&self) -> &Allocations {
        &self.engine.connection.unified.allocations
    }

    #[inline]
    fn is_host_memory(&self, at: u64, len: u64) -> bool {
        // Most programs allocate no host memory.
        unified::is_required() && self.host_memory().around(at, len).is_some()
    }

    /// Copies within this process, after the earlier operations of the queue.
    ///
    /// # Safety
    /// Both ranges are valid.
    unsafe fn copy_here(&self, queue: &Arc<Queue>, to: *mut u8, from: *const u8, len: u64) -> Result<()> {
        self.devices[queue.port()].queues.complete(queue)?;
        // SAFETY: the caller's promise; they may overlap.
        unsafe { std::ptr::copy(from, to, len as usize) };
        Ok(())
    }

    /// Copies between devices as a part of a queue of the source, or between allocations of host memory. See
    /// [`Memory::exchange`](devices::memory::Memory::exchange).
    pub(crate) fn exchange(
        &self,
        from: (&Device, u64),
        to: (&Device, u64),
        len: u64,
        queue: &Arc<Queue>,
    ) -> Result<bool> {
        if self.is_host_memory(from.1, len) && self.is_host_memory(to.1, len) {
            // SAFETY: both are allocated, and the program must not free them meanwhile.
            return unsafe { self.copy_here(queue, to.1 as *mut u8, from.1 as *const u8, len) }.map(|()| true);
        }
        from.0.memory.exchange(queue, from.1, &to.0.memory, to.1, len)
    }

    /// Copies between devices; `queue` may be a queue of either.
    fn copy(&self, from: (&Device, u64), to: (&Device, u64), size: u64, queue: &Arc<Queue>) -> Result<()> {
        let ((source, from), (target, to)) = (from, to);
        let exchange = |queue| match source.memory.exchange(queue, from, &target.memory, to, size)? {
            true => Ok(()),
            false => Err(Error::new(format!(
                "can't copy {size} bytes from {from:#x} to {to:#x}: one of these is not within the memory of the devices"
            ))),
        };
        if queue.port() == source.number {
            return exchange(queue);
        }
        // The queue is the receiver's: its earlier operations must be complete first.
        target.queues.complete(queue)?;
        let own = source.queues.queue();
        let started = exchange(&own);
        source.queues.synchronize(own).and(started)
    }

    /// Loads an image on a device and returns its number there and the addresses of its entries. The
    /// first load of an image sends it to all devices, from device to device.
    pub(crate) fn load(&self, device: &Device, file: &[u8], entries: &[Entry]) -> Result<(u32, Vec<u64>)> {
        device.queues.check_alive()?;
        if device.is_accelerator() && entries.iter().any(|entry| entry.indirect.is_some()) {
            return Err(Error::new(format!("{} does not support declare target indirect", device.name())));
        }
        // An accelerator checks an image itself.
        let parsed = match device.is_accelerator() {
            true => None,
            false => Some(elf::Image::parse(file, device.hello.processor.machine)?),
        };
        let ComingImage { id, message, parcel } = self.send_image(device, file)?;
        // LLVM 22 passes no entries, and an accelerator loads an image with all of them.
        let found: Vec<Entry>;
        let entries = match device.is_accelerator() && entries.is_empty() {
            true => {
                found = elf::offload_symbols(file).into_iter().map(Entry::from).collect();
                &found
            }
            false => entries,
        };
        let loaded = device.images.load((id, message), parsed, entries);
        if let Some((parcel, queue)) = parcel
            && let Err(e) = self.engine.wait(&queue)
        {
            // MPI may still read the parcel.
            std::mem::forget(parcel);
            return Err(e);
        }
        if loaded.is_err() {
            self.distribution.note_failed_load(id, device);
        }
        loaded.map(|addresses| (id, addresses))
    }

    /// Sends an image to a device, unless it is already on its way.
    pub(crate) fn send_image(&self, device: &Device, file: &[u8]) -> Result<ComingImage> {
        self.distribution.send(&self.engine, &self.devices, device, file)
    }

    /// Unloads an image. When the last device unloads it, all devices drop it. Process exit leaves it loaded while
    /// another thread's region runs.
    pub(crate) fn unload(&self, device: &Device, id: u32) -> Result<()> {
        if ending::is_ending_thread() && device.port().has_awaited_kernel() {
            // The kernel may be in this image. It would continue in unmapped code.
            return Ok(());
        }
        let Some(received) = self.distribution.remove(&self.devices, device, id)? else { return Ok(()) };
        if let Some(trace) = &*self.trace.lock() {
            // If the device does not answer, the end of the trace reports it.
            let _ = trace.collect(device);
        }
        let unloaded = device.images.unload(id, received);
        if unloaded.is_err() && ending::is_ending_thread() {
            // Nobody looks at the result of a call that process exit makes, and libomptarget 22 makes no further calls.
            if let Err(Error::Text(text)) = &unloaded {
                log::error(text);
            }
            device.port().failures.fail_unseen();
            shutdown::check(&self.engine);
        }
        unloaded
    }

    /// Unloads all images of a device, the most recent first.
    pub(crate) fn unload_all(&self, device: &Device) -> Result<()> {
        device.images.numbers().into_iter().map(|id| self.unload(device, id)).fold(Ok(()), Result::and)
    }

    pub(crate) fn free(&self, device: &Device, at: u64) -> Result<()> {
        if let Some(owner) = self.addresses.owner(at) {
            return self.devices[owner].memory.free(at);
        }
        if self.host_memory().free(at) { Ok(()) } else { device.memory.free(at) }
    }

    /// Shuts down the devices and MPI, after unloading the images if `unloads`; later calls do nothing.
    pub(crate) fn finish(&self, unloads: bool) {
        if self.finished.swap(true, Ordering::SeqCst) {
            return;
        }
        ending::devices_are_ending();
        shutdown::settle(&self.engine);
        let trace = self.trace.lock().take();
        // Before all else: the trace names kernels, and abandoned devices do not answer.
        if let Some(trace) = trace {
            trace.end(&self.devices);
        }
        if shutdown::may_leave(&self.engine.connection) {
            shutdown::leave(&self.engine);
        } else {
            if unloads {
                self.devices.iter().for_each(|device| drop(self.unload_all(device)));
                shutdown::check(&self.engine);
            }
            let controls: Vec<_> = self.devices.iter().map(|d| d.control.clone()).collect();
            shutdown::end_devices(&self.engine, &controls, END_PATIENCE);
        }
        ending::devices_have_ended();
    }
}
