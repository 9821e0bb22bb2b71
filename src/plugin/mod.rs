// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The host side: the devices of this program, and what belongs to none of them alone.

pub mod arena;
pub mod console;
pub mod device;
pub mod ending;
pub mod engine;
pub mod flight;
pub mod image;
pub mod pending;
pub mod pulse;
pub mod queue;
pub mod space;
pub mod start;
pub mod tags;
pub mod turn;
pub mod watch;

use crate::base::limits::FIRST_IMAGE;
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, elf, log};
use crate::link::{Peer, Span};
use crate::wire::command::parts;
use device::Device;
use engine::Engine;
use image::{Coming, Entry, Hop, Sent, parcel, route};
use queue::Queue;
use space::Space;
use std::alloc::{Layout, alloc, dealloc};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;
use watch::Watch;
use xxhash_rust::xxh3::xxh3_128;

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
    host_memory: Mutex<HashMap<usize, Layout>, { order::LEAF }>,
    sent_images: Mutex<Vec<Sent>, { order::SENT_IMAGES }>,
    next_image: AtomicU32,
    /// Until the end, if anything is watched.
    watch: Mutex<Option<Watch>, { order::WATCH }>,
    finished: AtomicBool,
}

impl Plugin {
    pub(crate) fn new(engine: Arc<Engine>, space: Arc<Space>, devices: Vec<Device>, watch: Option<Watch>) -> Plugin {
        Plugin {
            engine,
            space,
            devices,
            host_memory: Mutex::default(),
            sent_images: Mutex::default(),
            next_image: AtomicU32::new(FIRST_IMAGE),
            watch: Mutex::new(watch),
            finished: AtomicBool::new(false),
        }
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

    /// Loads an image on a device; its number there, and the addresses of its entries. When
    /// the first device needs it, it is sent to all, from device to device.
    ///
    /// # Errors
    /// As [`Device::load`].
    pub fn load(&self, device: &Device, file: &[u8], entries: &[Entry]) -> Result<(u32, Vec<u64>)> {
        device.alive()?;
        let parsed = elf::Image::parse(file, device.hello.machine)?;
        let Coming { id, message, parcel } = self.send_image(device, file)?;
        let loaded = device.load(id, message, parsed, entries);
        if let Some((parcel, queue)) = parcel
            && let Err(e) = self.engine.wait(&queue)
        {
            // MPI may still read it.
            std::mem::forget(parcel);
            return Err(e);
        }
        let mut sent = self.sent_images.lock();
        if let Some(image) = sent.iter_mut().find(|i| i.id == id) {
            match &loaded {
                Ok(_) => image.loaded += 1,
                Err(_) => image.messages[device.number] = None,
            }
        }
        loaded.map(|addresses| (id, addresses))
    }

    /// Sends an image to a device, unless it is on its way already, and if no device has
    /// it yet, to all.
    pub(crate) fn send_image(&self, device: &Device, file: &[u8]) -> Result<Coming> {
        let hash = xxh3_128(file);
        // Locked until every device was told: none is asked to load what it was not.
        let mut sent = self.sent_images.lock();
        let known = sent.iter().position(|i| i.hash == hash);
        if let Some(image) = known.map(|i| &sent[i])
            && let Some(message) = image.messages[device.number]
        {
            return Ok(Coming { id: image.id, message, parcel: None });
        }
        let (parcel, libraries) = parcel(file);
        let mut devices = vec![device];
        let index = known.unwrap_or_else(|| {
            let is_free = |id: &u32| sent.iter().all(|image| image.id != *id);
            let mut ids = std::iter::repeat_with(|| self.next_image.fetch_add(1, Ordering::Relaxed));
            let id = ids.find(is_free).expect("fewer images than numbers");
            sent.push(Sent { id, hash, messages: vec![None; self.devices.len()], loaded: 0 });
            let same = |d: &&Device| d.hello.machine == device.hello.machine && d.port().alive().is_ok();
            devices.extend(self.devices.iter().filter(|d| d.number != device.number).filter(same));
            // The neighbours on its node come first, then node by node.
            devices[1..].sort_by_key(|d| (d.hello.node != device.hello.node, d.hello.node));
            sent.len() - 1
        });
        let image = &mut sent[index];
        let numbers: Vec<usize> = devices.iter().map(|d| d.number).collect();
        let parts: Vec<_> = parts(parcel.len() as u64).collect();
        let route = route(&numbers);
        let rank = |n: usize| self.devices[n].port().rank;
        // Each hop has tags of its own: several may lie between the same two ranks.
        let lease =
            |hop: &Hop| self.engine.lease(hop.from.map_or(self.engine.rank, rank), rank(hop.device), parts.len());
        let leases = route.iter().map(lease).collect::<Result<Vec<_>>>()?;
        let tag = |n: usize| route.iter().position(|hop| hop.device == n).map(|i| leases[i].tag());
        let mut first = None;
        for (Hop { device, from, to }, lease) in route.iter().zip(&leases) {
            let peer = Peer { rank: from.map_or(self.engine.rank, rank), tag: lease.tag() };
            let to = to.map(|n| n.and_then(|n| Some((rank(n) as u32, tag(n)?))));
            let size = (parcel.len() as u64, libraries);
            // The program itself sends all parts of the first hop.
            let sends = if from.is_none() { parts.len() as u32 } else { 0 };
            let (message, queue) =
                self.devices[*device].receive_image(image.id, (peer, lease.clone(), sends), size, to)?;
            image.messages[*device] = Some(message);
            first.get_or_insert((message, queue, lease));
        }
        let (message, queue, lease) = first.expect("there is one device at least");
        let peer = Peer { rank: device.port().rank, tag: lease.tag() };
        for (i, part) in parts.into_iter().enumerate() {
            let bytes = &parcel[part];
            // SAFETY: the caller keeps the parcel's bytes until the queue is idle.
            let span = unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) };
            self.engine.bulk((&queue, message), (peer.nth(i), lease.clone()), span, true)?;
        }
        Ok(Coming { id: image.id, message, parcel: Some((parcel, queue)) })
    }

    /// Unloads an image; the last device to do so makes all others forget it.
    ///
    /// # Errors
    /// As [`Device::unload`].
    pub fn unload(&self, device: &Device, id: u32) -> Result<()> {
        let mut sent = self.sent_images.lock();
        let Some(index) = sent.iter().position(|i| i.id == id) else { return Ok(()) };
        let Some(received) = sent[index].messages[device.number].take() else { return Ok(()) };
        sent[index].loaded = sent[index].loaded.saturating_sub(1);
        let gone = (sent[index].loaded == 0).then(|| sent.swap_remove(index));
        drop(sent);
        for (n, message) in gone.into_iter().flat_map(|image| image.messages).enumerate() {
            if let Some(message) = message {
                self.devices[n].drop_image(id, message)?;
            }
        }
        if let Some(watch) = &*self.watch.lock() {
            // If the device does not answer, the end of the watch tells so.
            let _ = watch.collect(device);
        }
        device.unload(id, received)
    }

    /// Unloads all images of a device, the last one first.
    ///
    /// # Errors
    /// As [`Device::unload`].
    pub fn unload_all(&self, device: &Device) -> Result<()> {
        device.images().into_iter().try_for_each(|id| self.unload(device, id))
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
        if let Some(owner) = self.space.owner(at) {
            return self.devices[owner].free(at);
        }
        let Some(layout) = self.host_memory.lock().remove(&(at as usize)) else { return device.free(at) };
        // SAFETY: `alloc_host` allocated it with this layout, and forgets it now.
        unsafe { dealloc(at as *mut u8, layout) };
        Ok(())
    }

    /// Ends the devices and MPI, and if `unloads`, the images before that; later calls do nothing.
    pub fn finish(&self, unloads: bool) {
        if self.finished.swap(true, Ordering::SeqCst) {
            return;
        }
        let watch = self.watch.lock().take();
        if watch.is_none() && self.engine.may_leave() {
            self.engine.leave();
        } else {
            if let Some(watch) = watch {
                watch.end(&self.devices);
            }
            if unloads {
                // Only now: the watch names kernels. A device that is lost has said so.
                self.devices.iter().for_each(|device| drop(self.unload_all(device)));
            }
            let controls: Vec<_> = self.devices.iter().map(|d| d.control.clone()).collect();
            self.engine.shut_down(&controls, END_PATIENCE);
        }
        ending::devices_have_ended();
    }

    /// The same for a thread that is inside of another call, which it can't end any more.
    pub fn finish_inside(&self) {
        if !self.finished.swap(true, Ordering::SeqCst) {
            if self.engine.watching.on {
                log::warning(
                    "there are no statistics and no trace: a signal handler called exit in the midst of a region",
                );
            }
            self.engine.leave_job();
        }
    }

    /// Holds the calls of other threads than this one, which ends the process; `catch` makes
    /// calls come to [`ending::hold`].
    pub fn hold_others(&self, catch: impl FnOnce()) {
        ending::hold_others(catch, &|| self.engine.is_busy());
    }
}
