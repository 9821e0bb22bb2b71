// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The environment variables of this project; the table in the README describes them.

use crate::base::{Error, Result};
use std::ffi::OsString;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// Most devices behind one rank.
pub const WORKERS_MAX: u32 = 128;
/// Values of [`Settings::fragment`]: MPI counts in `int`.
pub const FRAGMENTS: RangeInclusive<u64> = 4096..=1 << 30;

/// What the names of all variables begin with.
const PREFIX: &str = "OMPTARGET_MPI_";
/// The names of all variables, without what they begin with.
pub const NAMES: [&str; 14] = [
    "BIND",
    "DEVICES",
    "DEVICES_PER_RANK",
    "FRAGMENT_SIZE",
    "HEARTBEAT",
    "HOSTS",
    "JOURNAL",
    "KERNEL_TIMEOUT",
    "MEMORY",
    "SPARES",
    "START_TIMEOUT",
    "STATS",
    "TRACE",
    "TRACE_EVENTS",
];

/// No setting: the device executable sets this for a program that it becomes, so that the program
/// knows that the other ranks of its job are devices.
pub const WITH_DEVICES: &str = "OMPTARGET_MPI_WITH_DEVICES";

/// Everything a user can set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `OMPTARGET_MPI_BIND`.
    pub bind: Bind,
    /// `OMPTARGET_MPI_START_TIMEOUT`, seconds: how long to wait for all ranks at start.
    pub start_timeout: Duration,
    /// `OMPTARGET_MPI_HEARTBEAT`, seconds: how long a device that owes an answer may be silent
    /// before it is asked whether it is there, and then again; 0: for ever.
    pub heartbeat: Duration,
    /// `OMPTARGET_MPI_MEMORY`, bytes: a device's memory; its share of the node's if unset.
    pub memory: Option<u64>,
    /// `OMPTARGET_MPI_KERNEL_TIMEOUT`, seconds: how long a kernel may run.
    pub kernel_timeout: Option<Duration>,
    /// `OMPTARGET_MPI_FRAGMENT_SIZE`, bytes: the largest piece of one large transfer.
    pub fragment: u64,
    /// `OMPTARGET_MPI_STATS=1`: tell at the end what happened on each device.
    pub stats: bool,
    /// `OMPTARGET_MPI_TRACE`: the file to write a trace to.
    pub trace: Option<PathBuf>,
    /// `OMPTARGET_MPI_TRACE_EVENTS`: how many events of each device a trace has at most.
    pub trace_events: u64,
    /// `OMPTARGET_MPI_DEVICES`: how many devices a program spawns that was started alone or
    /// uses MPI itself.
    pub devices: Option<usize>,
    /// `OMPTARGET_MPI_DEVICES_PER_RANK`: devices behind each rank; more than one, or spares,
    /// are worker processes.
    pub devices_per_rank: u32,
    /// `OMPTARGET_MPI_SPARES`: how often a device that was lost is brought back.
    pub spares: u32,
    /// `OMPTARGET_MPI_JOURNAL`, bytes: what is kept to bring a device back before it is
    /// copied.
    pub journal: u64,
    /// `OMPTARGET_MPI_HOSTS`: where, as the MPI's spawning wants it (`a:2,b`).
    pub hosts: Option<String>,
}

/// The variables of this process that mean something to a device, for processes that do not
/// inherit them. One whose value is no text is not taken along.
pub fn for_devices() -> Vec<(String, String)> {
    const PREFIXES: [&str; 4] = ["OMP_", "KMP_", "OMPTARGET_", "LIBOMPTARGET_"];
    let texts =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.filter(|(name, _)| PREFIXES.iter().any(|p| name.starts_with(p))).collect()
}

/// What processes are bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bind {
    /// `share`: each device to its share of its node's cores, if there are enough for all
    /// processes; the program to none.
    Share,
    /// `node`: nothing; all may use every core that the launcher's own process may.
    Node,
    /// `inherit`: what the launcher bound them to.
    Inherit,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            bind: Bind::Share,
            start_timeout: Duration::from_secs(60),
            heartbeat: Duration::from_secs(5),
            memory: None,
            kernel_timeout: None,
            fragment: 16 << 20,
            devices: None,
            devices_per_rank: 1,
            spares: 0,
            journal: 256 << 20,
            hosts: None,
            stats: false,
            trace: None,
            trace_events: 1 << 20,
        }
    }
}

impl Settings {
    /// Reads the process's environment. To be called early: the name of a file counts from the
    /// current directory, which a program may change.
    ///
    /// # Errors
    /// A value that makes no sense; the text names the variable and the allowed range.
    pub fn from_env() -> Result<Settings> {
        let settings = Self::read(|name| std::env::var_os(name))?;
        let trace = settings.trace.map(|file| std::path::absolute(&file).unwrap_or(file));
        Ok(Settings { trace, ..settings })
    }

    /// Reads variables that `get_os` knows by name.
    ///
    /// # Errors
    /// As [`Settings::from_env`].
    pub fn read(get_os: impl Fn(&str) -> Option<OsString>) -> Result<Settings> {
        let mut s = Settings::default();
        let get = |name: &str| get_os(name).map(|v| v.to_string_lossy().into_owned());
        if let Some(v) = get("OMPTARGET_MPI_BIND") {
            s.bind = match v.as_str() {
                "share" => Bind::Share,
                "node" => Bind::Node,
                "inherit" => Bind::Inherit,
                _ => return Err(Error::new(format!("OMPTARGET_MPI_BIND={v} is none of 'share', 'node', 'inherit'"))),
            };
        }
        if let Some(n) = size(&get, "OMPTARGET_MPI_START_TIMEOUT", 1, 86_400)? {
            s.start_timeout = Duration::from_secs(n);
        }
        if let Some(n) = size(&get, "OMPTARGET_MPI_HEARTBEAT", 0, 86_400)? {
            s.heartbeat = Duration::from_secs(n);
        }
        s.memory = size(&get, "OMPTARGET_MPI_MEMORY", 1 << 20, 1 << 44)?;
        s.kernel_timeout = seconds(&get, "OMPTARGET_MPI_KERNEL_TIMEOUT")?;
        if let Some(n) = size(&get, "OMPTARGET_MPI_FRAGMENT_SIZE", *FRAGMENTS.start(), *FRAGMENTS.end())? {
            s.fragment = n;
        }
        if let Some(v) = get("OMPTARGET_MPI_STATS") {
            s.stats = match v.trim() {
                "1" => true,
                "0" => false,
                _ => return Err(Error::new(format!("OMPTARGET_MPI_STATS={v} is neither 0 nor 1"))),
            };
        }
        // Set to nothing is not set, as usual for files.
        s.trace = get_os("OMPTARGET_MPI_TRACE").filter(|v| !v.is_empty()).map(PathBuf::from);
        if let Some(n) = size(&get, "OMPTARGET_MPI_TRACE_EVENTS", 1, 1 << 30)? {
            s.trace_events = n;
        }
        s.devices = size(&get, "OMPTARGET_MPI_DEVICES", 1, 65_536)?.map(|n| n as usize);
        if let Some(n) = size(&get, "OMPTARGET_MPI_DEVICES_PER_RANK", 1, u64::from(WORKERS_MAX))? {
            s.devices_per_rank = n as u32;
        }
        if let Some(n) = size(&get, "OMPTARGET_MPI_SPARES", 0, 1 << 20)? {
            s.spares = n as u32;
        }
        if let Some(n) = size(&get, "OMPTARGET_MPI_JOURNAL", 0, 1 << 44)? {
            s.journal = n;
        }
        s.hosts = get("OMPTARGET_MPI_HOSTS").filter(|h| !h.is_empty());
        Ok(s)
    }

    /// True if devices are worker processes.
    pub fn has_workers(&self) -> bool {
        self.devices_per_rank > 1 || self.spares > 0
    }

    /// How many ranks so many devices are.
    ///
    /// # Errors
    /// They do not fill their ranks.
    pub fn ranks_of(&self, devices: u32) -> Result<u32> {
        let each = self.devices_per_rank;
        if devices.is_multiple_of(each) {
            return Ok(devices / each);
        }
        Err(Error::new(format!("{devices} devices can't be {each} to a rank (OMPTARGET_MPI_DEVICES_PER_RANK)")))
    }

    /// True if the environment names any variable that only a user of MPI devices sets.
    pub fn any_set() -> bool {
        set_names().next().is_some()
    }
}

fn set_names() -> impl Iterator<Item = String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(PREFIX) && name != WITH_DEVICES)
}

/// Variables of the environment that look like settings and are none, as those with a letter wrong.
pub fn unknown() -> impl Iterator<Item = String> {
    set_names().filter(|name| !NAMES.contains(&&name[PREFIX.len()..]))
}

/// A whole number with an optional suffix K, M or G (powers of 1024) within `min..=max`.
fn size(get: &impl Fn(&str) -> Option<String>, name: &str, min: u64, max: u64) -> Result<Option<u64>> {
    let Some(text) = get(name) else { return Ok(None) };
    let (digits, shift) = match text.trim().char_indices().last() {
        Some((i, 'K' | 'k')) => (&text.trim()[..i], 10),
        Some((i, 'M' | 'm')) => (&text.trim()[..i], 20),
        Some((i, 'G' | 'g')) => (&text.trim()[..i], 30),
        _ => (text.trim(), 0),
    };
    digits
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(1 << shift))
        .filter(|n| (min..=max).contains(n))
        .map(Some)
        .ok_or_else(|| {
            Error::new(format!("{name}={text} is not a whole number from {min} to {max} (suffixes K, M, G)"))
        })
}

/// Seconds, not necessarily whole; 0 is none.
fn seconds(get: &impl Fn(&str) -> Option<String>, name: &str) -> Result<Option<Duration>> {
    const RANGE: std::ops::RangeInclusive<f64> = 0.001..=1e9;
    let Some(text) = get(name) else { return Ok(None) };
    match text.trim().parse::<f64>() {
        Ok(0.0) => Ok(None),
        Ok(n) if RANGE.contains(&n) => Ok(Some(Duration::from_secs_f64(n))),
        _ => Err(Error::new(format!("{name}={text} is neither 0 nor a number of seconds from 0.001 to 1000000000"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Settings> {
        Settings::read(|name| pairs.iter().find(|p| p.0 == name).map(|p| p.1.into()))
    }

    #[test]
    fn nothing_set_gives_the_defaults() {
        assert_eq!(read(&[]).unwrap(), Settings::default());
    }

    #[test]
    fn sizes_take_suffixes() {
        assert_eq!(read(&[("OMPTARGET_MPI_MEMORY", "3G")]).unwrap().memory, Some(3 << 30));
        assert_eq!(read(&[("OMPTARGET_MPI_FRAGMENT_SIZE", " 64k ")]).unwrap().fragment, 65536);
    }

    #[test]
    fn times_need_not_be_whole() {
        let limit = |v| read(&[("OMPTARGET_MPI_KERNEL_TIMEOUT", v)]).unwrap().kernel_timeout;
        assert_eq!(limit(" 0.5"), Some(Duration::from_millis(500)));
        assert_eq!((limit("60"), limit("0")), (Some(Duration::from_secs(60)), None));
    }

    #[test]
    fn the_heartbeat_can_be_switched_off() {
        assert_eq!(read(&[("OMPTARGET_MPI_HEARTBEAT", "0")]).unwrap().heartbeat, Duration::ZERO);
        assert!(read(&[("OMPTARGET_MPI_HEARTBEAT", "0.5")]).is_err());
    }

    #[test]
    fn statistics_and_traces_are_switched_on() {
        let s =
            read(&[("OMPTARGET_MPI_STATS", "1"), ("OMPTARGET_MPI_TRACE", "a b"), ("OMPTARGET_MPI_TRACE_EVENTS", "2k")]);
        let wanted = Settings { stats: true, trace: Some("a b".into()), trace_events: 2048, ..Settings::default() };
        assert_eq!(s.unwrap(), wanted);
        assert_eq!(read(&[("OMPTARGET_MPI_STATS", "0"), ("OMPTARGET_MPI_TRACE", "")]).unwrap(), Settings::default());
    }

    #[test]
    fn nonsense_is_refused_with_the_range() {
        for bad in ["", "-1", "12x", "0", "K", "99999999999999999999", "17179869184G", "1é"] {
            let e = read(&[("OMPTARGET_MPI_FRAGMENT_SIZE", bad)]).unwrap_err();
            assert!(e.to_string().contains("4096 to 1073741824"), "{bad}: {e}");
        }
        for bad in ["", "x", "-1", "0.0001", "nan", "inf", "1K"] {
            let e = read(&[("OMPTARGET_MPI_KERNEL_TIMEOUT", bad)]).unwrap_err();
            assert!(e.to_string().contains("0.001 to 1000000000"), "{bad}: {e}");
        }
        assert!(read(&[("OMPTARGET_MPI_BIND", "core")]).is_err());
        assert!(read(&[("OMPTARGET_MPI_STATS", "yes")]).is_err());
        assert!(read(&[("OMPTARGET_MPI_TRACE_EVENTS", "0")]).is_err());
    }
}
