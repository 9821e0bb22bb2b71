// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/job/spawned.rs`.

use super::*;

fn places_of(hosts: &str, devices_per_rank: u32, ranks: usize, world: (usize, usize)) -> Result<(String, String)> {
    places(&Settings { hosts: Some(hosts.into()), devices_per_rank, ..Settings::default() }, ranks, world, (0, 1))
}

#[test]
fn devices_go_where_there_is_room() {
    let hosts = |hosts: &str, devices_per_rank, ranks| places_of(hosts, devices_per_rank, ranks, (0, 1)).unwrap().0;
    assert_eq!(hosts("a:2,b", 1, 4), "a:2,b:1,a:1");
    assert_eq!(hosts("a:4,b:8", 4, 3), "a:1,b:2");
    assert_eq!(hosts("a,b", 4, 2), "a:1,b:1");
    let e = places_of("n1.a,n1,n1.b", 1, 1, (0, 1)).unwrap_err().to_string();
    assert!(e.starts_with("OMPTARGET_MPI_HOSTS: the host n1 may be n1.a or n1.b"), "{e}");
    assert!(places_of("a:3,b:4", 2, 3, (0, 1)).unwrap_err().to_string().contains("3 devices can't be 2 to a rank"));
}

#[test]
fn devices_know_of_those_of_other_programs() {
    let of = |hosts: &str, ranks, world| places_of(hosts, 1, ranks, world).unwrap();
    let both = |hosts: &str, numbers: &str| (hosts.to_string(), numbers.to_string());
    // Four programs in turn on two hosts, and two that have devices on both.
    assert_eq!(of("a,b", 1, (3, 4)), both("b:1", "b:1/2"));
    assert_eq!(of("a:3,b", 1, (3, 6)), both("b:1", "b:0/1"));
    assert_eq!(of("a:2,b:2", 4, (1, 2)), both("a:2,b:2", "a:2/4,b:2/4"));
    assert_eq!(of("a:2,b", 2, (1, 2)), both("b:1,a:1", "a:2/3,b:0/1"));
    let (here, numbers) = places(&Settings::default(), 2, (5, 8), (1, 4)).unwrap();
    assert_eq!((here, here_in(&numbers, &node::host_name())), (format!("{}:2", node::host_name()), (2, 8)));
}

#[test]
fn a_device_finds_its_host() {
    let list = "a.site:1/4,b:2/3,127.0.0.1:5/6,wrong,c:7";
    assert_eq!((here_in(list, "a"), here_in(list, "b"), here_in(list, "elsewhere")), ((1, 4), (2, 3), (5, 6)));
    assert_eq!((here_in("", "a"), here_in("192.0.2.1:1/2", "a")), ((0, 0), (0, 0)));
}
