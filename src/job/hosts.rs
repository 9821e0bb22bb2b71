// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Lists of hosts, and the number of devices on each.

use crate::base::{Error, Result};
use crate::sys::{launchers, node, programs};
use std::collections::{BTreeSet, HashSet};
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::process::Command;

/// An entry of a list of hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Name or address.
    pub name: String,
    /// The maximum number of devices, if the entry has a number.
    pub slots: Option<u32>,
}

/// Reads `a,b:2`.
pub fn parse_list(list: &str) -> Result<Vec<Host>> {
    list.split(',').map(|item| parse_host(item.trim())).collect()
}

/// Reads a file for [`parse_lines`].
pub(crate) fn read_file(path: &Path) -> Result<Vec<Host>> {
    let in_file = |e: Error| e.context(path.display());
    let text = std::fs::read_to_string(path).map_err(|e| in_file(e.into()))?;
    parse_lines(&text).map_err(in_file)
}

/// Reads lines of `a`, `a:2` or `a slots=2`; comments start with `#`.
pub fn parse_lines(text: &str) -> Result<Vec<Host>> {
    let lines = text.lines().map(|l| l.split('#').next().unwrap_or("").trim()).filter(|l| !l.is_empty());
    lines.map(parse_host).collect()
}

fn parse_host(text: &str) -> Result<Host> {
    let (name, number) = match text.split_once(char::is_whitespace) {
        // Ignore words for other launchers (max_slots=…).
        Some((name, words)) => (name, words.split_whitespace().find_map(|w| w.strip_prefix("slots="))),
        None => text.split_once(':').map_or((text, None), |(name, n)| (name, Some(n))),
    };
    let refusal = || Error::new(format!("'{text}': a number of devices is 1 or more, up to {}", MOST.end()));
    let slots = number.map(|n| n.parse().ok().filter(|n| MOST.contains(n)).ok_or_else(refusal)).transpose()?;
    if name.is_empty() {
        return Err(Error::new(format!("'{text}' names no host")));
    }
    Ok(Host { name: name.into(), slots })
}

/// Valid numbers of devices of a host, and of a job.
const MOST: std::ops::RangeInclusive<u32> = 1..=65_536;

/// The hosts of this process's batch allocation. Empty outside an allocation.
pub(crate) fn of_allocation() -> Result<Vec<Host>> {
    let host = |name: &str| Host { name: name.to_string(), slots: None };
    if let Some(list) = launchers::slurm::nodes() {
        let failed = |why: String| Error::new(format!("Slurm's allocation {list} can't be read: scontrol: {why}"));
        let scontrol = programs::tool("scontrol").ok_or_else(|| failed("it is not on the PATH".into()))?;
        let out = Command::new(scontrol).args(["show", "hostnames", &list]).output();
        let out = out.map_err(|e| failed(e.to_string()))?;
        if !out.status.success() {
            return Err(failed(String::from_utf8_lossy(&out.stderr).trim().to_string()));
        }
        return Ok(String::from_utf8_lossy(&out.stdout).lines().map(host).collect());
    }
    if let Some(file) = launchers::pbs_node_file() {
        let mut known = HashSet::new();
        let hosts = read_file(&file)?;
        return Ok(hosts.into_iter().filter(|h| known.insert(h.name.clone())).collect());
    }
    Ok(Vec::new())
}

fn is_name(host: &str) -> bool {
    host.parse::<IpAddr>().is_err()
}

/// True if two names belong to one host: one may lack the domain, or the end of it.
pub(crate) fn is_same(a: &str, b: &str) -> bool {
    let extends = |long: &str, short| long.strip_prefix(short).is_some_and(|domain| domain.starts_with('.'));
    a == b || (is_name(a) && is_name(b) && (extends(a, b) || extends(b, a)))
}

/// Fails if one of these names abbreviates two others, as `n1` does `n1.east` and `n1.west`.
pub(crate) fn check_names<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let names: BTreeSet<&str> = names.collect();
    for name in &names {
        let start = format!("{name}.");
        let longer = names.range(start.as_str()..).take_while(|name| name.starts_with(&start));
        if let Some((a, b)) = longer.clone().zip(longer.skip(1)).find(|(a, b)| !is_same(a, b)) {
            let advice = "give each host's full name, or its address";
            return Err(Error::new(format!("the host {name} may be {a} or {b}: {advice}")));
        }
    }
    Ok(())
}

/// True if two of these hosts have the same name in different domains.
pub(crate) fn has_namesakes<'a>(names: impl Iterator<Item = &'a str>) -> bool {
    let mut names: Vec<&str> = names.filter(|name| is_name(name)).collect();
    names.sort_unstable();
    let label = |name: &'a str| name.split('.').next();
    names.windows(2).any(|pair| label(pair[0]) == label(pair[1]) && !is_same(pair[0], pair[1]))
}

/// True if a name or an address is this host's.
pub(crate) fn is_here(name: &str) -> bool {
    is_same(name, &node::host_name()) || has_own_address(name)
}

/// True if a name resolves to an address of this host.
pub(crate) fn has_own_address(name: &str) -> bool {
    // Only an address of this host can be bound.
    let is_own = |address: SocketAddr| UdpSocket::bind((address.ip(), 0)).is_ok();
    (name, 0).to_socket_addrs().is_ok_and(|mut all| all.any(is_own))
}

/// Distributes devices over hosts, if there are any. Returns the number of devices, and the number on each host.
pub fn place(hosts: &[Host], devices: Option<u32>, per_node: Option<u32>) -> Result<(u32, Vec<(String, u32)>)> {
    let too_many = |n| Error::new(format!("{n} devices are more than a job can have, which is {}", MOST.end()));
    let job = |n| if MOST.contains(&n) { Ok(n) } else { Err(too_many(n)) };
    if hosts.is_empty() {
        return Ok((job(devices.or(per_node).unwrap_or(1))?, Vec::new()));
    }
    let free = hosts.iter().filter(|h| h.slots.is_none()).count() as u32;
    let taken = hosts.iter().filter_map(|h| h.slots).fold(0, u32::saturating_add);
    // Without a number per node, the total is divided among the hosts.
    let share = devices.map_or(1, |n| n.saturating_sub(taken).div_ceil(free.max(1)));
    let most = |h: &Host| h.slots.or(per_node).unwrap_or(share);
    let room = hosts.iter().map(most).fold(0, u32::saturating_add);
    let n = job(devices.unwrap_or(room))?;
    if n > room {
        return Err(Error::new(format!("{n} devices do not fit on the hosts, which may have {room}")));
    }
    let mut left = n;
    let placed = hosts.iter().map(|host| {
        let here = most(host).min(left);
        left -= here;
        (host.name.clone(), here)
    });
    Ok((n, placed.filter(|(_, here)| *here > 0).collect()))
}

#[cfg(test)]
#[path = "../../test/rust/unit/job/hosts.rs"]
mod tests;
