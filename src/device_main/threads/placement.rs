// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Which core the receiver runs on, beside a host on the same node.
//!
//! Host and device poll for each other around a short region, so each needs a core. Two threads that poll for each
//! other on one core look busy to the scheduler, which may leave them there for seconds.
//!
//! The team of a longer kernel may use all cores. The host's thread waits meanwhile, so its core is the one that the
//! receiver can share, if both yield. The scheduler does not know that, and may leave two threads of the team on one
//! core and the host alone on another.

use crate::sys::node;
use rustix::thread::Pid;
use rustix::time::{ClockId, clock_gettime};
use std::time::{Duration, Instant};

/// Messages of a sample, whose last one is timed.
const SAMPLE: u32 = 32;
/// A message that takes longer has probably run a kernel with a team.
const LONG_MESSAGE: Duration = Duration::from_micros(5);
/// The host's thread takes less time between two messages. A receiver that waits longer per message for its core, and
/// for more than a third of the time, moves to another core.
const WAITED: Duration = Duration::from_micros(15);
/// Minimum time between two moves.
const STAY: Duration = Duration::from_millis(1);
/// Time between two looks at the threads of the team.
const LOOK: Duration = Duration::from_millis(20);

/// The placement of one thread.
#[derive(Debug)]
pub(crate) struct Placement {
    /// Messages of this window.
    messages: u32,
    /// When the window began, and the thread's processor time then.
    since: (Instant, Duration),
    moved: Instant,
    looked: Instant,
    /// The threads that ran on the host's core at the last look.
    seen: Vec<Pid>,
    is_long: bool,
}

impl Placement {
    pub fn new() -> Placement {
        let since = now();
        Placement { messages: 0, since, moved: since.0, looked: since.0, seen: Vec::new(), is_long: false }
    }

    /// Begins another window: the thread has slept, or is about to.
    pub fn interrupt(&mut self) {
        self.messages = 0;
    }

    /// The thread begins to execute a message that the host sent from this core. Pass the result to
    /// [`Placement::end`].
    #[inline]
    pub fn begin(&mut self, core: u16) -> Option<Instant> {
        if !self.is_long && core == node::current_core() {
            self.change(|| node::leave_core(None, core));
        }
        self.messages += 1;
        if self.messages == 1 {
            self.since = now();
        }
        (self.messages == SAMPLE).then(Instant::now)
    }

    /// The thread has executed the message; true if messages are long.
    #[inline]
    pub fn end(&mut self, core: u16, begin: Option<Instant>) -> bool {
        if let Some(begin) = begin {
            self.end_sample(core, begin);
        }
        self.is_long
    }

    /// Ends a sample, whose last message began at `begin`.
    #[cold]
    fn end_sample(&mut self, core: u16, begin: Instant) {
        let (end, worked) = now();
        let passed = end - self.since.0;
        let waited = passed.saturating_sub(worked - self.since.1);
        self.messages = 0;
        self.is_long = end - begin > LONG_MESSAGE;
        if !self.is_long {
            return;
        }
        match (core == node::current_core(), waited > passed / 3 && waited > WAITED * SAMPLE) {
            (true, true) => self.change(|| node::leave_core(None, core)),
            (false, true) => self.change(|| node::join_core(core)),
            (false, false) => self.look(core),
            (true, false) => {}
        }
    }

    /// Changes places with threads of the team that share the host's core.
    fn look(&mut self, core: u16) {
        if self.looked.elapsed() < LOOK {
            return;
        }
        self.looked = Instant::now();
        let running = node::threads_on(core);
        // Threads that ran there at the last look, too, and so not by chance.
        let team = running.iter().filter(|thread| self.seen.contains(thread));
        if team.clone().next().is_some() {
            team.for_each(|&thread| node::leave_core(Some(thread), core));
            node::join_core(core);
        }
        self.seen = running;
    }

    #[cold]
    fn change(&mut self, change: impl FnOnce()) {
        if self.moved.elapsed() > STAY {
            self.moved = Instant::now();
            change();
        }
    }
}

/// The time, and the calling thread's processor time.
fn now() -> (Instant, Duration) {
    let worked = clock_gettime(ClockId::ThreadCPUTime);
    (Instant::now(), Duration::new(worked.tv_sec as u64, worked.tv_nsec as u32))
}
