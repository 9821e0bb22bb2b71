// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Where devices go: hosts by name, and how many devices each gets.

use super::{Error, Result, programs};
use std::collections::HashSet;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

/// A host as the user names it, with the number given for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Its name or address.
    pub name: String,
    /// Devices that it may have.
    pub slots: Option<u32>,
}

/// Reads `a,b:2`.
///
/// # Errors
/// A host without a name, or a number that is none.
pub fn parse_list(list: &str) -> Result<Vec<Host>> {
    list.split(',').map(|item| parse_host(item.trim())).collect()
}

/// Reads lines of `a`, `a:2` or `a slots=2`, with comments from `#` on.
///
/// # Errors
/// The file's, or a line's.
pub fn read_file(path: &Path) -> Result<Vec<Host>> {
    let in_file = |e: Error| e.context(path.display());
    let text = std::fs::read_to_string(path).map_err(|e| in_file(e.into()))?;
    parse_lines(&text).map_err(in_file)
}

/// Reads what such a file holds.
///
/// # Errors
/// A line's.
pub fn parse_lines(text: &str) -> Result<Vec<Host>> {
    let lines = text.lines().map(|l| l.split('#').next().unwrap_or("").trim()).filter(|l| !l.is_empty());
    lines.map(parse_host).collect()
}

fn parse_host(text: &str) -> Result<Host> {
    let (name, number) = match text.split_once(char::is_whitespace) {
        // Other words are of other launchers (max_slots=…).
        Some((name, words)) => (name, words.split_whitespace().find_map(|w| w.strip_prefix("slots="))),
        None => text.split_once(':').map_or((text, None), |(name, n)| (name, Some(n))),
    };
    let slots = number.map(|n| n.parse().ok().filter(|n| MOST.contains(n)).ok_or_else(|| no_number(text)));
    let slots = slots.transpose()?;
    if name.is_empty() {
        return Err(Error::new(format!("'{text}' names no host")));
    }
    Ok(Host { name: name.into(), slots })
}

/// What a host may have at most, and a job: MPI counts ranks so.
const MOST: std::ops::RangeInclusive<u32> = 1..=65_536;

fn no_number(text: &str) -> Error {
    Error::new(format!("'{text}': a number of devices is 1 or more, up to {}", MOST.end()))
}

/// The hosts of the batch system's allocation that this process runs in.
///
/// # Errors
/// There is one, but it can't be read.
pub fn of_allocation() -> Result<Vec<Host>> {
    let host = |name: &str| Host { name: name.to_string(), slots: None };
    if let Ok(list) = std::env::var("SLURM_JOB_NODELIST") {
        let failed = |why: String| Error::new(format!("Slurm's allocation {list} can't be read: scontrol: {why}"));
        let scontrol = programs::tool("scontrol").ok_or_else(|| failed("it is not on the PATH".into()))?;
        let out = Command::new(scontrol).args(["show", "hostnames", &list]).output();
        let out = out.map_err(|e| failed(e.to_string()))?;
        if !out.status.success() {
            return Err(failed(String::from_utf8_lossy(&out.stderr).trim().to_string()));
        }
        return Ok(String::from_utf8_lossy(&out.stdout).lines().map(host).collect());
    }
    if let Some(file) = std::env::var_os("PBS_NODEFILE") {
        // A line for each core, in any order.
        let mut known = HashSet::new();
        let hosts = read_file(Path::new(&file))?;
        return Ok(hosts.into_iter().filter(|h| known.insert(h.name.clone())).collect());
    }
    Ok(Vec::new())
}

/// True if two names are one host's, with or without its domain.
pub fn is_same(a: &str, b: &str) -> bool {
    let is_name = |name: &str| name.parse::<IpAddr>().is_err();
    a == b || (is_name(a) && is_name(b) && a.split('.').next() == b.split('.').next())
}

/// The number of devices, and on which hosts (none named: this one).
///
/// # Errors
/// More devices than the hosts may have.
pub fn place(hosts: &[Host], devices: Option<u32>, per_node: Option<u32>) -> Result<(u32, Vec<(String, u32)>)> {
    let sum = |numbers: &mut dyn Iterator<Item = u32>| numbers.fold(0, u32::saturating_add);
    let job = |n: u32| match MOST.contains(&n) {
        true => Ok(n),
        false => Err(Error::new(format!("{n} devices are more than a job can have, which is {}", MOST.end()))),
    };
    if hosts.is_empty() {
        return Ok((job(devices.or(per_node).unwrap_or(1))?, Vec::new()));
    }
    let free = hosts.iter().filter(|h| h.slots.is_none()).count() as u32;
    let taken = sum(&mut hosts.iter().filter_map(|h| h.slots));
    // Who gives only the total wants it shared out.
    let share = devices.map_or(1, |n| n.saturating_sub(taken).div_ceil(free.max(1)));
    let most = |h: &Host| h.slots.or(per_node).unwrap_or(share);
    let room = sum(&mut hosts.iter().map(most));
    let n = job(devices.unwrap_or(room))?;
    if n > room {
        return Err(Error::new(format!("{n} devices do not fit on the hosts, which may have {room}")));
    }
    let mut left = n;
    let mut placed = Vec::new();
    for host in hosts {
        let here = most(host).min(left);
        left -= here;
        if here > 0 {
            placed.push((host.name.clone(), here));
        }
    }
    Ok((n, placed))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(list: &str, devices: Option<u32>, per_node: Option<u32>) -> String {
        match place(&parse_list(list).unwrap(), devices, per_node) {
            Ok((n, hosts)) => {
                let hosts: Vec<String> = hosts.iter().map(|(h, n)| format!("{h}:{n}")).collect();
                format!("{n} {}", hosts.join(","))
            }
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn devices_are_placed() {
        assert_eq!(placed("a,b", None, None), "2 a:1,b:1");
        assert_eq!(placed("a,b:3", None, None), "4 a:1,b:3");
        assert_eq!(placed("a,b", None, Some(2)), "4 a:2,b:2");
        assert_eq!(placed("a,b", Some(3), Some(2)), "3 a:2,b:1");
        assert_eq!(placed("a,b,c", Some(7), None), "7 a:3,b:3,c:1");
        assert_eq!(placed("a,b,c", Some(2), None), "2 a:1,b:1");
        assert_eq!(placed("a:2,b:2", Some(5), None), "5 devices do not fit on the hosts, which may have 4");
        assert_eq!(place(&[], None, None).unwrap(), (1, vec![]));
        assert_eq!(place(&[], None, Some(4)).unwrap(), (4, vec![]));
        let too_many = "4294967295 devices are more than a job can have, which is 65536";
        assert_eq!(placed("a,b", None, Some(u32::MAX)), too_many);
        assert_eq!(placed("a:65536,b", Some(u32::MAX), None), too_many);
    }

    #[test]
    fn a_host_is_known_without_its_domain() {
        assert!(is_same("n1", "n1.cluster") && is_same("10.0.0.1", "10.0.0.1"));
        assert!(!is_same("n1", "n2") && !is_same("10.0.0.1", "10.0.0.2"));
    }

    #[test]
    fn hosts_are_read() {
        let h = |name: &str, slots| Host { name: name.into(), slots };
        assert_eq!(parse_list("a, b:2").unwrap(), [h("a", None), h("b", Some(2))]);
        assert_eq!(parse_host("n1 slots=4 max_slots=8").unwrap(), h("n1", Some(4)));
        for bad in ["", "a,,b", "a:0", "a:x", ":3"] {
            assert!(parse_list(bad).is_err(), "{bad}");
        }
    }
}
