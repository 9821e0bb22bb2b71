// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What must hold of any bytes from outside: the fuzz targets and `test/rust/corpus.rs` feed
//! these functions. Each returns whether the bytes were valid, and panics at a bug.

use omptarget_mpi::base::elf::{self, Image};
use omptarget_mpi::base::name;
use omptarget_mpi::base::settings::{FRAGMENTS, NAMES, Settings, WORKERS_MAX};
use omptarget_mpi::job::hosts::{self, Host};
use omptarget_mpi::job::topology::hello_of_this_process;
use omptarget_mpi::sys::process::Mappings;
use omptarget_mpi::wire::MESSAGE_MAX;
use omptarget_mpi::wire::command::{CONTROL, Command, Head, Operation, Operations, Writer, libraries};
use omptarget_mpi::wire::control::Control;
use omptarget_mpi::wire::hello::{HELLO_LEN, Hello, Role};
use omptarget_mpi::wire::record::{Record, Records};
use omptarget_mpi::wire::reply::{self, Changes, Reply};
use omptarget_mpi::workers::packet::Packet;
use std::ffi::OsString;
use std::fmt::Debug;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::ffi::OsStringExt;
use std::sync::LazyLock;

/// A message: the first byte chooses its kind. What is read must survive being written.
pub fn wire(input: &[u8]) -> bool {
    let Some((kind, bytes)) = input.split_first() else { return false };
    match kind {
        b'p' => packet(bytes),
        _ if kind % 3 == 0 => commands(bytes),
        _ if kind % 3 == 1 => reply(bytes),
        _ => hello(bytes) | hello(&own_version(bytes)),
    }
}

/// A packet between a rank and its worker. There is one way to write one.
fn packet(bytes: &[u8]) -> bool {
    let Ok((generation, packet)) = Packet::parse(bytes) else { return false };
    let mut copy = Vec::new();
    packet.write(generation, &mut copy);
    assert_eq!(copy, bytes);
    true
}

fn commands(bytes: &[u8]) -> bool {
    match Operations::open(bytes) {
        Ok((head, rest)) if head.queue == CONTROL => operations::<Control<'_>>(bytes, head, rest),
        Ok((head, rest)) => operations::<Command<'_>>(bytes, head, rest),
        Err(_) => false,
    }
}

fn operations<'a, T>(bytes: &'a [u8], head: Head, mut rest: Operations<'a>) -> bool
where
    T: Operation<'a> + Debug + PartialEq,
{
    let mut copy = Vec::new();
    Head::begin(&mut copy, head.queue, head.fresh);
    Head::patch(&mut copy, head.seq, head.core, head.merged);
    loop {
        let position = rest.position(bytes);
        let taken = rest.take::<T>();
        let mut resumed = Operations::resume(bytes, position);
        match (taken, resumed.take::<T>()) {
            (Ok(Some(operation)), Ok(Some(again))) => {
                assert_eq!(operation, again);
                assert_eq!(rest.position(bytes), resumed.position(bytes));
                assert!(rest.position(bytes) > position, "no progress");
                Writer(&mut copy).push(operation);
            }
            (Ok(None), Ok(None)) => break,
            (Err(_), Err(_)) => return false,
            (taken, again) => panic!("{taken:?} and then {again:?} at {position}"),
        }
    }
    // There is one way to write a message.
    assert_eq!(copy, bytes);
    true
}

fn reply(bytes: &[u8]) -> bool {
    let Ok(reply) = Reply::parse(bytes) else { return false };
    let mut copy = Vec::new();
    match &reply {
        Reply::Done { seq, bytes } => {
            reply::begin_done(&mut copy, *seq);
            copy.extend_from_slice(bytes);
        }
        Reply::Failed { seq, failure } => reply::failed(&mut copy, *seq, failure),
        Reply::Output { stream, bytes } => {
            reply::begin_output(&mut copy, *stream);
            copy.extend_from_slice(bytes);
        }
        Reply::Fetch { .. } | Reply::ChangedThere { .. } | Reply::ChangedAside { .. } | Reply::Find { .. } => {
            reply.write(&mut copy)
        }
        Reply::Changed { seq, changes } => {
            reply::begin_changed(&mut copy, *seq);
            let mut rest = *changes;
            while let Some((at, new, old)) = rest.take().expect("what was read is valid") {
                assert_eq!(new.len(), old.len());
                Changes::push(&mut copy, at, new, old);
            }
        }
        Reply::Records(all) => {
            reply::begin_records(&mut copy);
            if !records(all.clone(), &mut copy) {
                return false;
            }
        }
    }
    let again = Reply::parse(&copy).expect("a written reply is valid");
    // The text of a failure is cut to the room that a message has.
    if copy.len() < MESSAGE_MAX || !matches!(reply, Reply::Failed { .. }) {
        assert_eq!(again, reply);
    }
    true
}

/// Writes records again; there is one way to do so. False if some are not valid.
fn records(mut rest: Records<'_>, copy: &mut Vec<u8>) -> bool {
    loop {
        let record = match rest.take() {
            Ok(Some(record)) => record,
            Ok(None) => return true,
            Err(_) => return false,
        };
        if let Record::Event(e) = record {
            assert!(e.begin <= e.end, "{e:?}");
        }
        record.write(copy);
    }
}

fn hello(bytes: &[u8]) -> bool {
    let Ok(hello) = Hello::decode(bytes) else { return false };
    let again = Hello::decode(&hello.encode()).expect("a written record is valid");
    // Texts are cut to their room; unknown bytes in one may have become longer.
    let cut = |room: usize, text: &str, full: &str| {
        assert!(text == full || full.len() >= room && text.len() > room - 4 && full.starts_with(text));
    };
    cut(64, &again.host, &hello.host);
    cut(64, &again.mpi, &hello.mpi);
    cut(16, &again.processor.vendor, &hello.processor.vendor);
    cut(64, &again.processor.name, &hello.processor.name);
    let Hello { host, mpi, processor, .. } = hello.clone();
    assert_eq!(again.processor.megahertz, processor.megahertz);
    assert_eq!(Hello { host, mpi, processor, ..again }, hello);
    true
}

/// Puts this build's version in front, in the four fields that never move.
fn own_version(bytes: &[u8]) -> Vec<u8> {
    const FIXED: usize = 8 + 4 + 64 + 4;
    static OWN: LazyLock<[u8; HELLO_LEN]> =
        LazyLock::new(|| hello_of_this_process(Role::Device, String::new()).encode());
    [&OWN[..FIXED], bytes.get(FIXED..).unwrap_or_default()].concat()
}

/// A device image: what is read of one must be sane.
pub fn image(bytes: &[u8]) -> bool {
    let machine = bytes.get(18..).and_then(|b| b.first_chunk()).map_or(elf::MACHINE, |b| u16::from_ne_bytes(*b));
    let _ = elf::check(bytes, elf::MACHINE);
    let uses_mpi = elf::uses_mpi(bytes);
    let Ok(image) = Image::parse(bytes, machine) else { return false };

    elf::check(bytes, machine).expect("what was read passes the check");
    assert!(uses_mpi || !image.needed.iter().any(|n| n.starts_with("libmpi.so")));
    let span = &image.span;
    assert!(span.start < span.end && span.end <= 1 << 46, "{span:x?}");
    assert!(span.start % 4096 == 0 && span.end % 4096 == 0, "{span:x?}");
    for range in image.code.iter().chain(&image.data) {
        assert!(span.start <= range.start && range.start <= range.end && range.end <= span.end, "{image:x?}");
    }
    for (name, symbol) in &image.symbols {
        assert!(!name.is_empty() && span.contains(&symbol.value), "{name}: {symbol:x?} in {span:x?}");
    }
    true
}

/// Text: the first byte chooses its kind.
pub fn text(input: &[u8]) -> bool {
    let Some((kind, bytes)) = input.split_first() else { return false };
    let text = String::from_utf8_lossy(bytes);
    match kind % 6 {
        0 => hosts::parse_list(&text).is_ok_and(|hosts| place(&hosts, bytes)),
        1 => hosts::parse_lines(&text).is_ok_and(|hosts| place(&hosts, bytes)),
        2 => settings(bytes),
        3 => libraries(bytes)
            .iter()
            .all(|(name, path)| !name.contains('\0') && !path.as_os_str().as_bytes().contains(&0)),
        4 => mapping(&text),
        _ => kernels(&text),
    }
}

/// Places some devices on hosts: as many as are asked for, on none more than it may have.
fn place(hosts: &[Host], bytes: &[u8]) -> bool {
    let number = |at: usize| bytes.get(at..).and_then(|b| b.first_chunk()).map(|b| u32::from_le_bytes(*b));
    for host in hosts {
        assert!(!host.name.is_empty() && host.slots.is_none_or(|n| (1..=65_536).contains(&n)), "{host:?}");
    }
    let wanted = [(None, None), (number(0), None), (None, number(1)), (number(2), number(3)), (Some(7), None)];
    let (devices, per_node) = wanted[bytes.len() % wanted.len()];
    let (devices, per_node) = (devices.filter(|&n| n > 0), per_node.filter(|&n| n > 0));
    let Ok((n, placed)) = hosts::place(hosts, devices, per_node) else { return false };
    assert!((1..=65_536).contains(&n) && devices.is_none_or(|d| d == n));
    assert_eq!(placed.iter().map(|p| p.1).sum::<u32>(), if hosts.is_empty() { 0 } else { n });
    assert!(placed.len() <= hosts.len() && placed.iter().all(|p| p.1 > 0));
    true
}

/// The value of every variable, one a line. What they make is within what docs/user/configuration.md says.
fn settings(bytes: &[u8]) -> bool {
    let mut lines = bytes.split(|&b| b == b'\n');
    let values = NAMES.map(|name| (format!("OMPTARGET_MPI_{name}"), lines.next().map(<[u8]>::to_vec)));
    let get = |name: &str| values.iter().find(|v| v.0 == name)?.1.clone().filter(|v| !v.is_empty());
    let settings = match Settings::read(|name| get(name).map(OsString::from_vec)) {
        Ok(settings) => settings,
        Err(e) => {
            assert!(e.to_string().contains("OMPTARGET_MPI_"), "{e}");
            return false;
        }
    };
    assert!((1..=86_400).contains(&settings.start_timeout.as_secs()), "{settings:?}");
    assert!(settings.memory.is_none_or(|n| (1 << 20..=1 << 44).contains(&n)), "{settings:?}");
    assert!(FRAGMENTS.contains(&settings.fragment), "{settings:?}");
    assert!((1..=WORKERS_MAX).contains(&settings.devices_per_rank) && settings.spares <= 1 << 20, "{settings:?}");
    assert!(settings.heartbeat.as_secs() <= 86_400 && settings.journal <= 1 << 44, "{settings:?}");
    assert!(settings.devices.is_none_or(|n| (1..=65_536).contains(&n)), "{settings:?}");
    true
}

/// What lies at an address: the first line's, in hexadecimal digits; the rest are the maps.
fn mapping(text: &str) -> bool {
    let (address, maps) = text.split_once('\n').unwrap_or((text, ""));
    let found = Mappings::of_text(maps).at(u64::from_str_radix(address, 16).unwrap_or(1 << 20));
    assert!(found.as_ref().is_none_or(|(_, what)| what.starts_with('[') || maps.contains(what.as_str())));
    found.is_some()
}

/// Kernels' names, one a line: each has one, and those of different kernels of one file are
/// told apart.
fn kernels(text: &str) -> bool {
    // A demangler may take 50 ms for a longer one that is none.
    let symbols: Vec<String> = text.lines().take(8).map(|line| line.chars().take(120).collect()).collect();
    let names = name::of_kernels(&symbols);
    assert_eq!(names.len(), symbols.len());
    for (name, symbol) in names.iter().zip(&symbols) {
        assert!(!name.is_empty() || symbol.is_empty());
        assert!(symbol.starts_with("__omp_offloading_") || name == symbol);
    }
    names != symbols
}
