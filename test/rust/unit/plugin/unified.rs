// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/unified/mod.rs`: where program and device have memory at the same addresses.

use super::*;
use crate::job::topology::hello_of_this_process;
use crate::wire::hello::Role;

const OWN: &str = "10000000-10003000 rw-p 00000000 00:00 0 ";
const FILE: &str = "20000000-20100000 rw-s 00000000 00:01 77 /dev/shm/of-a-launcher";
const OTHER_FILE: &str = "20000000-20100000 rw-s 00000000 00:01 78 /dev/shm/of-another";
const RESERVED: &str = "30000000-40000000 ---p 00000000 00:00 0 ";

fn device(outside: Option<Range<u64>>) -> Hello {
    Hello { outside, ..hello_of_this_process(Role::Device, "Some MPI 1.0".into()) }
}

/// What a program with these mappings has in common with a device that has memory `outside` of the window and `shared`
/// files there, and these mappings, if they can be seen.
fn common(
    here: &[&str],
    outside: Range<u64>,
    shared: &[Range<u64>],
    theirs: Option<&[&str]>,
) -> Option<(Range<u64>, Range<u64>)> {
    let mappings = |lines: &[&str]| Mappings::of_text(&(lines.join("\n") + "\n"));
    let device = Hello { shared: shared.to_vec(), ..device(Some(outside.clone())) };
    collision(&device, &outside, &mappings(here), || theirs.map(mappings))
}

#[test]
fn devices_without_a_window_say_why() {
    let why = |device: &Hello| obstacle(device, true, None).unwrap();
    assert!(why(&Hello { backend: Backend::Offload, ..device(None) }).contains("OMPTARGET_MPI_BACKEND"));
    assert!(why(&Hello { devices: 2, ..device(None) }).contains("OMPTARGET_MPI_DEVICES_PER_RANK"));
    assert!(why(&Hello { processes: 2, ..device(None) }).contains("OMPTARGET_MPI_SPARES"));
    assert!(why(&device(None)).contains("ulimit -H -s unlimited"));
}

#[test]
fn memory_at_the_same_addresses_is_found() {
    let here = [OWN, RESERVED];
    let own = 0x1000_0000..0x1000_3000;
    let free = 0x5000_0000..0x5000_1000;
    for theirs in [None, Some(&[OWN][..])] {
        // Only what both have; reserved addresses are nothing that the program uses.
        assert_eq!(common(&here, free.clone(), &[], theirs), None);
        assert_eq!(common(&here, 0x3000_0000..0x3100_0000, &[], theirs), None);
        assert_eq!(common(&here, own.end..own.end + 0x1000, &[], theirs), None);
        assert_eq!(common(&here, own.start - 0x1000..own.start, &[], theirs), None);
        for outside in [own.end - 0x1000..own.end + 0x1000, own.start - 0x1000..own.start + 1, own.start..own.end] {
            assert_eq!(common(&here, outside.clone(), &[], theirs), Some((own.clone(), outside)));
        }
        // A file that the device shares with others is no less its own.
        let shared = [free.clone(), own.clone()];
        assert_eq!(common(&here, free.clone(), &shared, theirs), Some((own.clone(), own.clone())));
    }
    // The window is the device's.
    let at = layout::WINDOW.start + 0x1000;
    let in_window = format!("{at:x}-{:x} rw-p 00000000 00:00 0 ", at + 0x1000);
    assert_eq!(common(&[&in_window], free, &[], None), Some((at..at + 0x1000, layout::WINDOW)));
}

#[test]
fn a_file_that_both_share_is_no_collision() {
    let (free, file) = (0x5000_0000..0x5000_1000, 0x2000_0000..0x2010_0000);
    let with = |here: &[&str], theirs| common(here, free.clone(), std::slice::from_ref(&file), theirs);
    let found = Some((file.clone(), file.clone()));
    assert_eq!(with(&[OWN, FILE], Some(&[FILE])), None);
    assert_eq!(with(&[OWN, FILE], None), found, "the device is on another node");
    assert_eq!(with(&[OWN, FILE], Some(&[OTHER_FILE])), found);
    assert_eq!(with(&[OWN, FILE], Some(&[])), found, "the device's mappings can't be read");
    let private = FILE.replace("rw-s", "rw-p");
    assert_eq!(with(&[OWN, &private], Some(&[&private])), found);
}

#[test]
fn the_obstacle_names_both_places() {
    let map = |protection| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which is never used.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), 1 << 20, protection, flags, -1, 0) };
        assert_ne!(at, libc::MAP_FAILED);
        at as u64
    };
    let at = map(libc::PROT_READ);
    let range = at + 0x1000..at + 0x2000;
    let why = FirstStack { range: range.clone(), reserved: OnceLock::new() }.obstacle().unwrap();
    assert!(why.contains(&format!("where the device has its own, {:#x} to {:#x}", range.start, range.end)), "{why}");
    assert!(why.starts_with("the program has memory at 0x"), "{why}");
    // In the middle of what can't be used there is nothing.
    let middle = map(libc::PROT_NONE) + (1 << 19);
    assert_eq!(FirstStack { range: middle..middle + 0x1000, reserved: OnceLock::new() }.obstacle(), None);
}
