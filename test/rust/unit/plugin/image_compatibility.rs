// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/image_compatibility.rs`.

use super::*;

fn place_of(bytes: &[u8]) -> Range<usize> {
    let range = bytes.as_ptr_range();
    range.start as usize..range.end as usize
}

#[test]
fn an_image_of_a_library_that_is_gone_is_not_read() {
    let bytes = [7; 2 * elf::HEADER];
    assert_eq!(head(&place_of(&bytes)).unwrap().unwrap(), bytes[..elf::HEADER]);
    assert_eq!(head(&(0..1 << 20)).unwrap(), None);
}

#[test]
fn an_image_is_for_accelerators_that_execute_it_or_if_none_is() {
    let (image, other) = (Target::cuda(8, 0), Target::amd("gfx90a"));
    let file = target::empty(image);
    let fits = |targets: &[Target]| check_any(targets, &place_of(&file), &file[..elf::HEADER]).is_ok();
    // No file is mapped there that could have an image for the last one.
    assert!(fits(&[other, image]) && fits(&[]) && fits(&[other]));
    assert!(is_for_accelerators(&file) && !is_for_accelerators(&target::empty(Target::HOST)));
}
