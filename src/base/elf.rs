// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Reads ELF files, such as device images, which come from outside and are not trusted.

use super::{Error, Result};
use goblin::container::Ctx;
use goblin::elf::dynamic::{DT_NEEDED, DT_RELACOUNT, DT_SONAME, DT_SYMBOLIC};
use goblin::elf::program_header::{PF_W, PF_X, PT_DYNAMIC, PT_GNU_RELRO, PT_LOAD};
use goblin::elf::section_header::{SHT_SYMTAB, SectionHeader};
use goblin::elf::{Dynamic, Elf, Header, ProgramHeader, Symtab, header, sym};
use memmap2::Mmap;
use std::collections::{HashMap, HashSet};
use std::ffi::CStr;
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

/// `e_machine` of the images of accelerators.
pub(crate) const CUDA: u16 = header::EM_CUDA;
pub(crate) const AMDGPU: u16 = header::EM_AMDGPU;
pub(crate) const ACCELERATORS: [u16; 2] = [CUDA, AMDGPU];

/// Bytes of the header of a 64-bit file, which [`check`] reads.
pub(crate) const HEADER: usize = 64;

/// A symbol of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Symbol {
    /// Offset from the load address.
    pub value: u64,
    /// Size in bytes; 0 if unknown.
    pub size: u64,
}

/// What the plugin and the device need to know about an image.
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

/// Checks by the header alone that this is a 64-bit shared object for `machine`.
pub fn check(bytes: &[u8], machine: u16) -> Result<()> {
    let head = check_machine(bytes, machine)?;
    if head.e_type != header::ET_DYN {
        return Err(Error::new(format!("ELF type {} instead of a shared object", header::et_to_str(head.e_type))));
    }
    Ok(())
}

/// Checks by the header alone that this is a 64-bit file for `machine`. (Images for accelerators need not be shared
/// objects.)
pub(crate) fn check_machine(bytes: &[u8], machine: u16) -> Result<header::Header> {
    let head = parse_header(bytes)?;
    if head.e_machine != machine {
        return Err(Error::new(format!(
            "built for {} (ELF machine {}), not for the device's {}",
            machine_name(head.e_machine),
            head.e_machine,
            machine_name(machine)
        )));
    }
    Ok(head)
}

pub(crate) fn machine_name(machine: u16) -> &'static str {
    header::machine_to_str(machine)
}

pub(super) fn parse_header(bytes: &[u8]) -> Result<header::Header> {
    let head = Elf::parse_header(bytes).map_err(|e| Error::new(format!("no ELF file: {e}")))?;
    let native_order = if cfg!(target_endian = "little") { header::ELFDATA2LSB } else { header::ELFDATA2MSB };
    if head.e_ident[header::EI_CLASS] != header::ELFCLASS64 || head.e_ident[header::EI_DATA] != native_order {
        return Err(Error::new("no 64-bit ELF file of this machine's byte order"));
    }
    Ok(head)
}

impl Image {
    /// Reads an image; fails unless it is a loadable shared object for `machine`.
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
                let is_wanted = matches!(s.st_type(), sym::STT_FUNC | sym::STT_OBJECT | sym::STT_NOTYPE);
                if !is_wanted || s.is_import() || !image.span.contains(&s.st_value) {
                    continue;
                }
                let Some(name) = names.get_at(s.st_name).filter(|n| !n.is_empty()) else { continue };
                let symbol = Symbol { value: s.st_value, size: s.st_size };
                // A global symbol takes precedence over a local one of the same name.
                if s.st_bind() == sym::STB_LOCAL {
                    image.symbols.entry(name.to_string()).or_insert(symbol);
                } else {
                    image.symbols.insert(name.to_string(), symbol);
                }
            }
        }
        image.needed = needed_libraries(bytes)?;
        Ok(image)
    }
}

/// The symbol of the function at an address of a file, preferably a global one. Fails if the symbol is local and
/// another local function of the file has the same name.
pub(crate) fn function_at(bytes: &[u8], address: u64) -> Result<Option<String>> {
    let elf = Elf::parse(bytes).map_err(|e| Error::new(format!("damaged ELF file: {e}")))?;
    let tables = [(&elf.syms, &elf.strtab), (&elf.dynsyms, &elf.dynstrtab)];
    let mut functions = Vec::new();
    for (table, names) in tables {
        let defined = table.iter().filter(|s| s.is_function() && !s.is_import());
        functions.extend(defined.filter_map(|s| Some((s, names.get_at(s.st_name)?))));
    }
    let is_local = |s: &sym::Sym| s.st_bind() == sym::STB_LOCAL;
    let here = functions.iter().filter(|(s, _)| s.st_value == address);
    let Some((symbol, name)) = here.min_by_key(|(s, _)| is_local(s)) else { return Ok(None) };
    let is_other = |(s, other): &(sym::Sym, &str)| is_local(s) && s.st_value != address && other == name;
    match is_local(symbol) && functions.iter().any(is_other) {
        true => Err(Error::new(format!("several local functions are called {name}"))),
        false => Ok(Some(name.to_string())),
    }
}

/// True if a program or library has `requires unified_shared_memory` among its offload entries, where LLVM 21 and later
/// puts it.
pub(crate) fn requires_unified_memory(bytes: &[u8]) -> bool {
    /// Bytes of `__tgt_offload_entry`, and the offsets of its flags and its data.
    const ENTRY: usize = 56;
    const FLAGS: usize = 12;
    const DATA: usize = 40;
    /// `OMP_REGISTER_REQUIRES` and `OMP_REQ_UNIFIED_SHARED_MEMORY`.
    const REQUIRES: u8 = 16;
    const UNIFIED: u8 = 8;
    let entries = section(bytes, "llvm_offload_entries").unwrap_or_default().as_chunks::<ENTRY>().0;
    entries.iter().any(|entry| entry[FLAGS] & REQUIRES != 0 && entry[DATA] & UNIFIED != 0)
}

/// The functions of a file whose versions the loader chooses (`STT_GNU_IFUNC`).
pub(crate) fn indirect_functions(bytes: &[u8]) -> Result<Vec<String>> {
    let elf = Elf::parse(bytes).map_err(|e| Error::new(format!("damaged ELF file: {e}")))?;
    let indirect = elf.dynsyms.iter().filter(|s| s.st_type() == sym::STT_GNU_IFUNC);
    Ok(indirect.filter_map(|s| Some(elf.dynstrtab.get_at(s.st_name)?.to_string())).collect())
}

fn subtract(from: Range<u64>, hole: &Range<u64>) -> impl Iterator<Item = Range<u64>> {
    [from.start..from.end.min(hole.start), from.start.max(hole.end)..from.end].into_iter().filter(|r| r.start < r.end)
}

/// Maps a file, so that only the used pages are read: libLLVM has more than 100 MiB.
pub(crate) fn map(path: &Path) -> Result<Mmap> {
    // SAFETY: a program or library in use; whoever truncates it kills all its users anyway.
    Ok(unsafe { Mmap::map(&File::open(path)?)? })
}

/// Makes the loader bind a shared object's references to its own symbols first (`DT_SYMBOLIC`), not to those of another
/// copy that is global. The entry replaces `DT_RELACOUNT`, an optimization hint; a file without that hint is not
/// changed.
pub(crate) fn prefer_own_symbols(file: &mut [u8]) {
    let Ok(elf) = Elf::parse(file) else { return };
    let header = elf.program_headers.iter().find(|header| header.p_type == PT_DYNAMIC);
    let hint = elf.dynamic.as_ref().and_then(|dynamic| dynamic.dyns.iter().position(|d| d.d_tag == DT_RELACOUNT));
    let (Some(header), Some(hint)) = (header, hint) else { return };
    let start = (header.p_offset as usize).saturating_add(hint * size_of::<[u64; 2]>());
    let Some(entry) = file.get_mut(start..).and_then(|entry| entry.first_chunk_mut::<16>()) else { return };
    entry.fill(0);
    entry[..8].copy_from_slice(&DT_SYMBOLIC.to_ne_bytes());
}

/// The offset and bytes to write so that a shared object no longer needs a library: its `DT_NEEDED` entry then repeats
/// another entry, which the loader ignores. `None` unless the library has exactly one entry and there is another.
pub(crate) fn without_library(file: &[u8], library: &str) -> Option<(u64, [u8; 8])> {
    let elf = Elf::parse(file).ok()?;
    let header = elf.program_headers.iter().find(|header| header.p_type == PT_DYNAMIC)?;
    let entries = elf.dynamic.as_ref()?.dyns.iter().enumerate().filter(|(_, entry)| entry.d_tag == DT_NEEDED);
    let (these, others): (Vec<_>, Vec<_>) =
        entries.partition(|(_, entry)| elf.dynstrtab.get_at(entry.d_val as usize) == Some(library));
    let ([(index, _)], Some((_, other))) = (&these[..], others.first()) else { return None };
    let value = header.p_offset.checked_add((index * size_of::<[u64; 2]>() + size_of::<u64>()) as u64)?;
    (value.checked_add(8)? <= file.len() as u64).then_some((value, other.d_val.to_ne_bytes()))
}

/// The names of an image's OpenMP kernels, each with size 0, and the names and sizes of its global variables, except
/// those of the compiler and its runtime.
pub(crate) fn offload_symbols(image: &[u8]) -> Vec<(String, u64)> {
    const KERNEL: &str = "__omp_offloading_";
    const INTERNAL: [&str; 5] = [KERNEL, "__omp_rtl_", "__llvm_", "_ZT", "_ZGV"];
    let Ok(elf) = Elf::parse(image) else { return Vec::new() };
    // CUDA images have no dynamic symbols.
    let (table, names) = match elf.dynsyms.is_empty() {
        true => (&elf.syms, &elf.strtab),
        false => (&elf.dynsyms, &elf.dynstrtab),
    };
    let is_visible = |s: &sym::Sym| !s.is_import() && s.st_bind() != sym::STB_LOCAL;
    let entry = |s: sym::Sym| {
        let name = names.get_at(s.st_name)?;
        let is_variable = s.st_size > 0 && !name.ends_with(".kd") && !INTERNAL.iter().any(|p| name.starts_with(p));
        match s.st_type() {
            sym::STT_FUNC if name.starts_with(KERNEL) => Some((name.to_string(), 0)),
            sym::STT_OBJECT if is_variable => Some((name.to_string(), s.st_size)),
            _ => None,
        }
    };
    table.iter().filter(is_visible).filter_map(entry).collect()
}

/// The header of any ELF file, and the context for reading the rest.
fn begin(bytes: &[u8]) -> goblin::error::Result<(Header, Ctx)> {
    let header = Elf::parse_header(bytes)?;
    let context = Ctx::new(header.container()?, header.endianness()?);
    Ok((header, context))
}

/// The strings of an ELF file's dynamic entries with this tag. Unlike [`Elf::parse`], reads nothing else: libLLVM has
/// megabytes of symbols and of their names.
fn dynamic_strings(bytes: &[u8], tag: u64) -> goblin::error::Result<Vec<&str>> {
    let (header, context) = begin(bytes)?;
    let segments = ProgramHeader::parse(bytes, header.e_phoff as usize, header.e_phnum.into(), context)?;
    let Some(Dynamic { dyns, info }) = Dynamic::parse(bytes, &segments, context)? else { return Ok(Vec::new()) };
    let strings = bytes.get(info.strtab..).and_then(|from| from.get(..info.strsz)).unwrap_or_default();
    let string = |at: u64| CStr::from_bytes_until_nul(strings.get(at as usize..)?).ok()?.to_str().ok();
    Ok(dyns.iter().filter(|entry| entry.d_tag == tag).filter_map(|entry| string(entry.d_val)).collect())
}

/// The `DT_NEEDED` entries of any ELF file.
pub fn needed_libraries(bytes: &[u8]) -> Result<Vec<String>> {
    let names = dynamic_strings(bytes, DT_NEEDED).map_err(|e| Error::new(e.to_string()))?;
    Ok(names.into_iter().map(String::from).collect())
}

/// The names of the functions and variables that an ELF file imports.
pub(crate) fn imports(bytes: &[u8]) -> Result<Vec<String>> {
    let elf = Elf::parse(bytes).map_err(|e| Error::new(e.to_string()))?;
    let imports = elf.dynsyms.iter().filter(|s| s.st_shndx == 0 && s.st_name != 0);
    Ok(imports.filter_map(|s| Some(elf.dynstrtab.get_at(s.st_name)?.to_string())).collect())
}

/// The `DT_SONAME` of an ELF file.
pub(crate) fn soname(bytes: &[u8]) -> Option<String> {
    dynamic_strings(bytes, DT_SONAME).ok()?.pop().map(String::from)
}

/// The names of the functions and variables that an ELF file exports.
pub(crate) fn exports(bytes: &[u8]) -> Result<HashSet<String>> {
    let elf = Elf::parse(bytes).map_err(|e| Error::new(e.to_string()))?;
    let exports = elf.dynsyms.iter().filter(|s| !s.is_import() && s.st_name != 0);
    Ok(exports.filter_map(|s| Some(elf.dynstrtab.get_at(s.st_name)?.to_string())).collect())
}

/// True if an ELF file exports a symbol of this name.
pub(crate) fn has_export(bytes: &[u8], symbol: &str) -> bool {
    exports(bytes).is_ok_and(|exports| exports.contains(symbol))
}

/// The major releases of clang that compiled an ELF file. Each leaves a string in the section
/// `.comment`, "Debian clang version 18.1.8 (11)". The list is empty if that section was stripped.
pub(crate) fn clang_releases(bytes: &[u8]) -> Vec<u32> {
    releases_in(&String::from_utf8_lossy(section(bytes, ".comment").unwrap_or_default()))
}

fn releases_in(comment: &str) -> Vec<u32> {
    let release = |compiler: &str| {
        let version = compiler.split_once("clang version ")?.1;
        version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    comment.split('\0').filter_map(release).collect()
}

/// True if an ELF file needs or contains an MPI library.
pub fn uses_mpi(bytes: &[u8]) -> bool {
    const LIBRARIES: [&str; 5] = ["libmpi.", "libmpich.", "libmpi_cxx.", "libmpi_mpifh.", "libmpicxx."];
    let needed = dynamic_strings(bytes, DT_NEEDED).unwrap_or_default();
    let is_mpi = |library: &str| LIBRARIES.iter().any(|name| library.starts_with(name)) || is_mpi_of_cray(library);
    needed.iter().any(|library| is_mpi(library)) || defines(bytes, "MPI_Init").unwrap_or(false)
}

/// True if this is the name of a library of Cray's MPICH, which contains the name of its compiler:
/// `libmpi_gnu_91.so.12`.
pub fn is_mpi_of_cray(library: &str) -> bool {
    const COMPILERS: [&str; 6] = ["cray", "gnu", "intel", "amd", "aocc", "nvidia"];
    library.strip_prefix("libmpi_").is_some_and(|rest| COMPILERS.iter().any(|compiler| rest.starts_with(compiler)))
}

/// True if the static symbol table has a definition of this name.
fn defines(bytes: &[u8], name: &str) -> Option<bool> {
    let (_, context, sections) = sections(bytes)?;
    let table = sections.iter().find(|section| section.sh_type == SHT_SYMTAB)?;
    let names = contents(bytes, sections.get(table.sh_link as usize)?)?;
    let count = table.sh_size.checked_div(table.sh_entsize)? as usize;
    let symbols = Symtab::parse(bytes, table.sh_offset as usize, count, context).ok()?;
    Some(symbols.iter().any(|symbol| !symbol.is_import() && is_string(names, symbol.st_name, name)))
}

/// The contents of the section of this name.
fn section<'a>(bytes: &'a [u8], name: &str) -> Option<&'a [u8]> {
    let (header, _, sections) = sections(bytes)?;
    let names = contents(bytes, sections.get(usize::from(header.e_shstrndx))?)?;
    contents(bytes, sections.iter().find(|section| is_string(names, section.sh_name, name))?)
}

fn sections(bytes: &[u8]) -> Option<(Header, Ctx, Vec<SectionHeader>)> {
    let (header, context) = begin(bytes).ok()?;
    let sections = SectionHeader::parse(bytes, header.e_shoff as usize, header.e_shnum.into(), context).ok()?;
    Some((header, context, sections))
}

fn contents<'a>(bytes: &'a [u8], section: &SectionHeader) -> Option<&'a [u8]> {
    bytes.get(section.file_range()?)
}

/// True if the string at this offset of a table is `string`.
fn is_string(table: &[u8], at: usize, string: &str) -> bool {
    table.get(at..).and_then(|s| s.strip_prefix(string.as_bytes())?.first()) == Some(&0)
}

#[cfg(test)]
#[path = "../../test/rust/unit/base/elf.rs"]
mod tests;
