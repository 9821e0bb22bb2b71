// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Makes the drivers show only this device's accelerator. Otherwise libomptarget would initialize every accelerator,
//! and so might an MPI that supports accelerators at its start.

use crate::base::elf;
use crate::sys::process;
use rustc_hash::FxHasher;
use rustix::fs::{Access, access};
use std::fs;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// A variable that selects the accelerators that a driver shows to a process, and the node's number of that kind.
type Driver = (&'static str, fn() -> usize);

const DRIVERS: [Driver; 3] =
    [("CUDA_VISIBLE_DEVICES", nvidia), ("ROCR_VISIBLE_DEVICES", amd), ("ZE_AFFINITY_MASK", || intel(Path::new(DRM)))];
/// The `e_machine` of images for these accelerators; 0 for Intel's, for which there are no ELF files.
const MACHINES: [u16; DRIVERS.len()] = [elf::CUDA, elf::AMDGPU, 0];
/// Where the kernel lists graphics devices.
const DRM: &str = "/sys/class/drm";
/// Files of the drivers' libraries, in the order of [`DRIVERS`].
const LIBRARIES: [&str; DRIVERS.len()] = ["/libcuda.so", "/libhsa-runtime64.so", "/libze_"];

/// HIP, which an MPI may use, numbers the accelerators that `ROCR_VISIBLE_DEVICES` leaves. It prefers this variable to
/// `CUDA_VISIBLE_DEVICES`, which it would otherwise take for its own.
const HIP_VISIBLE: &str = "HIP_VISIBLE_DEVICES";

/// A machine of each of [`DRIVERS`], and a number of accelerators.
pub(crate) type Choices = [(u16, usize); DRIVERS.len()];

/// A value for each of [`DRIVERS`].
type Values = [Option<String>; DRIVERS.len()];

/// The choice of an accelerator before MPI starts.
pub(crate) struct Narrowed {
    /// The original values.
    before: Values,
    /// The values that were set.
    chosen: Values,
}

/// Narrows the variables to the accelerator for the device at this place among those of its node, if the place is
/// already known. Must be called before any driver and any thread starts.
pub(crate) fn narrow(place: Option<usize>) -> Narrowed {
    let before = DRIVERS.map(|(name, _)| std::env::var(name).ok());
    let chosen = place.map(|place| shares(&before, place)).unwrap_or_default();
    set(&chosen);
    Narrowed { before, chosen }
}

impl Narrowed {
    /// A number that is equal for the processes of a node that choose from the same accelerators: those that the
    /// variables select and whose device files are accessible. A batch system may take others away by file access; then
    /// each process may see its only accelerator as the first, as others do.
    pub(crate) fn pool(&self) -> u32 {
        let mut hasher = FxHasher::default();
        (&self.before, accessible()).hash(&mut hasher);
        hasher.finish() as u32
    }

    /// The number of accelerators of each machine from which a device chooses; 0 if unknown.
    pub(crate) fn choices(&self) -> Choices {
        let count = |i: usize| match &self.before[i] {
            Some(value) => listed(value).count(),
            None => DRIVERS[i].1(),
        };
        std::array::from_fn(|i| (MACHINES[i], count(i)))
    }

    /// Narrows the variables again if this device's place, which the ranks have found out, leads to a different
    /// accelerator than the launcher's local rank did. A driver that has already started keeps the earlier one: returns
    /// a warning for the user.
    pub(crate) fn settle(&self, place: usize) -> Option<String> {
        let right = shares(&self.before, place);
        if right == self.chosen {
            return None;
        }
        let maps = fs::read(process::MAPS).unwrap_or_default();
        let warning = self.doubt(&right, |library| maps.windows(library.len()).any(|at| at == library.as_bytes()));
        set(&right);
        warning
    }

    fn doubt(&self, right: &Values, is_loaded: impl Fn(&str) -> bool) -> Option<String> {
        let values = self.chosen.iter().zip(right).zip(DRIVERS.iter().zip(LIBRARIES));
        values.into_iter().find_map(|((chosen, right), ((name, _), library))| {
            let (chosen, right) = chosen.as_ref().zip(right.as_ref())?;
            (chosen != right && is_loaded(library)).then(|| {
                format!(
                    "MPI has loaded the driver ({}) with {name}={chosen}, by the launcher's local rank; by the order of the \
                     ranks this device has {right}. If the driver has started, several devices may share an accelerator: \
                     start the job with llvm-offload-mpirun, or as mpirun -np N+1 llvm-offload-mpi-device PROGRAM, with \
                     the ranks of a node in a row; or set {name} to one accelerator for each rank",
                    library.trim_start_matches('/')
                )
            })
        })
    }
}

fn shares(before: &Values, place: usize) -> Values {
    std::array::from_fn(|i| share(before[i].as_deref(), DRIVERS[i].1, place))
}

fn set(values: &Values) {
    let set = DRIVERS.iter().zip(values).filter_map(|((name, _), value)| Some((*name, value.as_deref()?)));
    for (name, value) in set.chain(first_of_hip(values)) {
        // SAFETY: no thread runs before MPI starts, and MPI's own threads no longer read the environment.
        unsafe { std::env::set_var(name, value) };
    }
}

/// HIP's number of the only AMD accelerator that the values leave.
fn first_of_hip([_, amd, _]: &Values) -> Option<(&'static str, &'static str)> {
    amd.as_ref().map(|_| (HIP_VISIBLE, "0"))
}

/// The accelerator for a place: one of those that the variable names or, if it is not set, of all. `None` leaves the
/// variable unchanged.
fn share(value: Option<&str>, count: impl Fn() -> usize, place: usize) -> Option<String> {
    let Some(value) = value else {
        let all = count();
        return (all > 1).then(|| (place % all).to_string());
    };
    let visible: Vec<&str> = listed(value).collect();
    (visible.len() > 1).then(|| visible[place % visible.len()].to_string())
}

/// The accelerators that a variable names; a negative number ends the list.
fn listed(value: &str) -> impl Iterator<Item = &str> {
    value.split(',').map(str::trim).filter(|one| !one.is_empty()).take_while(|one| !one.starts_with('-'))
}

/// The number of parts of NVIDIA's accelerators (MIG) that a value of `CUDA_VISIBLE_DEVICES` names. The driver shows a
/// process only one.
pub(crate) fn parts_in(value: &str) -> usize {
    listed(value).filter(|one| one.starts_with("MIG-")).count()
}

/// The device files of accelerators that this process may use, given its cgroup's restrictions.
fn accessible() -> Vec<PathBuf> {
    const PLACES: [(&str, &str); 2] = [("/dev", "nvidia"), ("/dev/dri", "renderD")];
    let files = PLACES.iter().flat_map(|&(folder, name)| files_in(Path::new(folder), name));
    let mut files: Vec<PathBuf> = files.filter(|file| is_accessible(file)).collect();
    files.sort_unstable();
    files
}

/// The files of a folder with this name and a number.
fn files_in(folder: &Path, name: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(move |path| {
        let number = path.file_name().and_then(|file| file.to_str()?.strip_prefix(name));
        number.is_some_and(|number| number.parse::<u32>().is_ok())
    })
}

fn is_accessible(file: &Path) -> bool {
    access(file, Access::READ_OK | Access::WRITE_OK).is_ok()
}

fn nvidia() -> usize {
    nvidia_in(Path::new("/dev"), Path::new("/proc/driver/nvidia/gpus"))
}

/// The driver numbers the accelerators whose device files are accessible or missing: it creates missing files when it
/// starts.
fn nvidia_in(files: &Path, all: &Path) -> usize {
    let taken = files_in(files, "nvidia").filter(|file| !is_accessible(file)).count();
    fs::read_dir(all).map_or(0, Iterator::count).saturating_sub(taken)
}

/// Counts AMD's accelerators. The driver also lists processors, with 0 as the identifier of an accelerator.
fn amd() -> usize {
    let nodes = fs::read_dir("/sys/class/kfd/kfd/topology/nodes").into_iter().flatten().flatten();
    let is_accelerator = |text: String| text.trim() != "0";
    nodes.filter(|node| fs::read_to_string(node.path().join("gpu_id")).is_ok_and(is_accelerator)).count()
}

/// Counts Intel's accelerators, which have render nodes here. (One with several tiles counts once.)
fn intel(drm: &Path) -> usize {
    const VENDOR: &str = "0x8086";
    let devices = fs::read_dir(drm).into_iter().flatten().flatten();
    let nodes = devices.filter(|device| device.file_name().to_string_lossy().starts_with("renderD"));
    let vendor = |device: fs::DirEntry| fs::read_to_string(device.path().join("device/vendor"));
    nodes.filter_map(|device| vendor(device).ok()).filter(|vendor| vendor.trim() == VENDOR).count()
}

#[cfg(test)]
#[path = "../../../../test/rust/unit/device_main/backend/offload/visible_devices.rs"]
mod tests;
