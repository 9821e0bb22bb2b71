// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The only module that names MPI: its start and end, ranks, sends, receives.
//!
//! It starts MPI at `MPI_THREAD_SERIALIZED`: the owner of the one [`Mpi`] value makes all calls, and threads that
//! share it use a lock. That is cheaper than `MPI_THREAD_MULTIPLE`, where the library locks inside every call. A
//! program that calls MPI itself starts and ends it, and must use `MPI_THREAD_MULTIPLE`.

pub mod pmi;
pub(crate) mod quirks;

use crate::base::limits::BULK_TAGS;
use crate::base::{Error, Result};
use crate::sys::deadline::end;
use mpi_sys as sys;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The tag of commands and replies; bulk data uses the tags above it.
pub const TAG_MESSAGE: u32 = 1;
/// The first tag of bulk data.
pub const TAG_BULK: u32 = 2;

/// The largest tag that every MPI supports (MPI 4.1, 9.1.2).
const TAG_MAX: u32 = 32_767;
/// The tag of pieces of the program's memory between a program and a device. Each piece is one message, so they arrive
/// in the order in which they were sent.
pub const TAG_MEMORY: u32 = TAG_BULK + BULK_TAGS;
const _: () = assert!(TAG_MEMORY <= TAG_MAX);

/// True if the ranks are on several nodes, see [`Mpi::spans_nodes`].
static SPANS_NODES: AtomicBool = AtomicBool::new(false);
/// Whether `MPI_Finalize` ends the MPI that this module started, see [`Mpi::spans_nodes`].
static FINALIZES: AtomicBool = AtomicBool::new(true);

/// A started MPI, and the ranks of this job.
pub struct Mpi {
    comm: sys::MPI_Comm,
    /// The intercommunicator between parent and spawned processes, from which `comm` was merged.
    inter: Option<sys::MPI_Comm>,
    /// The program started MPI, and will end it.
    is_programs: bool,
    /// This process's rank.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// See [`Mpi::poll_without_yielding`].
    yields_given_up: bool,
}

/// A send or receive in flight: the bits of an MPI request handle, which is a number or a pointer, depending on the
/// library.
#[derive(Debug)]
pub struct Request(pub(crate) u64);

const _: () = assert!(size_of::<sys::MPI_Request>() <= size_of::<u64>());

impl Request {
    #[inline]
    fn pack(handle: sys::MPI_Request) -> Request {
        let mut bits = 0u64;
        // SAFETY: the handle fits, as asserted above, and any bytes are a u64.
        unsafe {
            ptr::copy_nonoverlapping((&raw const handle).cast::<u8>(), (&raw mut bits).cast(), size_of_val(&handle))
        };
        Request(bits)
    }

    #[inline]
    fn handle(&mut self) -> *mut sys::MPI_Request {
        (&raw mut self.0).cast()
    }
}

/// The result of a finished receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The sender's rank.
    pub from: usize,
    /// Number of bytes.
    pub len: usize,
}

// SAFETY: MPI handles are plain numbers or pointers into the library, which any thread may use as long as calls do
// not overlap. Calls do not: all that move data take `&mut self`.
unsafe impl Send for Mpi {}

/// Name and version of the MPI library. May be called before MPI is started.
pub fn library() -> String {
    // SAFETY: reading a constant of the library.
    let max = unsafe { sys::RSMPI_MAX_LIBRARY_VERSION_STRING } as usize;
    let mut text = vec![0u8; max + 1];
    let mut len: c_int = 0;
    // SAFETY: the buffer has the size that MPI requires.
    unsafe { sys::MPI_Get_library_version(text.as_mut_ptr().cast(), &mut len) };
    text.truncate(len.max(0) as usize);
    let text = String::from_utf8_lossy(&text);
    // Open MPI: "Open MPI v4.1.4, package: …"; MPICH: "MPICH Version:\t4.0.2\n…".
    text.split(['\n', ','])
        .next()
        .unwrap_or("")
        .replace("Version:", "")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The accelerators whose memory an MPI library says it can access itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GpuAware {
    /// Those of CUDA.
    pub cuda: bool,
    /// Those of ROCm.
    pub rocm: bool,
}

impl GpuAware {
    /// Queries this process's library. MPI must be started, and no other thread may call it.
    pub fn ask() -> GpuAware {
        /// MPICH's `MPIX_GPU_SUPPORT_CUDA` and `MPIX_GPU_SUPPORT_HIP`; early releases do not know the second one.
        const KINDS: [c_int; 2] = [0, 2];
        // Open MPI has the first two; other libraries have some of these or none.
        let [cuda, rocm, hip] = [c"MPIX_Query_cuda_support", c"MPIX_Query_rocm_support", c"MPIX_Query_hip_support"]
            .map(|name| {
                optional(name).is_some_and(|function| {
                    // SAFETY: all libraries declare it so.
                    let query: unsafe extern "C" fn() -> c_int = unsafe { std::mem::transmute(function) };
                    // SAFETY: MPI is started.
                    unsafe { query() != 0 }
                })
            });
        let [cuda_kind, hip_kind] = optional(c"MPIX_GPU_query_support").map_or([false; 2], |function| {
            // SAFETY: this is MPICH's declaration (mpi_proto.h).
            let query: unsafe extern "C" fn(c_int, *mut c_int) -> c_int = unsafe { std::mem::transmute(function) };
            returning_errors(|| {
                KINDS.map(|kind| {
                    let mut answer = 0;
                    // SAFETY: MPI is started, and the out parameter outlives the call.
                    unsafe { query(kind, &raw mut answer) == 0 && answer != 0 }
                })
            })
        });
        GpuAware { cuda: cuda || cuda_kind, rocm: rocm || hip || hip_kind }
    }
}

/// Makes calls whose errors concern no communicator, for which MPI ends the process by default. MPI must be started.
fn returning_errors<R>(calls: impl FnOnce() -> R) -> R {
    // SAFETY: MPI is started; the out parameters outlive their calls, and each handler is freed once.
    unsafe {
        let handlers = [sys::RSMPI_COMM_WORLD, sys::RSMPI_COMM_SELF].map(|comm| {
            let mut handler = sys::RSMPI_ERRORS_RETURN;
            sys::MPI_Comm_get_errhandler(comm, &mut handler);
            sys::MPI_Comm_set_errhandler(comm, sys::RSMPI_ERRORS_RETURN);
            (comm, handler)
        });
        let result = calls();
        for (comm, mut handler) in handlers {
            sys::MPI_Comm_set_errhandler(comm, handler);
            sys::MPI_Errhandler_free(&mut handler);
        }
        result
    }
}

/// The address of a function that not all MPI libraries have.
fn optional(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string; the search covers the libraries of this one.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!function.is_null()).then_some(function)
}

/// Turns the result of an MPI call into an error with the library's own text.
#[inline]
fn ok(call: &str, code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(failed(call, code)) }
}

#[cold]
fn failed(call: &str, code: c_int) -> Error {
    let mut text = [0u8; sys::MPI_MAX_ERROR_STRING as usize + 1];
    let mut len: c_int = 0;
    // SAFETY: the buffer has the size that MPI asks for.
    unsafe { sys::MPI_Error_string(code, text.as_mut_ptr().cast(), &mut len) };
    let text = String::from_utf8_lossy(&text[..(len.max(0) as usize).min(text.len())]).into_owned();
    Error::new(format!("{call} failed: {}", text.trim()))
}

/// Whether MPI runs in this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Not started.
    Before,
    /// Started and not ended.
    Running,
    /// Ended.
    After,
}

/// The state of MPI in this process.
pub fn phase() -> Phase {
    let (mut started, mut ended): (c_int, c_int) = (0, 0);
    // SAFETY: both may be called at any time.
    unsafe {
        sys::MPI_Initialized(&mut started);
        sys::MPI_Finalized(&mut ended);
    }
    match (started != 0, ended != 0) {
        (_, true) => Phase::After,
        (true, _) => Phase::Running,
        _ => Phase::Before,
    }
}

/// The rank of this process and the number of ranks, if the program has started MPI; otherwise rank 0 of 1.
pub fn world() -> (usize, usize) {
    let (mut rank, mut size): (c_int, c_int) = (0, 1);
    if phase() == Phase::Running {
        // SAFETY: MPI is running; the out parameters outlive their calls.
        unsafe {
            sys::MPI_Comm_rank(sys::RSMPI_COMM_WORLD, &mut rank);
            sys::MPI_Comm_size(sys::RSMPI_COMM_WORLD, &mut size);
        }
    }
    (rank as usize, size as usize)
}

fn init() -> Result<()> {
    let mut provided: c_int = 0;
    // SAFETY: MPI was not started; null arguments are allowed since MPI 2.
    unsafe {
        let level = quirks::fixed_level().unwrap_or(0).clamp(sys::RSMPI_THREAD_SERIALIZED, sys::RSMPI_THREAD_MULTIPLE);
        ok("MPI_Init_thread", sys::MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), level, &mut provided))?;
        if provided < sys::RSMPI_THREAD_SERIALIZED {
            return Err(Error::new(format!("{} offers no MPI_THREAD_SERIALIZED", library())));
        }
    }
    Ok(())
}

/// Checks that the program started MPI at the thread level that devices need beside its own calls.
fn check_level() -> Result<()> {
    let mut level: c_int = 0;
    // SAFETY: MPI is running.
    unsafe {
        ok("MPI_Query_thread", sys::MPI_Query_thread(&mut level))?;
        if level >= sys::RSMPI_THREAD_MULTIPLE {
            return Ok(());
        }
    }
    let name = ["MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED"];
    Err(Error::new(format!(
        "the program started MPI with {}, but target regions need MPI_THREAD_MULTIPLE: \
         call MPI_Init_thread(…, MPI_THREAD_MULTIPLE, …), or MPI_Init, which then starts it so",
        name.get(level as usize).unwrap_or(&"a low thread level")
    )))
}

/// This module or the program is ending MPI.
static ENDING: AtomicBool = AtomicBool::new(false);

/// Registers `function` to be called when the program ends MPI, while MPI still works.
pub fn at_end(function: extern "C" fn()) -> Result<()> {
    unsafe extern "C" fn copy(
        _: sys::MPI_Comm,
        _: c_int,
        _: *mut c_void,
        _: *mut c_void,
        _: *mut c_void,
        copied: *mut c_int,
    ) -> c_int {
        // SAFETY: MPI passes a valid `copied`. A copy of the communicator does not get the attribute.
        unsafe { *copied = 0 };
        0
    }
    unsafe extern "C" fn delete(_: sys::MPI_Comm, _: c_int, _: *mut c_void, function: *mut c_void) -> c_int {
        // SAFETY: the key was created with this function.
        let function: extern "C" fn() = unsafe { std::mem::transmute(function) };
        if !ENDING.swap(true, Ordering::Relaxed) {
            function();
        }
        0
    }
    let mut key: c_int = 0;
    // SAFETY: MPI is running; both functions have the types that the standard requires.
    // MPI_Finalize first deletes the attributes of MPI_COMM_SELF (MPI 2.0, 4.8).
    unsafe {
        ok(
            "MPI_Comm_create_keyval",
            sys::MPI_Comm_create_keyval(Some(copy), Some(delete), &mut key, function as *mut c_void),
        )?;
        ok("MPI_Comm_set_attr", sys::MPI_Comm_set_attr(sys::RSMPI_COMM_SELF, key, ptr::null_mut()))
    }
}

/// False if the program must not end the MPI that this module started, because the devices don't, see
/// [`Mpi::spans_nodes`].
pub fn can_be_ended() -> bool {
    FINALIZES.load(Ordering::Relaxed)
}

impl Mpi {
    /// Starts MPI and returns when all ranks of the job have started it. The ranks of a spawned process are its
    /// parent, at rank 0, and the processes spawned with it.
    ///
    /// # Errors
    /// MPI was started before in this process, or its thread level is too low.
    pub fn start() -> Result<Mpi> {
        if phase() != Phase::Before {
            return Err(Error::new("the program has started MPI itself"));
        }
        init()?;
        let mut parent = Self::null_comm();
        // SAFETY: MPI is started; the out parameters outlive their calls.
        unsafe {
            ok("MPI_Comm_get_parent", sys::MPI_Comm_get_parent(&mut parent))?;
            if parent != Self::null_comm() {
                return Mpi::merged(parent, 1, false);
            }
            let mut comm = Self::null_comm();
            ok("MPI_Comm_dup", sys::MPI_Comm_dup(sys::RSMPI_COMM_WORLD, &mut comm))?;
            Mpi::of(comm, None, false)
        }
    }

    /// Spawns `n` processes of an executable on `hosts` (`a:1,b:2`), with these variables (`NAME=VALUE`) in their
    /// environment. They become ranks 1 to `n`; this process becomes rank 0. Starts MPI unless the program did.
    ///
    /// # Errors
    /// MPI cannot spawn here, the program's MPI cannot be shared, or the program has ended it.
    pub fn spawn(executable: &Path, n: usize, hosts: &str, environment: &[String]) -> Result<Mpi> {
        let is_programs = match phase() {
            Phase::Before => {
                init()?;
                false
            }
            Phase::Running => {
                check_level()?;
                true
            }
            Phase::After => return Err(Error::new("the program has ended MPI: no target region can run after that")),
        };
        let words = spawn_words(executable, environment)?;
        let mut arguments: Vec<*mut c_char> = words[1..].iter().map(|w| w.as_ptr().cast_mut()).collect();
        arguments.push(ptr::null_mut());
        let mut errors = vec![0 as c_int; n];
        // SAFETY: MPI is running; C strings and out parameters outlive their calls; `errors` has an element for
        // each process; a null pointer ends the arguments, which are only read.
        unsafe {
            let (mut alone, mut inter) = (Self::null_comm(), Self::null_comm());
            ok("MPI_Comm_dup", sys::MPI_Comm_dup(sys::RSMPI_COMM_SELF, &mut alone))?;
            ok("MPI_Comm_set_errhandler", sys::MPI_Comm_set_errhandler(alone, sys::RSMPI_ERRORS_RETURN))?;
            let mut info = info(hosts)?;
            let (path, arguments, errors) = (words[0].as_ptr(), arguments.as_mut_ptr(), errors.as_mut_ptr());
            let rc = sys::MPI_Comm_spawn(path, arguments, count(n)?, info, 0, alone, &mut inter, errors);
            sys::MPI_Info_free(&mut info);
            sys::MPI_Comm_free(&mut alone);
            ok("MPI_Comm_spawn", rc).map_err(|e| {
                let instead = if is_programs {
                    "use an MPI that can, for instance Open MPI".to_string()
                } else {
                    format!("start them together with the program: llvm-offload-mpirun -n {n} PROGRAM")
                };
                e.context(format_args!(
                    "{} can't spawn {n} device processes ({} on {hosts}); {instead}",
                    library(),
                    executable.display()
                ))
            })?;
            Mpi::merged(inter, 0, is_programs)
        }
    }

    /// Merges both sides of an intercommunicator.
    ///
    /// # Safety
    /// MPI is running, and the handle is a live intercommunicator.
    unsafe fn merged(inter: sys::MPI_Comm, high: c_int, is_programs: bool) -> Result<Mpi> {
        let mut comm = Self::null_comm();
        // SAFETY: the caller's promise; the out parameter outlives the call.
        unsafe {
            ok("MPI_Intercomm_merge", sys::MPI_Intercomm_merge(inter, high, &mut comm))?;
            Mpi::of(comm, Some(inter), is_programs)
        }
    }

    /// # Safety
    /// MPI is running, and the new value owns the communicators.
    unsafe fn of(comm: sys::MPI_Comm, inter: Option<sys::MPI_Comm>, is_programs: bool) -> Result<Mpi> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the caller's promise; out parameters outlive their calls.
        unsafe {
            ok("MPI_Comm_set_errhandler", sys::MPI_Comm_set_errhandler(comm, sys::RSMPI_ERRORS_RETURN))?;
            ok("MPI_Comm_rank", sys::MPI_Comm_rank(comm, &mut rank))?;
            ok("MPI_Comm_size", sys::MPI_Comm_size(comm, &mut size))?;
        }
        let (rank, size) = (rank as usize, size as usize);
        pmi::note();
        if let Some(function) = optional(c"ompi_mpi_abort") {
            OMPI_ABORT.store(function, Ordering::Relaxed);
        }
        Ok(Mpi { comm, inter, is_programs, rank, size, yields_given_up: false })
    }

    /// True if the ranks are a parent and the processes it spawned.
    pub fn is_spawned(&self) -> bool {
        self.inter.is_some()
    }

    /// Notes that the ranks are on several nodes: it then depends on the library whether MPI is ended
    /// (`quirks::hangs_in_finalize_on_several_nodes`).
    pub fn spans_nodes(&mut self) {
        FINALIZES.store(self.is_programs || !quirks::hangs_in_finalize_on_several_nodes(), Ordering::Relaxed);
        SPANS_NODES.store(true, Ordering::Relaxed);
    }

    /// Notes that all ranks are on one node and can detect each other's end. A device then disconnects from a
    /// launcher that would otherwise lose the program's exit status. From here on MPI needs the launcher only in
    /// `MPI_Finalize`, which would wait for the device, so no rank calls it. All ranks make the same decision.
    pub fn shares_a_node(&mut self, is_device: bool) {
        if self.inter.is_none() && quirks::launcher_forgets_statuses() {
            FINALIZES.store(false, Ordering::Relaxed);
            if is_device {
                pmi::end();
            }
        }
    }

    fn null_comm() -> sys::MPI_Comm {
        // SAFETY: reading a constant of the library.
        unsafe { sys::RSMPI_COMM_NULL }
    }

    /// Makes callers yield from here on, and not MPI. If a node has more ranks than slots, Open MPI yields at every
    /// poll, which is a system call in each round of a loop that must be fast. That is right only while ranks start
    /// and end. Keeps a user's own setting.
    pub fn poll_without_yielding(&mut self) {
        // The program decides how its own calls wait.
        let may = !self.is_programs && !quirks::yielding_is_set();
        self.yields_given_up = may && set_yielding(false);
    }

    /// Leaves the other ranks, waits until they leave too, and ends MPI unless the program does. All requests must be
    /// done.
    pub fn finish(&mut self) {
        // SAFETY: MPI is started and, as this is its only handle, not ended yet; a
        // second call finds the null communicator.
        unsafe {
            if self.comm != Self::null_comm() {
                let mut comm = std::mem::replace(&mut self.comm, Self::null_comm());
                let finalizes = FINALIZES.load(Ordering::Relaxed);
                if self.yields_given_up {
                    set_yielding(true);
                }
                if let Some(mut inter) = self.inter.take() {
                    // Open MPI 4.1 hangs if the merged communicator is disconnected as well.
                    sys::MPI_Comm_free(&mut comm);
                    sys::MPI_Comm_disconnect(&mut inter);
                } else if !finalizes {
                    sys::MPI_Barrier(comm);
                    pmi::end();
                }
                if finalizes && !self.is_programs && !ENDING.swap(true, Ordering::Relaxed) {
                    sys::MPI_Finalize();
                }
            }
        }
    }

    /// Ends all processes of the job at once.
    pub fn abort(&mut self, code: i32) -> ! {
        ABORTING.store(true, Ordering::Relaxed);
        if code != 0 {
            pmi::fail();
        }
        // SAFETY: MPI is started.
        unsafe { sys::MPI_Abort(self.comm, code) };
        end(code)
    }

    /// Gathers a record of every rank at every rank, in rank order.
    pub fn all_gather(&mut self, mine: &[u8]) -> Result<Vec<u8>> {
        let mut all = vec![0u8; mine.len() * self.size];
        let len = count(mine.len())?;
        // SAFETY: both buffers have the sizes that are passed.
        unsafe {
            let byte = sys::RSMPI_UINT8_T;
            let to = all.as_mut_ptr().cast::<c_void>();
            ok("MPI_Allgather", sys::MPI_Allgather(mine.as_ptr().cast(), len, byte, to, len, byte, self.comm))?;
        }
        Ok(all)
    }

    /// Starts a send.
    ///
    /// # Safety
    /// `data[..len]` stays valid and unchanged until the request is done.
    #[inline]
    pub unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request> {
        // SAFETY: the caller answers for the buffer; MPI fills the request.
        unsafe {
            let mut request = sys::RSMPI_REQUEST_NULL;
            let (n, byte) = (count(len)?, sys::RSMPI_UINT8_T);
            ok("MPI_Isend", sys::MPI_Isend(data.cast(), n, byte, to as c_int, tag as c_int, self.comm, &mut request))?;
            Ok(Request::pack(request))
        }
    }

    /// Starts a receive, from any rank if `from` is `None`.
    ///
    /// # Safety
    /// `data[..len]` stays valid and is not touched until the request is done.
    #[inline]
    pub unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
        // SAFETY: the caller answers for the buffer; MPI fills the request.
        unsafe {
            let from = from.map_or(sys::RSMPI_ANY_SOURCE, |r| r as c_int);
            let mut request = sys::RSMPI_REQUEST_NULL;
            let (n, byte) = (count(len)?, sys::RSMPI_UINT8_T);
            ok("MPI_Irecv", sys::MPI_Irecv(data.cast(), n, byte, from, tag as c_int, self.comm, &mut request))?;
            Ok(Request::pack(request))
        }
    }

    /// Cancels a receive that no send matches.
    ///
    /// # Safety
    /// As for [`Mpi::test`].
    pub unsafe fn cancel(&mut self, mut request: Request) {
        // SAFETY: the caller answers for the request; a null status pointer is MPI's own.
        unsafe {
            sys::MPI_Cancel(request.handle());
            sys::MPI_Wait(request.handle(), sys::RSMPI_STATUS_IGNORE);
        }
    }

    /// Makes progress; returns the result of a receive once it is done. The result of a send means nothing. After an
    /// error the request is gone.
    ///
    /// # Safety
    /// The request was made by [`Mpi::send`] or [`Mpi::receive`], and no call has returned it as done or failed.
    #[inline]
    pub unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        let mut flag: c_int = 0;
        // SAFETY: MPI_Status is a plain record that MPI fills.
        let mut status: sys::MPI_Status = unsafe { std::mem::zeroed() };
        // SAFETY: the caller answers for the request; out parameters outlive the call.
        unsafe {
            ok("MPI_Test", sys::MPI_Test(request.handle(), &mut flag, &mut status))?;
            if flag == 0 {
                return Ok(None);
            }
            let mut len: c_int = 0;
            sys::MPI_Get_count(&status, sys::RSMPI_UINT8_T, &mut len);
            Ok(Some(Received { from: status.MPI_SOURCE.max(0) as usize, len: len.max(0) as usize }))
        }
    }
}

static ABORTING: AtomicBool = AtomicBool::new(false);

/// True once this process ends its job: MPICH's `MPI_Abort` runs exit handlers within the call.
pub fn is_aborting() -> bool {
    ABORTING.load(Ordering::Relaxed)
}

/// The function that Open MPI's `MPI_Abort` calls; null before MPI starts, and with other MPIs.
static OMPI_ABORT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

/// Ends all processes of the job at once. Needs no lock: it uses nothing that another MPI call may be changing.
///
/// Open MPI's `MPI_Abort` prints that it was invoked, even with status 0; the function that it calls does not.
pub fn abort_job(code: i32) -> ! {
    ABORTING.store(true, Ordering::Relaxed);
    match OMPI_ABORT.load(Ordering::Relaxed) {
        function if !function.is_null() => {
            // SAFETY: this is Open MPI's declaration (ompi/runtime/mpiruntime.h), for a communicator's handle.
            let abort: unsafe extern "C" fn(sys::MPI_Comm, c_int) -> c_int = unsafe { std::mem::transmute(function) };
            // SAFETY: MPI is started.
            unsafe { abort(sys::RSMPI_COMM_WORLD, code) };
        }
        // SAFETY: MPI is started.
        _ => drop(unsafe { sys::MPI_Abort(sys::RSMPI_COMM_WORLD, code) }),
    }
    end(code)
}

/// Sets whether Open MPI yields when a poll finds nothing; returns the previous setting. No MPI call can change it
/// after the start; all releases of Open MPI so far have this function.
fn set_yielding(yields: bool) -> bool {
    let Some(function) = optional(c"opal_progress_set_yield_when_idle") else { return false };
    // SAFETY: this is Open MPI's declaration (opal/runtime/opal_progress.h).
    let set: unsafe extern "C" fn(bool) -> bool = unsafe { std::mem::transmute(function) };
    // SAFETY: it sets a flag; MPI is started.
    unsafe { set(yields) }
}

/// The command that starts an executable with these variables in its environment. It uses env(1), because Open MPI
/// itself takes only 255 bytes of variables.
fn spawn_words(executable: &Path, environment: &[String]) -> Result<Vec<CString>> {
    let path = executable.as_os_str().as_encoded_bytes();
    let mut words: Vec<&[u8]> = Vec::new();
    if !environment.is_empty() {
        words.push(b"/usr/bin/env");
        words.extend(environment.iter().map(String::as_bytes));
        if path.contains(&b'=') {
            // env(1) would take the path for a variable.
            words.extend([b"sh".as_slice(), b"-c", br#"exec "$0""#]);
        }
    }
    words.push(path);
    words.into_iter().map(|w| CString::new(w).map_err(|_| Error::new("a NUL byte in a path"))).collect()
}

/// The info for a spawn on these hosts, without a limit on processes per slot and without binding to cores. Libraries
/// other than Open MPI ignore these keys.
///
/// # Safety
/// MPI is running.
unsafe fn info(hosts: &str) -> Result<sys::MPI_Info> {
    // SAFETY: reading a constant of the library.
    let mut info = unsafe { sys::RSMPI_INFO_NULL };
    // SAFETY: the caller's promise; the out parameter outlives the call.
    unsafe { ok("MPI_Info_create", sys::MPI_Info_create(&mut info))? };
    let set = |key: &str, value: &str| -> Result<()> {
        let text = |t: &str| CString::new(t).map_err(|_| Error::new("a host's name has a NUL byte"));
        let (key, value) = (text(key)?, text(value)?);
        let (key, value): (*const c_char, *const c_char) = (key.as_ptr(), value.as_ptr());
        // SAFETY: as above; the strings outlive the call.
        unsafe { ok("MPI_Info_set", sys::MPI_Info_set(info, key, value)) }
    };
    set("map_by", "slot:OVERSUBSCRIBE")?;
    set("bind_to", "none")?;
    if hosts.len() >= sys::MPI_MAX_INFO_VAL as usize {
        return Err(Error::new(format!(
            "the list of hosts is too long for MPI_Comm_spawn ({} bytes): start the devices with the program \
             (llvm-offload-mpirun --hosts), or name fewer hosts",
            hosts.len()
        )));
    }
    set(quirks::add_host_key(), hosts)?;
    Ok(info)
}

fn count(len: usize) -> Result<c_int> {
    c_int::try_from(len).map_err(|_| Error::new("more bytes than an MPI count holds"))
}
