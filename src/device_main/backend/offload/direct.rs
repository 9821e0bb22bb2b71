// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Large copies that MPI makes itself, straight from and to the accelerator's memory.
//!
//! That needs MPI's word, and a copy each way that is verified. CUDA lets a thread work with an accelerator only while a
//! context of it is current there, and any thread of a device may call MPI. So all calls go through a [`Transport`] that
//! sees to this.

use super::drivers::{self, Context, Gpu};
use super::runtime::Runtime;
use crate::base::settings::GpuDirect;
use crate::base::{Error, Result, elf};
use crate::debug;
use crate::link::Transport;
use crate::mpi::{GpuAware, Mpi, Received, Request};
use std::cell::Cell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Bytes of the copies that are verified, if the arena has as many.
const TRIED: u64 = 1 << 20;

/// Whether MPI accesses the accelerator's memory.
pub(crate) struct Direct {
    wanted: GpuDirect,
    aware: GpuAware,
    /// Once MPI is to access that memory.
    context: Arc<OnceLock<Context>>,
    works: AtomicBool,
}

impl Direct {
    /// For a user who wants this; and the transport of the device. No other thread may call MPI.
    pub fn over(mpi: Mpi, wanted: GpuDirect) -> (Direct, Box<dyn Transport>) {
        let (context, works) = Default::default();
        if wanted == GpuDirect::Off {
            return (Direct { wanted, aware: GpuAware::default(), context, works }, Box::new(mpi));
        }
        let transport = Attached { mpi, context: Arc::clone(&context) };
        (Direct { wanted, aware: GpuAware::ask(), context, works }, Box::new(transport))
    }

    #[inline]
    pub fn works(&self) -> bool {
        self.works.load(Ordering::Relaxed)
    }

    /// Tries it with an arena; `copy` has MPI copy bytes to the first address from the second one.
    pub(super) fn settle(
        &self,
        runtime: &Runtime,
        arena: Range<u64>,
        copy: &dyn Fn(u64, u64, usize) -> Result<()>,
    ) -> Result<bool> {
        if self.wanted == GpuDirect::Off {
            return Ok(false);
        }
        let tried = self.prepare(&runtime.gpu).and_then(|()| verify(runtime, arena, copy));
        self.works.store(tried.is_ok(), Ordering::Relaxed);
        match tried {
            Ok(()) => debug!("large copies: by MPI, from and to the accelerator's memory"),
            Err(e) if self.wanted == GpuDirect::On => {
                return Err(e.context(format_args!("OMPTARGET_MPI_GPU_DIRECT=on, but for {}", runtime.name())));
            }
            Err(e) => debug!("large copies: through buffers; {e}"),
        }
        Ok(self.works())
    }

    /// Sees to it that MPI may be asked for copies of this accelerator's memory.
    fn prepare(&self, gpu: &Gpu) -> Result<()> {
        let (is_aware, name) = match gpu.target.machine {
            elf::CUDA => (self.aware.cuda, "CUDA"),
            elf::AMDGPU => (self.aware.rocm, "ROCm"),
            _ => return Err(Error::new("MPI is asked for its support of CUDA and ROCm only")),
        };
        if !is_aware {
            return Err(Error::new(format!(
                "MPI does not say that it supports {name} (an MPI library has to be built for that)"
            )));
        }
        let context = drivers::context(gpu).ok_or_else(|| Error::new("the driver gives no context"))?;
        self.context.get_or_init(|| context);
        Ok(())
    }
}

/// Copies from the arena and to it by MPI, and compares the contents with what libomptarget writes and reads there.
fn verify(runtime: &Runtime, arena: Range<u64>, copy: &dyn Fn(u64, u64, usize) -> Result<()>) -> Result<()> {
    let len = TRIED.min(arena.end - arena.start) as usize;
    let pattern = |factor: usize| (0..len).map(|i| (i / 7 * factor + i) as u8).collect::<Vec<u8>>();
    for (factor, is_read) in [(3, true), (5, false)] {
        let (sent, mut received) = (pattern(factor), vec![0u8; len]);
        let to = received.as_mut_ptr();
        // SAFETY: both buffers have this length, and so has the arena.
        unsafe {
            if is_read {
                runtime.write(arena.start, sent.as_ptr(), len)?;
                copy(to as u64, arena.start, len)?;
            } else {
                copy(arena.start, sent.as_ptr() as u64, len)?;
                runtime.read(to, arena.start, len)?;
            }
        }
        if sent != received {
            let direction = if is_read { "from" } else { "to" };
            return Err(Error::new(format!(
                "a first copy by MPI {direction} the accelerator's memory had other contents"
            )));
        }
    }
    Ok(())
}

thread_local! {
    /// The accelerator's context is current in the calling thread.
    static IS_ATTACHED: Cell<bool> = const { Cell::new(false) };
}

/// MPI, each call of which has the accelerator's context current in its thread.
struct Attached {
    mpi: Mpi,
    context: Arc<OnceLock<Context>>,
}

impl Attached {
    #[inline]
    fn mpi(&mut self) -> &mut Mpi {
        if let Some(context) = self.context.get()
            && !IS_ATTACHED.replace(true)
        {
            context.make_current();
        }
        &mut self.mpi
    }
}

impl Transport for Attached {
    unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.mpi().send(to, tag, data, len) }
    }
    unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
        // SAFETY: the caller's promise.
        unsafe { self.mpi().receive(from, tag, data, len) }
    }
    unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        // SAFETY: the caller's promise.
        unsafe { self.mpi().test(request) }
    }
    unsafe fn copy(&mut self, to: *mut u8, from: *const u8, len: usize) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.mpi().copy(to, from, len) }
    }
    unsafe fn cancel(&mut self, request: Request) {
        // SAFETY: the caller's promise.
        unsafe { self.mpi().cancel(request) };
    }
    fn finish(&mut self) {
        self.mpi().finish();
    }
    fn abort(&mut self, code: i32) -> ! {
        self.mpi().abort(code)
    }
}
