// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The memory limits of this process's control groups: its own group and each visible group above it, of
//! cgroup versions 1 and 2.
//!
//! `/proc/self/cgroup` names the group relative to the root of the hierarchy. `/proc/self/mountinfo`
//! says which part of the hierarchy is mounted where; a container sees only its own part.

use super::process::{path_of, unescaped};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// The limits of version 2 and of version 1. Above `memory.high` the kernel throttles a group.
const LIMITS: [&str; 3] = ["memory.max", "memory.high", "memory.limit_in_bytes"];

/// The folders of the groups that account for this process's memory, innermost first.
pub(crate) fn memory_folders() -> Vec<PathBuf> {
    let read = |name: &str| fs::read(format!("/proc/thread-self/{name}")).unwrap_or_default();
    folders_in(&read("cgroup"), &read("mountinfo"))
}

/// The smallest memory limit of these groups in bytes.
pub(crate) fn memory_limit() -> Option<u64> {
    limit_of(&memory_folders(), |path| fs::read_to_string(path).ok())
}

/// The number that follows `name` in a text with one "name number" pair per line.
pub(crate) fn field(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    value?.trim().parse().ok()
}

fn limit_of(folders: &[PathBuf], read: impl Fn(&Path) -> Option<String>) -> Option<u64> {
    let each = folders.iter().flat_map(|folder| LIMITS.map(|name| folder.join(name)));
    let limits = each.filter_map(|file| read(&file)?.trim().parse::<u64>().ok());
    // Version 1 also reports the limits of groups above the mounted ones.
    let above = folders.iter().filter_map(|f| field(&read(&f.join("memory.stat"))?, "hierarchical_memory_limit"));
    limits.chain(above).min()
}

/// [`memory_folders`], given the texts of `cgroup` and `mountinfo`.
fn folders_in(cgroups: &[u8], mounts: &[u8]) -> Vec<PathBuf> {
    let groups = cgroups.split(|b| *b == b'\n').filter_map(group_of);
    groups.flat_map(|(version, group)| mounted(version, &group, mounts)).collect()
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// The group that a line of `cgroup` names, if it accounts for memory: `0::/group` in version 2,
/// `4:memory:/group` in version 1.
fn group_of(line: &[u8]) -> Option<(Version, PathBuf)> {
    let mut fields = line.splitn(3, |b| *b == b':').skip(1);
    let (controllers, path) = (fields.next()?, fields.next()?);
    let version = match controllers {
        b"" => Version::Two,
        list if list.split(|b| *b == b',').any(|c| c == b"memory") => Version::One,
        _ => return None,
    };
    Some((version, path_of(path)))
}

/// The folders of a group and of those above it.
fn mounted(version: Version, group: &Path, mounts: &[u8]) -> Vec<PathBuf> {
    let mounts: Vec<(PathBuf, PathBuf)> =
        mounts.split(|b| *b == b'\n').filter_map(|line| mount_of(version, line)).collect();
    // A group outside of the cgroup namespace has ".." in its name and no folder here.
    let is_known = !group.components().any(|part| part == Component::ParentDir);
    let inner = |root: &Path| group.strip_prefix(root).ok().filter(|_| is_known);
    match mounts.iter().find_map(|(root, point)| Some((point, inner(root)?))) {
        Some((point, inner)) => {
            let inner = inner.ancestors().filter(|part| !part.as_os_str().is_empty());
            inner.map(|part| point.join(part)).chain([point.clone()]).collect()
        }
        // No mount is known to contain the group; in a container that sees only its own group, the first mount does.
        None => mounts.into_iter().map(|(_, point)| point).take(1).collect(),
    }
}

/// The part of the hierarchy that a line of `mountinfo` mounts, and the mount point:
/// `35 31 0:32 /part /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory`.
fn mount_of(version: Version, line: &[u8]) -> Option<(PathBuf, PathBuf)> {
    let mut words = line.split(|b| *b == b' ');
    let path = |word| path_of(&unescaped(word, b" \t\n\\"));
    let (root, point) = (path(words.nth(3)?), path(words.next()?));
    // A dash follows the optional fields.
    let mut words = words.skip_while(|word| *word != b"-").skip(1);
    let (kind, options) = (words.next()?, words.nth(1)?);
    let fits = match version {
        Version::Two => kind == b"cgroup2",
        Version::One => kind == b"cgroup" && options.split(|b| *b == b',').any(|option| option == b"memory"),
    };
    fits.then_some((root, point))
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/cgroup.rs"]
mod tests;
