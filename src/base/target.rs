// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The targets of images and devices: a machine and, for accelerators, an architecture.

use super::elf::{self, ACCELERATORS, AMDGPU, CUDA, HEADER, MACHINE};
use super::{Error, Result, bitcode};
use goblin::elf::header::{self, EI_ABIVERSION, Header};
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    /// `e_machine` of the target's ELF files.
    pub(crate) machine: u16,
    /// The number of the architecture in the `e_flags` of these files; 0 if it is not known or does not matter.
    pub(crate) architecture: u32,
}

/// What executes a device's regions.
#[derive(Clone, Debug)]
pub(crate) struct Executor {
    pub(crate) target: Target,
    /// An accelerator in words, for the user; empty for processors.
    pub(crate) description: String,
    /// For an accelerator.
    pub(crate) large: LargeCopies,
}

/// How large data moves from and to an accelerator's arena.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LargeCopies {
    /// Through buffers of ordinary memory.
    Buffered,
    /// Through buffers that the accelerator's driver has pinned.
    Pinned,
    /// MPI itself accesses the accelerator's memory.
    Direct,
}

impl LargeCopies {
    const ALL: [LargeCopies; 3] = [LargeCopies::Buffered, LargeCopies::Pinned, LargeCopies::Direct];

    /// For messages.
    pub(crate) fn to_number(self) -> u64 {
        self as u64
    }

    pub(crate) fn of_number(number: u64) -> LargeCopies {
        LargeCopies::ALL.into_iter().find(|large| large.to_number() == number).unwrap_or(LargeCopies::Buffered)
    }
}

impl fmt::Display for LargeCopies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LargeCopies::Buffered => "through buffers of ordinary memory",
            LargeCopies::Pinned => "through pinned buffers",
            LargeCopies::Direct => "by MPI, from and to its memory",
        })
    }
}

impl Executor {
    /// Processors of this machine.
    pub(crate) fn of_machine(machine: u16) -> Executor {
        Executor {
            target: Target { machine, architecture: 0 },
            description: String::new(),
            large: LargeCopies::Buffered,
        }
    }
}

/// Numbers of AMD's architectures (`EF_AMDGPU_MACH`). libomptarget itself checks images for others.
const AMD: [(u32, &str); 32] = [
    (0x2c, "gfx900"),
    (0x2d, "gfx902"),
    (0x2e, "gfx904"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x31, "gfx909"),
    (0x32, "gfx90c"),
    (0x3f, "gfx90a"),
    (0x40, "gfx940"),
    (0x4b, "gfx941"),
    (0x4c, "gfx942"),
    (0x4f, "gfx950"),
    (0x33, "gfx1010"),
    (0x34, "gfx1011"),
    (0x35, "gfx1012"),
    (0x42, "gfx1013"),
    (0x36, "gfx1030"),
    (0x37, "gfx1031"),
    (0x38, "gfx1032"),
    (0x39, "gfx1033"),
    (0x3e, "gfx1034"),
    (0x3d, "gfx1035"),
    (0x45, "gfx1036"),
    (0x41, "gfx1100"),
    (0x46, "gfx1101"),
    (0x47, "gfx1102"),
    (0x44, "gfx1103"),
    (0x43, "gfx1150"),
    (0x4a, "gfx1151"),
    (0x55, "gfx1152"),
    (0x48, "gfx1200"),
    (0x4e, "gfx1201"),
];

/// The first bytes of an archive of clang-offload-packager. A program has each image in an archive, which libomptarget
/// opens before it shows the image to plugins.
const PACKAGER: [u8; 4] = *b"\x10\xff\x10\xad";
/// The last version of CUDA's ABI with the architecture in the lowest byte of `e_flags`; later ones use the next byte.
const CUDA_ABI: u8 = 7;

impl Target {
    /// This machine's processors.
    pub(crate) const HOST: Target = Target { machine: elf::MACHINE, architecture: 0 };

    /// An accelerator of this compute capability.
    pub(crate) fn cuda(major: u32, minor: u32) -> Target {
        Target { machine: CUDA, architecture: 10 * major + minor }
    }

    /// An accelerator with this name in its driver.
    pub(crate) fn amd(name: &str) -> Target {
        let known = AMD.iter().find(|(_, known)| *known == name);
        Target { machine: AMDGPU, architecture: known.map_or(0, |(number, _)| *number) }
    }

    /// True for an accelerator.
    pub(crate) fn is_accelerator(self) -> bool {
        ACCELERATORS.contains(&self.machine)
    }

    /// The target of an image: an ELF file, by its header, or bitcode, by its triple.
    pub(crate) fn of_image(bytes: &[u8]) -> Result<Target> {
        if is_bitcode(bytes) {
            return Target::of_bitcode(bytes);
        }
        if bytes.starts_with(&PACKAGER) {
            return Err(Error::new("an archive of offload-packager that libomptarget has not opened"));
        }
        let Header { e_machine: machine, e_flags, e_ident, .. } = elf::parse_header(bytes)?;
        let architecture = match machine {
            CUDA if e_ident[EI_ABIVERSION] <= CUDA_ABI => e_flags & 0xff,
            CUDA => e_flags >> 8 & 0xff,
            AMDGPU => Some(e_flags & 0xff).filter(|flags| AMD.iter().any(|(known, _)| flags == known)).unwrap_or(0),
            _ => 0,
        };
        Ok(Target { machine, architecture })
    }

    /// The target of bitcode. It may have been built for another architecture, but is compiled for the one that
    /// executes it.
    fn of_bitcode(bytes: &[u8]) -> Result<Target> {
        const MACHINES: [(&str, u16); 3] = [("nvptx64-", CUDA), ("amdgcn-", AMDGPU), ("x86_64-", header::EM_X86_64)];
        let triple = bitcode::triple(bytes).ok_or_else(|| Error::new("bitcode that can't be read"))?;
        let known = MACHINES.iter().find(|(begin, _)| triple.starts_with(begin));
        let target = known.map(|&(_, machine)| Target { machine, architecture: 0 });
        target.ok_or_else(|| Error::new(format!("bitcode for {triple}, which is no known machine")))
    }

    /// For a message.
    pub(crate) fn to_number(self) -> u64 {
        u64::from(self.machine) << 32 | u64::from(self.architecture)
    }

    pub(crate) fn of_number(number: u64) -> Target {
        Target { machine: (number >> 32) as u16, architecture: number as u32 }
    }

    /// Fails unless an image can be executed here. A minor version of CUDA executes images for earlier ones.
    pub(crate) fn check(self, image: Target) -> Result<()> {
        let (here, there) = (self.architecture, image.architecture);
        let fits = here == 0
            || there == 0
            || match self.machine {
                CUDA => here / 10 == there / 10 && here >= there,
                _ => here == there,
            };
        if self.machine == image.machine && fits {
            return Ok(());
        }
        // Devices prefer NVIDIA's accelerators.
        let hint = match (self.machine, image.machine) {
            (CUDA, AMDGPU) => "; on a node that has AMD's too, an empty CUDA_VISIBLE_DEVICES makes these the devices",
            _ => "",
        };
        Err(Error::new(format!("built for {image}, not for the device's {self}{hint}")))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(elf::machine_name(self.machine))?;
        let amd = AMD.iter().find(|(number, _)| self.machine == AMDGPU && *number == self.architecture);
        match (amd, self.architecture) {
            (Some((_, name)), _) => write!(f, " {name}"),
            (None, 0) => Ok(()),
            (None, number) => write!(f, " sm_{number}"),
        }
    }
}

/// The header of an empty 64-bit shared object for `target`.
pub(crate) fn empty(target: Target) -> Vec<u8> {
    let mut file = vec![0; HEADER];
    file[..header::SELFMAG].copy_from_slice(header::ELFMAG);
    file[header::EI_CLASS] = header::ELFCLASS64;
    file[header::EI_DATA] = if cfg!(target_endian = "little") { header::ELFDATA2LSB } else { header::ELFDATA2MSB };
    file[header::EI_VERSION] = header::EV_CURRENT;
    file[header::EI_ABIVERSION] = if target.machine == CUDA { CUDA_ABI } else { 0 };
    // e_type, e_machine, e_version, e_flags, e_ehsize.
    file[16..18].copy_from_slice(&header::ET_DYN.to_ne_bytes());
    file[18..20].copy_from_slice(&target.machine.to_ne_bytes());
    file[20..24].copy_from_slice(&u32::from(header::EV_CURRENT).to_ne_bytes());
    file[48..52].copy_from_slice(&target.architecture.to_ne_bytes());
    file[52..54].copy_from_slice(&(HEADER as u16).to_ne_bytes());
    file
}

/// True for LLVM's bitcode, which libomptarget's plugins may compile.
pub(crate) fn is_bitcode(image: &[u8]) -> bool {
    image.starts_with(&bitcode::MAGIC)
}

/// The image in an archive of clang-offload-packager.
fn packed(archive: &[u8]) -> Option<&[u8]> {
    /// Offsets in the archive: of its entry's offset; and in the entry: of the image's offset and length.
    const ENTRY: usize = 16;
    const IMAGE: [usize; 2] = [24, 32];
    let number = |at: usize| {
        let bytes = archive.get(at..at.checked_add(8)?)?;
        usize::try_from(u64::from_le_bytes(bytes.try_into().ok()?)).ok()
    };
    let entry = number(ENTRY)?;
    let [start, len] = IMAGE.map(|field| number(entry.checked_add(field)?));
    archive.get(start?..start?.checked_add(len?)?)
}

/// The targets of the images in a program's file: ELF files, and bitcode in archives.
pub(crate) fn images_in(program: &[u8]) -> impl Iterator<Item = Target> {
    /// Images and archives have this alignment.
    const ALIGN: usize = 8;
    let places = (ALIGN..program.len().saturating_sub(HEADER)).step_by(ALIGN).map(|at| &program[at..]);
    places.filter_map(|place| match place {
        _ if place.starts_with(header::ELFMAG) => Target::of_image(&place[..HEADER]).ok(),
        _ if place.starts_with(&PACKAGER) => {
            packed(place).filter(|image| is_bitcode(image)).and_then(|i| Target::of_image(i).ok())
        }
        _ => None,
    })
}

/// True if a program with these images has one for an accelerator, and none for processors.
pub(crate) fn are_for_accelerators(images: &[Target]) -> bool {
    images.iter().any(|image| image.is_accelerator()) && images.iter().all(|image| image.machine != MACHINE)
}

#[cfg(test)]
#[path = "../../test/rust/unit/base/target.rs"]
mod tests;
