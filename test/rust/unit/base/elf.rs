// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/elf.rs`.

use super::*;
use crate::base::target::{Target, empty};
use crate::plugin::program::libraries::loaded_libraries;
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
fn what_is_read_of_large_files_is_as_in_the_whole() {
    for (name, path) in loaded_libraries() {
        let file = map(&path).unwrap();
        let whole = Elf::parse(&file).unwrap();
        assert_eq!(needed_libraries(&file).unwrap(), whole.libraries, "{name}");
        assert_eq!(soname(&file).as_deref(), whole.soname, "{name}");
    }
    let file = own_file();
    assert_eq!(defines(&file, "main"), Some(true));
    assert_eq!(defines(&file, "mai"), Some(false));
    assert_eq!(section(&file, "no section"), None);
}

#[test]
fn an_image_names_its_compilers() {
    let file = own_file();
    let comment = String::from_utf8_lossy(section(&file, ".comment").unwrap());
    assert!(comment.contains("rustc version"));
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
fn functions_have_names_by_their_addresses() {
    let file = own_file();
    let image = Image::parse(&file, MACHINE).unwrap();
    let main = image.symbols["main"].value;
    assert_eq!(function_at(&file, main).unwrap().as_deref(), Some("main"));
    // Only where a function begins; no data either.
    assert_eq!(function_at(&file, main + 1).unwrap(), None);
    assert_eq!(function_at(&file, image.data[0].start).unwrap(), None);
    assert!(function_at(b"no ELF file", main).unwrap_err().to_string().contains("damaged ELF file"));
}

/// A relocatable file of these functions: address, binding, name.
fn with_functions(functions: &[(u64, u8, &str)]) -> Vec<u8> {
    use goblin::elf::section_header::{SHT_STRTAB, SHT_SYMTAB};
    let (mut symbols, mut names) = (vec![0; 24], vec![0]);
    for &(value, binding, name) in functions {
        let place = names.len() as u32;
        names.extend_from_slice(name.as_bytes());
        names.push(0);
        symbols.extend_from_slice(&place.to_le_bytes());
        symbols.extend_from_slice(&[binding << 4 | sym::STT_FUNC, 0]);
        symbols.extend_from_slice(&1u16.to_le_bytes());
        symbols.extend_from_slice(&value.to_le_bytes());
        symbols.extend_from_slice(&8u64.to_le_bytes());
    }
    let mut file = empty(Target { machine: MACHINE, architecture: 0 });
    let headers = (64 + symbols.len() + names.len()) as u64;
    let section = |kind: u32, at: usize, len: usize, link: u32, entry: u64| {
        let mut header = [0; 64];
        header[4..8].copy_from_slice(&kind.to_le_bytes());
        header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
        header[32..40].copy_from_slice(&(len as u64).to_le_bytes());
        header[40..44].copy_from_slice(&link.to_le_bytes());
        header[56..64].copy_from_slice(&entry.to_le_bytes());
        header
    };
    let sections = [
        [0; 64],
        section(SHT_SYMTAB, 64, symbols.len(), 2, 24),
        section(SHT_STRTAB, 64 + symbols.len(), names.len(), 0, 0),
    ];
    file.truncate(64);
    file[40..48].copy_from_slice(&headers.to_le_bytes());
    file[58..60].copy_from_slice(&64u16.to_le_bytes());
    file[60..62].copy_from_slice(&3u16.to_le_bytes());
    file[62..64].copy_from_slice(&2u16.to_le_bytes());
    [file, symbols, names, sections.concat()].concat()
}

#[test]
fn a_function_of_several_is_never_a_guess() {
    let (local, global) = (sym::STB_LOCAL, sym::STB_GLOBAL);
    let file = with_functions(&[
        (0x100, local, "twice"),
        (0x200, local, "twice"),
        (0x300, local, "once"),
        (0x400, local, "alias"),
        (0x400, global, "shared"),
        (0x500, global, "twice"),
        (0x600, local, "same"),
        (0x600, local, "same"),
    ]);
    let at = |address| function_at(&file, address).map_err(|e| e.to_string());
    for address in [0x100, 0x200] {
        assert_eq!(at(address), Err("several local functions are called twice".into()));
    }
    let name = |name: &str| Ok(Some(name.to_string()));
    assert_eq!((at(0x300), at(0x400), at(0x500), at(0x700)), (name("once"), name("shared"), name("twice"), Ok(None)));
    // Two symbols of one function are no two functions.
    assert_eq!(at(0x600), name("same"));
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

#[test]
fn a_library_is_left_out() {
    let mut file = own_file();
    let before = needed_libraries(&file).unwrap();
    let left_out = before.last().unwrap();
    let (at, entry) = without_library(&file, left_out).unwrap();
    file[at as usize..][..8].copy_from_slice(&entry);
    let expected: Vec<_> = before.iter().map(|name| if name == left_out { &before[0] } else { name }).collect();
    assert!(before.len() > 1);
    assert_eq!(needed_libraries(&file).unwrap().iter().collect::<Vec<_>>(), expected);
    assert_eq!(without_library(&file, left_out), None);
    assert_eq!(without_library(b"no ELF file", left_out), None);
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
        without_library(&bytes, "libc.so.6");
    }

    /// The same for the parts of a library that the start reads.
    #[test]
    fn damage_of_a_library_never_panics(part in 0usize..3, at in 0usize..2048, byte: u8, cut in 0usize..4096) {
        let mut bytes = std::fs::read(&loaded_libraries()["libgcc_s.so.1"]).unwrap();
        let Header { e_phoff, e_shoff, .. } = Elf::parse_header(&bytes).unwrap();
        let headers = ProgramHeader::parse(&bytes, e_phoff as usize, 4, Ctx::default()).unwrap_or_default();
        let dynamic = headers.iter().find(|header| header.p_type == PT_DYNAMIC).map_or(0, |header| header.p_offset);
        let place = [0, dynamic, e_shoff][part] as usize + at;
        if let Some(damaged) = bytes.get_mut(place) {
            *damaged = byte;
        }
        bytes.truncate(bytes.len() - cut / 2);
        uses_mpi(&bytes);
        soname(&bytes);
        clang_releases(&bytes);
    }
}
