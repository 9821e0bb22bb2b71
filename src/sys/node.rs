// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The machine that this process runs on, and the cores that it may use.

use super::launchers::processes;
use super::{cgroup, process};
use crate::base::{Error, Result, elf};
use rustix::fs::{MemfdFlags, Mode, OFlags, memfd_create};
use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::fs::{DirEntry, File};
use std::os::fd::{AsRawFd, IntoRawFd};

pub(crate) fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// A number that is equal for two processes exactly if they run on the same booted machine and see
/// the same process ids: a hash of the kernel's boot id and the pid namespace.
pub(crate) fn node_id() -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let pids = std::fs::read_link("/proc/thread-self/ns/pid").unwrap_or_default();
    // FNV-1a is stable across builds; std's hasher does not promise that.
    boot.iter()
        .chain(pids.as_os_str().as_encoded_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// This machine's processor. Unknown fields are empty, or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// `e_machine` of ELF files for it.
    pub machine: u16,
    /// As the processor spells it (`GenuineIntel`).
    pub vendor: String,
    /// The model.
    pub name: String,
    /// Highest clock frequency in MHz.
    pub megahertz: u32,
}

/// This machine's processor; the first one if they differ.
pub(crate) fn processor() -> Processor {
    /// In kHz. Virtual machines have no such file.
    const HIGHEST: &str = "/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq";
    let known = processor_in(&std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    let kilohertz = std::fs::read_to_string(HIGHEST).ok().and_then(|text| text.trim().parse::<u32>().ok());
    Processor { machine: elf::MACHINE, megahertz: kilohertz.map_or(known.megahertz, |khz| khz / 1000), ..known }
}

/// The first processor in the text of `/proc/cpuinfo`, with its current frequency and without its machine.
fn processor_in(cpuinfo: &str) -> Processor {
    let field = |wanted: &str| {
        let fields = || cpuinfo.lines().filter_map(|line| line.split_once(':'));
        fields().find(|(name, _)| name.trim() == wanted).map_or("", |(_, value)| value.trim())
    };
    let megahertz = field("cpu MHz").parse::<f64>().unwrap_or_default().round() as u32;
    let (vendor, name) = (field("vendor_id").to_string(), field("model name").to_string());
    Processor { vendor, name, megahertz, ..Processor::default() }
}

/// The cores that this process may use now, by the kernel's numbers, ascending.
pub(crate) fn cores() -> Vec<u16> {
    let Ok(set) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU as u16).filter(|&core| set.is_set(core.into())).collect()
}

/// [`process::read_memory`] from any address of this process.
///
/// # Safety
/// `to[..len]` is writable.
pub(crate) unsafe fn read_any(from: u64, to: *mut u8, len: usize) -> isize {
    // SAFETY: the caller's promise.
    unsafe { process::read_memory(thread(), from, to, len) }
}

/// [`process::write_memory`] to any address of this process.
pub(crate) fn write_any(to: u64, bytes: &[u8]) -> isize {
    process::write_memory(thread(), to, bytes)
}

/// The calling thread's id. The process id is that of the main thread, which may have exited.
fn thread() -> i32 {
    rustix::thread::gettid().as_raw_pid()
}

/// This process's mapping at an address: whether it is readable, and its name.
pub(crate) fn mapping(address: u64) -> Option<(bool, String)> {
    process::Mappings::now().at(address)
}

/// True if this process is known to have only one thread.
pub(crate) fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Cores in the usual notation: `0-3,8`.
pub(crate) fn ranges(cores: &[u16]) -> String {
    let runs = cores.chunk_by(|a, b| a + 1 == *b);
    let run = |r: &[u16]| match r {
        [one] => one.to_string(),
        r => format!("{}-{}", r[0], r[r.len() - 1]),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// Binds the calling thread, and threads that it will start, to these cores.
pub(crate) fn bind(cores: &[u16]) {
    let mut set = CpuSet::new();
    cores.iter().filter(|&&core| usize::from(core) < CpuSet::MAX_CPU).for_each(|&core| set.set(core.into()));
    // If the kernel refuses, the process keeps all its cores, which at worst is slower.
    let _ = sched_setaffinity(None, &set);
}

/// The core that the calling thread runs on; 0 if it is unknown.
#[inline]
pub(crate) fn current_core() -> u16 {
    // SAFETY: sched_getcpu has no preconditions. glibc's makes no system call.
    u16::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Moves a thread of this process, or the calling one, to another core, if it may use another one.
pub(crate) fn leave_core(thread: Option<Pid>, core: u16) {
    let Ok(mine) = sched_getaffinity(thread) else { return };
    let mut others = mine;
    if usize::from(core) < CpuSet::MAX_CPU {
        others.unset(core.into());
    }
    if others.count() > 0 {
        let _ = sched_setaffinity(thread, &others);
        let _ = sched_setaffinity(thread, &mine);
    }
}

/// The threads of this process that run on this core or wait for it.
pub(crate) fn threads_on(core: u16) -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let runs =
        |thread: &DirEntry| std::fs::read_to_string(thread.path().join("stat")).is_ok_and(|stat| runs_on(&stat, core));
    threads.filter(runs).filter_map(|thread| Pid::from_raw(thread.file_name().to_str()?.parse().ok()?)).collect()
}

/// True if this `/proc/…/stat` is of a thread that runs on this core or waits for it.
fn runs_on(stat: &str, core: u16) -> bool {
    // The name before the last ')' may contain anything.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    fields.next() == Some("R") && fields.nth(35).is_some_and(|last| last.parse() == Ok(core))
}

/// Moves the calling thread to this core, if it may use it.
pub(crate) fn join_core(core: u16) {
    let Ok(mine) = sched_getaffinity(None) else { return };
    if usize::from(core) < CpuSet::MAX_CPU && mine.is_set(core.into()) {
        bind(&[core]);
        let _ = sched_setaffinity(None, &mine);
    }
}

/// Bytes of memory that this process may use: the node's, or the smallest limit of its cgroups.
pub(crate) fn memory() -> u64 {
    let known = rustix::system::sysinfo();
    let physical = (known.totalram as u64).saturating_mul(u64::from(known.mem_unit));
    physical.min(cgroup::memory_limit().unwrap_or(u64::MAX))
}

pub(crate) fn page_size() -> u32 {
    rustix::param::page_size() as u32
}

/// Fails if /proc is not mounted: loading images and finding processes of the node need it.
pub(crate) fn require_proc() -> Result<()> {
    if std::path::Path::new(process::DESCRIPTORS).is_dir() {
        return Ok(());
    }
    let host = host_name();
    Err(Error::new(format!("/proc/self/fd is missing on host {host}: mount /proc there (mount -t proc proc /proc)")))
}

/// Opens /dev/null as each closed standard stream, as the Rust runtime does in executables. Otherwise
/// MPI's connections would get the streams' descriptors, and output would go into them.
pub(crate) fn open_standard_streams() {
    // The kernel assigns the lowest free number. Programs that this process starts inherit the streams.
    while let Ok(null) = rustix::fs::open("/dev/null", OFlags::RDWR, Mode::empty())
        && null.as_raw_fd() <= 2
    {
        let _ = null.into_raw_fd();
    }
}

/// The addresses of this process's standard streams: input, output, errors.
pub(crate) fn streams() -> [u64; 3] {
    unsafe extern "C" {
        static stdin: *const libc::c_void;
        static stdout: *const libc::c_void;
        static stderr: *const libc::c_void;
    }
    // SAFETY: the C library initializes them before any of this code runs.
    unsafe { [stdin as u64, stdout as u64, stderr as u64] }
}

/// A file in memory, without a name in any file system.
pub(crate) fn memfd(name: &std::ffi::CStr, flags: libc::c_uint) -> Result<File> {
    let flags = MemfdFlags::from_bits_retain(flags) | MemfdFlags::CLOEXEC;
    let file = memfd_create(name, flags).map_err(|e| Error::from(e).context("memfd_create"))?;
    Ok(file.into())
}

/// Extends this process's cores to those of the launcher's process that started it. Must be called before any thread
/// starts, since threads inherit the cores of their creator.
///
/// Open MPI binds each rank of a small job to one core. Its launcher on the same node is bound only to the user's
/// choice of cores (`taskset`, a cpuset).
pub(crate) fn undo_binding() {
    let Ok(mine) = sched_getaffinity(None) else { return };
    let mut above = processes::ancestors();
    let Some(launcher) = above.pop() else { return };
    let cores_of = |pid: u32| sched_getaffinity(Pid::from_raw(pid as i32)).ok();
    // If a script in between has other cores, it has bound this process itself. Skip the rank above a worker: it may
    // have undone its own binding, and does not bind its workers.
    let executable = |process: &str| std::fs::read_link(format!("/proc/{process}/exe")).ok();
    let own = executable("self");
    let mut scripts = above.into_iter().filter(|pid| executable(&pid.to_string()) != own);
    let is_bound_by_launcher = scripts.all(|script| cores_of(script) == Some(mine));
    if let Some(all) = cores_of(launcher).filter(|all| is_bound_by_launcher && all.count() > mine.count()) {
        // If the kernel refuses, the launcher's binding stays, which is slower but correct.
        let _ = sched_setaffinity(None, &all);
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/node.rs"]
mod tests;
