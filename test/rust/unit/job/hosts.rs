// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/job/hosts.rs`.

use super::*;

fn placed(list: &str, devices: Option<u32>, per_node: Option<u32>) -> String {
    let text = |(n, hosts): (u32, Vec<(String, u32)>)| {
        format!("{n} {}", hosts.iter().map(|(h, n)| format!("{h}:{n}")).collect::<Vec<_>>().join(","))
    };
    place(&parse_list(list).unwrap(), devices, per_node).map_or_else(|e| e.to_string(), text)
}

#[test]
fn devices_are_placed() {
    assert_eq!(placed("a,b", None, None), "2 a:1,b:1");
    assert_eq!(placed("a,b:3", None, None), "4 a:1,b:3");
    assert_eq!(placed("a,b", None, Some(2)), "4 a:2,b:2");
    assert_eq!(placed("a,b", Some(3), Some(2)), "3 a:2,b:1");
    assert_eq!(placed("a,b,c", Some(7), None), "7 a:3,b:3,c:1");
    assert_eq!(placed("a,b,c", Some(2), None), "2 a:1,b:1");
    assert_eq!(placed("a:2,b:2", Some(5), None), "5 devices do not fit on the hosts, which may have 4");
    assert_eq!(place(&[], None, None).unwrap(), (1, vec![]));
    assert_eq!(place(&[], None, Some(4)).unwrap(), (4, vec![]));
    let too_many = "4294967295 devices are more than a job can have, which is 65536";
    assert_eq!(placed("a,b", None, Some(u32::MAX)), too_many);
    assert_eq!(placed("a:65536,b", Some(u32::MAX), None), too_many);
}

#[test]
fn a_host_is_known_without_its_domain() {
    assert!(is_same("n1", "n1.cluster") && is_same("10.0.0.1", "10.0.0.1"));
    assert!(!is_same("n1.east", "n1.west") && !is_same("n1", "n12.east"));
    assert!(!is_same("n1", "n2") && !is_same("10.0.0.1", "10.0.0.2"));
}

#[test]
fn a_name_that_is_short_for_two_hosts_is_refused() {
    let refusal = |names: &[&str]| check_names(names.iter().copied()).err().map(|e| e.to_string());
    for fine in [&["n1", "n1.east", "n1.east.site", "n1"][..], &["n1.east", "n1.west", "n12"], &["10.0.0.1", "10.0"]] {
        assert_eq!(refusal(fine), None);
    }
    for names in [["n1", "n1.east", "n1.west"], ["n1.east", "n1", "n1.west"], ["n1.west", "n1.east", "n1"]] {
        assert!(refusal(&names).unwrap().starts_with("the host n1 may be n1.east or n1.west: "));
    }
    assert!(refusal(&["a.b", "a.b.c", "a.b.c.d", "a.b.e"]).is_some());
}

#[test]
fn hosts_of_one_name_are_found() {
    let found = |names: &[&str]| has_namesakes(names.iter().copied());
    assert!(found(&["n1.west", "n1-a", "n1.east"]) && !found(&["n1.east", "n1", "n2.east", "n1-a"]));
    assert!(!found(&["10.0.0.1", "10.0.0.2"]));
}

#[test]
fn hosts_are_read() {
    let h = |name: &str, slots| Host { name: name.into(), slots };
    assert_eq!(parse_list("a, b:2").unwrap(), [h("a", None), h("b", Some(2))]);
    assert_eq!(parse_host("n1 slots=4 max_slots=8").unwrap(), h("n1", Some(4)));
    for bad in ["", "a,,b", "a:0", "a:x", ":3"] {
        assert!(parse_list(bad).is_err(), "{bad}");
    }
}
