// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Leaves only this device's accelerator visible to the drivers: libomptarget initializes every visible one.

use std::fs;

/// A variable that says which accelerators a driver shows to a process, and how many the node has of that kind.
type Driver = (&'static str, fn() -> usize);

const DRIVERS: [Driver; 3] =
    [("CUDA_VISIBLE_DEVICES", nvidia), ("ROCR_VISIBLE_DEVICES", amd), ("ZE_AFFINITY_MASK", || 0)];

/// Narrows these variables to the accelerator for the device at this place among those of its node. Must be called
/// before any driver starts.
pub(crate) fn narrow(place: usize) {
    for (name, count) in DRIVERS {
        let value = std::env::var(name).ok();
        if let Some(mine) = share(value.as_deref(), count, place) {
            // SAFETY: MPI's own threads, if there are any, no longer read the environment.
            unsafe { std::env::set_var(name, mine) };
        }
    }
}

/// The accelerator for a place: one of those that the variable names or, if it is not set, of all. `None` leaves the
/// variable as it is.
fn share(value: Option<&str>, count: impl Fn() -> usize, place: usize) -> Option<String> {
    let Some(value) = value else {
        let all = count();
        return (all > 1).then(|| (place % all).to_string());
    };
    let visible: Vec<&str> = value.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    (visible.len() > 1).then(|| visible[place % visible.len()].to_string())
}

fn nvidia() -> usize {
    fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count)
}

/// AMD's driver lists processors too, with 0 as the identifier of their accelerator.
fn amd() -> usize {
    let nodes = fs::read_dir("/sys/class/kfd/kfd/topology/nodes").into_iter().flatten().flatten();
    let is_accelerator = |text: String| text.trim() != "0";
    nodes.filter(|node| fs::read_to_string(node.path().join("gpu_id")).is_ok_and(is_accelerator)).count()
}

#[cfg(test)]
#[path = "../../../../test/rust/unit/device_main/backend/offload/visible.rs"]
mod tests;
