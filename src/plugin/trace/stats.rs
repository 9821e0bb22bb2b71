// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The statistics of a device as a table.

use super::view::View;
use crate::wire::record::{Direction, Sum};
use std::fmt::Write;

/// The number of kernels that are listed by name.
const NAMED: usize = 5;
/// In the order of [`Direction::ALL`].
const DIRECTIONS: [&str; Direction::ALL.len()] = [
    "host to device",
    "device to host",
    "to other devices",
    "from other devices",
    "within the device",
    "to its accelerator",
    "from its accelerator",
];

/// The program's memory that kernels fetched, found unchanged, and changed.
const MEMORY: [&str; 3] = ["program's memory fetched", "program's memory unchanged", "program's memory changed"];

pub(crate) fn table(view: &View<'_>) -> String {
    let seen = &view.seen;
    let mut out = format!("omptarget-mpi: {}\n", view.device.name());
    row(&mut out, "", ["count", "bytes", "time"].map(str::to_string));
    let time = |ticks| duration(view.length(ticks));
    let mut all = Sum::default();
    seen.kernels.iter().for_each(|&kernel| all.add(kernel));
    row(&mut out, "regions", [all.count.to_string(), String::new(), time(all.time)]);
    let is_shown = |way: Direction| {
        let is_of_accelerators = matches!(way, Direction::ToAccelerator | Direction::FromAccelerator);
        !is_of_accelerators || view.device.is_accelerator()
    };
    let rows = Direction::ALL.into_iter().zip(DIRECTIONS.iter().zip(&seen.moved));
    for (_, (name, sum)) in rows.filter(|(way, _)| is_shown(*way)) {
        row(&mut out, name, [sum.count.to_string(), sum.bytes.to_string(), time(sum.time)]);
    }
    let memory_rows = |out: &mut String, indent: &str, sums: &[Sum; 3]| {
        for (name, sum) in MEMORY.iter().zip(sums).filter(|(_, sum)| sum.count > 0) {
            row(out, &format!("{indent}{name}"), [sum.count.to_string(), sum.bytes.to_string(), time(sum.time)]);
        }
    };
    let mut memory = [Sum::default(); 3];
    seen.memory.iter().for_each(|sums| memory.iter_mut().zip(sums).for_each(|(all, &sum)| all.add(sum)));
    memory_rows(&mut out, "", &memory);
    let plain = |n: u64| [n.to_string(), String::new(), String::new()];
    row(&mut out, "messages to the device", plain(view.messages.0));
    row(&mut out, "messages from the device", plain(view.messages.1));
    let waits = seen.host.waits;
    let waited_for = duration(view.host.length(waits.time));
    row(&mut out, "waits of the host", [waits.count.to_string(), String::new(), waited_for]);
    let peak = view.device.port().arena.lock().peak;
    row(&mut out, "peak memory", [String::new(), peak.to_string(), String::new()]);
    let kernels = seen.names.iter().zip(&seen.kernels).zip(&seen.memory);
    let mut kernels: Vec<_> = kernels.filter(|((_, sum), _)| sum.count > 0).collect();
    kernels.sort_by_key(|((name, sum), _)| (std::cmp::Reverse(sum.time), *name));
    if !kernels.is_empty() {
        out += "  regions that took most time\n";
    }
    for ((name, sum), memory) in kernels.into_iter().take(NAMED) {
        row(&mut out, &format!("  {name}"), [sum.count.to_string(), String::new(), time(sum.time)]);
        memory_rows(&mut out, "    ", memory);
    }
    out
}

fn row(out: &mut String, name: &str, [count, bytes, time]: [String; 3]) {
    // A long name is not truncated; it moves the numbers to the right.
    let line = format!("  {name:<26} {count:>10} {bytes:>16} {time:>12}");
    let _ = writeln!(out, "{}", line.trim_end());
}

fn duration(ns: u64) -> String {
    match ns {
        0 => "0".to_string(),
        1..1_000_000 => format!("{:.3} us", ns as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.3} ms", ns as f64 / 1e6),
        _ => format!("{:.3} s", ns as f64 / 1e9),
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/trace/stats.rs"]
mod tests;
