// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Kernels that use the program's memory at the program's addresses.
//!
//! - `arguments`: prefetches the memory at a kernel's arguments, if the kernel used it before.
//! - `diff`: finds the differences between two versions of a page.
//! - `faults`: the signal handler's part: it passes a fault to the pager, and waits.
//! - `page_cache`: pages that stay here after a region, until the program confirms or replaces them.
//! - `pages`: the pages that are here: fetches them, maps them and sends their changes.
//! - `read_ahead`: how much to fetch with one fault.
//! - `record`: records the waits of kernels, for the trace.
//! - `running`: counts running kernels, so that a kernel without memory of the program takes no lock.
//! - `source`: reads the program's memory, from its process or by messages.
//! - `store`: the file in memory with the fetched memory.
//! - `streamed`: memory with large pages, where a kernel writes in order.
//! - `turns`: lets kernels run one after another where that is faster.
//! - `working_sets`: prefetches what a kernel used in its last run.
//!
//! Nothing of this process lies at an address that the program may use (`sys::layout`), so an access there faults. The
//! faulting thread waits in its signal handler ([`faults`]) while one thread, the pager, fetches the memory
//! ([`pages`]). When the kernel ends, the device sends the program the differences from the fetched memory, before it
//! answers the kernel's message. Then it forgets the memory, unless another kernel runs.

mod arguments;
mod diff;
mod faults;
mod page_cache;
mod pages;
mod read_ahead;
mod record;
mod running;
mod source;
mod store;
mod streamed;
mod turns;
mod unmerged;
mod working_sets;

use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result, clock};
use crate::device_main::backend::{Exchange, Launch};
use crate::device_main::upcalls::interface::{Function, Upcalls};
use crate::sys::layout;
use crate::wire::record::Kind;
use arguments::Arguments;
use faults::Fault;
pub(crate) use faults::{Access, is_of_program, resolve};
use pages::Pages;
use record::Log;
use running::{Held, Running};
use std::sync::{Arc, OnceLock};
use turns::Turns;

/// Why the last fault was not resolved.
static REFUSAL: Mutex<Option<String>, { order::LEAF }> = Mutex::new(None);

fn note_refusal(why: Option<Error>) {
    *REFUSAL.lock() = why.map(|e| e.to_string());
}

/// Why the last fault was not resolved; empty if there was none, or nothing at its address.
pub(crate) fn refusal() -> String {
    REFUSAL.lock().clone().unwrap_or_default()
}

#[derive(Default)]
pub(super) struct Unified {
    upcalls: OnceLock<Arc<dyn Upcalls>>,
    pages: Running<Option<Pages>>,
    turns: Turns,
    arguments: Arguments,
    log: Log,
}

impl Unified {
    /// Begins to serve faults, if this process has left the program's addresses free. `find` finds called functions.
    pub fn connect(
        self: &Arc<Unified>,
        upcalls: Arc<dyn Upcalls>,
        find: impl Fn(&Function) -> Result<u64> + Send + 'static,
    ) {
        if !layout::is_in_window() || self.upcalls.set(upcalls).is_err() {
            return;
        }
        // A write beyond the limit of file lengths (`ulimit -f`) is then an error.
        // SAFETY: ignoring a signal needs no handler.
        unsafe { libc::signal(libc::SIGXFSZ, libc::SIG_IGN) };
        let unified = self.clone();
        let pager = std::thread::Builder::new().name("pager".into());
        if pager.spawn(move || faults::serve(|fault| unified.handle(fault, &find))).is_ok() {
            faults::arm();
        }
    }

    pub fn begin_trace(&self) {
        self.log.begin();
    }

    /// Takes the records for the kernel that has run on a slot.
    pub fn exchanges(&self, slot: usize) -> Vec<Exchange> {
        self.log.take(slot)
    }

    fn upcalls(&self) -> Option<&dyn Upcalls> {
        self.upcalls.get().map(Arc::as_ref)
    }

    /// Begins a kernel on a slot, so that it sees the program's earlier writes.
    #[inline]
    pub fn begin(&self, slot: usize) -> Result<()> {
        let begin = || self.pages.begin();
        let held = if self.takes_turns() { self.turns.begin(|| self.pages.running(), begin) } else { begin() };
        held.map_or(Ok(()), |held| self.renew(held, slot)).inspect_err(|_| {
            self.pages.end(|_| ());
            self.note_end();
        })
    }

    /// Fetches what a starting kernel will probably use, if that takes no round trip.
    #[inline]
    pub fn prefetch(&self, slot: usize, launch: &Launch<'_>) {
        let likely = self.arguments.likely(launch.kernel, launch.args);
        if likely.is_empty() || self.upcalls().is_none_or(|to| to.process().is_none()) {
            return;
        }
        likely.into_iter().filter(|&at| is_of_program(at)).for_each(|at| {
            // If this fails, the kernel faults there, and then reports why.
            let _ = self.fetch(slot, launch.kernel, at, true);
        });
    }

    /// Makes memory accessible to the kernel on a slot; `forward`: only its page and those after it. False if the
    /// program has nothing there.
    #[cold]
    fn fetch(&self, slot: usize, kernel: u64, at: u64, forward: bool) -> Result<bool> {
        let begin = clock::now();
        let Some(upcalls) = self.upcalls() else { return Ok(false) };
        let mut held = self.pages.hold();
        let fetch = |pages: &mut Option<Pages>| match pages {
            Some(pages) => pages.fetch(upcalls, kernel, at, forward),
            none => none.insert(Pages::new(upcalls)?).fetch(upcalls, kernel, at, forward),
        };
        let got = held.fill(fetch)?;
        got.into_iter().for_each(|amount| self.log.add_fetch(slot, begin, amount));
        Ok(got.is_some())
    }

    /// True if a starting kernel may wait for others.
    #[inline]
    pub fn takes_turns(&self) -> bool {
        self.turns.are_taken()
    }

    #[inline]
    fn note_end(&self) {
        if self.pages.running() == 0 {
            self.turns.end();
        }
    }

    #[cold]
    fn renew(&self, mut held: Held<'_, Option<Pages>>, slot: usize) -> Result<()> {
        let begin = clock::now();
        if held.is_only_one() {
            held.empty(forget);
        } else if let (Some(pages), Some(upcalls)) = (&mut *held.memory, self.upcalls()) {
            let amount = self.turns.overlap(self.pages.running(), || pages.refresh(upcalls))?;
            self.log.add_fetch(slot, begin, amount);
        }
        Ok(())
    }

    /// Ends a kernel on a slot: sends the program its changes, unless the device `is_lost`.
    #[inline]
    pub fn end(&self, slot: usize, launch: &Launch<'_>, is_lost: fn() -> bool) -> Result<()> {
        let settled = self.pages.end(|held| self.settle(held, slot, launch, is_lost));
        if settled.is_none() {
            self.turns.note_unused();
        }
        self.note_end();
        settled.unwrap_or(Ok(()))
    }

    #[cold]
    fn settle(
        &self,
        held: &mut Held<'_, Option<Pages>>,
        slot: usize,
        launch: &Launch<'_>,
        is_lost: fn() -> bool,
    ) -> Result<()> {
        let begin = clock::now();
        if is_lost() {
            // All regions have failed: some of the changes may be the crashed one's.
            return Ok(());
        }
        let Some(upcalls) = self.upcalls() else { return Ok(()) };
        let is_last = held.is_only_one();
        if let Some(pages) = &*held.memory {
            self.arguments.learn(launch.kernel, launch.args, |at| pages.has(at));
        }
        let mut send =
            || held.memory.as_mut().map_or(Ok(0), |pages| pages.send_changes(upcalls, launch.message, is_last));
        let sent = if is_last { send() } else { self.turns.overlap(self.pages.running(), send) };
        if let Ok(bytes @ 1..) = sent {
            self.log.add(slot, Kind::Change, begin, bytes);
        }
        // Even after an error: changes that the program did not merge are not its memory.
        if is_last {
            held.empty(forget);
        }
        sent.map(drop)
    }

    /// Makes memory accessible, or finds the function that a kernel calls; returns the address of the memory or
    /// function. None if the program has nothing there.
    fn handle(&self, fault: &Fault, find: &dyn Fn(&Function) -> Result<u64>) -> Result<Option<u64>> {
        if fault.access == Access::Call {
            let begin = clock::now();
            let Some(upcalls) = self.upcalls() else { return Ok(None) };
            // Keep other threads from making requests.
            let _held = self.pages.hold();
            let Some(function) = upcalls.function(fault.address)? else { return Ok(None) };
            let found = find(&function)?;
            self.log.add(fault.slot, Kind::Fetch, begin, 0);
            return Ok(Some(found));
        }
        let is_there = self.fetch(fault.slot, fault.kernel, fault.address, false)?;
        Ok(is_there.then_some(fault.address))
    }
}

fn forget(pages: &mut Option<Pages>) {
    if let Some(pages) = pages {
        pages.forget();
    }
}
