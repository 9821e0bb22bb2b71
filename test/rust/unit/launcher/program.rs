// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/launcher/program.rs`.

use super::*;

fn linked_with(name: &str) -> Program {
    let libraries = vec![(name.to_string(), None)];
    Program { path: "p".into(), starter: None, is_script: false, libraries, mpi: None }
}

#[test]
fn releases_are_read_from_the_librarys_name() {
    assert_eq!(linked_with("libomptarget.so.16").llvm(), Some(16));
    assert_eq!(linked_with("libomptarget.so.19.1").llvm(), Some(19));
    assert_eq!(linked_with("libomptarget.so").llvm(), Some(14));
    assert_eq!(linked_with("libLLVMOffload.so.22.1").llvm(), Some(22));
    assert_eq!(linked_with("libomp.so.5").llvm(), None);
}

#[test]
fn programs_are_found_as_a_shell_does() {
    let shell = Program::find(OsStr::new("sh")).unwrap();
    assert!(shell.is_script && shell.llvm().is_none() && shell.mpi.is_none());
    assert!(shell.libraries.iter().any(|(name, path)| name.starts_with("libc.") && path.is_some()));
    assert!(Program::find(OsStr::new("/etc/passwd")).is_err());
    assert!(Program::find(OsStr::new("no such program")).is_err());
}

fn of(words: &[&str]) -> Result<Program> {
    Program::of(&words.iter().map(OsString::from).collect::<Vec<_>>(), None, false)
}

#[test]
fn what_starts_any_program_is_known_as_such() {
    for script in [&["sh", "-c", "./no-such-program"][..], &["env", "X=1", "bash", "x.sh"], &["nice", "sh -c x"]] {
        let program = of(script).unwrap();
        assert!(program.is_script && program.starter.is_none(), "{script:?}");
    }
    assert!(!of(&["env", "-i", "X=1", "true"]).unwrap().is_script);
    assert!(of(&["no such program", "true"]).is_err());
    for (name, is) in [("/usr/bin/python3.11", true), ("dash", true), ("/bin/shred", false), ("pythonic", false)] {
        assert_eq!(is_interpreter(name.as_ref()), is, "{name}");
    }
}

#[test]
fn arguments_are_read_as_a_shell_does() {
    let names = |argument: &'static str| {
        names_in(OsStr::new(argument)).iter().map(|name| name.to_str().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(names("./p"), ["./p"]);
    assert_eq!(names("cd x&&exec ./p -n"), ["cd x&&exec ./p -n", "cd", "x", "exec", "./p"]);
    assert!(names("-n").is_empty() && names("").is_empty());
}

#[test]
fn variables_that_hide_the_plugin_are_refused() {
    let refused = |word: &str| check_words("/usr/bin/env".as_ref(), &[word.into()]);
    assert!(refused("LD_LIBRARY_PATH=/x").unwrap_err().to_string().starts_with("/usr/bin/env sets LD_LIBRARY_PATH"));
    assert!(refused("X=LD_LIBRARY_PATH=/x").is_ok());
}
