// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/cgroup.rs`.

use super::*;
use std::collections::HashMap;

const ONE: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
    31 22 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n\
    32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw shared:7 - cgroup cgroup rw,cpu,cpuacct\n\
    35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 master:1 - cgroup cgroup rw,memory\n\
    41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw,nsdelegate\n";
const TWO: &str = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n\
    30 22 0:26 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n";

fn folders(cgroups: &str, mounts: &str) -> Vec<String> {
    let found = folders_in(cgroups.as_bytes(), mounts.as_bytes());
    found.into_iter().map(|path| path.into_os_string().into_string().unwrap()).collect()
}

fn limit(cgroups: &str, mounts: &str, files: &[(&str, &str)]) -> Option<u64> {
    let files: HashMap<_, _> = files.iter().map(|&(path, text)| (Path::new(path), text.to_string())).collect();
    limit_of(&folders_in(cgroups.as_bytes(), mounts.as_bytes()), |path| files.get(path).cloned())
}

#[test]
fn every_group_up_to_the_root_counts() {
    let root = "/sys/fs/cgroup";
    assert_eq!(
        folders("0::/user.slice/a:b.scope\n", TWO),
        ["/user.slice/a:b.scope", "/user.slice", ""].map(|part| format!("{root}{part}"))
    );
    assert_eq!(folders("0::/\n", TWO), [root]);
    assert_eq!(
        folders("5:cpu,cpuacct:/x\n4:memory:/slurm/job_7\n0::/\n", ONE),
        ["memory/slurm/job_7", "memory/slurm", "memory", "unified"].map(|part| format!("{root}/{part}"))
    );
    for none in ["", "5:cpu:/x\n", "nonsense", "4:memory"] {
        assert!(folders(none, ONE).is_empty(), "{none}");
    }
    assert!(folders("0::/x\n", "").is_empty() && folders("0::/x\n", "1 2 3\nx - cgroup2\n").is_empty());
}

#[test]
fn a_container_sees_its_part_of_the_hierarchy() {
    let mount = |root| format!("9 8 0:26 {root} /my\\040groups ro master:4 - cgroup2 cgroup rw\n");
    assert_eq!(folders("0::/docker/7f/inner\n", &mount("/docker/7f")), ["/my groups/inner", "/my groups"]);
    // Whole path components must match.
    assert_eq!(folders("0::/docker/7f0\n", &mount("/docker/7f")), ["/my groups"]);
    // A mount from outside of the namespace; a group outside of the namespace.
    assert_eq!(folders("0::/\n", &mount("/../..")), ["/my groups"]);
    assert_eq!(folders("0::/../other\n", &mount("/")), ["/my groups"]);
    // The mount that contains the group is found.
    let both = mount("/other") + &mount("/").replace("/my", "/all");
    assert_eq!(folders("0::/docker\n", &both), ["/all groups/docker", "/all groups"]);
}

#[test]
fn the_smallest_limit_holds() {
    let own = "0::/a/b\n";
    let (max, high, above) =
        ("/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/b/memory.high", "/sys/fs/cgroup/a/memory.max");
    assert_eq!(limit(own, TWO, &[(max, "536870912\n"), (high, "max\n"), (above, "1073741824\n")]), Some(512 << 20));
    assert_eq!(limit(own, TWO, &[(max, "max\n"), (high, "max\n"), (above, "1073741824\n")]), Some(1 << 30));
    assert_eq!(limit(own, TWO, &[(max, "1073741824\n"), (high, "4096000\n")]), Some(4_096_000));
    assert_eq!(limit(own, TWO, &[(max, "max\n")]), None);
    assert_eq!(limit(own, TWO, &[]), None);
}

#[test]
fn version_one_also_reports_limits_of_groups_that_are_not_mounted() {
    let own = "4:memory:/docker/7f\n0::/\n";
    let inside = "9 8 0:26 /docker/7f /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n";
    let none = ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    let stat = ("/sys/fs/cgroup/memory/memory.stat", "cache 7\nhierarchical_memory_limit 268435456\n");
    assert_eq!(limit(own, inside, &[none]), Some(9_223_372_036_854_771_712));
    assert_eq!(limit(own, inside, &[none, stat]), Some(256 << 20));
    assert_eq!(limit(own, ONE, &[("/sys/fs/cgroup/memory/docker/memory.limit_in_bytes", "65536\n")]), Some(65_536));
}

#[test]
fn fields_are_whole_words() {
    let text = "oom 3\noom_kill_disable 0\noom_kill 12\n";
    assert_eq!((field(text, "oom_kill"), field(text, "oom_group_kill")), (Some(12), None));
}
