// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Reading a device image: an ELF shared object that comes from outside and is trusted
//! in nothing.

use crate::base::{Error, Result};
use goblin::elf::Elf;
use goblin::elf::program_header::{PF_W, PF_X, PT_GNU_RELRO, PT_LOAD};
use goblin::elf::section_header::SectionHeader;
use goblin::elf::{header, sym};
use memmap2::Mmap;
use std::collections::HashMap;
use std::fs::File;
use std::ops::Range;
use std::path::Path;

/// `e_machine` of this build (gABI numbers).
pub const MACHINE: u16 = if cfg!(target_arch = "x86_64") {
    header::EM_X86_64
} else if cfg!(target_arch = "aarch64") {
    header::EM_AARCH64
} else {
    header::EM_NONE
};

/// Bytes of the header of a 64-bit file, which [`check`] looks at.
pub const HEADER: usize = 64;

/// A symbol of an image: its address and size, both relative to where it is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Offset from the load address, bytes.
    pub value: u64,
    /// Size in bytes; 0 if the image does not say.
    pub size: u64,
}

/// What the plugin and the device need to know of an image.
#[derive(Debug, Default)]
pub struct Image {
    /// Span of all loaded segments, relative to the load address, whole pages.
    pub span: Range<u64>,
    /// Executable segments.
    pub code: Vec<Range<u64>>,
    /// Memory that stays writable after loading (writable segments without RELRO).
    pub data: Vec<Range<u64>>,
    /// Functions and variables by name.
    pub symbols: HashMap<String, Symbol>,
    /// Libraries that the loader must find (`DT_NEEDED`).
    pub needed: Vec<String>,
}

/// Cheap test of the header alone: is this a 64-bit shared object for `machine`?
///
/// # Errors
/// The text says in which way it is not.
pub fn check(bytes: &[u8], machine: u16) -> Result<()> {
    let head = parse_header(bytes)?;
    if head.e_machine != machine {
        return Err(Error::new(format!(
            "built for {} (ELF machine {}), not for the device's {}",
            header::machine_to_str(head.e_machine),
            head.e_machine,
            header::machine_to_str(machine)
        )));
    }
    if head.e_type != header::ET_DYN {
        return Err(Error::new(format!("ELF type {} instead of a shared object", header::et_to_str(head.e_type))));
    }
    Ok(())
}

fn parse_header(bytes: &[u8]) -> Result<header::Header> {
    let head = Elf::parse_header(bytes).map_err(|e| Error::new(format!("no ELF file: {e}")))?;
    let native_order = if cfg!(target_endian = "little") { header::ELFDATA2LSB } else { header::ELFDATA2MSB };
    if head.e_ident[header::EI_CLASS] != header::ELFCLASS64 || head.e_ident[header::EI_DATA] != native_order {
        return Err(Error::new("no 64-bit ELF file of this machine's byte order"));
    }
    Ok(head)
}

impl Image {
    /// Reads an image.
    ///
    /// # Errors
    /// Anything that is not a loadable shared object for `machine`.
    pub fn parse(bytes: &[u8], machine: u16) -> Result<Image> {
        check(bytes, machine)?;
        let elf = Elf::parse(bytes).map_err(|e| Error::new(format!("damaged ELF file: {e}")))?;
        let mut image = Image::default();
        let (mut lowest, mut highest) = (u64::MAX, 0);
        let mut relro = Vec::new();
        for p in &elf.program_headers {
            let end = p.p_vaddr.checked_add(p.p_memsz).filter(|&end| end < 1 << 46);
            let end = end.ok_or_else(|| Error::new("a segment lies outside of any address space"))?;
            let range = p.p_vaddr..end;
            match p.p_type {
                PT_LOAD => {
                    let in_file = p.p_offset.checked_add(p.p_filesz).is_some_and(|e| e <= bytes.len() as u64);
                    if !in_file || p.p_filesz > p.p_memsz {
                        return Err(Error::new("a segment lies outside of the file or of its memory"));
                    }
                    lowest = lowest.min(range.start & !0xfff);
                    highest = highest.max((range.end + 0xfff) & !0xfff);
                    if p.p_flags & PF_X != 0 {
                        image.code.push(range.clone());
                    }
                    if p.p_flags & PF_W != 0 {
                        image.data.push(range);
                    }
                }
                PT_GNU_RELRO => relro.push(range.start..(range.end + 0xfff) & !0xfff),
                _ => {}
            }
        }
        if lowest >= highest {
            return Err(Error::new("nothing to load in it"));
        }
        image.span = lowest..highest;
        for r in relro {
            image.data = image.data.drain(..).flat_map(|d| subtract(d, &r)).collect();
        }
        for (table, names) in [(&elf.syms, &elf.strtab), (&elf.dynsyms, &elf.dynstrtab)] {
            for s in table.iter() {
                let kind = s.st_type();
                let wanted = kind == sym::STT_FUNC || kind == sym::STT_OBJECT || kind == sym::STT_NOTYPE;
                if !wanted || s.is_import() || !image.span.contains(&s.st_value) {
                    continue;
                }
                if let Some(name) = names.get_at(s.st_name).filter(|n| !n.is_empty()) {
                    let symbol = Symbol { value: s.st_value, size: s.st_size };
                    // A global symbol wins over a local one of the same name.
                    if s.st_bind() == sym::STB_LOCAL {
                        image.symbols.entry(name.to_string()).or_insert(symbol);
                    } else {
                        image.symbols.insert(name.to_string(), symbol);
                    }
                }
            }
        }
        image.needed = elf.libraries.iter().map(ToString::to_string).collect();
        Ok(image)
    }
}

fn subtract(from: Range<u64>, hole: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    [from.start..from.end.min(hole.start), from.start.max(hole.end)..from.end].into_iter().filter(|r| r.start < r.end)
}

/// The bytes of a file. Only what is looked at is read: libLLVM has more than 100 MiB.
///
/// # Errors
/// The system's.
pub fn map(path: &Path) -> Result<Mmap> {
    // SAFETY: a program or library in use; who cuts it short kills those who use it too.
    Ok(unsafe { Mmap::map(&File::open(path)?)? })
}

/// The `DT_NEEDED` entries of any ELF file.
///
/// # Errors
/// A file that is not ELF.
pub fn needed_libraries(bytes: &[u8]) -> Result<Vec<String>> {
    let elf = Elf::parse(bytes).map_err(|e| Error::new(e.to_string()))?;
    Ok(elf.libraries.iter().map(ToString::to_string).collect())
}

/// The name that an ELF file gives itself (`DT_SONAME`).
pub fn soname(bytes: &[u8]) -> Option<String> {
    Elf::parse(bytes).ok()?.soname.map(ToString::to_string)
}

/// True if an ELF file offers others a symbol of this name.
pub fn exports(bytes: &[u8], symbol: &str) -> bool {
    let Ok(elf) = Elf::parse(bytes) else { return false };
    elf.dynsyms.iter().any(|s| !s.is_import() && elf.dynstrtab.get_at(s.st_name) == Some(symbol))
}

/// The major releases of clang that an ELF file says it was made with: of each a string in its
/// section `.comment`, "Debian clang version 18.1.8 (11)". None if that was stripped.
pub fn clang_releases(bytes: &[u8]) -> Vec<u32> {
    let Ok(elf) = Elf::parse(bytes) else { return Vec::new() };
    let is_comment = |s: &&SectionHeader| elf.shdr_strtab.get_at(s.sh_name) == Some(".comment");
    let comment = elf.section_headers.iter().find(is_comment).and_then(SectionHeader::file_range);
    let comment = String::from_utf8_lossy(comment.and_then(|range| bytes.get(range)).unwrap_or_default());
    let release = |compiler: &str| {
        let version = compiler.split_once("clang version ")?.1;
        version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    comment.split('\0').filter_map(release).collect()
}

/// True if an ELF file needs or contains an MPI library.
pub fn uses_mpi(bytes: &[u8]) -> bool {
    let Ok(elf) = Elf::parse(bytes) else { return false };
    let by_library = elf.libraries.iter().any(|l| {
        ["libmpi.", "libmpich.", "libmpi_cxx.", "libmpi_mpifh.", "libmpicxx."].iter().any(|name| l.starts_with(name))
    });
    by_library || elf.syms.iter().any(|s| !s.is_import() && elf.strtab.get_at(s.st_name) == Some("MPI_Init"))
}

#[cfg(test)]
mod tests {
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

    /// A file with this section `.comment`.
    fn commented(comment: &str) -> Vec<u8> {
        let names = b"\0.comment\0";
        let mut file = vec![0u8; HEADER + 3 * 64];
        file[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        let mut put = |at: usize, bytes: &[u8]| file[at..at + bytes.len()].copy_from_slice(bytes);
        put(16, &header::ET_DYN.to_le_bytes());
        put(18, &header::EM_X86_64.to_le_bytes());
        put(40, &(HEADER as u64).to_le_bytes());
        [(52, 64u16), (58, 64), (60, 3), (62, 2)].iter().for_each(|(at, value)| put(*at, &value.to_le_bytes()));
        let start = HEADER + 3 * 64;
        for (index, name, at, len) in [(1, 1u32, start, comment.len()), (2, 0, start + comment.len(), names.len())] {
            let section = HEADER + index * 64;
            put(section, &name.to_le_bytes());
            put(section + 4, &(if index == 1 { 1u32 } else { 3 }).to_le_bytes());
            put(section + 24, &(at as u64).to_le_bytes());
            put(section + 32, &(len as u64).to_le_bytes());
        }
        [&file[..], comment.as_bytes(), names].concat()
    }

    #[test]
    fn an_image_names_its_compilers() {
        let of = |comment| clang_releases(&commented(comment));
        assert_eq!(of("GCC: (Debian 14.2.0-19) 14.2.0\0Debian clang version 18.1.8 (18)\0"), [18]);
        assert_eq!(of("clang version 17.0.6\0AMD clang version 19.0.0git (x)\0Linker: LLD 18\0"), [17, 19]);
        assert_eq!(of("GCC: (Debian 14.2.0-19) 14.2.0\0clang version \0"), [0; 0]);
        assert_eq!(clang_releases(b"no ELF file"), [0; 0]);
    }

    #[test]
    fn refuses_another_machine_and_text() {
        assert!(check(&own_file(), header::EM_PPC64).unwrap_err().to_string().contains("PPC64"));
        assert!(check(b"#!/bin/sh", MACHINE).is_err());
        assert!(check(b"", MACHINE).is_err());
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
        }
    }
}
