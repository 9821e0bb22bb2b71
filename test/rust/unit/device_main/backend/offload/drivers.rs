// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/offload/drivers.rs`, with functions in place of a driver's.

use super::*;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Fills in what the caller has asked for.
fn put<T>(to: *mut T, value: T) -> c_int {
    // SAFETY: the caller passes a pointer to such a value.
    unsafe { to.write(value) };
    0
}

fn write(name: *mut c_char, text: &CStr) -> c_int {
    // SAFETY: names have room for more than that.
    unsafe { name.copy_from(text.as_ptr(), text.count_bytes() + 1) };
    0
}

/// A driver of CUDA with four accelerators: it can't open the second one, and can't describe the third one.
fn cuda_driver() -> Cuda {
    unsafe extern "C" fn init(flags: u32) -> c_int {
        c_int::from(flags != 0)
    }
    unsafe extern "C" fn version(version: *mut c_int) -> c_int {
        put(version, 12_040)
    }
    unsafe extern "C" fn count(count: *mut c_int) -> c_int {
        put(count, 4)
    }
    unsafe extern "C" fn device(device: *mut c_int, place: c_int) -> c_int {
        put(device, 10 + place);
        if place == 1 { 999 } else { 0 }
    }
    unsafe extern "C" fn attribute(value: *mut c_int, which: c_int, device: c_int) -> c_int {
        put(value, if which == 75 { 8 } else { device - 10 });
        if device == 12 { 999 } else { 0 }
    }
    unsafe extern "C" fn name(name: *mut c_char, _: c_int, device: c_int) -> c_int {
        write(name, if device == 10 { c"First" } else { c"Another" })
    }
    unsafe extern "C" fn memory(bytes: *mut usize, device: c_int) -> c_int {
        put(bytes, 3 << 29);
        if device == 13 { 999 } else { 0 }
    }
    Cuda { init, version, count, device, attribute, name, memory }
}

#[test]
fn a_place_that_cuda_does_not_describe_stays_one() {
    let shown: Vec<String> = cuda_driver().gpus().iter().map(Gpu::to_string).collect();
    let expected = [
        "First (CUDA sm_80), 1.5 GiB of memory, CUDA driver 12.4",
        "CUDA, CUDA driver 12.4",
        "Another (CUDA), 1.5 GiB of memory, CUDA driver 12.4",
        "Another (CUDA sm_83), CUDA driver 12.4",
    ];
    assert_eq!(shown, expected);
    unsafe extern "C" fn fail(_: u32) -> c_int {
        100
    }
    assert_eq!(Cuda { init: fail, ..cuda_driver() }.gpus(), []);
}

#[test]
fn what_is_free_is_asked_for_in_the_context_of_libomptarget() {
    static STEPS: AtomicUsize = AtomicUsize::new(0);
    const CONTEXT: *mut c_void = 0x1000 as *mut c_void;
    /// Fails unless this is step `n`.
    fn step(n: usize) -> c_int {
        c_int::from(STEPS.swap(n, Ordering::Relaxed) != n - 1)
    }
    unsafe extern "C" fn retain(context: *mut *mut c_void, device: c_int) -> c_int {
        put(context, CONTEXT) + step(1) + c_int::from(device != 10)
    }
    unsafe extern "C" fn push(context: *mut c_void) -> c_int {
        step(2) + c_int::from(context != CONTEXT)
    }
    unsafe extern "C" fn info(free: *mut usize, all: *mut usize) -> c_int {
        put(free, 5 << 30) + put(all, 8 << 30) + step(3)
    }
    unsafe extern "C" fn pop(context: *mut *mut c_void) -> c_int {
        put(context, CONTEXT) + step(4)
    }
    unsafe extern "C" fn release(_: c_int) -> c_int {
        step(5)
    }
    let driver = CudaMemory { retain, release, push, pop, info };
    assert_eq!((driver.free(10), STEPS.load(Ordering::Relaxed)), (Some(5 << 30), 5));
    // The first step fails, and with it all.
    assert_eq!(driver.free(10), None);
    unsafe extern "C" fn agent(agent: Agent, which: c_int, value: *mut c_void) -> c_int {
        put(value.cast::<u64>(), agent.0 << 30) + c_int::from(which != 0xa015)
    }
    assert_eq!(HsaMemory { agent }.free(Agent(3)), Some(3 << 30));
}

/// A driver of AMD with a processor and three accelerators: it does not describe the second one, and this project does
/// not know the third one.
fn hsa_driver() -> Hsa {
    unsafe extern "C" fn init() -> c_int {
        0
    }
    unsafe extern "C" fn system(which: c_int, value: *mut c_void) -> c_int {
        put(value.cast::<u16>(), if which == 0 { 1 } else { 14 })
    }
    unsafe extern "C" fn agents(each: EachAgent, data: *mut c_void) -> c_int {
        // SAFETY: the caller's function gets its own data.
        (0..4).map(|agent| unsafe { each(Agent(agent), data) }).sum()
    }
    unsafe extern "C" fn agent(agent: Agent, which: c_int, value: *mut c_void) -> c_int {
        let name = value.cast::<c_char>();
        match (which, agent.0) {
            (17, 0) => put(value.cast::<u32>(), 0),
            (17, _) => put(value.cast::<u32>(), 1),
            (_, 2) => 0x1000,
            (0, 3) => write(name, c"gfx9999"),
            (0, _) => write(name, c"gfx90a"),
            (_, 3) => 0x1000,
            _ => write(name, c"Instinct "),
        }
    }
    unsafe extern "C" fn pools(agent: Agent, each: EachPool, data: *mut c_void) -> c_int {
        // SAFETY: as above.
        (0..2 * agent.0).map(|pool| unsafe { each(MemoryPool(pool), data) }).sum()
    }
    unsafe extern "C" fn pool(pool: MemoryPool, which: c_int, value: *mut c_void) -> c_int {
        match which {
            0 => put(value.cast::<c_int>(), if pool.0 == 1 { 3 } else { 0 }),
            _ => put(value.cast::<usize>(), ((pool.0 as usize + 1) % 4) << 30),
        }
    }
    Hsa { init, system, agents, agent, pools, pool }
}

#[test]
fn an_agent_that_amd_does_not_describe_stays_one() {
    let shown: Vec<String> = hsa_driver().gpus().iter().map(Gpu::to_string).collect();
    let expected = [
        "Instinct (AMDGPU gfx90a), 1.0 GiB of memory, HSA driver 1.14",
        "AMDGPU, 3.0 GiB of memory, HSA driver 1.14",
        "gfx9999 (AMDGPU), 3.0 GiB of memory, HSA driver 1.14",
    ];
    assert_eq!(shown, expected);
    unsafe extern "C" fn fail(_: EachAgent, _: *mut c_void) -> c_int {
        0x1000
    }
    assert_eq!(Hsa { agents: fail, ..hsa_driver() }.gpus(), []);
}

/// The minor versions of these accelerators, 99 for one that is not described.
fn order(release: u32, minors: &[u32]) -> (usize, Vec<u32>) {
    let target = |minor: u32| if minor == 99 { Target::cuda(0, 0) } else { Target::cuda(8, minor) };
    let (images, gpus) = numbered(release, minors.iter().map(|&minor| Gpu::of(target(minor))).collect());
    let minor = |gpu: Gpu| if gpu.is_described() { gpu.target.architecture - 80 } else { 99 };
    (images.len(), gpus.into_iter().map(minor).collect())
}

#[test]
fn accelerators_are_numbered_as_libomptarget_does() {
    assert_eq!(order(18, &[6, 99, 0, 6]), (3, vec![6, 99, 0, 6]));
    // The image for 8.6 is executed by two, that for 8.0 by what is left.
    assert_eq!(order(19, &[6, 99, 0, 6]), (2, vec![6, 6, 0]));
    assert_eq!(order(22, &[0, 6, 0]), (2, vec![0, 6, 0]));
    assert_eq!((order(22, &[99]), order(16, &[99]), order(22, &[])), ((0, vec![]), (1, vec![99]), (0, vec![])));
}
