// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/process.rs`.

use super::*;

#[test]
fn stopped_processes_do_not_run() {
    let mut sleeper = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let pid = sleeper.id();
    let becomes = |running| {
        let soon = std::time::Instant::now() + std::time::Duration::from_secs(60);
        while is_running(pid) != running && std::time::Instant::now() < soon {
            std::thread::yield_now();
        }
        is_running(pid) == running
    };
    let send = |signal| kill_process(Pid::from_raw(pid as i32).unwrap(), signal).unwrap();
    assert!(becomes(true));
    send(Signal::STOP);
    let stops = becomes(false);
    send(Signal::CONT);
    let goes_on = becomes(true);
    sleeper.kill().unwrap();
    // Dead, though not reaped yet.
    let dies = becomes(false);
    sleeper.wait().unwrap();
    assert!(stops && goes_on && dies && !is_running(pid));
}

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
fn mappings_have_names() {
    let maps = b"1000-3000 r-xp 00000000 08:01 7                          /usr/lib/a b\xff.so\n\
                 3000-4000 -w-p 00000000 00:00 0 \n\
                 4000-5000 rw-p 00000000 00:00 0                          [heap]\n\
                 5000-6000 r--p 00000000 08:01 8                          /x (deleted)\n";
    let maps = Mappings(maps.into());
    for (address, found) in [
        (0x2fff, Some((true, "/usr/lib/a b\u{fffd}.so"))),
        (0x3000, Some((false, "[anonymous memory]"))),
        (0x4fff, Some((true, "[heap]"))),
        (0x5000, Some((true, "/x"))),
        (0xfff, None),
        (0x6000, None),
    ] {
        assert_eq!(maps.at(address), found.map(|(readable, name)| (readable, name.to_string())), "{address:#x}");
        assert_eq!(maps.is_code(address), address == 0x2fff, "{address:#x}");
    }
}

#[test]
fn neighbors_among_mappings_are_one_range() {
    let maps = "1000-3000 r-xp 00000000 08:01 7                          /usr/lib/a.so\n\
                3000-4000 ---p 00000000 00:00 0 \n\
                5000-6000 rw-p 00000000 00:00 0                          [heap]\n\
                100000-200000 ---p 00000000 00:00 0 \n\
                300000-301000 rw-p 00000000 00:00 0 \n\
                damage\n";
    let maps = Mappings(maps.into());
    assert_eq!(maps.accessible(), [0x1000..0x6000, 0x30_0000..0x30_1000]);
    assert_eq!(
        maps.free_in(0x2000..0x30_2000),
        [0x4000..0x5000, 0x6000..0x10_0000, 0x20_0000..0x30_0000, 0x30_1000..0x30_2000]
    );
    assert_eq!(maps.free_in(0x1000..0x4000), []);
    assert_eq!(maps.free_in(0..0x1000).first(), Some(&(0..0x1000)));
}

#[test]
fn a_range_is_writable_if_all_of_it_is() {
    let maps = "1000-3000 rw-p 00000000 00:00 0 \n\
                3000-4000 -w-s 00000000 08:01 7                          /x rw-p\n\
                4000-5000 r--p 00000000 08:01 7                          /x -w-p\n\
                6000-7000 rw-p 00000000 00:00 0 \n\
                8000-9000 ---p 00000000 00:00 0 \n\
                9000-a000 r-xp 00000000 08:01 7                          w\n";
    let maps = Mappings(maps.into());
    for range in [0x1000..0x4000, 0x2000..0x3008, 0x3ff8..0x4000, 0x6000..0x7000] {
        assert!(maps.is_writable(range.clone()), "{range:#x?}");
    }
    for range in [
        0..8,
        0xfff..0x1001,
        0x3ff8..0x4001,
        0x4000..0x4001,
        0x5000..0x6001,
        0x6000..0x7001,
        0x8000..0x8008,
        0x9000..0x9008,
    ] {
        assert!(!maps.is_writable(range.clone()), "{range:#x?}");
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
