// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Facts of the machine this process runs on, and the cores it may use.

use super::{Error, Result, cgroup, proc};
use std::fs::File;
use std::mem;
use std::os::fd::FromRawFd;

/// Host name, cut to what fits a [`crate::wire::hello::Hello`] by its user.
pub fn host_name() -> String {
    let mut name = [0u8; 256];
    // SAFETY: the buffer outlives the call and its length is passed.
    let rc = unsafe { libc::gethostname(name.as_mut_ptr().cast(), name.len()) };
    let len = name.iter().position(|&b| b == 0).unwrap_or(name.len());
    if rc == 0 { String::from_utf8_lossy(&name[..len]).into_owned() } else { "unknown".into() }
}

/// A number that two processes share exactly if they run on one booted machine and see
/// the same process ids: a hash of the kernel's boot id and the pid namespace.
pub fn node_id() -> u64 {
    let boot = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let pids = std::fs::read_link("/proc/thread-self/ns/pid").unwrap_or_default();
    // FNV-1a: stable over builds, which std's hasher does not promise.
    boot.iter()
        .chain(pids.as_os_str().as_encoded_bytes())
        .fold(0xcbf2_9ce4_8422_2325, |h, &b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// Cores that this process may run on now, as numbers of the system's, ascending.
pub fn cores() -> Vec<u16> {
    let Some(set) = affinity(0) else { return Vec::new() };
    // SAFETY: CPU_ISSET only reads the set, within its size.
    (0..libc::CPU_SETSIZE as u16).filter(|&core| unsafe { libc::CPU_ISSET(core.into(), &set) }).collect()
}

/// Copies from any address of this process; returns how many bytes there were to read, or
/// -1 and the reason in errno.
///
/// # Safety
/// `to[..len]` is writable.
pub unsafe fn read_any(from: u64, to: *mut u8, len: usize) -> isize {
    let local = libc::iovec { iov_base: to.cast(), iov_len: len };
    let remote = libc::iovec { iov_base: from as *mut _, iov_len: len };
    // By the calling thread's id: the process id is the main thread's, which may have ended.
    // SAFETY: the kernel checks the remote range; the caller answers for the local one.
    unsafe { libc::process_vm_readv(libc::gettid(), &local, 1, &remote, 1, 0) }
}

/// Copies to any address of this process; returns how many bytes could be written, or -1 and
/// the reason in errno.
pub fn write_any(to: u64, bytes: &[u8]) -> isize {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: to as *mut _, iov_len: bytes.len() };
    // SAFETY: the kernel checks the remote range and only reads the local one.
    unsafe { libc::process_vm_writev(libc::gettid(), &local, 1, &remote, 1, 0) }
}

/// What of this process lies at an address: whether it can be read, and what it is, in words.
pub fn mapping(address: u64) -> Option<(bool, String)> {
    mapping_at(&std::fs::read_to_string(proc::MAPS).ok()?, address)
}

/// The same in the text of some `/proc/…/maps`.
pub fn mapping_at(maps: &str, address: u64) -> Option<(bool, String)> {
    maps.lines().find_map(|line| {
        let mut fields = line.split_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
        let readable = fields.next()?.starts_with('r');
        let what = fields.nth(3).unwrap_or("[anonymous memory]");
        (start..end).contains(&address).then(|| (readable, what.to_string()))
    })
}

/// True if this process is known to have one thread only.
pub fn is_single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Cores as people write them: `0-3,8`.
pub fn ranges(cores: &[u16]) -> String {
    let runs = cores.chunk_by(|a, b| a + 1 == *b);
    let run = |r: &[u16]| match r {
        [one] => one.to_string(),
        r => format!("{}-{}", r[0], r[r.len() - 1]),
    };
    runs.map(run).collect::<Vec<_>>().join(",")
}

/// Binds the calling thread, and those that it will start, to cores.
pub fn bind(cores: &[u16]) {
    // SAFETY: cpu_set_t is a plain bit set, for which all zeros is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    for &core in cores.iter().filter(|&&core| i32::from(core) < libc::CPU_SETSIZE) {
        // SAFETY: the core is within the set.
        unsafe { libc::CPU_SET(core.into(), &mut set) };
    }
    // A refusal leaves all cores of the process, which is slower at worst.
    // SAFETY: the set outlives the call and its size is passed.
    unsafe { libc::sched_setaffinity(0, mem::size_of_val(&set), &set) };
}

/// The core that the calling thread runs on; 0 if there is no telling.
#[inline]
pub fn current_core() -> u16 {
    // SAFETY: sched_getcpu has no preconditions.
    u16::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

/// Moves the calling thread to another core, if it may use any.
pub fn leave_core(core: u16) {
    let Some(mine) = affinity(0).filter(|_| i32::from(core) < libc::CPU_SETSIZE) else { return };
    let mut others = mine;
    // SAFETY: the set is initialised and has the core; then: the sets outlive the calls
    // and their size is passed.
    unsafe {
        libc::CPU_CLR(core.into(), &mut others);
        if libc::CPU_COUNT(&others) > 0 {
            libc::sched_setaffinity(0, mem::size_of_val(&others), &others);
            libc::sched_setaffinity(0, mem::size_of_val(&mine), &mine);
        }
    }
}

/// Bytes of memory of this node that this process may use: physical memory, or the smallest
/// limit of its cgroups where that is less.
pub fn memory() -> u64 {
    // SAFETY: sysconf has no preconditions.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    let physical = (pages.max(0) as u64).saturating_mul(page.max(0) as u64);
    physical.min(cgroup::memory_limit().unwrap_or(u64::MAX))
}

/// Bytes per page of memory.
pub fn page_size() -> u32 {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as u32 }
}

/// Fails where the system's tables of processes can't be seen, through which images are
/// loaded and processes of a node found.
///
/// # Errors
/// The text says what to do.
pub fn require_proc() -> Result<()> {
    if std::path::Path::new(proc::DESCRIPTORS).is_dir() {
        return Ok(());
    }
    let host = host_name();
    Err(Error::new(format!("/proc/self/fd is missing on host {host}: mount /proc there (mount -t proc proc /proc)")))
}

/// Opens /dev/null as each of standard input, output and error that is closed: MPI's
/// connections would get the numbers, and what is printed would go into them. (Executables
/// in Rust do so by themselves.)
pub fn open_standard_streams() {
    for fd in 0..=2 {
        // SAFETY: plain numbers and a constant string. All lower descriptors are open, so that
        // this is the one that open finds.
        unsafe {
            if libc::fcntl(fd, libc::F_GETFD) == -1 {
                libc::open(c"/dev/null".as_ptr(), libc::O_RDWR);
            }
        }
    }
}

/// A file in memory that has no name in any file system.
///
/// # Errors
/// The system's.
pub fn memfd(name: &std::ffi::CStr, flags: libc::c_uint) -> Result<File> {
    // SAFETY: the name is a C string; the descriptor is ours alone.
    unsafe {
        match libc::memfd_create(name.as_ptr(), flags | libc::MFD_CLOEXEC) {
            -1 => Err(Error::from(std::io::Error::last_os_error()).context("memfd_create")),
            fd => Ok(File::from_raw_fd(fd)),
        }
    }
}

fn affinity(pid: libc::pid_t) -> Option<libc::cpu_set_t> {
    // SAFETY: cpu_set_t is a plain bit set, for which all zeros is a value.
    let mut set: libc::cpu_set_t = unsafe { mem::zeroed() };
    // SAFETY: the set outlives the call and its size is passed.
    let rc = unsafe { libc::sched_getaffinity(pid, mem::size_of_val(&set), &mut set) };
    (rc == 0).then_some(set)
}

/// Widens this process's cores to those of the process that started it.
///
/// Open MPI binds each rank of a small job to one core; its launcher on the same node is
/// bound to nothing but what the user chose (`taskset`, a cpuset). To be called before
/// any thread starts, since threads inherit the cores of their creator.
pub fn undo_binding() {
    // SAFETY: getppid has no preconditions.
    let parent = affinity(unsafe { libc::getppid() });
    if let (Some(mine), Some(parent)) = (affinity(0), parent) {
        // SAFETY: both sets are initialised; the macros only read them.
        let wider = unsafe { libc::CPU_COUNT(&parent) > libc::CPU_COUNT(&mine) };
        if wider {
            // A refusal leaves the launcher's binding, which is slower but right.
            // SAFETY: the set outlives the call and its size is passed.
            unsafe { libc::sched_setaffinity(0, mem::size_of_val(&parent), &parent) };
        }
    }
}
