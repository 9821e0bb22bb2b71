// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Sends images to all devices, each of which passes them on to others.

use super::device::Device;
use crate::base::Result;
use crate::base::limits::FIRST_IMAGE;
use crate::base::lock::{Mutex, order};
use crate::link::{Peer, Span};
use crate::plugin::messages::queue::Queue;
use crate::plugin::program::libraries::library_list;
use crate::plugin::progress::engine::Engine;
use crate::wire::command::parts;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use xxhash_rust::xxh3::xxh3_128;

struct SentImage {
    id: u32,
    hash: u128,
    /// By device, the message that brings the image there, if any.
    messages: Vec<Option<u64>>,
    /// By device, whether it is loading or has loaded the image.
    claimed: Vec<bool>,
}

/// An image on its way to a device.
pub(crate) struct ComingImage {
    pub(crate) id: u32,
    /// The message that is complete once the image has arrived.
    pub(crate) message: u64,
    /// Its bytes, which must be kept until the queue is idle; none if another device sends them.
    pub(crate) parcel: Option<(Vec<u8>, Arc<Queue>)>,
}

/// One device on the route of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Hop {
    device: usize,
    /// The device that sends to it; none for the program.
    from: Option<usize>,
    /// The devices that it sends to.
    to: [Option<usize>; 2],
}

/// The route of an image to these devices. The program sends it to the first. Each device heads a part
/// of the list, and passes the image on to the first device of each half of the rest of that part: most
/// transfers are between neighbors in the list.
fn route(devices: &[usize]) -> Vec<Hop> {
    fn add(devices: &[usize], from: Option<usize>, hops: &mut Vec<Hop>) {
        let Some((&device, rest)) = devices.split_first() else { return };
        let (left, right) = rest.split_at(rest.len().div_ceil(2));
        hops.push(Hop { device, from, to: [left.first().copied(), right.first().copied()] });
        add(left, Some(device), hops);
        add(right, Some(device), hops);
    }
    let mut hops = Vec::with_capacity(devices.len());
    add(devices, None, &mut hops);
    hops
}

/// The bytes of an image as they are sent: the ELF file, then the names and paths of this process's libraries,
/// where the device may look for those that the image needs. Also returns the length of this second part.
fn parcel(file: &[u8]) -> (Vec<u8>, u64) {
    let list = library_list(|_| true);
    ([file, &list].concat(), list.len() as u64)
}

/// Which device has which image, or will have it.
#[derive(Default)]
pub(crate) struct Distribution {
    sent: Mutex<Vec<SentImage>, { order::SENT_IMAGES }>,
    /// Image numbers tried so far.
    tried: AtomicU32,
}

impl Distribution {
    /// Sends an image to a device, unless it is already on its way; if no device has it yet, to all. The device claims
    /// it. An image that equals another one on the device, such as that of a second copy of a library, or one that the
    /// device may still be unloading, gets a number of its own.
    pub(crate) fn send(
        &self,
        engine: &Engine,
        devices: &[Device],
        device: &Device,
        file: &[u8],
    ) -> Result<ComingImage> {
        let hash = xxh3_128(file);
        // Locked until all devices were sent their commands: a load must not overtake them.
        let mut sent = self.sent.lock();
        let free = sent.iter_mut().filter(|i| i.hash == hash && !i.claimed[device.number]);
        if let Some((image, message)) = free.filter_map(|i| i.messages[device.number].map(|m| (i, m))).next() {
            image.claimed[device.number] = true;
            return Ok(ComingImage { id: image.id, message, parcel: None });
        }
        let (parcel, libraries) = parcel(file);
        let is_free = |id: &u32| sent.iter().all(|image| image.id != *id);
        let tried = || self.tried.fetch_add(1, Ordering::Relaxed);
        let mut ids = std::iter::repeat_with(|| FIRST_IMAGE.wrapping_add(tried()));
        let id = ids.find(is_free).expect("fewer images than numbers");
        let twin = sent.iter().find(|i| i.hash == hash);
        let same = |d: &&Device| {
            d.hello.processor.machine == device.hello.processor.machine && d.port().failures.alive().is_ok()
        };
        let mut receivers = vec![device];
        // Only this device gets a second copy: the others may never load one.
        receivers.extend(devices.iter().filter(|d| twin.is_none() && d.number != device.number).filter(same));
        // The devices of the same node come first, then node by node.
        receivers[1..].sort_by_key(|d| (d.hello.node != device.hello.node, d.hello.node));
        let numbers: Vec<usize> = receivers.iter().map(|d| d.number).collect();
        let parts: Vec<_> = parts(parcel.len() as u64).collect();
        let route = route(&numbers);
        let host = engine.connection.rank;
        let rank = |n: usize| devices[n].port().rank;
        // Each hop has tags of its own: several hops may connect the same two ranks.
        let lease = |hop: &Hop| engine.lease(hop.from.map_or(host, rank), rank(hop.device), parts.len());
        let leases = route.iter().map(lease).collect::<Result<Vec<_>>>()?;
        let tag = |n: usize| route.iter().position(|hop| hop.device == n).map(|i| leases[i].tag());
        let (mut messages, mut claimed) = (vec![None; devices.len()], vec![false; devices.len()]);
        let mut first = None;
        for (Hop { device, from, to }, lease) in route.iter().zip(&leases) {
            let peer = Peer { rank: from.map_or(host, rank), tag: lease.tag() };
            let to = to.map(|n| n.and_then(|n| Some((rank(n) as u32, tag(n)?))));
            let size = (parcel.len() as u64, libraries);
            // The program itself sends all parts of the first hop.
            let sends = if from.is_none() { parts.len() as u32 } else { 0 };
            let (message, queue) = devices[*device].images.receive(id, (peer, lease.clone(), sends), size, to)?;
            messages[*device] = Some(message);
            first.get_or_insert((message, queue, lease));
        }
        let (message, queue, lease) = first.expect("there is one device at least");
        let peer = Peer { rank: device.port().rank, tag: lease.tag() };
        for (i, part) in parts.into_iter().enumerate() {
            let bytes = &parcel[part];
            // SAFETY: the caller keeps the parcel's bytes until the queue is idle.
            let span = unsafe { Span::new(bytes.as_ptr().cast_mut(), bytes.len()) };
            let started =
                engine.connection.start_transfer(queue.message(message), (peer.nth(i), lease.clone()), span, true);
            if let Err(e) = started {
                // MPI may still read the parts before this one.
                std::mem::forget(parcel);
                return Err(e);
            }
        }
        claimed[device.number] = true;
        sent.push(SentImage { id, hash, messages, claimed });
        Ok(ComingImage { id, message, parcel: Some((parcel, queue)) })
    }

    /// Notes that a device failed to load an image.
    pub(crate) fn note_failed_load(&self, id: u32, device: &Device) {
        let mut sent = self.sent.lock();
        if let Some(image) = sent.iter_mut().find(|i| i.id == id) {
            image.messages[device.number] = None;
            image.claimed[device.number] = false;
        }
        sent.retain(|image| image.messages.iter().any(Option::is_some));
    }

    /// Takes an image from a device and returns the message that brought it there, if the device has it.
    /// When no device uses it any more, all drop it.
    pub(crate) fn remove(&self, devices: &[Device], device: &Device, id: u32) -> Result<Option<u64>> {
        let mut sent = self.sent.lock();
        let is_its = |i: &SentImage| i.id == id && i.claimed[device.number];
        let Some(index) = sent.iter().position(is_its) else { return Ok(None) };
        sent[index].claimed[device.number] = false;
        let Some(received) = sent[index].messages[device.number].take() else { return Ok(None) };
        let gone = (!sent[index].claimed.contains(&true)).then(|| sent.swap_remove(index));
        drop(sent);
        for (n, message) in gone.into_iter().flat_map(|image| image.messages).enumerate() {
            if let Some(message) = message {
                devices[n].images.forget(id, message)?;
            }
        }
        Ok(Some(received))
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/devices/image_distribution.rs"]
mod tests;
