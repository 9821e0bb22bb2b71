// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What the system shows of this process in `/proc`.
//!
//! By way of the calling thread: in `/proc/self` the main thread stands for the process, and
//! once that thread has ended by `pthread_exit` there are no files, no mappings and no
//! executable to be seen there.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// The program's file.
pub const EXECUTABLE: &str = "/proc/thread-self/exe";
/// The mappings.
pub const MAPS: &str = "/proc/thread-self/maps";
/// The descriptors.
pub const DESCRIPTORS: &str = "/proc/thread-self/fd";

/// The files that are mapped, by address. The kernel names them from the root, whatever name the
/// loader was given and whatever the current directory is by now.
pub struct Mappings(Vec<u8>);

impl Mappings {
    /// Those of now; none if they can't be read.
    pub fn now() -> Mappings {
        Mappings(std::fs::read(MAPS).unwrap_or_default())
    }

    /// The path of the file that is mapped at an address; where another file has replaced it
    /// since, of that one.
    pub fn file_at(&self, address: usize) -> Option<PathBuf> {
        let mut files = self.0.split(|b| *b == b'\n').filter_map(mapped_file);
        files.find(|(range, _)| range.contains(&address)).map(|(_, path)| path)
    }
}

/// Addresses and file of a line of `/proc/…/maps`; none if it is no file's.
fn mapped_file(line: &[u8]) -> Option<(Range<usize>, PathBuf)> {
    let path = &line[line.iter().position(|b| *b == b'/')?..];
    let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
    let range = std::str::from_utf8(line.split(|b| *b == b' ').next()?).ok()?;
    let (start, end) = range.split_once('-')?;
    let number = |digits| usize::from_str_radix(digits, 16).ok();
    Some((number(start)?..number(end)?, path_of(&unescaped(path, b"\n"))))
}

/// The bytes of a name in which the kernel has escaped these characters (`\012`).
pub fn unescaped(name: &[u8], characters: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, behind)) = rest.split_first() {
        let digits = behind.get(..3).filter(|_| first == b'\\').and_then(|d| std::str::from_utf8(d).ok());
        let escaped = digits.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|b| characters.contains(b));
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() { &behind[3..] } else { behind };
    }
    bytes
}

/// The path with these bytes.
pub fn path_of(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(bytes.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_found_by_address() {
        let maps = "1000-3000 r-xp 00000000 08:01 7                          /usr/lib/a b.so\n\
                    3000-4000 rw-p 00000000 00:00 0 \n\
                    4000-5000 rw-p 00000000 00:00 0                          [heap]\n\
                    5000-6000 r--p 00002000 08:01 8                          /x\\012y\\040 (deleted)\n";
        let maps = Mappings(maps.into());
        assert_eq!(maps.file_at(0x2fff), Some("/usr/lib/a b.so".into()));
        assert_eq!(maps.file_at(0x5000), Some("/x\ny\\040".into()));
        for nothing in [0xfff, 0x3000, 0x4000, 0x6000] {
            assert_eq!(maps.file_at(nothing), None, "{nothing:#x}");
        }
    }

    #[test]
    fn this_code_is_in_the_programs_file() {
        let path = Mappings::now().file_at(this_code_is_in_the_programs_file as *const () as usize);
        assert_eq!(path, std::fs::read_link(EXECUTABLE).ok());
    }

    #[test]
    fn only_what_is_escaped_is_translated() {
        let names: [(&[u8], &[u8]); 4] =
            [(b"a\\040b", b"a b"), (b"\\134040", b"\\040"), (b"\\0\\", b"\\0\\"), (b"\\101\\777", b"\\101\\777")];
        for (name, wanted) in names {
            assert_eq!(unescaped(name, b" \t\n\\"), wanted);
        }
    }
}
