// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/job/bootstrap.rs`.

use super::*;

#[test]
fn spawned_devices_go_where_there_is_room() {
    let places = |hosts: &str, devices_per_rank, ranks| {
        places(&Settings { hosts: Some(hosts.into()), devices_per_rank, ..Settings::default() }, ranks)
    };
    assert_eq!(places("a:2,b", 1, 4).unwrap(), "a:2,b:1,a:1");
    assert_eq!(places("a:4,b:8", 4, 3).unwrap(), "a:1,b:2");
    assert_eq!(places("a,b", 4, 2).unwrap(), "a:1,b:1");
    assert!(places("a:3,b:4", 2, 3).unwrap_err().to_string().contains("3 devices can't be 2 to a rank"));
}

#[test]
fn launchers_are_known_by_their_variables() {
    let of = |set: &[(&str, &str)]| launcher_in(|name| Some(set.iter().find(|v| v.0 == name)?.1.to_string()));
    assert_eq!(of(&[]), None);
    assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "3"), ("PMIX_RANK", "0")]), Some((Launcher::OpenMpi, Some(3))));
    assert_eq!(of(&[("PMI_RANK", "0"), ("PMI_SIZE", "2")]), Some((Launcher::Pmi, Some(2))));
    assert_eq!(of(&[("PMIX_RANK", "1")]), Some((Launcher::Pmix, None)));
    for name in crate::sys::launcher::VARIABLES {
        assert!(of(&[(name, "1")]).is_some(), "{name}");
    }
}
