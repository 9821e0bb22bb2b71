// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Checks that the folders of `src/` and of `src/plugin/` are layered: a file uses its own folder and those below it,
//! never one above.
//! No two files use each other, directly or in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// From bottom to top.
const LAYERS: [&str; 11] =
    ["base", "sys", "mpi", "wire", "link", "job", "launcher", "device_main", "workers", "plugin", "ffi"];
/// The same within `plugin`.
const PLUGIN: [&str; 12] = [
    "program",
    "addresses",
    "messages",
    "unified",
    "progress",
    "devices",
    "trace",
    "shutdown",
    "mod",
    "start",
    "lifecycle",
    "image_compatibility",
];
/// Forbidden although the second is below the first: the two sides of a job share no code of theirs.
const STRANGERS: [(&str, &str); 3] = [("plugin", "device_main"), ("plugin", "workers"), ("ffi", "device_main")];

/// The module path of a file, such as `["plugin", "trace", "file"]`.
type Module = Vec<String>;

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn module(root: &Path, file: &Path) -> Module {
    let mut names: Module =
        file.strip_prefix(root).unwrap().with_extension("").iter().map(|n| n.to_str().unwrap().to_string()).collect();
    names.retain(|name| name != "mod" && name != "lib");
    names
}

/// The paths in a `use` tree: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expand(tree: &str) -> Vec<String> {
    let Some((head, rest)) = tree.split_once('{') else { return vec![tree.trim().to_string()] };
    let inner = rest.trim_end().strip_suffix('}').unwrap();
    let (mut parts, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in inner.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&inner[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&inner[start..]);
    let parts = parts.into_iter().map(str::trim).filter(|p| !p.is_empty());
    parts.flat_map(|part| expand(part).into_iter().map(|p| format!("{}{p}", head.trim()))).collect()
}

/// The absolute paths that a file uses of this crate, outside its tests.
fn uses(me: &Module, is_folder: bool, text: &str) -> BTreeSet<Module> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap();
    let mut found = BTreeSet::new();
    for line in text.split(';') {
        let Some(at) = line.rfind("use ") else { continue };
        if !line[..at].ends_with('\n') && !line[..at].ends_with("pub ") && !line[..at].ends_with("pub(crate) ") {
            continue;
        }
        for path in expand(&line[at + 4..].replace('\n', " ")) {
            let mut parts: Vec<&str> = path.split("::").map(str::trim).collect();
            let mut base: Module = me.clone();
            match parts[0] {
                "crate" => base.clear(),
                "self" => {}
                "super" => {
                    while parts[0] == "super" {
                        base.pop();
                        parts.remove(0);
                    }
                    parts.insert(0, "");
                }
                _ if is_folder => parts.insert(0, ""),
                _ => continue,
            }
            base.extend(parts[1..].iter().map(|p| p.to_string()));
            found.insert(base);
        }
    }
    found
}

/// The longest prefix of `path` that is a file of the crate.
fn file_of(path: &Module, files: &BTreeMap<Module, String>) -> Option<Module> {
    (1..=path.len()).rev().map(|n| path[..n].to_vec()).find(|p| files.contains_key(p))
}

fn imports() -> BTreeMap<Module, BTreeSet<Module>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut paths = Vec::new();
    sources(&root, &mut paths);
    let is_folder = |path: &Path| path.file_name().is_some_and(|n| n == "mod.rs");
    let files: BTreeMap<Module, String> =
        paths.iter().map(|p| (module(&root, p), fs::read_to_string(p).unwrap())).collect();
    let folders: BTreeSet<Module> = paths.iter().filter(|p| is_folder(p)).map(|p| module(&root, p)).collect();
    let graph = files.iter().map(|(me, text)| {
        let uses = uses(me, folders.contains(me), text).iter().filter_map(|used| file_of(used, &files)).collect();
        (me.clone(), uses)
    });
    graph.collect()
}

#[test]
fn no_folder_uses_one_above_it() {
    let layer = |module: &Module| LAYERS.iter().position(|l| module.first().is_some_and(|m| m == l));
    let in_plugin = |module: &Module| PLUGIN.iter().position(|l| *l == name_in_plugin(module));
    let mut wrong = Vec::new();
    for (me, uses) in imports() {
        let Some(mine) = layer(&me) else { continue };
        for used in uses {
            let Some(theirs) = layer(&used) else { continue };
            let is_above_in_plugin = me[0] == "plugin" && used[0] == "plugin" && in_plugin(&used) > in_plugin(&me);
            if theirs > mine || is_above_in_plugin || STRANGERS.contains(&(LAYERS[mine], LAYERS[theirs])) {
                wrong.push(format!("{} uses {}", me.join("::"), used.join("::")));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

fn name_in_plugin(module: &Module) -> &str {
    module.get(1).map_or("mod", |name| name)
}

#[test]
fn every_module_of_the_plugin_has_a_layer() {
    let graph = imports();
    let modules: BTreeSet<&str> =
        graph.keys().filter(|m| m.first().is_some_and(|m| m == "plugin")).map(name_in_plugin).collect();
    assert_eq!(modules, PLUGIN.into());
}

#[test]
fn no_circle_of_files() {
    let graph = imports();
    // A folder's `mod.rs` declares its children and may use them.
    let above = |a: &Module, b: &Module| b.starts_with(a);
    let next = |me: &Module| -> Vec<Module> {
        graph[me].iter().filter(|used| !above(me, used) && !above(used, me)).cloned().collect()
    };
    let mut wrong = BTreeSet::new();
    for start in graph.keys() {
        let (mut seen, mut open) = (BTreeSet::new(), next(start));
        while let Some(module) = open.pop() {
            if module == *start {
                wrong.insert(start.join("::"));
            } else if seen.insert(module.clone()) {
                open.extend(next(&module));
            }
        }
    }
    assert!(wrong.is_empty(), "files in circles of imports: {wrong:#?}");
}

#[test]
fn trees_of_use_are_read() {
    assert_eq!(expand("a::{b, c::{d, e}}"), ["a::b", "a::c::d", "a::c::e"]);
    let me = vec!["a".to_string(), "b".to_string()];
    let found = uses(&me, false, "//! x\nuse crate::base::{x, y};\nuse super::c::D;\nuse std::fs;\n");
    let found: Vec<String> = found.iter().map(|m| m.join("::")).collect();
    assert_eq!(found, ["a::c::D", "base::x", "base::y"]);
}
