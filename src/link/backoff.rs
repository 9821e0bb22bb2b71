// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! How to wait for an event that only polling shows: spin, then yield, then sleep.

use super::doorbell::Doorbell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// How long to spin and to yield. Measured with 1 to 16 devices on 2 cores (docs/dev/measurements.md).
#[derive(Clone, Copy, Debug)]
pub struct BackoffPolicy {
    /// Polls before the thread yields.
    spins: u32,
    /// Time of yielding before the thread sleeps.
    patience: Duration,
}

impl BackoffPolicy {
    /// A core for every process: spins for about as long as a short region takes.
    pub const ALONE: BackoffPolicy = BackoffPolicy { spins: 1000, patience: Duration::from_micros(500) };
    /// The program, on a node with more processes than cores: the awaited device may need this core.
    pub const CROWDED_HOST: BackoffPolicy = BackoffPolicy { spins: 150, patience: Duration::from_micros(500) };
    /// A device on a crowded node: another device may need the core even more.
    pub const CROWDED_DEVICE: BackoffPolicy = BackoffPolicy { spins: 25, patience: Duration::from_micros(200) };
    /// A rank and its worker on a crowded node, which wait for each other. Two processes that yield to each other keep
    /// a third one waiting for a whole time slice of several milliseconds.
    pub const CROWDED_WORKER: BackoffPolicy = BackoffPolicy { spins: 25, patience: Duration::from_micros(20) };
}

/// A sleep is 1/32 of the wait so far, which prolongs a wait by at most 3 %.
const PORTION: u32 = 32;
/// Shortest and longest sleep between polls. An idle device wakes this often.
const SLEEP: (Duration, Duration) = (Duration::from_micros(20), Duration::from_millis(5));
/// Shortest and longest sleep if a doorbell ends it: all messages ring, and nothing else is urgent.
const SLEEP_BELL: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// Longest sleep of a thread that could not poll, see [`Backoff::nap`].
const NAP: Duration = Duration::from_millis(1);
/// Time of yielding while bulk data is in flight: long enough for many pieces, but short for a transfer that waits for
/// a kernel on the other side.
pub const BULK_PATIENCE: Duration = Duration::from_millis(10);

/// The additional time of yielding while `bytes` bytes are in flight over a network. Over TCP a poll moves no more than
/// the sockets' buffers hold, and MPICH moves all pieces at once, so no piece completes until most of the data has
/// arrived. The time is that of the transfer at 500 MB/s; on a slower network the buffers hold what arrives during a
/// sleep. It is below the interval of the checks that devices live.
pub fn far_patience(bytes: usize) -> Duration {
    Duration::from_nanos(2 * bytes as u64).min(Duration::from_millis(150))
}

/// A yield that takes this long gave the core to a spinning thread (libomp's threads spin while they wait), for a time
/// slice of some milliseconds. Yields among threads that take turns polling last microseconds.
const SLICE: Duration = Duration::from_micros(500);
/// How many waits of this process sleep instead of yielding after two such yields in a row. A single slow yield may be
/// the work of the awaited process.
const WAITS_AFTER_SLICES: u32 = 1000;
/// How many of these waits are left.
static WAITS_WITHOUT_YIELD: AtomicU32 = AtomicU32::new(0);
/// The last yield took a time slice.
static WAS_SLICE: AtomicBool = AtomicBool::new(false);

/// Notes how long a yield took.
fn note_yield(took: Duration) {
    let is_slice = took > SLICE;
    let was_slice = WAS_SLICE.load(Ordering::Relaxed);
    if is_slice != was_slice {
        WAS_SLICE.store(is_slice, Ordering::Relaxed);
    } else if is_slice {
        WAITS_WITHOUT_YIELD.store(WAITS_AFTER_SLICES, Ordering::Relaxed);
    }
}

/// True if the wait that is beginning may yield.
fn may_yield() -> bool {
    let waits = WAITS_WITHOUT_YIELD.load(Ordering::Relaxed);
    if waits > 0 {
        WAITS_WITHOUT_YIELD.store(waits - 1, Ordering::Relaxed);
    }
    waits == 0
}

/// Polls before a thread that gives way yields.
const GIVING_WAY: u32 = 10;

/// A wait of at least this many polls, or longer than this time, was probably for a kernel, which may need all cores.
const LONG: (u32, Duration) = (200, Duration::from_micros(5));

/// One wait for an event.
#[derive(Debug)]
pub struct Backoff<'a> {
    spins: u32,
    pace: BackoffPolicy,
    since: Option<Instant>,
    doorbell: Option<&'a Doorbell>,
    /// The result of [`Doorbell::announce`].
    announced: Option<u32>,
    gives_way: bool,
    was_long: bool,
    yields: bool,
}

impl<'a> Backoff<'a> {
    /// Starts a wait. The event rings `doorbell`, if there is one.
    pub fn new(pace: BackoffPolicy, doorbell: Option<&'a Doorbell>) -> Backoff<'a> {
        Backoff {
            spins: 0,
            pace,
            since: None,
            doorbell,
            announced: None,
            gives_way: false,
            was_long: false,
            yields: true,
        }
    }

    /// Notes that the event has occurred: the next pause starts another wait.
    #[inline]
    pub fn reset(&mut self) {
        self.was_long = self.spins >= LONG.0 || self.elapsed() > LONG.1;
        self.spins = 0;
        self.since = None;
        self.gives_way = false;
        self.retract();
    }

    /// Makes the thread poll again before it sleeps, because more may have occurred.
    #[inline]
    pub fn retract(&mut self) {
        if let (Some(doorbell), Some(_)) = (self.doorbell, self.announced.take()) {
            doorbell.retract();
        }
    }

    /// Spins less, because other threads of this process wait too and may need the core.
    #[inline]
    pub fn crowd(&mut self) {
        self.pace.spins = BackoffPolicy::CROWDED_HOST.spins;
    }

    /// Yields almost at once in this wait: the awaited process may need this core, because the others are in use.
    #[inline]
    pub fn give_way(&mut self) {
        self.gives_way = true;
    }

    /// True if the last event took long to occur.
    #[inline]
    pub fn was_long(&self) -> bool {
        self.was_long
    }

    /// True once the wait has gone beyond spinning.
    pub fn is_long(&self) -> bool {
        self.since.is_some()
    }

    /// True if the next [`Backoff::pause`] may sleep.
    pub fn will_sleep(&self, bulk: Option<Duration>) -> bool {
        self.since.is_some_and(|since| since.elapsed() >= self.patience(bulk))
    }

    /// How long this wait yields.
    fn patience(&self, bulk: Option<Duration>) -> Duration {
        bulk.unwrap_or(if self.yields { self.pace.patience } else { Duration::ZERO })
    }

    /// How long this wait has lasted, without its spinning.
    pub fn elapsed(&self) -> Duration {
        self.since.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Spins, yields or sleeps. While bulk data is in flight, `bulk` is how long the wait yields: bulk data moves only
    /// when polled, and does not ring.
    #[inline]
    pub fn pause(&mut self, bulk: Option<Duration>) {
        if self.spins < if self.gives_way { GIVING_WAY } else { self.pace.spins } {
            self.spins += 1;
            std::hint::spin_loop();
        } else {
            self.pause_long(bulk);
        }
    }

    /// Sleeps for a moment although this thread could not poll, because another one is inside MPI. No doorbell ends
    /// this sleep.
    pub fn nap(&mut self) {
        self.retract();
        std::thread::sleep((self.elapsed() / PORTION).clamp(SLEEP.0, NAP));
    }

    #[cold]
    fn pause_long(&mut self, bulk: Option<Duration>) {
        let Some(since) = self.since else {
            // The caller polls once more, and can now see that the wait will sleep.
            (self.since, self.yields) = (Some(Instant::now()), may_yield());
            return;
        };
        let waited = since.elapsed();
        if waited < self.patience(bulk) {
            self.retract();
            std::thread::yield_now();
            note_yield(since.elapsed() - waited);
            return;
        }
        let (least, most) = if bulk.is_some() || self.doorbell.is_none() { SLEEP } else { SLEEP_BELL };
        let sleep = (waited / PORTION).clamp(least, most);
        match (self.doorbell, self.announced.take()) {
            // Poll once more before sleeping.
            (Some(doorbell), None) => self.announced = Some(doorbell.announce()),
            (Some(doorbell), Some(announced)) => doorbell.sleep(announced, sleep),
            (None, _) => std::thread::sleep(sleep),
        }
    }
}

impl Drop for Backoff<'_> {
    fn drop(&mut self) {
        self.retract();
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/link/backoff.rs"]
mod tests;
