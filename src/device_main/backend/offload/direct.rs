// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Large copies that MPI makes itself, directly from and to the accelerator's memory.
//!
//! They are used if MPI says that it can make them, and once a copy each way was verified. CUDA lets a thread use an
//! accelerator only while one of its contexts is current in that thread, and any thread of a device may call MPI. So
//! the calls go through a [`Transport`] that makes the context current.

use super::drivers::{self, Context};
use super::fault_of;
use super::runtime::Runtime;
use crate::base::settings::GpuDirect;
use crate::base::sync::RwLock;
use crate::base::{Error, Result, elf};
use crate::debug;
use crate::device_main::backend::{CopyByMpi, FIRST_COPY};
use crate::link::{Peer, Span, Transport};
use crate::mpi::{GpuAware, Mpi, Received, Request, TAG_BULK};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of the verified copies, or all of a smaller arena.
const TRIED: u64 = 1 << 20;

/// Whether MPI accesses the accelerator's memory.
pub(crate) struct Direct {
    wanted: GpuDirect,
    aware: GpuAware,
    /// This rank.
    rank: usize,
    access: Arc<Access>,
    /// Why MPI does not access the memory. A failed copy is not tried again: MPI may still use its memory.
    given_up: OnceLock<Error>,
}

/// The transport's knowledge of the accelerator.
#[derive(Default)]
struct Access {
    /// The accelerator's context and name, once MPI may access its memory.
    accelerator: OnceLock<(Context, String)>,
    memory: RwLock<Range<u64>>,
    works: AtomicBool,
}

impl Direct {
    /// By the user's setting; also returns the device's transport. No other thread may call MPI.
    pub fn over(mpi: Mpi, wanted: GpuDirect) -> (Direct, Box<dyn Transport>) {
        let (rank, access) = (mpi.rank, Arc::<Access>::default());
        let (aware, transport): (_, Box<dyn Transport>) = match wanted {
            GpuDirect::Off => (GpuAware::default(), Box::new(mpi)),
            GpuDirect::Auto | GpuDirect::On => {
                (GpuAware::ask(), Box::new(Attached { mpi, access: Arc::clone(&access), pending: Vec::new() }))
            }
        };
        (Direct { wanted, aware, rank, access, given_up: OnceLock::new() }, transport)
    }

    #[inline]
    pub fn works(&self) -> bool {
        self.access.works.load(Ordering::Relaxed)
    }

    /// Finds out whether MPI can access this arena.
    pub(super) fn settle(&self, runtime: &Runtime, arena: Range<u64>, copy: CopyByMpi<'_>) -> Result<bool> {
        if self.wanted == GpuDirect::Off {
            return Ok(false);
        }
        *self.access.memory.write() = arena.clone();
        let tried = match self.given_up.get() {
            Some(e) => Err(e.clone()),
            None => match self.prepare(runtime) {
                Ok(()) => self.verify(runtime, arena, copy)?,
                Err(e) => Err(e),
            },
        };
        self.access.works.store(tried.is_ok(), Ordering::Relaxed);
        match tried {
            Ok(()) => debug!("large copies: by MPI, from and to the accelerator's memory"),
            Err(e) => {
                let e = self.given_up.get_or_init(|| e);
                if self.wanted == GpuDirect::On {
                    let what = format_args!("OMPTARGET_MPI_GPU_DIRECT=on, but for {}", runtime.name());
                    return Err(e.clone().context(what));
                }
                debug!("large copies: through buffers; {e}");
            }
        }
        Ok(self.works())
    }

    /// Prepares for copies of this accelerator's memory by MPI. Fails if MPI does not support them.
    fn prepare(&self, runtime: &Runtime) -> Result<()> {
        let gpu = &runtime.gpu;
        let (is_aware, name) = match gpu.target.machine {
            elf::CUDA => (self.aware.cuda, "CUDA"),
            elf::AMDGPU if self.wanted == GpuDirect::On => (self.aware.rocm, "ROCm"),
            // Open MPI queries HIP about addresses, which may not know memory that libomptarget gets from HSA.
            elf::AMDGPU => return Err(Error::new("with AMD's accelerators that takes OMPTARGET_MPI_GPU_DIRECT=on")),
            _ => return Err(Error::new("MPI is asked for its support of CUDA and ROCm only")),
        };
        if !is_aware {
            return Err(Error::new(format!(
                "MPI does not say that it supports {name} (an MPI library has to be built for that)"
            )));
        }
        let context = drivers::context(gpu).ok_or_else(|| Error::new("the driver gives no context"))?;
        self.access.accelerator.get_or_init(|| (context, runtime.name()));
        Ok(())
    }

    /// Copies from the arena and to it by MPI, and compares the contents with those that libomptarget writes and reads.
    /// The inner result is that of the comparison. Fails if MPI may write to the arena later.
    fn verify(&self, runtime: &Runtime, arena: Range<u64>, copy: CopyByMpi<'_>) -> Result<Result<()>> {
        let len = TRIED.min(arena.end - arena.start) as usize;
        let pattern = |factor: usize| (0..len).map(|i| (i / 7 * factor + i) as u8).collect::<Vec<u8>>();
        for (factor, is_read) in [(3, true), (5, false)] {
            let direction = if is_read { "from" } else { "to" };
            let (mut sent, mut received) = (pattern(factor), vec![0u8; len]);
            let there = arena.start as *mut u8;
            let (to, from) = match is_read {
                true => (received.as_mut_ptr(), there),
                false => (there, sent.as_mut_ptr()),
            };
            let me = Peer { rank: self.rank, tag: TAG_BULK }.nth(usize::from(is_read));
            if is_read
                // SAFETY: the buffer has this length, and so has the arena.
                && let Err(e) = unsafe { runtime.write(arena.start, sent.as_ptr(), len) }
            {
                return Ok(Err(e));
            }
            // SAFETY: as above. The buffers are freed only if MPI is done with them. After an error MPI is not used
            // with the arena again; if it may still write there, the device gets no memory.
            let copied = unsafe { copy(me, Span::new(to, len), Span::new(from, len)) };
            if !matches!(copied, Ok(true)) {
                std::mem::forget((sent, received));
                let late = || {
                    Error::new(format!(
                        "MPI has not made a first copy {direction} the accelerator's memory within {} s",
                        FIRST_COPY.as_secs()
                    ))
                };
                return match copied {
                    Err(e) => Ok(Err(e)),
                    Ok(_) if is_read => Ok(Err(late())),
                    Ok(_) => Err(late().context("OMPTARGET_MPI_GPU_DIRECT=off is needed here")),
                };
            }
            if !is_read
                // SAFETY: as above.
                && let Err(e) = unsafe { runtime.read(received.as_mut_ptr(), arena.start, len) }
            {
                return Ok(Err(e));
            }
            if sent != received {
                return Ok(Err(Error::new(format!(
                    "a first copy by MPI {direction} the accelerator's memory had other contents"
                ))));
            }
        }
        Ok(Ok(()))
    }
}

/// MPI, with the accelerator's context current in the thread of each call that moves data or makes progress:
/// libomptarget changes it in the same threads.
struct Attached {
    mpi: Mpi,
    access: Arc<Access>,
    /// The requests for the accelerator's memory.
    pending: Vec<u64>,
}

impl Attached {
    /// Makes the context, if there is one, current in this thread.
    fn attach(&self) -> Result<()> {
        self.access.accelerator.get().map_or(Ok(()), |(context, _)| context.make_current())
    }

    /// Starts a request for the memory at an address. Only the accelerator's memory needs the context.
    fn start(&mut self, at: *const u8, start: impl FnOnce(&mut Mpi) -> Result<Request>) -> Result<Request> {
        let attached = self.attach();
        let is_direct = self.access.memory.read().contains(&(at as u64));
        let started = if is_direct { attached } else { Ok(()) }.and_then(|()| start(&mut self.mpi));
        let request = started.map_err(|e| self.explained(e))?;
        if is_direct {
            self.pending.push(request.0);
        }
        Ok(request)
    }

    /// Explains an error of MPI by a fault of the accelerator, which MPI also notices.
    #[cold]
    fn explained(&self, e: Error) -> Error {
        let accelerator = self.access.accelerator.get().map(|(_, name)| name.clone());
        match fault_of(|| accelerator) {
            Some(fault) => Error::new(fault.failure.text.clone()),
            None if self.access.works.load(Ordering::Relaxed) => e.context(
                "MPI accesses the accelerator's memory, which may be the cause (without that: OMPTARGET_MPI_GPU_DIRECT=off)",
            ),
            None => e,
        }
    }
}

impl Transport for Attached {
    unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request> {
        // SAFETY: the caller's promise.
        self.start(data, |mpi| unsafe { mpi.send(to, tag, data, len) })
    }
    unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
        // SAFETY: the caller's promise.
        self.start(data, |mpi| unsafe { mpi.receive(from, tag, data, len) })
    }
    unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        let attached = self.attach();
        let place = self.pending.iter().position(|pending| *pending == request.0);
        let attached = if place.is_some() { attached } else { Ok(()) };
        // SAFETY: the caller's promise.
        let tested = attached.and_then(|()| unsafe { self.mpi.test(request) });
        if !matches!(tested, Ok(None))
            && let Some(place) = place
        {
            self.pending.swap_remove(place);
        }
        tested.map_err(|e| self.explained(e))
    }
    unsafe fn cancel(&mut self, request: Request) {
        // SAFETY: the caller's promise.
        unsafe { self.mpi.cancel(request) };
    }
    fn finish(&mut self) {
        // MPI may release its resources of the accelerator. Without the context that fails, and the process exits
        // anyway.
        let _ = self.attach();
        self.mpi.finish();
    }
    fn abort(&mut self, code: i32) -> ! {
        self.mpi.abort(code)
    }
}
