// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/job/topology.rs`.

use super::*;
use crate::wire::hello::HELLO_LEN;

fn hello(role: Role) -> Hello {
    hello_of_this_process(role, "Some MPI 1.0".into())
}

fn verdict(hellos: &[Hello]) -> Result<Topology> {
    Topology::of(&hellos.iter().map(|h| Hello::decode(&h.encode())).collect::<Vec<_>>())
}

#[test]
fn a_record_survives_the_wire() {
    let numbers = Hello {
        backend: Backend::Offload,
        devices: 2,
        processes: 3,
        spawned: 4,
        earlier: 3,
        pid: 5,
        memory: 6,
        node: 7,
        pool: 8,
        ..hello(Role::Device)
    };
    let doorbell = Hello { doorbell: (8, 9), cores: vec![0, 1, 5], ..numbers };
    let text = |text: &str| text.to_string();
    let processor = node::Processor { machine: 9, vendor: text("Somebody"), name: text("A processor"), megahertz: 10 };
    let mut h = Hello { host: text("a"), processor, ..doorbell };
    assert_eq!(Hello::decode(&h.encode()).unwrap(), h);
    h.host = "ä".repeat(100);
    assert_eq!(Hello::decode(&h.encode()).unwrap().host, "ä".repeat(32));
}

#[test]
fn a_device_whose_shared_files_do_not_fit_has_no_unified_memory() {
    let (page, last) = (4096, (1 << 47) - 4096);
    let shared = vec![page..5 * page, 1 << 44..(1 << 44) + (1 << 40), last..1 << 47];
    let fits = Hello { outside: Some(page..9 * page), shared: shared.clone(), ..hello(Role::Device) };
    assert_eq!(Hello::decode(&fits.encode()).unwrap(), fits);
    let (mut too_many, mut too_large) = (shared.clone(), shared);
    too_many.push(6 * page..7 * page);
    too_large[1].end = 1 << 46;
    for shared in [too_many, too_large] {
        let read = Hello::decode(&Hello { shared, ..fits.clone() }.encode()).unwrap();
        assert_eq!((read.outside, read.shared), (None, vec![]));
    }
}

#[test]
fn jobs_that_work() {
    let (h, d) = (hello(Role::Host), hello(Role::Device));
    let team = |host, devices: &[usize]| Team { host, devices: devices.to_vec() };
    let ready = |hellos: &[&Hello], teams: &[Team]| {
        let hellos: Vec<Hello> = hellos.iter().map(|&h| h.clone()).collect();
        assert_eq!(verdict(&hellos).unwrap(), Topology::Ready(teams.to_vec()));
    };
    ready(&[&d, &d, &h], &[team(2, &[0, 1])]);
    ready(&[&h, &d], &[team(0, &[1])]);
    ready(&[&d, &d, &d, &h, &h], &[team(3, &[0, 2]), team(4, &[1])]);
    // The devices of its own node come first, but not more than its due.
    let (far_h, far_d) = (Hello { node: 1, ..h.clone() }, Hello { node: 1, ..d.clone() });
    ready(&[&far_d, &far_d, &d, &d, &h, &far_h], &[team(4, &[2, 3]), team(5, &[0, 1])]);
    ready(&[&far_d, &far_d, &far_d, &d, &h, &far_h], &[team(4, &[2, 3]), team(5, &[0, 1])]);
    assert_eq!(verdict(&[h.clone(), h]).unwrap(), Topology::HostsOnly);
}

#[test]
fn devices_share_the_cores_of_their_node() {
    let with = |role, node, cores: &[u16]| Hello { node, cores: cores.to_vec(), ..hello(role) };
    let cores = [0, 1, 4, 5, 8];
    let (h, d) = (with(Role::Host, 7, &cores), with(Role::Device, 7, &cores));
    let (far, few) = (with(Role::Device, 8, &[3]), with(Role::Device, 9, &[3]));
    let job = [h, d.clone(), far, d, few.clone(), few];
    let share = |rank| share_of_cores(&job, rank, 0);
    assert_eq!((share(1), share(3)), (Some(&[0, 1][..]), Some(&[4, 5, 8][..])));
    assert_eq!((share(2), share(4)), (Some(&[3][..]), None));
    assert_eq!((sharers(&job, 1), sharers(&job, 2)), (2, 1));
    let mut spawned = job[..2].to_vec();
    spawned[1].spawned = 3;
    assert_eq!((sharers(&spawned, 1), share_of_cores(&spawned, 1, 0)), (3, None));
    let two =
        [Hello { cores: vec![], ..job[0].clone() }, Hello { devices: 2, cores: vec![0, 1, 2, 3, 4], ..job[1].clone() }];
    assert_eq!((share_of_cores(&two, 1, 0), share_of_cores(&two, 1, 1)), (Some(&[0, 1][..]), Some(&[2, 3, 4][..])));
    assert_eq!(sharers(&two, 1), 2);
}

#[test]
fn jobs_that_do_not_work_say_why() {
    let (h, d) = (hello(Role::Host), hello(Role::Device));
    let says = |hellos: &[Hello], text: &str| {
        let e = verdict(hellos).unwrap_err().to_string();
        assert!(e.contains(text), "{e}");
    };
    says(&[d.clone(), d.clone()], "no program");
    says(
        &[h.clone(), d.clone(), h.clone()],
        "2 processes of programs need at least one device each, and the job has 1",
    );
    let other_processor = node::Processor { machine: 21, ..d.processor.clone() };
    says(&[Hello { processor: other_processor.clone(), ..d.clone() }, h.clone()], "ELF machine 21");
    // An accelerator's node may have another processor.
    let other = Hello { processor: other_processor, backend: Backend::Offload, ..d.clone() };
    assert!(verdict(&[other.clone(), h.clone()]).is_ok());
    says(&[Hello { page_size: 65536, ..other }, h.clone()], "page size 65536");
    says(&[Hello { page_size: 65536, ..d.clone() }, h], "page size 65536");
    assert!(Topology::of(&[Hello::decode(&[0; HELLO_LEN]), Ok(d)]).is_err());
}

#[test]
fn accelerators_are_counted_on_each_node() {
    let (h, cpu) = (hello(Role::Host), hello(Role::Device));
    let on = |node| Hello { node, backend: Backend::Offload, ..cpu.clone() };
    // A program has the variable too.
    let h = Hello { node: 0, backend: Backend::Offload, ..h };
    let job = [h, on(0), on(1), Hello { node: 0, ..cpu.clone() }, on(0), on(1)];
    let places: Vec<usize> = (0..job.len()).map(|rank| accelerator_of(&job, rank)).collect();
    assert_eq!((places[1], places[4], places[2], places[5]), (0, 1, 0, 1));
    assert_eq!(rivals_of(&job, 4, &[1, 2, 4]), [(0, Turn::Earlier), (1, Turn::Later)]);
    assert_eq!(rivals_of(&job, 1, &[1, 2]), [(0, Turn::Later), (1, Turn::Unknown)]);
    // The second one of three programs, each of which spawns two devices on a node, and the last of two on another one.
    let mut spawned = job.clone();
    [1, 4].into_iter().for_each(|rank| (spawned[rank].earlier, spawned[rank].spawned) = (2, 6));
    [2, 5].into_iter().for_each(|rank| (spawned[rank].earlier, spawned[rank].spawned) = (1, 3));
    assert_eq!([1, 4, 2, 5].map(|rank| accelerator_of(&spawned, rank)), [2, 3, 1, 2]);
    let others = [0, 1, 4, 5].map(|place| (place, Turn::Unknown));
    let rivals = [vec![(2, Turn::Earlier), (3, Turn::Later)], others.to_vec()].concat();
    assert_eq!(rivals_of(&spawned, 4, &[1, 2, 4, 5]), rivals);
    assert_eq!(rivals_of(&spawned, 2, &[1, 2, 4, 5]), [(1, Turn::Later), (2, Turn::Later), (0, Turn::Unknown)]);
    let [h, a, b, c, d, e] = job;
    let others = [h, a, b, c, Hello { pool: 1, ..d }, e];
    assert_eq!(
        (rivals_of(&others, 4, &[1, 4]), rivals_of(&others, 5, &[2, 5])),
        (vec![(1, Turn::Later)], vec![(0, Turn::Earlier), (1, Turn::Later)])
    );
}

#[test]
fn other_builds_are_refused() {
    // The protocol and the version follow the magic number, in this and every other version.
    for (at, bytes, text) in [(8, &999u32.to_le_bytes()[..], "protocol 999"), (12, b"0.0.9\0", "omptarget-mpi 0.0.9")] {
        let mut record = hello(Role::Device).encode();
        record[at..at + bytes.len()].copy_from_slice(bytes);
        let e = Topology::of(&[Hello::decode(&record), Ok(hello(Role::Host))]).unwrap_err().to_string();
        assert!(e.contains(text), "{e}");
    }
}
