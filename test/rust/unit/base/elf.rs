// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/elf.rs`.

use super::*;
use proptest::prelude::*;

fn own_file() -> Vec<u8> {
    std::fs::read("/proc/self/exe").unwrap()
}

#[test]
fn reads_a_real_shared_object() {
    let image = Image::parse(&own_file(), MACHINE).unwrap();
    assert!(!image.code.is_empty() && !image.data.is_empty());
    assert!(image.symbols.contains_key("main"));
    assert!(image.needed.iter().any(|n| n.starts_with("libc.so")));
    assert!(image.code.iter().chain(&image.data).all(|r| image.span.start <= r.start && r.end <= image.span.end));
}

#[test]
fn an_image_names_its_compilers() {
    assert!(comment(&own_file()).is_some_and(|text| text.contains("rustc version")));
    assert_eq!(clang_releases(&own_file()), releases_in(&comment(&own_file()).unwrap()));
    assert!(clang_releases(b"no ELF file").is_empty());
    for (text, releases) in [
        ("GCC: (Debian 14.2.0-19) 14.2.0\0Debian clang version 18.1.8 (18)\0", &[18][..]),
        ("clang version 17.0.6\0AMD clang version 19.0.0git (x)\0Linker: LLD 18\0", &[17, 19]),
        ("GCC: (Debian 14.2.0-19) 14.2.0\0clang version \0", &[]),
    ] {
        assert_eq!(releases_in(text), releases);
    }
}

#[test]
fn refuses_another_machine_and_text() {
    assert!(check(&own_file(), header::EM_PPC64).unwrap_err().to_string().contains("PPC64"));
    assert!(check(b"#!/bin/sh", MACHINE).is_err());
    assert!(check(b"", MACHINE).is_err());
}

#[test]
fn own_symbols_are_preferred() {
    let mut file = own_file();
    prefer_own_symbols(&mut file);
    let tags: Vec<u64> = Elf::parse(&file).unwrap().dynamic.unwrap().dyns.iter().map(|d| d.d_tag).collect();
    assert!(tags.contains(&DT_SYMBOLIC) && !tags.contains(&DT_RELACOUNT));
    let mut other = b"no ELF file".to_vec();
    prefer_own_symbols(&mut other);
    assert_eq!(other, b"no ELF file");
}

proptest! {
    /// Damage anywhere in the headers gives an error or a sane image, never a panic.
    #[test]
    fn damage_never_panics(at in 0usize..4096, byte: u8, cut in 0usize..100_000) {
        static FILE: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
        let mut bytes = FILE.get_or_init(|| own_file()[..200_000].to_vec()).clone();
        bytes[at] = byte;
        bytes.truncate(200_000 - cut);
        if let Ok(image) = Image::parse(&bytes, MACHINE) {
            prop_assert!(image.span.start < image.span.end);
        }
        prefer_own_symbols(&mut bytes);
    }
}
