// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Where the ranks of an MPI application spawn their devices. All ranks have the same settings, so each knows what the
//! others may spawn.

use super::hosts::{self, is_here, is_same};
use crate::base::settings::{SPAWNED, Settings};
use crate::base::{Error, Result};
use crate::sys::node;
use std::collections::BTreeSet;
use std::iter::repeat_n;

/// The hosts on which a program spawns this many ranks for its devices, as words for MPI (`a:2,b:1`), and the value of
/// [`SPAWNED`] for these ranks. `rank` is the program's of `size`, and `local` its place among the `locals` on its
/// node.
///
/// The hosts are the program's share of `OMPTARGET_MPI_HOSTS`, which names hosts for all ranks of the job, or its own
/// node.
pub(super) fn places(
    settings: &Settings,
    ranks: usize,
    (rank, size): (usize, usize),
    (local, locals): (usize, usize),
) -> Result<(String, String)> {
    let Some(hosts) = &settings.hosts else {
        let host = node::host_name();
        return Ok((format!("{host}:{ranks}"), format!("{host}:{}/{}", local * ranks, locals * ranks)));
    };
    let in_list = |e: Error| e.context("OMPTARGET_MPI_HOSTS");
    let mut slots = Vec::new();
    let hosts = hosts::parse_list(hosts).map_err(in_list)?;
    hosts::check_names(hosts.iter().map(|host| host.name.as_str())).map_err(in_list)?;
    for host in hosts {
        let here = host.slots.map_or(Ok(1), |n| settings.ranks_of(n)).map_err(in_list)?;
        slots.extend(repeat_n(host.name, here as usize));
    }
    let slots = |range: std::ops::Range<usize>| range.map(|i| slots[i % slots.len()].as_str());
    let first = rank * ranks;
    let mine: Vec<&str> = slots(first..first + ranks).collect();
    // One word for neighbors on one host: Open MPI takes at most 255 bytes.
    let words: Vec<String> = mine.chunk_by(|a, b| a == b).map(|same| format!("{}:{}", same[0], same.len())).collect();
    let count = |host: &str, end| slots(0..end).filter(|&other| is_same(other, host)).count();
    let numbers = |host: &&str| format!("{host}:{}/{}", count(host, first), count(host, size * ranks));
    let numbers: Vec<String> = mine.iter().collect::<BTreeSet<_>>().into_iter().map(numbers).collect();
    Ok((words.join(","), numbers.join(",")))
}

/// For a spawned rank: how many spawned ranks on its host belong to programs before its own, and how many may be
/// spawned there in all. Both are 0 if unknown.
pub(crate) fn here() -> (u32, u32) {
    here_in(&std::env::var(SPAWNED).unwrap_or_default(), &node::host_name())
}

fn here_in(list: &str, host: &str) -> (u32, u32) {
    let entries = list.split(',').filter_map(|entry| {
        let (name, numbers) = entry.rsplit_once(':')?;
        let (earlier, all) = numbers.split_once('/')?;
        Some((name, earlier.parse::<u32>().ok()?, all.parse::<u32>().ok()?))
    });
    let entries: Vec<_> = entries.collect();
    let by_name = entries.iter().find(|entry| is_same(entry.0, host));
    by_name
        .or_else(|| entries.iter().find(|entry| is_here(entry.0)))
        .map_or((0, 0), |&(_, earlier, all)| (earlier, all))
}

#[cfg(test)]
#[path = "../../test/rust/unit/job/spawned.rs"]
mod tests;
