// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The environment variables of this project, in one table that generates errors, documentation and
//! manual pages.

use crate::base::{Error, Result};
use Preset::{Unset, Value};
use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

/// The maximum number of devices behind one rank.
pub const WORKERS_MAX: u32 = 128;
/// Values of [`Settings::fragment`]: MPI's counts are `int`.
pub const FRAGMENTS: RangeInclusive<u64> = 4096..=1 << 30;

const PREFIX: &str = "OMPTARGET_MPI_";

/// Not a setting: a device executable that replaces itself by a program sets this to the numbers of programs and of
/// ranks in their job, so that the program knows that the other ranks are devices. Jobs that the program starts inherit
/// the variable.
pub(crate) const WITH_DEVICES: &str = "OMPTARGET_MPI_WITH_DEVICES";

/// Not a setting: the id of a device process that uses its node's libomptarget, in which this project's plugin must
/// have no devices. Processes that inherit the variable have another id.
pub(crate) const DEVICE_PROCESS: &str = "OMPTARGET_MPI_DEVICE_PROCESS";

/// Not a setting: the devices that all ranks of an MPI application spawn, see `job::spawned`. Only spawned ranks read
/// it.
pub(crate) const SPAWNED: &str = "OMPTARGET_MPI_SPAWNED";

/// A process that reads a variable.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reader {
    Program,
    Device,
    Launcher,
    /// The program; only the plugin of LLVM 19 and later (`cmake/offload-plugin`) acts on it.
    OffloadPlugin,
}

/// The default of a variable.
#[derive(Clone, Copy)]
pub(crate) enum Preset {
    /// This value.
    Value(&'static str),
    /// A default that no value expresses; this text describes it.
    Unset(&'static str),
}

/// A row of the table.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) values: String,
    pub(crate) default: Preset,
    pub(crate) read_by: &'static [Reader],
    pub(crate) meaning: &'static str,
}

/// Defines the settings: [`Settings`] and how it is read, [`NAMES`] and [`table`].
macro_rules! settings {
    ($(
        $NAME:ident $field:ident: $Type:ty, read by $($reader:ident),+ {
            values: $values:expr,
            default: $default:expr,
            meaning: $meaning:literal,
        }
    )+) => {
        /// The names of all variables without their prefix.
        pub const NAMES: [&str; [$(stringify!($NAME)),+].len()] = [$(stringify!($NAME)),+];

        /// The values of all settings.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Settings {
            $( #[doc = concat!("`OMPTARGET_MPI_", stringify!($NAME), "`: ", $meaning)] pub $field: $Type, )+
        }

        impl Settings {
            /// Reads the variables; `get` returns the value of each by name.
            pub fn read(get: impl Fn(&str) -> Option<OsString>) -> Result<Settings> {
                Ok(Settings {
                    $( $field: $values.read(concat!("OMPTARGET_MPI_", stringify!($NAME)), &get, $default)?, )+
                })
            }
        }

        pub(crate) fn table() -> Vec<Setting> {
            vec![$( Setting {
                name: concat!("OMPTARGET_MPI_", stringify!($NAME)),
                values: $values.text,
                default: $default,
                read_by: &[$(Reader::$reader),+],
                meaning: $meaning,
            } ),+]
        }
    };
}

settings! {
    MEMORY memory: Option<u64>, read by Program {
        values: whole(1 << 20..=1 << 44, Some),
        default: Unset("the device's share of its node's memory, or of the smallest limit of its cgroups if that is less; on an accelerator, its share of the free memory there"),
        meaning: "Sets the bytes of memory of each device.",
    }
    DEVICES devices: Option<usize>, read by Program {
        values: whole(1..=65_536, |n| Some(n as usize)),
        default: Unset("no devices are spawned"),
        meaning: "Sets the number of devices that a program spawns if it was started alone or uses MPI itself.",
    }
    HOSTS hosts: Option<String>, read by Program {
        values: hosts(),
        default: Unset("each rank's own host"),
        meaning: "Names the hosts for spawned devices; the ranks take their devices from the list in turn. \
            `a:2` gives host a two devices; without a number a host gets the devices of one rank. \
            `mpirun` must be able to start processes on these hosts.",
    }
    PROGRAM_MPI program_mpi: Option<bool>, read by Program, Launcher {
        values: words(&[("yes", Some(true)), ("no", Some(false))]),
        default: Unset("`yes` if the program, or a library that it has loaded, is linked with MPI"),
        meaning: "Says whether the program calls MPI itself. `yes`: each rank spawns its own devices (`OMPTARGET_MPI_DEVICES`), \
            after its `MPI_Init`. `no`: devices may share the program's `MPI_COMM_WORLD`, as those of `llvm-offload-mpirun` do, \
            and it must not call `MPI_Init`.",
    }
    HOST_DEVICES host_devices: bool, read by OffloadPlugin {
        values: switch(),
        default: Value("0"),
        meaning: "`1` adds LLVM's host devices after the MPI devices (LLVM 19 and later).",
    }
    BIND bind: Bind, read by Program, Device {
        values: words(&[("share", Bind::Share), ("node", Bind::Node), ("inherit", Bind::Inherit)]),
        default: Value("share"),
        meaning: "`share` binds each device to its share of its node's cores if these suffice for all processes, \
            and does not bind the program. \
            `node` lets all processes use every core that the launcher's own process may use; \
            `inherit` keeps the launcher's binding.",
    }
    BACKEND backend: Backend, read by Program, Device, Launcher {
        values: words(&[("cpu", Backend::Cpu), ("offload", Backend::Offload)]),
        default: Value("cpu"),
        meaning: "`cpu` runs regions on the cores of the device's node; `offload` runs them on an accelerator there, \
            through that node's own libomptarget and its plugins.",
    }
    GPU_DIRECT gpu_direct: GpuDirect, read by Device {
        values: words(&[("auto", GpuDirect::Auto), ("on", GpuDirect::On), ("off", GpuDirect::Off)]),
        default: Value("auto"),
        meaning: "Says how large data moves from and to an accelerator's memory: `auto` has MPI itself access that memory if it \
            is CUDA's, MPI says that it can (GPU-aware MPI) and a first copy each way is right, and otherwise uses buffers; \
            `on` tries AMD's accelerators too, and ends the job instead of using buffers; `off` uses buffers.",
    }
    UNIFIED unified: Unified, read by Program, Device {
        values: words(&[("auto", Unified::Auto), ("on", Unified::On), ("off", Unified::Off)]),
        default: Value("auto"),
        meaning: "Says whether regions may use the program's memory by its own addresses: `on`, `off`, or (`auto`) if the \
            program has `requires unified_shared_memory`, or has allocated shared memory.",
    }
    START_TIMEOUT start_timeout: Duration, read by Program, Device {
        values: whole(1..=86_400, Duration::from_secs),
        default: Value("60"),
        meaning: "Sets how many seconds a process waits at start for all others.",
    }
    KERNEL_TIMEOUT kernel_timeout: Option<Duration>, read by Device {
        values: seconds(),
        default: Value("0"),
        meaning: "Limits the time that a kernel may run; `0` sets no limit. \
            Sending home what it has changed in the program's memory does not count. \
            A kernel that exceeds the limit counts as crashed, and its device is lost.",
    }
    HEARTBEAT heartbeat: Duration, read by Program, Device, Launcher {
        values: whole(0..=86_400, Duration::from_secs),
        default: Value("5"),
        meaning: "Sets after how many seconds of silence a waiting program asks a device whether it is alive, \
            and after how many more it ends the job (six times as many if the device is on the program's own node and seen to run). \
            `0` waits forever, as a debugger that stops devices needs, unless the device is seen to have exited.",
    }
    DEVICES_PER_RANK devices_per_rank: u32, read by Program, Device, Launcher {
        values: whole(1..=u64::from(WORKERS_MAX), |n| n as u32),
        default: Value("1"),
        meaning: "Sets the number of devices behind each device rank; \
            several are worker processes, each with its share of the rank's cores and memory. \
            `OMPTARGET_MPI_DEVICES` and `llvm-offload-mpirun -n` count devices and must be multiples of it.",
    }
    SPARES spares: u32, read by Device {
        values: whole(0..=1 << 20, |n| n as u32),
        default: Value("0"),
        meaning: "Sets how often a rank replaces a device whose process crashes or is killed.",
    }
    JOURNAL journal: u64, read by Device {
        values: whole(0..=1 << 44, |n| n),
        default: Value("256M"),
        meaning: "Limits the bytes that a rank with spares keeps to bring a replacement up to date; \
            at the limit it checkpoints the device. \
            `0` checkpoints the device whenever it is quiescent, before the program gets its results.",
    }
    ASYNC asynchronous: bool, read by Program {
        values: switch(),
        default: Value("0"),
        meaning: "`1` lets a construct whose kernel returns nothing end at once; \
            what needs the kernel's results waits for it, and its output and its errors come with the next wait, or at the \
            end. Kernels that may use the program's memory (`OMPTARGET_MPI_UNIFIED`) are waited for.",
    }
    FRAGMENT_SIZE fragment: u64, read by Program {
        values: whole(FRAGMENTS, |n| n),
        default: Value("16M"),
        meaning: "Sets the bytes of the largest piece of a large transfer.",
    }
    STATS stats: bool, read by Program {
        values: switch(),
        default: Value("0"),
        meaning: "`1` prints a table of each device to stderr when the program exits: regions, bytes and time each \
            way, messages, waits, peak memory, and what took most time.",
    }
    TRACE trace: Option<PathBuf>, read by Program {
        values: file(),
        default: Unset("no trace"),
        meaning: "Names the file to write a trace to, for chrome://tracing or Perfetto; only its owner can read it. \
            A relative name counts from the directory in which the program was started, \
            and `%p` in the name stands for the process id.",
    }
}

type Parse<T> = dyn Fn(&OsStr) -> Option<T>;

/// The allowed values of a variable.
struct Values<T> {
    /// In Markdown.
    text: String,
    /// What an error says about any other value.
    refusal: String,
    parse: Box<Parse<T>>,
}

impl<T: Default> Values<T> {
    fn new(text: &str, refusal: &str, parse: impl Fn(&OsStr) -> Option<T> + 'static) -> Self {
        Values { text: text.into(), refusal: refusal.into(), parse: Box::new(parse) }
    }

    fn read(&self, name: &str, get: &impl Fn(&str) -> Option<OsString>, default: Preset) -> Result<T> {
        let text = match (get(name), default) {
            (Some(text), _) => text,
            (None, Value(text)) => text.into(),
            (None, Unset(_)) => return Ok(T::default()),
        };
        (self.parse)(&text).ok_or_else(|| Error::new(format!("{name}={} {}", text.to_string_lossy(), self.refusal)))
    }
}

/// A whole number with an optional suffix K, M or G (powers of 1024).
fn whole<T: Default + 'static>(range: RangeInclusive<u64>, value: fn(u64) -> T) -> Values<T> {
    let (min, max) = (*range.start(), *range.end());
    let short = |n: u64| match n {
        n if n >= 1 << 30 && n.is_multiple_of(1 << 30) => format!("{}G", n >> 30),
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{}M", n >> 20),
        n => n.to_string(),
    };
    let text = format!("whole number from {} to {}", short(min), short(max));
    let refusal = format!("is not a whole number from {min} to {max} (suffixes K, M, G)");
    Values::new(&text, &refusal, move |text| {
        let text = text.to_str()?.trim();
        let (digits, shift) = match text.char_indices().last() {
            Some((i, 'K' | 'k')) => (&text[..i], 10),
            Some((i, 'M' | 'm')) => (&text[..i], 20),
            Some((i, 'G' | 'g')) => (&text[..i], 30),
            _ => (text, 0),
        };
        digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|n| range.contains(n)).map(value)
    })
}

/// Seconds, possibly fractional; 0 means no limit.
fn seconds() -> Values<Option<Duration>> {
    let text = "`0`, or a number of seconds from 0.001 to 1000000000";
    let refusal = "is neither 0 nor a number of seconds from 0.001 to 1000000000";
    Values::new(text, refusal, |text| match text.to_str()?.trim().parse::<f64>() {
        Ok(0.0) => Some(None),
        Ok(n) if (0.001..=1e9).contains(&n) => Some(Some(Duration::from_secs_f64(n))),
        _ => None,
    })
}

fn switch() -> Values<bool> {
    Values::new("`0` or `1`", "is neither 0 nor 1", |text| match text.to_str()?.trim() {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    })
}

fn words<T: Default + Copy>(words: &'static [(&'static str, T)]) -> Values<T> {
    let list = |quote: char| words.iter().map(|w| format!("{quote}{}{quote}", w.0)).collect::<Vec<_>>().join(", ");
    let refusal = format!("is none of {}", list('\''));
    Values::new(&list('`'), &refusal, |text| Some(words.iter().find(|w| text == w.0)?.1))
}

// An empty value counts as unset, as usual for files.

fn file() -> Values<Option<PathBuf>> {
    Values::new("file name", "", |text| Some((!text.is_empty()).then(|| text.into())))
}

fn hosts() -> Values<Option<String>> {
    let text = "list of hosts, such as `a:2,b`";
    Values::new(text, "", |text| Some((!text.is_empty()).then(|| text.to_string_lossy().into_owned())))
}

/// True if target regions must run in the program itself.
pub(crate) fn offloading_is_disabled() -> bool {
    std::env::var("OMP_TARGET_OFFLOAD").is_ok_and(|v| v.trim().eq_ignore_ascii_case("disabled"))
}

/// True in a device process that uses its node's libomptarget.
pub(crate) fn is_device_process() -> bool {
    std::env::var(DEVICE_PROCESS).is_ok_and(|id| id == std::process::id().to_string())
}

/// The variables of this process that concern devices, for devices that do not inherit them. Omits
/// values that are not UTF-8.
pub(crate) fn for_devices() -> Vec<(String, String)> {
    const PREFIXES: [&str; 4] = ["OMP_", "KMP_", "OMPTARGET_", "LIBOMPTARGET_"];
    let texts =
        std::env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    texts.filter(|(name, _)| PREFIXES.iter().any(|p| name.starts_with(p))).collect()
}

/// The cores that processes are bound to, see `OMPTARGET_MPI_BIND` in the table.
#[allow(missing_docs, reason = "the table explains them")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bind {
    #[default]
    Share,
    Node,
    Inherit,
}

/// Whether regions may use the program's memory, see `OMPTARGET_MPI_UNIFIED` in the table.
#[allow(missing_docs, reason = "the table explains them")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unified {
    #[default]
    Auto,
    On,
    Off,
}

/// Whether MPI accesses the memory of an accelerator, see `OMPTARGET_MPI_GPU_DIRECT` in the table.
#[allow(missing_docs, reason = "the table explains them")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GpuDirect {
    #[default]
    Auto,
    On,
    Off,
}

/// What executes regions, see `OMPTARGET_MPI_BACKEND` in the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[repr(u32)]
pub enum Backend {
    /// The processors of the devices' nodes.
    #[default]
    Cpu = 0,
    /// Accelerators of these nodes, through each node's own libomptarget.
    Offload = 1,
}

impl Settings {
    /// Reads the process's environment. Call it early: the name of a file is relative to the current
    /// directory, which a program may change.
    pub(crate) fn from_env() -> Result<Settings> {
        let settings = Self::read(|name| std::env::var_os(name))?;
        settings.check()?;
        let trace = settings.trace.map(|file| std::path::absolute(&file).unwrap_or(file));
        Ok(Settings { trace, ..settings })
    }

    /// Fails if the values exclude each other.
    pub(crate) fn check(&self) -> Result<()> {
        if self.backend == Backend::Offload && self.has_workers() {
            return Err(Error::new(
                "OMPTARGET_MPI_BACKEND=offload excludes OMPTARGET_MPI_DEVICES_PER_RANK and OMPTARGET_MPI_SPARES: the driver \
                 of an accelerator does not survive a fork, so each device is a rank of its own; start several ranks per node",
            ));
        }
        Ok(())
    }

    /// True if devices are worker processes.
    pub(crate) fn has_workers(&self) -> bool {
        self.devices_per_rank > 1 || self.spares > 0
    }

    /// The number of ranks for these devices; an error if they do not fill their ranks.
    pub(crate) fn ranks_of(&self, devices: u32) -> Result<u32> {
        let each = self.devices_per_rank;
        if devices.is_multiple_of(each) {
            return Ok(devices / each);
        }
        Err(Error::new(format!("{devices} devices can't be {each} to a rank (OMPTARGET_MPI_DEVICES_PER_RANK)")))
    }

    /// True if the environment has any variable that only a user of MPI devices sets.
    pub(crate) fn any_set() -> bool {
        set_names().next().is_some()
    }
}

fn set_names() -> impl Iterator<Item = String> {
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(PREFIX) && ![WITH_DEVICES, DEVICE_PROCESS, SPAWNED].contains(&name.as_str()))
}

/// Variables of the environment with the prefix of settings that are not settings, such as misspelled ones.
pub(crate) fn unknown() -> impl Iterator<Item = String> {
    set_names().filter(|name| !NAMES.contains(&&name[PREFIX.len()..]))
}

#[cfg(test)]
#[path = "../../test/rust/unit/base/settings.rs"]
mod tests;
