// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/target.rs`.

use super::*;

#[test]
fn an_image_says_what_it_is_built_for() {
    for target in [Target::HOST, Target::cuda(9, 0), Target::cuda(12, 1), Target::amd("gfx90a"), Target::amd("gfx7")] {
        assert_eq!(Target::of_image(&empty(target)).unwrap(), target);
    }
    let mut file = empty(Target::cuda(9, 0));
    (file[EI_ABIVERSION], file[49]) = (8, 100);
    assert_eq!(Target::of_image(&file).unwrap(), Target::cuda(10, 0));
    assert!(Target::of_image(b"BC\xc0\xde").is_err());
}

#[test]
fn no_number_of_an_architecture_is_two() {
    let numbers: std::collections::BTreeSet<u32> = AMD.iter().map(|(number, _)| *number).collect();
    assert_eq!((numbers.len(), Target::amd("gfx1036").architecture), (AMD.len(), 0x45));
}

#[test]
fn an_accelerator_executes_images_for_itself() {
    let runs = |device: Target, image| device.check(image).is_ok();
    let sm = |number: u32| Target::cuda(number / 10, number % 10);
    assert!(runs(sm(80), sm(80)) && runs(sm(86), sm(80)));
    assert!(!runs(sm(80), sm(86)) && !runs(sm(80), sm(90)) && !runs(sm(90), sm(80)));
    assert!(runs(Target::amd("gfx90a"), Target::amd("gfx90a")));
    assert!(!runs(Target::amd("gfx90a"), Target::amd("gfx942")) && !runs(Target::amd("gfx90a"), sm(90)));
    // What is not known is left to libomptarget.
    assert!(
        runs(Target::amd("gfx90a"), Target::amd("gfx9-generic")) && runs(sm(80), Target { architecture: 0, ..sm(90) })
    );
    assert!(runs(Target::HOST, Target::HOST) && !runs(Target::HOST, sm(80)) && !runs(sm(80), Target::HOST));
}

#[test]
fn errors_name_both() {
    let e = Target::cuda(8, 0).check(Target::cuda(9, 0)).unwrap_err().to_string();
    assert_eq!(e, "built for CUDA sm_90, not for the device's CUDA sm_80");
    let e = Target::HOST.check(Target::amd("gfx90a")).unwrap_err().to_string();
    assert_eq!(e, "built for AMDGPU gfx90a, not for the device's X86_64");
    let e = Target::cuda(8, 0).check(Target::amd("gfx90a")).unwrap_err().to_string();
    assert!(e.contains("an empty CUDA_VISIBLE_DEVICES makes these the devices"), "{e}");
}

fn is_for_accelerators(program: &[u8]) -> bool {
    are_for_accelerators(&images_in(program).collect::<Vec<_>>())
}

#[test]
fn images_of_accelerators_are_found() {
    let mut program = std::fs::read("/proc/self/exe").unwrap();
    program.resize(program.len().next_multiple_of(8), 0);
    assert!(!is_for_accelerators(&program));
    for machine in ACCELERATORS {
        let image = empty(Target { machine, architecture: 0 });
        assert!(elf::check_machine(&image, machine).is_ok() && elf::check_machine(&image, MACHINE).is_err());
        // Not a program with such an image, but the image.
        assert!(!is_for_accelerators(&image));
        assert!(is_for_accelerators(&[&program[..], &image, b"more"].concat()));
        // Processors can execute such a program, too.
        assert!(!is_for_accelerators(&[&program[..], &image, &empty(Target::HOST)[..], b"more"].concat()));
    }
    assert!(!is_for_accelerators(&[&program[..], &empty(Target::HOST), b"more"].concat()));
}

#[test]
fn bitcode_is_for_any_accelerator_of_its_machine() {
    let of = |triple: &str| Target::of_image(&bitcode::tests::file(triple));
    assert_eq!(of("nvptx64-nvidia-cuda").unwrap(), Target::cuda(0, 0));
    assert!(Target::cuda(9, 0).check(of("nvptx64-nvidia-cuda").unwrap()).is_ok());
    assert_eq!(of("amdgcn-amd-amdhsa").unwrap(), Target::amd("some other"));
    assert!(of("spirv64-intel").unwrap_err().to_string().contains("spirv64-intel, which is no known machine"));
    // In an archive: its length is not looked at.
    let image = bitcode::tests::file("nvptx64-nvidia-cuda");
    let archive = |image_at: u64| {
        let numbers = [0, 0, 32, 40, 0, 0, 0, image_at, image.len() as u64];
        let mut archive: Vec<u8> = numbers.iter().flat_map(|n: &u64| n.to_le_bytes()).collect();
        archive[..8].copy_from_slice(&[&PACKAGER[..], &[1, 0, 0, 0]].concat());
        [&archive[..], &image].concat()
    };
    assert!(Target::of_image(&archive(72)).unwrap_err().to_string().contains("has not opened"));
    let found = |image_at| images_in(&[&[0; 8], &archive(image_at)[..], &[0; HEADER]].concat()).collect::<Vec<_>>();
    assert_eq!((found(72), found(72 + 4), found(u64::MAX)), (vec![Target::cuda(0, 0)], vec![], vec![]));
}
