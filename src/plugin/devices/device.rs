// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! One device as libomptarget knows it: its queues, memory, images, and properties.

use super::images::Images;
use super::memory::Memory;
use super::queues::Queues;
use super::shared_memory::{SharedMemory, SharedPart};
use crate::base::Result;
use crate::base::limits::VERSION;
use crate::base::settings::Backend;
use crate::base::target::{Executor, LargeCopies};
use crate::debug;
use crate::plugin::addresses::address_map::AddressMap;
use crate::plugin::messages::port::Port;
use crate::plugin::messages::queue::Queue;
use crate::plugin::progress::engine::Engine;
use crate::sys::node;
use crate::wire::PROTOCOL;
use crate::wire::control::Control;
use crate::wire::hello::Hello;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

pub(crate) struct Device {
    /// How the device described itself.
    pub(crate) hello: Hello,
    pub(crate) executor: Executor,
    /// Its number, which is also its port's index.
    pub(crate) number: usize,
    pub(crate) queues: Arc<Queues>,
    pub(crate) memory: Memory,
    pub(crate) images: Images,
    /// The queue for commands that concern the whole device.
    pub(crate) control: Arc<Queue>,
}

impl Device {
    /// A device whose arena a message of the queue `control` mapped at `range`; its beginning may be `shared`.
    pub(crate) fn new(
        number: usize,
        (hello, executor): (Hello, Executor),
        engine: Arc<Engine>,
        addresses: Arc<AddressMap>,
        (range, shared): (Range<u64>, Option<SharedPart>),
        control: Arc<Queue>,
    ) -> Device {
        let can_share = engine.can_share_memory(number, &hello);
        let shared = if can_share { SharedMemory::new(shared) } else { SharedMemory::default() };
        debug!("{}: memory {}", engine.port(number).name, shared);
        let queues = Arc::new(Queues::new(engine, number));
        let unbuffered = match (hello.backend, executor.large) {
            (Backend::Cpu, _) => 0..u64::MAX,
            (Backend::Offload, LargeCopies::Direct) => range.clone(),
            (Backend::Offload, LargeCopies::Pinned | LargeCopies::Buffered) => 0..0,
        };
        let memory = Memory::new(queues.clone(), addresses.clone(), range, control.clone(), shared, unbuffered);
        let images = Images::new(queues.clone(), addresses);
        Device { hello, executor, number, queues, memory, images, control }
    }

    /// True if an accelerator executes the device's regions, through the device's own libomptarget.
    #[inline]
    pub(crate) fn is_accelerator(&self) -> bool {
        self.hello.backend == Backend::Offload
    }

    pub(crate) fn port(&self) -> &Port {
        self.queues.port()
    }

    /// "device 0 (rank 0 on host a)".
    pub(crate) fn name(&self) -> &str {
        &self.port().name
    }

    pub(crate) fn kernel_symbol(&self, kernel: u64) -> String {
        self.port().kernel_symbol(kernel)
    }

    /// Fails if the device's regions can't use the program's memory although they should.
    pub(crate) fn check_unified(&self) -> Result<()> {
        self.queues.engine.connection.unified.check_device(self.number).map_err(|e| e.context(self.name()))
    }

    /// Fails if the device's regions can't use `size` bytes of shared memory.
    pub(crate) fn check_shared(&self, size: u64) -> Result<()> {
        let checked = self.queues.engine.connection.unified.check_access(self.number);
        checked.map_err(|e| e.context(format_args!("{size} bytes of shared memory on {}", self.name())))
    }

    /// True if the program may itself use memory that it allocates here without a variable, by `omp_target_alloc`.
    pub(crate) fn shares_allocations(&self) -> bool {
        self.queues.engine.connection.unified.shares_allocations()
    }

    /// See [`Engine::request`].
    pub(crate) fn request(&self, operation: Control<'_>, patience: Duration) -> Result<u64> {
        self.queues.engine.request(&self.control, operation, patience)
    }

    /// Names and values of properties, for the user.
    pub(crate) fn info(&self) -> Vec<(&'static str, String)> {
        let known = |value: &str| if value.is_empty() { "unknown" } else { value }.to_string();
        let h = &self.hello;
        let clock = if h.processor.megahertz == 0 { known("") } else { format!("{} MHz", h.processor.megahertz) };
        let kind = match h.backend {
            Backend::Cpu => "process reached over MPI",
            Backend::Offload => "accelerator of a process reached over MPI",
        };
        let worker = self.port().worker.map_or(String::new(), |w| format!("worker {w} of "));
        let Executor { target, description, large } = &self.executor;
        let accelerator = [("Accelerator", description.clone()), ("Large copies", large.to_string())];
        let accelerator = accelerator.into_iter().filter(|_| self.is_accelerator());
        let first = [("Device kind", kind.to_string()), ("Executes images for", target.to_string())];
        let others = [
            ("Rank", format!("{worker}{}", self.port().rank)),
            ("Host name", h.host.clone()),
            ("Process id", h.pid.to_string()),
            ("Cores", format!("{} ({})", h.cores.len(), node::ranges(&h.cores))),
            ("Processor", known(&h.processor.name)),
            ("Processor vendor", known(&h.processor.vendor)),
            ("Clock frequency", clock),
            ("Memory of the device", format!("{} MiB", self.memory.capacity() >> 20)),
            ("Memory of its node", format!("{} MiB", h.memory >> 20)),
            ("MPI library", h.mpi.clone()),
            ("Plugin version", VERSION.to_string()),
            ("Protocol version", PROTOCOL.to_string()),
        ];
        first.into_iter().chain(accelerator).chain(others).collect()
    }
}
