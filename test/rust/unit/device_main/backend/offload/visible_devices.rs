// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/offload/visible_devices.rs`.

use super::*;

#[test]
fn a_device_sees_one_accelerator() {
    let all = |n: usize, place| share(None, || n, place);
    assert_eq!((all(0, 3), all(1, 3)), (None, None));
    assert_eq!(all(4, 6), Some("2".into()));
    let some = |value, place| share(Some(value), || panic!("the variable names them"), place);
    assert_eq!(some("3, 1,", 0), Some("3".into()));
    assert_eq!(some("GPU-a,GPU-b", 3), Some("GPU-b".into()));
    // A batch system has given this process one, or none.
    assert_eq!((some("2", 5), some("", 5)), (None, None));
    // Nothing behind a negative number is visible.
    assert_eq!((some("-1", 0), some("4,5,-1,6", 2), some("4,5,-1,6", 3)), (None, Some("4".into()), Some("5".into())));
}

#[test]
fn hip_sees_the_accelerator_that_is_left() {
    let of = |amd: Option<&str>| first_of_hip(&[Some("2".into()), amd.map(String::from), None]);
    assert_eq!((of(Some("2")), of(None)), (Some(("HIP_VISIBLE_DEVICES", "0")), None));
}

#[test]
fn parts_of_accelerators_are_counted() {
    assert_eq!((parts_in("MIG-a, MIG-GPU-b/1/0,"), parts_in("0,GPU-a"), parts_in("")), (2, 0, 0));
}

#[test]
fn processes_with_the_same_variables_choose_from_the_same_accelerators() {
    let of = |cuda: Option<&str>, amd: Option<&str>| Narrowed {
        before: [cuda.map(String::from), amd.map(String::from), Some(String::new())],
        chosen: Values::default(),
    };
    let (two, three) = (of(Some("5,6"), None), of(Some(""), Some("1,2,3")));
    assert_eq!(
        (two.choices()[0], three.choices()[0], three.choices()[1]),
        ((elf::CUDA, 2), (elf::CUDA, 0), (elf::AMDGPU, 3))
    );
    assert_eq!(two.pool(), Narrowed { chosen: [Some("5".into()), None, None], ..of(Some("5,6"), None) }.pool());
    assert_ne!(two.pool(), three.pool());
}

#[test]
fn another_choice_may_come_too_late() {
    let values = |cuda: &str| [Some(cuda.to_string()), None, None];
    let narrowed = Narrowed { before: values("5,6,7"), chosen: values("7") };
    let doubt = |place, loaded: &str| narrowed.doubt(&shares(&narrowed.before, place), |library| library == loaded);
    assert_eq!((doubt(2, "/libcuda.so"), doubt(5, "/libcuda.so")), (None, None));
    assert_eq!((doubt(1, ""), doubt(1, "/libhsa-runtime64.so")), (None, None));
    let doubt = doubt(1, "/libcuda.so").expect("the driver may have started");
    assert!(doubt.contains("(libcuda.so) with CUDA_VISIBLE_DEVICES=7") && doubt.contains("device has 6"), "{doubt}");
    // Without the launcher's numbers all were visible, and libomptarget takes the one at this place.
    let unknown = Narrowed { before: values("5,6"), chosen: Values::default() };
    assert_eq!(unknown.doubt(&values("6"), |_| true), None);
}

#[test]
fn accelerators_that_are_taken_away_do_not_count() {
    let folder = std::env::temp_dir().join(format!("omptarget-mpi-nvidia-{}", std::process::id()));
    let [dev, gpus] = ["dev", "gpus"].map(|name| folder.join(name));
    ["a", "b", "c"].iter().for_each(|gpu| fs::create_dir_all(gpus.join(gpu)).unwrap());
    fs::create_dir(&dev).unwrap();
    ["nvidiactl", "nvidia-uvm", "nvidia0"].iter().for_each(|file| fs::write(dev.join(file), "").unwrap());
    let before = nvidia_in(&dev, &gpus);
    // Even root can't access what such a link leads to.
    ["nvidia1", "nvidia2"].iter().for_each(|file| std::os::unix::fs::symlink("nothing", dev.join(file)).unwrap());
    assert_eq!((before, nvidia_in(&dev, &gpus), nvidia_in(&dev, &folder.join("none"))), (3, 1, 0));
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn accelerators_of_intel_are_counted_by_their_render_nodes() {
    let drm = std::env::temp_dir().join(format!("omptarget-mpi-drm-{}", std::process::id()));
    for (name, vendor) in
        [("card0", "0x8086"), ("renderD128", "0x8086"), ("renderD129", "0x10de"), ("renderD130", "0x8086")]
    {
        let device = drm.join(name).join("device");
        fs::create_dir_all(&device).unwrap();
        fs::write(device.join("vendor"), format!("{vendor}\n")).unwrap();
    }
    assert_eq!((intel(&drm), intel(&drm.join("none"))), (2, 0));
    fs::remove_dir_all(drm).unwrap();
}
