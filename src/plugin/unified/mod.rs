// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Serves regions that use the program's memory at the program's addresses: sends the memory that they request, and
//! merges their changes. A waiting thread does this between its polls.
//!
//! | file | contents |
//! | --- | --- |
//! | this one | decides which devices can run such regions, and handles their requests |
//! | `fetch` | sends the program's memory to a device |
//! | `functions` | the symbols of the program's functions, by their addresses |
//! | `merge` | merges changes into the program's memory |

mod fetch;
mod functions;
mod merge;

use crate::base::limits::{self, MEMORY_AHEAD, MEMORY_PIECE};
use crate::base::lock::{Mutex, order};
use crate::base::settings::{self, Backend, Settings};
use crate::base::{Error, Result, elf};
use crate::plugin::addresses::address_map::Reservation;
use crate::plugin::addresses::host_allocations::Allocations;
use crate::plugin::messages::port::Ports;
use crate::plugin::messages::queue::MessageId;
use crate::plugin::program::libraries::loaded_libraries;
use crate::sys::process::{self, Mappings};
use crate::sys::{crew, layout, node, shared_file};
use crate::wire::command::SharedFile;
use crate::wire::control::Answer;
use crate::wire::hello::Hello;
use crate::wire::reply::{Changes, Digests, Known};
use crate::wire::{BLOCK, Bytes};
use std::collections::VecDeque;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once, OnceLock};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_128;

const PAGE: usize = limits::PAGE as usize;

/// The program requires unified shared memory, or has allocated shared memory.
static REQUIRED: AtomicBool = AtomicBool::new(false);

/// The program has `requires unified_shared_memory`.
static DIRECTIVE: AtomicBool = AtomicBool::new(false);

/// libomptarget has reported the program's requirements.
static REPORTED: AtomicBool = AtomicBool::new(false);

/// Notes that libomptarget reports the program's requirements, as those of LLVM 14 to 18 do.
pub(crate) fn note_report() {
    REPORTED.store(true, Ordering::Relaxed);
}

/// Notes that the program allocates memory that regions may use.
pub(crate) fn require() {
    REQUIRED.store(true, Ordering::Relaxed);
}

/// Notes that the program has `requires unified_shared_memory`.
pub(crate) fn note_directive() {
    DIRECTIVE.store(true, Ordering::Relaxed);
    require();
}

/// True if the program has `requires unified_shared_memory`.
pub(crate) fn has_directive() -> bool {
    static SEARCH: Once = Once::new();
    SEARCH.call_once(find_directive);
    DIRECTIVE.load(Ordering::Relaxed)
}

/// Searches the program and its libraries for `requires unified_shared_memory`, which LLVM 22's libomptarget does not
/// report. That takes milliseconds.
fn find_directive() {
    let requires = |path: &Path| elf::map(path).is_ok_and(|file| elf::requires_unified_memory(&file));
    let is_known = REPORTED.load(Ordering::Relaxed) || DIRECTIVE.load(Ordering::Relaxed);
    if !is_known && (requires(process::EXECUTABLE.as_ref()) || loaded_libraries().values().any(|path| requires(path))) {
        note_directive();
    }
}

/// Buffers of bulk data, kept for reuse. malloc would keep many times as much, because each thread's arena keeps the
/// buffers that it freed.
#[derive(Default)]
pub(super) struct SpareBuffers(Mutex<Vec<Vec<u8>>, { order::LEAF }>);

impl SpareBuffers {
    /// An empty buffer.
    pub(super) fn take(&self) -> Vec<u8> {
        self.0.lock().pop().unwrap_or_default()
    }

    pub(super) fn give(&self, mut buffer: Vec<u8>) {
        let mut spares = self.0.lock();
        if spares.len() < MEMORY_AHEAD {
            buffer.clear();
            spares.push(buffer);
        }
    }
}

/// Sends answers to devices.
pub(super) trait Post {
    /// Sends an answer.
    fn answer(&self, port: usize, answer: Answer<'_>) -> Result<()>;
    /// Sends a piece of the program's memory as bulk data.
    fn piece(&self, port: usize, bytes: Vec<u8>) -> Result<()>;
    /// The size of a piece, if pieces can be sent.
    fn piece_len(&self) -> Option<usize>;
}

/// True after [`require`].
#[inline]
pub(crate) fn is_required() -> bool {
    REQUIRED.load(Ordering::Relaxed)
}

/// A device's request.
#[derive(Debug)]
pub(crate) enum Request {
    /// `known` is a list of [`Known`] parts.
    Fetch {
        at: u64,
        len: u64,
        known: Vec<u8>,
    },
    TakeOver {
        seq: u64,
        at: u64,
        len: u64,
        new: u64,
        old: SharedFile,
    },
    /// `new` has arrived, or its transfer has failed; `old` is a list of [`Digests`].
    Merge {
        seq: u64,
        at: u64,
        new: Result<Vec<u8>>,
        old: Vec<u8>,
    },
    Find {
        at: u64,
    },
}

/// The addresses of a device's first stack. A program that lets regions use its memory reserves them, because its own
/// stack might grow into them. Other programs don't: they may need all of their stack.
struct FirstStack {
    range: Range<u64>,
    reserved: OnceLock<std::result::Result<Vec<Reservation>, String>>,
}

impl FirstStack {
    /// Reserves the addresses. If the program has something there, returns that as the reason why regions can't use its
    /// memory.
    fn obstacle(&self) -> Option<String> {
        let reserve = || {
            let now = Mappings::now();
            if let Some(range) = now.accessible().into_iter().find(|range| overlap(range, &self.range)) {
                return Err(both(&range, &self.range));
            }
            let free = now.free_in(self.range.clone()).into_iter();
            let reserved = free.map(|free| Reservation::at(free.start, free.end - free.start)).collect::<Result<_>>();
            reserved.map_err(|e| e.to_string())
        };
        self.reserved.get_or_init(reserve).as_ref().err().cloned()
    }
}

/// The devices' requests.
struct Requests {
    /// With the devices' numbers.
    waiting: VecDeque<(usize, Request)>,
    /// By device, whether a thread is answering one.
    are_answered: Vec<bool>,
}

impl Requests {
    /// The next request of a device that no other thread is answering: the bulk data of two answers would get mixed up.
    fn take(&mut self) -> Option<(usize, Request)> {
        let place = self.waiting.iter().position(|(port, _)| !self.are_answered[*port])?;
        let (port, request) = self.waiting.remove(place)?;
        self.are_answered[port] = true;
        Some((port, request))
    }
}

pub(crate) struct Unified {
    mode: settings::Unified,
    /// By device, why its regions can't use the program's memory.
    obstacles: Vec<Option<String>>,
    /// By device, the addresses of its first stack.
    stacks: Vec<FirstStack>,
    /// The processes of devices on this node.
    processes: Vec<Option<i32>>,
    /// Held while one device's changes are merged: if two devices changed a byte, the second one then finds the first
    /// one's value.
    merging: Mutex<(), { order::MERGE }>,
    requests: Mutex<Requests, { order::LEAF }>,
    is_asked: AtomicBool,
    pub(super) buffers: SpareBuffers,
    pub(super) allocations: Allocations,
}

impl Unified {
    /// For these devices. `has_window` is true if the addresses of the devices' own memory are reserved in the program.
    pub(crate) fn new(settings: &Settings, has_window: bool, devices: &[Hello]) -> Unified {
        let here = node::node_id();
        let process = |device: &Hello| (device.node == here).then_some(device.pid as i32);
        let obstacles = devices.iter().map(|device| obstacle(device, has_window, process(device))).collect();
        let processes = devices.iter().map(process).collect();
        let range = |device: &Hello| device.outside.clone().unwrap_or_default();
        let stacks =
            devices.iter().map(|device| FirstStack { range: range(device), reserved: OnceLock::new() }).collect();
        let (merging, is_asked, buffers, allocations) = Default::default();
        let requests = Requests { waiting: VecDeque::new(), are_answered: vec![false; devices.len()] };
        let requests = Mutex::new(requests);
        let mode = settings.unified;
        Unified { mode, obstacles, stacks, processes, merging, requests, is_asked, buffers, allocations }
    }

    /// True if the program may itself use memory from `omp_target_alloc`, as OpenMP specifies for `requires
    /// unified_shared_memory` ("every device address that refers to storage allocated through OpenMP device memory
    /// routines is a valid host pointer that can be dereferenced").
    pub(super) fn shares_allocations(&self) -> bool {
        self.mode != settings::Unified::Off && has_directive()
    }

    /// True if regions may use the program's memory.
    pub(super) fn is_on(&self) -> bool {
        match self.mode {
            settings::Unified::Auto => REQUIRED.load(Ordering::Relaxed),
            mode => mode == settings::Unified::On,
        }
    }

    /// Fails if the program needs regions that use its memory, and those of this device can't. A program that has only
    /// allocated memory for regions may still map that memory.
    pub(crate) fn check_device(&self, device: usize) -> Result<()> {
        let is_needed = match self.mode {
            settings::Unified::Auto => DIRECTIVE.load(Ordering::Relaxed),
            mode => mode == settings::Unified::On,
        };
        if is_needed { self.check_access(device) } else { Ok(()) }
    }

    /// Fails if regions may use the program's memory, but those of this device can't.
    pub(crate) fn check_access(&self, device: usize) -> Result<()> {
        if !self.is_on() {
            return Ok(());
        }
        let Some(obstacle) = self.obstacles[device].clone().or_else(|| self.stacks[device].obstacle()) else {
            return Ok(());
        };
        Err(Error::new(format!(
            "regions can't use the program's memory, as {}: {obstacle}",
            match self.mode {
                settings::Unified::On => "OMPTARGET_MPI_UNIFIED=on asks for",
                _ if DIRECTIVE.load(Ordering::Relaxed) => "the program requires (unified_shared_memory)",
                _ =>
                    "an allocation of shared or host memory asks for (OMPTARGET_MPI_UNIFIED=off keeps it for maps alone)",
            }
        )))
    }

    /// False if regions may not use the program's memory; fails if they may but those of this device can't.
    fn may_use(&self, device: usize) -> Result<bool> {
        if self.mode == settings::Unified::Auto && !self.is_on() {
            // The directive may be in a library that was loaded since the last search.
            find_directive();
        }
        if self.is_on() { self.check_access(device).map(|()| true) } else { Ok(false) }
    }

    pub(super) fn ask(&self, port: usize, request: Request) {
        self.requests.lock().waiting.push_back((port, request));
        self.is_asked.store(true, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Acquire)
    }

    /// Answers the devices' requests.
    #[cold]
    pub(super) fn answer(&self, ports: &Ports, post: &dyn Post) {
        self.is_asked.store(false, Ordering::Release);
        loop {
            // Requests that remain are of devices that other threads are answering; those threads take them next.
            let Some((port, request)) = self.requests.lock().take() else { return };
            let answered = self.may_use(port).and_then(|may_use| match request {
                _ if !may_use => Ok(false),
                Request::Fetch { at, len, known } => {
                    fetch::send((post, port), &self.buffers, at..at.saturating_add(len), Known(&known))
                }
                Request::TakeOver { seq, at, len, new, old } => {
                    ports[port].failures.alive()?;
                    let is_taken =
                        self.take_over_from(ports, MessageId { port, seq }, at..at.saturating_add(len), new, old)?;
                    if is_taken { post.answer(port, Answer::Taken).map(|()| true) } else { Ok(false) }
                }
                Request::Merge { seq, at, new, old } => {
                    ports[port].failures.alive()?;
                    let new = new?;
                    let others = self.merge_known(ports, MessageId { port, seq }, (at, &new), Digests(&old));
                    self.buffers.give(new);
                    post.answer(port, Answer::Merged { at, others }).map(|()| true)
                }
                Request::Find { at } => {
                    let (name, is_exported) = functions::name_of(at)?;
                    let name = Bytes(name.as_bytes());
                    post.answer(port, Answer::Function { is_exported, name }).map(|()| true)
                }
            });
            // If the link is broken, the waiting threads find out.
            let _ = match answered {
                Ok(true) => Ok(()),
                Ok(false) => post.answer(port, Answer::NOTHING),
                Err(e) => post.answer(port, Answer::Refuse { why: Bytes(e.to_string().as_bytes()) }),
            };
            self.requests.lock().are_answered[port] = false;
        }
    }

    /// Merges the changes of a device's kernel.
    pub(super) fn take_over(&self, port: usize, mut changes: Changes<'_>) -> Result<()> {
        if !self.may_use(port)? {
            return Err(Error::new("no region may use the program's memory"));
        }
        let mut result = Ok(());
        while let Some((at, new, old)) = changes.take()? {
            result = result.and(self.take_over_range(at, new, old));
        }
        result
    }

    fn take_over_range(&self, at: u64, new: &[u8], old: &[u8]) -> Result<()> {
        let _merging = self.merging.lock();
        take_over(at, new, old)
    }

    /// Merges the blocks of `new` whose old bytes are unchanged in this process, by their digests in `old`. Returns the
    /// other blocks, as bits.
    fn merge_known(&self, ports: &Ports, of: MessageId, (at, new): (u64, &[u8]), old: Digests<'_>) -> u64 {
        // Longer pieces are refused as messages (`Digests::fit`).
        const { assert!(MEMORY_PIECE.div_ceil(BLOCK) <= u64::BITS as usize) };
        let (mut here, mut others) = (vec![0; BLOCK], 0);
        for (i, (new, old)) in new.chunks(BLOCK).zip(old.iter()).enumerate() {
            let at = at.saturating_add((i * BLOCK) as u64);
            // SAFETY: the buffer has room for a block.
            let n = unsafe { node::read_any(at, here.as_mut_ptr(), new.len()) };
            let here = &here[..new.len()];
            if n != here.len() as isize || xxh3_128(here) != old {
                others |= 1 << i;
            } else if let Err(e) = self.take_over_range(at, new, here) {
                ports.fail_kernel(of, &e);
            }
        }
        others
    }

    /// Merges a range whose new bytes are at `new` in the device's process, and whose old bytes are in a file. False if
    /// this process can't read these.
    fn take_over_from(
        &self,
        ports: &Ports,
        of: MessageId,
        range: Range<u64>,
        new: u64,
        old: SharedFile,
    ) -> Result<bool> {
        /// Bytes that are merged before a thread with another device's changes gets a turn.
        const STEP: usize = 64 << 20;
        /// Enough time for that thread to wake.
        const TURN: Duration = Duration::from_micros(50);
        let Some(process) = self.processes[of.port] else { return Ok(false) };
        // Ignore `old.pid`: the process is the one of the handshake.
        let open = || shared_file::open((process as u32, old.descriptor, old.nonce), old.len);
        let before_file = ports[of.port].fetched(open)?;
        for at in range.clone().step_by(STEP) {
            if at > range.start && others_run(ports, of.port) {
                std::thread::sleep(TURN);
            }
            let step = at..range.end.min(at.saturating_add(STEP as u64));
            let new = (process, new.wrapping_add(at - range.start));
            let merging = self.merging.lock();
            let merged = merge_pieces(step, new, before_file.clone());
            drop(merging);
            for merged in merged {
                let Some(merged) = merged else { return Ok(false) };
                merged.unwrap_or_else(|e| ports.fail_kernel(of, &e));
            }
        }
        Ok(true)
    }
}

/// Merges a range with several threads, piece by piece; the result is `None` for a piece that can't be read. The new
/// bytes are at an address in a process.
fn merge_pieces(
    Range { start, end }: Range<u64>,
    (process, new): (i32, u64),
    old: Arc<File>,
) -> Vec<Option<Result<()>>> {
    const PIECE: usize = 256 << 10;
    crew::share(((end - start) as usize).div_ceil(PIECE), move |buffer, i| {
        let offset = (i * PIECE) as u64;
        let (at, len) = (start + offset, PIECE.min((end - start - offset) as usize));
        buffer.resize(2 * PIECE, 0);
        let (theirs, before) = buffer.split_at_mut(PIECE);
        // SAFETY: the buffer is that long.
        let n = unsafe { process::read_memory(process, new.wrapping_add(offset), theirs.as_mut_ptr(), len) };
        let is_read = n == len as isize && old.read_exact_at(&mut before[..len], at).is_ok();
        is_read.then(|| take_over(at, &theirs[..len], &before[..len]))
    })
}

/// True if kernels of other devices run.
fn others_run(ports: &Ports, port: usize) -> bool {
    ports.iter().enumerate().any(|(n, other)| n != port && other.in_flight() > 0)
}

/// Merges a change of the program's memory. Fails if that is impossible for some bytes; the others then have their new
/// values.
fn take_over(at: u64, new: &[u8], old: &[u8]) -> Result<()> {
    // Pages that have not changed may be read-only.
    let first = PAGE - at as usize % PAGE;
    let end_of = |start: usize| if start == 0 { first.min(new.len()) } else { (start + PAGE).min(new.len()) };
    let (mut start, mut end) = (0, 0);
    let mut result = Ok(());
    while start < new.len() {
        while end < new.len() && new[end..end_of(end)] != old[end..end_of(end)] {
            end = end_of(end);
        }
        if start < end {
            let (at, new, old) = (at + start as u64, &new[start..end], &old[start..end]);
            // SAFETY: the memory was just checked, and the program must not unmap it while a region uses it.
            let merge = |()| unsafe { merge::merge(at as *mut u8, new, old) }.map_err(|e| Error::new(e.to_string()));
            result = result.and(merge::check_writable(at, new.len()).and_then(merge));
        }
        start = if end < new.len() { end_of(end) } else { end };
        end = start;
    }
    result
}

/// Why regions of a device can't use the program's memory, if they can't.
fn obstacle(device: &Hello, has_window: bool, process: Option<i32>) -> Option<String> {
    let Some(outside) = &device.outside else {
        return Some(
            match device.backend {
                Backend::Offload => "devices with accelerators (OMPTARGET_MPI_BACKEND) can't",
                Backend::Cpu if device.devices > 1 || device.processes > 1 => {
                    "worker processes (OMPTARGET_MPI_DEVICES_PER_RANK, OMPTARGET_MPI_SPARES) can't"
                }
                Backend::Cpu => {
                    "the device could not keep the program's addresses free of its own memory (which takes a hard limit of \
                     stacks of 86 TiB or none: ulimit -H -s unlimited), or OMPTARGET_MPI_UNIFIED=off is set for it"
                }
            }
            .into(),
        );
    };
    if let Some((range, own)) = collision(device, outside, &Mappings::now(), || process.map(Mappings::of)) {
        return Some(both(&range, &own));
    }
    (!has_window).then(|| "the program has not enough addresses to spare (ulimit -v, valgrind)".into())
}

/// A range of the program's memory at addresses where a device has its own, and the device's range. `theirs` are the
/// mappings of the device's process, if it is on this node. Mappings common to both are no collision: a launcher may
/// share a file with both, at the same address.
fn collision(
    device: &Hello,
    outside: &Range<u64>,
    here: &Mappings,
    theirs: impl FnOnce() -> Option<Mappings>,
) -> Option<(Range<u64>, Range<u64>)> {
    let find = |here: &Mappings| {
        let own = || device.shared.iter().chain([outside, &layout::WINDOW]);
        let overlapped = |range: &Range<u64>| own().find(|own| overlap(range, own)).cloned();
        here.accessible().into_iter().find_map(|range| overlapped(&range).map(|own| (range, own)))
    };
    let found = find(here)?;
    theirs().map_or(Some(found), |theirs| find(&here.without_common(&theirs)))
}

fn overlap(a: &Range<u64>, b: &Range<u64>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Says that the program and a device each have their own memory at the same addresses.
fn both(range: &Range<u64>, own: &Range<u64>) -> String {
    let what = node::mapping(range.start).map_or(String::new(), |(_, what)| format!(" ({what})"));
    format!(
        "the program has memory at {:#x} to {:#x}{what}, where the device has its own, {:#x} to {:#x}; chance places them: \
         start again",
        range.start, range.end, own.start, own.end
    )
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/unified.rs"]
mod tests;
