// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The accelerators that drivers show to this process. Opens the drivers' libraries at run time, as libomptarget's
//! plugins do.

use crate::base::target::Target;
use crate::base::{Error, Result, elf};
use libloading::os::unix::{Library, RTLD_NOW};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::fmt;
use std::ptr;

/// Bytes of a name, with the NUL byte at its end.
const NAME: usize = 64;
/// The drivers' libraries.
const CUDA_LIBRARY: &str = "libcuda.so";
const HSA_LIBRARY: &str = "libhsa-runtime64.so";
/// From this release of LLVM on, libomptarget numbers devices image by image: those that the image is for.
const NUMBERS_BY_IMAGE: u32 = 19;

/// An accelerator as its driver describes it. Unknown fields are empty, or 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub target: Target,
    pub model: String,
    /// Bytes.
    pub memory: u64,
    /// The driver, and the latest version of its interface that it supports.
    pub driver: String,
    /// The driver's handle of it, if the driver has described it.
    pub(super) handle: Option<u64>,
}

impl Gpu {
    pub fn of(target: Target) -> Gpu {
        Gpu { target, model: String::new(), memory: 0, driver: String::new(), handle: None }
    }

    /// False if the driver does not tell what it executes.
    pub fn is_described(&self) -> bool {
        self.target == Target::HOST || self.target.architecture != 0
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.model.as_str() {
            "" => write!(f, "{}", self.target)?,
            model => write!(f, "{model} ({})", self.target)?,
        }
        if self.memory > 0 {
            write!(f, ", {:.1} GiB of memory", self.memory as f64 / f64::from(1 << 30))?;
        }
        if !self.driver.is_empty() {
            write!(f, ", {}", self.driver)?;
        }
        Ok(())
    }
}

/// The accelerators that devices use: NVIDIA's or, without any, AMD's.
pub(crate) fn all() -> Vec<Gpu> {
    let cuda = cuda();
    if cuda.is_empty() { amd() } else { cuda }
}

/// The accelerators of CUDA, in the driver's order; none without the driver.
pub(super) fn cuda() -> Vec<Gpu> {
    open(CUDA_LIBRARY).and_then(Cuda::of).map(|driver| driver.gpus()).unwrap_or_default()
}

/// The accelerators of AMD, in the driver's order; none without the driver.
pub(super) fn amd() -> Vec<Gpu> {
    open(HSA_LIBRARY).and_then(Hsa::of).map(|driver| driver.gpus()).unwrap_or_default()
}

/// Bytes of free memory of an accelerator, once libomptarget has started it. `None` if the driver does not tell.
pub(super) fn free_memory(gpu: &Gpu) -> Option<u64> {
    let handle = gpu.handle?;
    match gpu.target.machine {
        elf::CUDA => CudaMemory::of(open(CUDA_LIBRARY)?)?.free(handle as c_int),
        elf::AMDGPU => HsaMemory::of(open(HSA_LIBRARY)?)?.free(Agent(handle)),
        _ => None,
    }
}

/// The images to show to a libomptarget of this release, so that it numbers these accelerators; and the accelerators in
/// the order of their numbers. Up to LLVM 18, one image makes libomptarget number all of them, in the driver's order.
/// Later, each image adds those that can execute it and have no number yet. An image never matches an undescribed
/// accelerator.
pub(super) fn numbered(release: u32, gpus: Vec<Gpu>) -> (Vec<Target>, Vec<Gpu>) {
    let is_shown = |gpu: &&Gpu| release < NUMBERS_BY_IMAGE || gpu.is_described();
    let mut images: Vec<Target> = Vec::new();
    for gpu in gpus.iter().filter(is_shown) {
        if !images.contains(&gpu.target) {
            images.push(gpu.target);
        }
    }
    if release < NUMBERS_BY_IMAGE {
        return (images, gpus);
    }
    let (mut ordered, mut left) = (Vec::new(), gpus);
    left.retain(Gpu::is_described);
    for &image in &images {
        let (added, others): (Vec<Gpu>, Vec<Gpu>) = left.into_iter().partition(|gpu| gpu.target.check(image).is_ok());
        ordered.extend(added);
        left = others;
    }
    (images, ordered)
}

/// Defines a table of functions of a driver's library, and its lookup.
macro_rules! driver {
    ($Driver:ident { $( $name:ident: $symbol:ident($($argument:ty),*); )+ }) => {
        struct $Driver {
            $( $name: unsafe extern "C" fn($($argument),*) -> c_int, )+
        }

        impl $Driver {
            fn of(library: &Library) -> Option<$Driver> {
                Some($Driver { $(
                    // SAFETY: the driver's function has this type.
                    $name: *unsafe { library.get(concat!(stringify!($symbol), "\0").as_bytes()) }.ok()?,
                )+ })
            }
        }
    };
}

driver! { Cuda {
    init: cuInit(u32);
    version: cuDriverGetVersion(*mut c_int);
    count: cuDeviceGetCount(*mut c_int);
    device: cuDeviceGet(*mut c_int, c_int);
    attribute: cuDeviceGetAttribute(*mut c_int, c_int, c_int);
    name: cuDeviceGetName(*mut c_char, c_int, c_int);
    memory: cuDeviceTotalMem_v2(*mut usize, c_int);
} }

impl Cuda {
    fn gpus(&self) -> Vec<Gpu> {
        // SAFETY: no condition.
        let started = unsafe { (self.init)(0) } == 0;
        // SAFETY: the driver fills in a number of this type.
        let count = get(0, |n| unsafe { (self.count)(n) }).filter(|_| started);
        // SAFETY: as above.
        let version = get(0, |n| unsafe { (self.version)(n) });
        let driver = version.map_or("CUDA driver".into(), |n| format!("CUDA driver {}.{}", n / 1000, n % 1000 / 10));
        (0..count.unwrap_or(0)).map(|place| self.gpu(place, driver.clone())).collect()
    }

    /// The accelerator at this place; the driver may describe nothing of it.
    fn gpu(&self, place: c_int, driver: String) -> Gpu {
        /// `CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR`.
        const CAPABILITY: [c_int; 2] = [75, 76];
        // SAFETY: the driver fills in a value of this type.
        let number = get(0, |n| unsafe { (self.device)(n, place) });
        let Some(number) = number else { return Gpu { driver, ..Gpu::of(Target::cuda(0, 0)) } };
        // SAFETY: as above.
        let [major, minor] = CAPABILITY.map(|which| get(0, |n| unsafe { (self.attribute)(n, which, number) }));
        let (major, minor) = major.zip(minor).unwrap_or_default();
        // SAFETY: as above.
        let model = get([0; NAME], |name| unsafe { (self.name)(name.cast(), NAME as c_int, number) });
        // SAFETY: as above.
        let memory = get(0, |bytes| unsafe { (self.memory)(bytes, number) });
        let (model, memory) = (model.map(text).unwrap_or_default(), memory.unwrap_or(0) as u64);
        let (target, handle) = (Target::cuda(major as u32, minor as u32), Some(number as u64));
        Gpu { target, model, memory, driver, handle }
    }
}

driver! { CudaMemory {
    retain: cuDevicePrimaryCtxRetain(*mut *mut c_void, c_int);
    release: cuDevicePrimaryCtxRelease_v2(c_int);
    push: cuCtxPushCurrent_v2(*mut c_void);
    pop: cuCtxPopCurrent_v2(*mut *mut c_void);
    info: cuMemGetInfo_v2(*mut usize, *mut usize);
} }

driver! { CudaContext {
    retain: cuDevicePrimaryCtxRetain(*mut *mut c_void, c_int);
    set: cuCtxSetCurrent(*mut c_void);
} }

/// The context that must be current in each thread that uses an accelerator; only CUDA's driver has one. It is the
/// context that libomptarget uses, and is never released.
pub(super) struct Context(Option<(CudaContext, usize)>);

impl Context {
    pub fn make_current(&self) -> Result<()> {
        let Some((driver, context)) = &self.0 else { return Ok(()) };
        // SAFETY: the context was retained, and is not released.
        match unsafe { (driver.set)(*context as *mut c_void) } {
            0 => Ok(()),
            code => Err(Error::new(format!("the driver's context can't be used (cuCtxSetCurrent: error {code})"))),
        }
    }
}

/// The context of an accelerator. `None` if its driver gives none.
pub(super) fn context(gpu: &Gpu) -> Option<Context> {
    if gpu.target.machine != elf::CUDA {
        return Some(Context(None));
    }
    let (driver, device) = (CudaContext::of(open(CUDA_LIBRARY)?)?, gpu.handle? as c_int);
    // SAFETY: the driver fills in a value of this type.
    let context = get(ptr::null_mut(), |context| unsafe { (driver.retain)(context, device) })?;
    Some(Context(Some((driver, context as usize))))
}

impl CudaMemory {
    /// Uses the same context as libomptarget.
    fn free(&self, device: c_int) -> Option<u64> {
        // SAFETY: the driver fills in a value of this type.
        let context = get(ptr::null_mut(), |context| unsafe { (self.retain)(context, device) })?;
        // SAFETY: the context exists until it is released.
        let free = (unsafe { (self.push)(context) } == 0).then(|| {
            let mut all = 0;
            // SAFETY: the driver fills in numbers of this type.
            let free = get(0, |free| unsafe { (self.info)(free, &raw mut all) });
            // SAFETY: it is the context that was pushed.
            get(ptr::null_mut(), |context| unsafe { (self.pop)(context) });
            free
        });
        // SAFETY: it was retained above, and this thread no longer uses it.
        unsafe { (self.release)(device) };
        free.flatten().map(|free| free as u64)
    }
}

/// `hsa_agent_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Agent(u64);

/// `hsa_amd_memory_pool_t`.
#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryPool(u64);

type EachAgent = unsafe extern "C" fn(Agent, *mut c_void) -> c_int;
type EachPool = unsafe extern "C" fn(MemoryPool, *mut c_void) -> c_int;

driver! { Hsa {
    init: hsa_init();
    system: hsa_system_get_info(c_int, *mut c_void);
    agents: hsa_iterate_agents(EachAgent, *mut c_void);
    agent: hsa_agent_get_info(Agent, c_int, *mut c_void);
    pools: hsa_amd_agent_iterate_memory_pools(Agent, EachPool, *mut c_void);
    pool: hsa_amd_memory_pool_get_info(MemoryPool, c_int, *mut c_void);
} }

impl Hsa {
    fn gpus(&self) -> Vec<Gpu> {
        /// `HSA_SYSTEM_INFO_VERSION_MAJOR` and `_MINOR`.
        const VERSION: [c_int; 2] = [0, 1];
        let mut agents: Vec<Agent> = Vec::new();
        // SAFETY: no condition; then `collect` gets the list that it expects.
        let listed = unsafe { (self.init)() == 0 && (self.agents)(collect::<Agent>, (&raw mut agents).cast()) == 0 };
        if !listed {
            return Vec::new();
        }
        // SAFETY: both numbers have this type.
        let [major, minor] = VERSION.map(|which| get(0u16, |n| unsafe { (self.system)(which, n.cast()) }));
        let driver =
            major.zip(minor).map_or("HSA driver".into(), |(major, minor)| format!("HSA driver {major}.{minor}"));
        agents.into_iter().filter_map(|agent| self.gpu(agent, driver.clone())).collect()
    }

    /// An agent as an accelerator, if it is one; the driver may describe nothing else of it.
    fn gpu(&self, agent: Agent, driver: String) -> Option<Gpu> {
        /// `HSA_AGENT_INFO_NAME` and `_DEVICE`, `HSA_DEVICE_TYPE_GPU`, and `HSA_AMD_AGENT_INFO_PRODUCT_NAME`.
        const ARCHITECTURE: c_int = 0;
        const DEVICE: c_int = 17;
        const GPU: u32 = 1;
        const PRODUCT: c_int = 0xa009;
        // SAFETY: the property has this type.
        let kind = get(0u32, |kind| unsafe { (self.agent)(agent, DEVICE, kind.cast()) })?;
        if kind != GPU {
            return None;
        }
        // SAFETY: as above.
        let name = |which| get([0; NAME], |name| unsafe { (self.agent)(agent, which, name.cast()) });
        let [architecture, product] = [ARCHITECTURE, PRODUCT].map(|which| name(which).map(text).unwrap_or_default());
        let target = Target::amd(&architecture);
        let model = if target.architecture == 0 { format!("{product} {architecture}") } else { product };
        let (memory, handle) = (self.memory(agent), Some(agent.0));
        Some(Gpu { target, model: model.trim().into(), memory, driver, handle })
    }

    /// Bytes of an agent's largest pool, which has all of its own memory.
    fn memory(&self, agent: Agent) -> u64 {
        /// `HSA_AMD_MEMORY_POOL_INFO_SEGMENT` and `_SIZE`, and `HSA_AMD_SEGMENT_GLOBAL`.
        const SEGMENT: c_int = 0;
        const SIZE: c_int = 2;
        const GLOBAL: c_int = 0;
        let mut pools: Vec<MemoryPool> = Vec::new();
        // SAFETY: `collect` gets the list that it expects.
        let listed = unsafe { (self.pools)(agent, collect::<MemoryPool>, (&raw mut pools).cast()) } == 0;
        let size = |pool: MemoryPool| {
            // SAFETY: the property has this type.
            let segment = get(0 as c_int, |segment| unsafe { (self.pool)(pool, SEGMENT, segment.cast()) });
            // SAFETY: as above.
            let size = get(0usize, |size| unsafe { (self.pool)(pool, SIZE, size.cast()) });
            size.filter(|_| segment == Some(GLOBAL)).unwrap_or(0) as u64
        };
        pools.into_iter().filter(|_| listed).map(size).max().unwrap_or(0)
    }
}

driver! { HsaMemory {
    agent: hsa_agent_get_info(Agent, c_int, *mut c_void);
} }

impl HsaMemory {
    fn free(&self, agent: Agent) -> Option<u64> {
        /// `HSA_AMD_AGENT_INFO_MEMORY_AVAIL`.
        const AVAILABLE: c_int = 0xa015;
        // SAFETY: the property has this type.
        get(0u64, |bytes| unsafe { (self.agent)(agent, AVAILABLE, bytes.cast()) })
    }
}

/// Adds an element that a driver passes to a list.
///
/// # Safety
/// `list` points to a list of such elements, which nothing else uses meanwhile.
unsafe extern "C" fn collect<T>(element: T, list: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { (*list.cast::<Vec<T>>()).push(element) };
    0
}

/// A value that a driver's function overwrites, if it succeeds.
fn get<T>(mut value: T, fill: impl FnOnce(*mut T) -> c_int) -> Option<T> {
    (fill(&raw mut value) == 0).then_some(value)
}

/// A driver's text, which may be truncated.
fn text(mut name: [c_char; NAME]) -> String {
    name[NAME - 1] = 0;
    // SAFETY: a NUL byte ends it.
    unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().trim().into()
}

/// A driver's library, by the name under which libomptarget's plugins open it. It stays open, because it has threads.
fn open(name: &str) -> Option<&'static Library> {
    // SAFETY: this runs the library's initializers, as libomptarget does next.
    let library = unsafe { Library::open(Some(name), RTLD_NOW) };
    library.ok().map(|library| &*Box::leak(Box::new(library)))
}

#[cfg(test)]
#[path = "../../../../test/rust/unit/device_main/backend/offload/drivers.rs"]
mod tests;
