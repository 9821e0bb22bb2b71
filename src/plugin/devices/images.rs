// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The images of one device: loads them, finds their symbols, unloads them.

use super::queues::Queues;
use crate::base::limits::PAGE;
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, elf};
use crate::debug;
use crate::link::Peer;
use crate::plugin::addresses::address_map::{AddressMap, Reservation};
use crate::plugin::messages::batch::ExtraParts;
use crate::plugin::messages::bulk_tags::Lease;
use crate::plugin::messages::queue::Queue;
use crate::plugin::messages::queue_trace::What;
use crate::wire::command::{COMMAND_MAX, Command, HEAD_LEN, Ranges};
use crate::wire::{Bytes, MESSAGE_MAX};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// How often the device moves an image before the load fails.
const MOVES: usize = 16;

/// An entry whose device address libomptarget requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: String,
    /// Bytes of a global; 0 for a function.
    pub(crate) size: u64,
    /// LLVM's `OpenMPOffloadingDeclareTargetFlags`.
    pub(crate) flags: u32,
    /// For a global that holds the address of a `declare target indirect` function: the function's
    /// address in the program.
    pub(crate) indirect: Option<u64>,
}

impl From<(String, u64)> for Entry {
    fn from((name, size): (String, u64)) -> Entry {
        Entry { name, size, flags: 0, indirect: None }
    }
}

#[derive(Debug)]
struct Loaded {
    id: u32,
    /// Added to each symbol's value.
    base: u64,
    symbols: HashMap<String, elf::Symbol>,
    /// The image's addresses; on an accelerator, those of its globals.
    ranges: Vec<Range<u64>>,
    /// Keeps the device's addresses from being host addresses.
    _reserved: Vec<Reservation>,
}

impl Loaded {
    /// Device address of a function (`size` is 0) or global.
    fn address(&self, name: &str, size: u64) -> Result<u64> {
        let symbol = self.symbols.get(name);
        let symbol = symbol.ok_or_else(|| Error::new(format!("symbol {name} is missing in the image")))?;
        if symbol.size != 0 && size > symbol.size {
            let there = symbol.size;
            return Err(Error::new(format!("{name} has {size} bytes in the program, {there} in the image")));
        }
        Ok(self.base + symbol.value)
    }
}

/// The images of a device, in the order of their loading.
pub(crate) struct Images {
    queues: Arc<Queues>,
    addresses: Arc<AddressMap>,
    loaded: Mutex<Vec<Loaded>, { order::LOADED_IMAGES }>,
}

impl Images {
    pub(crate) fn new(queues: Arc<Queues>, addresses: Arc<AddressMap>) -> Images {
        Images { queues, addresses, loaded: Mutex::default() }
    }

    /// Makes the device receive an image from a rank and pass it on to the ranks in `to`. Returns the
    /// message that is complete once the image has arrived, and its queue. `transfers` counts the bulk
    /// transfers that the program itself sends.
    pub(crate) fn receive(
        &self,
        image: u32,
        (from, lease, transfers): (Peer, Arc<Lease>, u32),
        (len, libraries): (u64, u64),
        to: [Option<(u32, u32)>; 2],
    ) -> Result<(u64, Arc<Queue>)> {
        let command = Command::Image { image, rank: from.rank as u32, tag: from.tag, len, libraries, to };
        self.queues.send_apart(&[command], (Some(lease), ExtraParts { transfers, elsewhere: false }))
    }

    /// Loads the image that message `received` brings and returns the addresses of the
    /// entries. An accelerator loads an image that was not `parsed`.
    pub(crate) fn load(
        &self,
        (id, received): (u32, u64),
        parsed: Option<elf::Image>,
        entries: &[Entry],
    ) -> Result<Vec<u64>> {
        let queue = self.queues.queue();
        let tracing = self.queues.engine.tracing();
        let at = tracing.stamp();
        self.queues.engine.push(&queue, &mut queue.open(), Command::Wait { seq: received })?;
        queue.open().note(tracing, at, What::Load);
        let since = tracing.stamp();
        let loaded = match parsed {
            Some(file) => self.place(&queue, id, file),
            None => self.register(&queue, id, entries),
        };
        self.queues.note_wait(&queue, (since, tracing.stamp()), true, false);
        self.queues.release(queue);
        let loaded = loaded?;
        let addresses = entries.iter().map(|e| loaded.address(&e.name, e.size)).collect::<Result<Vec<_>>>();
        let addresses = addresses.inspect_err(|_| self.remove_ranges(&loaded))?;
        let kernels = entries.iter().zip(&addresses).filter(|(e, _)| e.size == 0);
        self.queues.port().kernels.lock().extend(kernels.map(|(e, &at)| (at, e.name.clone())));
        self.loaded.lock().push(loaded);
        self.redirect(entries.iter().zip(&addresses).filter_map(|(e, &at)| Some((e.indirect?, at))))?;
        Ok(addresses)
    }

    /// Releases the addresses of an image.
    fn remove_ranges(&self, image: &Loaded) {
        image.ranges.iter().for_each(|range| self.addresses.remove_image(self.queues.number, range.start));
    }

    /// Makes the device load an image at addresses that are also free in the program.
    fn place(&self, queue: &Arc<Queue>, id: u32, file: elf::Image) -> Result<Loaded> {
        let elf::Image { span, symbols, .. } = file;
        let name = &self.queues.port().name;
        let mut answer = [0u8; 8];
        self.queues.ask(queue, Command::Load { image: id }, &mut answer)?;
        for _ in 0..MOVES {
            let base = u64::from_le_bytes(answer);
            let range = base + span.start..base + span.end;
            match self.addresses.reserve_image(self.queues.number, &range) {
                Ok(reserved) => {
                    return Ok(Loaded {
                        id,
                        base,
                        symbols,
                        ranges: vec![range],
                        _reserved: reserved.into_iter().collect(),
                    });
                }
                Err(e) => {
                    debug!("{name} has an image at {base:#x}, which the program has not free ({e})");
                    self.queues.ask(queue, Command::Move { image: id }, &mut answer)?;
                }
            }
        }
        Err(Error::new(format!("no addresses could be found for an image that {name} and the program both have free")))
    }

    /// Makes an accelerator load an image with these entries, at addresses of its choice.
    fn register(&self, queue: &Arc<Queue>, id: u32, entries: &[Entry]) -> Result<Loaded> {
        let (engine, name) = (&self.queues.engine, &self.queues.port().name);
        let longest = entries.iter().map(|e| e.name.len()).max().unwrap_or(0);
        if HEAD_LEN + COMMAND_MAX + longest > MESSAGE_MAX {
            return Err(Error::new(format!("a symbol with a name of {longest} bytes is more than a message holds")));
        }
        self.avoid(queue)?;
        for e in entries {
            let (bytes, open) = (Bytes(e.name.as_bytes()), &mut *queue.open());
            let batch = engine.reserve(queue, open, COMMAND_MAX + e.name.len(), 0)?;
            batch.push(Command::Entry { image: id, size: e.size, flags: e.flags, name: bytes });
        }
        self.queues.ask(queue, Command::Load { image: id }, &mut [0; 8])?;
        let mut moves = 1..MOVES;
        loop {
            let symbols = self.symbols(queue, id, entries)?;
            let globals = symbols.values().filter(|symbol| symbol.size > 0);
            let ranges = pages(globals.map(|global| global.value..global.value.saturating_add(global.size)).collect());
            let reserve = |range: &Range<u64>| {
                let reserved = Reservation::at(range.start, range.end - range.start);
                reserved.map_err(|e| e.context(format_args!("{:#x} to {:#x}", range.start, range.end)))
            };
            let e = match ranges.iter().map(reserve).collect::<Result<_>>() {
                Ok(_reserved) => {
                    ranges.iter().for_each(|range| self.addresses.add_image(self.queues.number, range.clone()));
                    return Ok(Loaded { id, base: 0, symbols, ranges, _reserved });
                }
                Err(e) => e,
            };
            debug!("{name} has globals where the program or another device has something ({e})");
            if moves.next().is_none() {
                let what = format_args!("{name} has an image's globals only at addresses that are in use in this job");
                return Err(e.context(what));
            }
            self.avoid(queue)?;
            self.queues.ask(queue, Command::Move { image: id }, &mut [0; 8])?;
        }
    }

    /// Makes an accelerator's device keep free the addresses that the program and other devices have now.
    fn avoid(&self, queue: &Arc<Queue>) -> Result<()> {
        let taken = Ranges::encode(&self.addresses.of_others(self.queues.number));
        let avoid = Command::Avoid { taken: Ranges::of(&taken) };
        self.queues.engine.reserve(queue, &mut queue.open(), COMMAND_MAX + taken.len(), 0)?.push(avoid);
        Ok(())
    }

    /// The symbols of an image that an accelerator has loaded.
    fn symbols(&self, queue: &Arc<Queue>, id: u32, entries: &[Entry]) -> Result<HashMap<String, elf::Symbol>> {
        let mut answers = vec![[0u8; 8]; entries.len()];
        let asked = entries.iter().zip(&mut answers).try_for_each(|(e, answer)| {
            let (bytes, open) = (Bytes(e.name.as_bytes()), &mut *queue.open());
            let batch = self.queues.engine.reserve(queue, open, COMMAND_MAX + e.name.len(), answer.len())?;
            batch.push(Command::Address { image: id, name: bytes });
            batch.read_into(answer.as_mut_ptr(), answer.len());
            Ok(())
        });
        let finished = asked.and_then(|()| self.queues.flush(queue)).and_then(|()| self.queues.finish(queue));
        if let Err(e) = finished {
            // The pending answers must still have a place.
            std::mem::forget(answers);
            return Err(e);
        }
        let symbol = |e: &Entry, at| (e.name.clone(), elf::Symbol { value: u64::from_le_bytes(at), size: e.size });
        Ok(entries.iter().zip(answers).map(|(e, at)| symbol(e, at)).collect())
    }

    /// Lets kernels call functions by their addresses in the program: pairs each such address
    /// with the address on the device of a pointer to the device's version.
    pub(crate) fn redirect(&self, functions: impl Iterator<Item = (u64, u64)>) -> Result<()> {
        let mut functions = functions.peekable();
        if functions.peek().is_none() {
            return Ok(());
        }
        let queue = self.queues.queue();
        let redirect = |(from, to)| self.queues.engine.push(&queue, &mut queue.open(), Command::Redirect { from, to });
        let pushed = functions.try_for_each(redirect);
        self.queues.synchronize(queue).and(pushed)
    }

    /// Device address of a function (`size` is 0) or global of a loaded image.
    pub(crate) fn symbol(&self, image: u32, name: &str, size: u64) -> Result<u64> {
        let loaded = self.loaded.lock();
        let loaded = loaded.iter().find(|l| l.id == image);
        let at = loaded.ok_or_else(|| Error::new(format!("there is no image {image}")))?.address(name, size)?;
        if size == 0 {
            self.queues.port().kernels.lock().insert(at, name.to_string());
        }
        Ok(at)
    }

    /// The numbers of the loaded images, the most recent first.
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.loaded.lock().iter().rev().map(|l| l.id).collect()
    }

    /// Unloads an image; its addresses are invalid from now on. A lost device has none to unload.
    pub(crate) fn unload(&self, id: u32, received: u64) -> Result<()> {
        let mut loaded = self.loaded.lock();
        let gone = loaded.iter().position(|l| l.id == id).map(|i| loaded.remove(i));
        drop(loaded);
        let unloaded = self.forget(id, received).and_then(|queue| queue.map_or(Ok(()), |q| self.queues.finish(&q)));
        if let Some(gone) = gone {
            // Until now the device could report that one of its kernels failed.
            self.remove_ranges(&gone);
            let mut kernels = self.queues.port().kernels.lock();
            gone.symbols.values().for_each(|symbol| drop(kernels.remove(&(gone.base + symbol.value))));
        }
        unloaded
    }

    /// Makes the device drop an image, loaded or not, once message `received` has brought it. Returns
    /// the queue of this command, `None` on a lost device.
    pub(crate) fn forget(&self, id: u32, received: u64) -> Result<Option<Arc<Queue>>> {
        if self.queues.port().failures.alive().is_err() {
            return Ok(None);
        }
        let commands = [Command::Wait { seq: received }, Command::Unload { image: id }];
        self.queues.send_apart(&commands, Default::default()).map(|(_, queue)| Some(queue))
    }
}

/// The pages that these ranges touch, each once, as the fewest possible ranges.
fn pages(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut pages: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        let range = range.start & !(PAGE - 1)..range.end.next_multiple_of(PAGE);
        match pages.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => pages.push(range),
        }
    }
    pages
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/devices/images.rs"]
mod tests;
