// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Time stamps that are cheap enough for every region, for statistics and traces.

use std::sync::LazyLock;
use std::time::Instant;

/// The processor's counter at the first reading, if the kernel uses the counter as its clock: the counter
/// is then the same on all cores and has a constant rate.
#[cfg(target_arch = "x86_64")]
static COUNTER: LazyLock<Option<u64>> = LazyLock::new(|| {
    let source = std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    source.is_ok_and(|s| s.trim() == "tsc").then(counter)
});

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 processor has this instruction; it touches no memory.
    unsafe { std::arch::x86_64::_rdtsc() }
}

/// Ticks since the first reading in this process. They never go back. [`Line`] gives their length, from two
/// readings of this clock and another one.
///
/// A tick is one of the processor's counter if that is a clock, because [`Instant`] takes twice as long
/// (docs/dev/measurements.md).
// Not inlined: most callers seldom call it, and it would take registers from their other code.
#[inline(never)]
pub fn now() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if let Some(origin) = *COUNTER {
        return counter().saturating_sub(origin);
    }
    nanoseconds()
}

/// Nanoseconds since the first reading in this process.
pub fn nanoseconds() -> u64 {
    static ORIGIN: LazyLock<Instant> = LazyLock::new(Instant::now);
    ORIGIN.elapsed().as_nanos() as u64
}

/// Converts times of one clock to times of another, along a straight line through two readings of both.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Line {
    from: u64,
    to: i64,
    rate: f64,
}

impl Line {
    /// The line through two points: each is a reading of the one clock and of the other.
    pub fn through(first: (u64, i64), last: (u64, i64)) -> Line {
        let run = last.0.saturating_sub(first.0).max(1) as f64;
        Line { from: first.0, to: first.1, rate: (last.1 - first.1) as f64 / run }
    }

    pub fn at(&self, time: u64) -> i64 {
        self.to + (time.wrapping_sub(self.from) as i64 as f64 * self.rate).round() as i64
    }

    /// Converts a length of time.
    pub fn length(&self, time: u64) -> u64 {
        (time as f64 * self.rate).round().max(0.0) as u64
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/base/clock.rs"]
mod tests;
