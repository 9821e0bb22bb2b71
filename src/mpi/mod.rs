// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The only place that names MPI: starting and ending it, ranks, sends, receives.
//!
//! MPI is started at `MPI_THREAD_SERIALIZED`: the owner of the one [`Mpi`] value makes
//! all calls, and whoever shares it puts it behind a lock. That is cheaper than
//! `MPI_THREAD_MULTIPLE`, where the library locks inside every call.

use crate::base::{Error, Result};
use mpi_sys as sys;
use std::ffi::{c_int, c_void};
use std::ptr;

/// The message tag of commands and replies; bulk data uses the tags above it.
pub const TAG_MESSAGE: u32 = 1;
/// First tag of bulk data.
pub const TAG_BULK: u32 = 2;
/// Number of tags for bulk data: MPI guarantees tags up to 32767.
pub const BULK_TAGS: u32 = 32_767 - TAG_BULK;

/// How many bytes this library sends to a rank on its own node without asking it first.
/// No MPI call tells; measured with messages of growing size: the round trip of 4032 bytes
/// takes 1.7 us with Open MPI 4.1, that of 4064 takes 5.6; MPICH 4.0 steps between 8128 (2.4)
/// and 8300 (6.1).
pub fn eager_on_node() -> usize {
    if library().starts_with("Open MPI") { 4032 } else { 8128 }
}

/// A started MPI: the ranks of this job.
pub struct Mpi {
    comm: sys::MPI_Comm,
    /// This process's rank.
    pub rank: usize,
    /// Number of ranks.
    pub size: usize,
    /// See [`Mpi::poll_without_yielding`].
    yields_given_up: bool,
    /// See [`Mpi::spans_nodes`].
    finalizes: bool,
}

/// A send or receive under way: the bits of an MPI request handle, which is a number or
/// a pointer depending on the library.
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

/// What a finished receive got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The rank it came from.
    pub from: usize,
    /// Number of bytes.
    pub len: usize,
}

// SAFETY: MPI handles are plain numbers or pointers into the library, which may be used
// from any thread as long as calls do not overlap; Mpi is not Sync, so they can't.
unsafe impl Send for Mpi {}

/// Name and version of the MPI library, its first line; may be asked before the start.
pub fn library() -> String {
    // SAFETY: reading a constant of the library.
    let max = unsafe { sys::RSMPI_MAX_LIBRARY_VERSION_STRING } as usize;
    let mut text = vec![0u8; max + 1];
    let mut len: c_int = 0;
    // SAFETY: the buffer has the size that MPI asks for.
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

/// What an MPI call returned, as an error with the library's own words.
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

impl Mpi {
    /// Starts MPI. Returns when all ranks of the job have done so.
    ///
    /// # Errors
    /// MPI was started before in this process, or offers too low a thread level.
    pub fn start() -> Result<Mpi> {
        let mut flag: c_int = 0;
        // SAFETY: MPI_Initialized may be called at any time.
        unsafe { ok("MPI_Initialized", sys::MPI_Initialized(&mut flag))? };
        if flag != 0 {
            return Err(Error::new("the program has started MPI itself"));
        }
        let mut provided: c_int = 0;
        // SAFETY: MPI was not started; null arguments are allowed since MPI 2.
        unsafe {
            let level = sys::RSMPI_THREAD_SERIALIZED;
            ok("MPI_Init_thread", sys::MPI_Init_thread(ptr::null_mut(), ptr::null_mut(), level, &mut provided))?;
            if provided < level {
                return Err(Error::new(format!("{} offers no MPI_THREAD_SERIALIZED", library())));
            }
        }
        let (mut comm, mut rank, mut size) = (Self::null_comm(), 0, 0);
        // SAFETY: MPI is started; every out parameter outlives its call.
        unsafe {
            ok("MPI_Comm_dup", sys::MPI_Comm_dup(sys::RSMPI_COMM_WORLD, &mut comm))?;
            ok("MPI_Comm_set_errhandler", sys::MPI_Comm_set_errhandler(comm, sys::RSMPI_ERRORS_RETURN))?;
            ok("MPI_Comm_rank", sys::MPI_Comm_rank(comm, &mut rank))?;
            ok("MPI_Comm_size", sys::MPI_Comm_size(comm, &mut size))?;
        }
        Ok(Mpi { comm, rank: rank as usize, size: size as usize, yields_given_up: false, finalizes: true })
    }

    /// Tells that not all ranks are on one node. MPICH 4.0 then hangs in `MPI_Finalize`, in
    /// most runs of any program over TCP (UCX): one rank waits for another's progress, which
    /// waits in PMI and makes none. Processes that end without it end well.
    pub fn spans_nodes(&mut self) {
        self.finalizes = !library().starts_with("MPICH");
    }

    fn null_comm() -> sys::MPI_Comm {
        // SAFETY: reading a constant of the library.
        unsafe { sys::RSMPI_COMM_NULL }
    }

    /// From here on who polls yields by himself, MPI does not. (Open MPI does so at every
    /// poll where a node has more ranks than slots: a system call each, in the midst of
    /// what it is to make faster. While ranks start and end it is right.) A choice of the
    /// user's for that stays.
    pub fn poll_without_yielding(&mut self) {
        self.yields_given_up = std::env::var_os("OMPI_MCA_mpi_yield_when_idle").is_none() && set_yielding(false);
    }

    /// Ends MPI; waits for the other ranks to do the same. All requests must be done.
    pub fn finish(&mut self) {
        // SAFETY: MPI is started and, as this is its only handle, not ended yet; a
        // second call finds the null communicator.
        unsafe {
            if self.comm != Self::null_comm() {
                let comm = std::mem::replace(&mut self.comm, Self::null_comm());
                if self.yields_given_up {
                    set_yielding(true);
                }
                if self.finalizes {
                    sys::MPI_Finalize();
                } else {
                    sys::MPI_Barrier(comm);
                }
            }
        }
    }

    /// Ends all processes of the job at once.
    pub fn abort(&mut self, code: i32) -> ! {
        // SAFETY: MPI is started.
        unsafe { sys::MPI_Abort(self.comm, code) };
        std::process::exit(code)
    }

    /// Gathers a record of every rank at every rank, in the order of the ranks.
    ///
    /// # Errors
    /// As MPI says.
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

    /// Starts a send. With `synchronous` it is done only when the receiver has begun to
    /// take it.
    ///
    /// # Errors
    /// As MPI says.
    ///
    /// # Safety
    /// `data[..len]` stays valid and unchanged until the request is done.
    #[inline]
    pub unsafe fn send(
        &mut self,
        to: usize,
        tag: u32,
        data: *const u8,
        len: usize,
        synchronous: bool,
    ) -> Result<Request> {
        // SAFETY: the caller answers for the buffer; the request is filled by MPI.
        unsafe {
            let call = if synchronous { sys::MPI_Issend } else { sys::MPI_Isend };
            let mut request = sys::RSMPI_REQUEST_NULL;
            let (n, byte) = (count(len)?, sys::RSMPI_UINT8_T);
            ok("MPI_Isend", call(data.cast(), n, byte, to as c_int, tag as c_int, self.comm, &mut request))?;
            Ok(Request::pack(request))
        }
    }

    /// Starts a receive, from any rank if `from` is none.
    ///
    /// # Errors
    /// As MPI says.
    ///
    /// # Safety
    /// `data[..len]` stays valid and is not touched until the request is done.
    #[inline]
    pub unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
        // SAFETY: the caller answers for the buffer; the request is filled by MPI.
        unsafe {
            let from = from.map_or(sys::RSMPI_ANY_SOURCE, |r| r as c_int);
            let mut request = sys::RSMPI_REQUEST_NULL;
            let (n, byte) = (count(len)?, sys::RSMPI_UINT8_T);
            ok("MPI_Irecv", sys::MPI_Irecv(data.cast(), n, byte, from, tag as c_int, self.comm, &mut request))?;
            Ok(Request::pack(request))
        }
    }

    /// Gives up a receive that nothing was sent for.
    pub fn cancel(&mut self, mut request: Request) {
        // SAFETY: the request was made by MPI; a null status pointer is MPI's own.
        unsafe {
            sys::MPI_Cancel(request.handle());
            sys::MPI_Wait(request.handle(), sys::RSMPI_STATUS_IGNORE);
        }
    }

    /// Makes progress; tells what a receive got once it is done (a send: nothing).
    ///
    /// # Errors
    /// As MPI says; the request is gone then.
    #[inline]
    pub fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        let mut flag: c_int = 0;
        // SAFETY: MPI_Status is a plain record that MPI fills.
        let mut status: sys::MPI_Status = unsafe { std::mem::zeroed() };
        // SAFETY: the request was made by MPI; out parameters outlive the call.
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

/// Sets whether Open MPI yields when a poll finds nothing; true if it did before. No MPI
/// call can do that after the start; all releases of Open MPI so far have this function.
fn set_yielding(yields: bool) -> bool {
    // SAFETY: the name is a C string; the libraries of this one are searched.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"opal_progress_set_yield_when_idle".as_ptr()) };
    if function.is_null() {
        return false;
    }
    // SAFETY: Open MPI declares it so (opal/runtime/opal_progress.h).
    let set: unsafe extern "C" fn(bool) -> bool = unsafe { std::mem::transmute(function) };
    // SAFETY: it sets a flag; MPI is started.
    unsafe { set(yields) }
}

fn count(len: usize) -> Result<c_int> {
    c_int::try_from(len).map_err(|_| Error::new("more bytes than an MPI count holds"))
}
