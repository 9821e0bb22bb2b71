// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/manual.rs`.

use super::*;

#[test]
fn each_page_has_its_variables() {
    let (launcher, device) = (environment(Reader::Launcher), environment(Reader::Device));
    for s in settings::table() {
        assert!(launcher.contains(&format!("\\fB{}\\fR", s.name)), "{launcher}");
        assert_eq!(device.contains(&format!("\n\\fB{}\\fR", s.name)), s.read_by.contains(&Reader::Device));
    }
}

#[test]
fn code_is_bold() {
    assert_eq!(roff("`a-b` is one"), "\\fBa\\-b\\fR is one");
    let lines = [Reader::Launcher, Reader::Device].map(environment).concat();
    let macros = ["SH", "PP", "TP", "br"].map(|name| format!(".{name}"));
    for line in lines.lines().filter(|line| line.starts_with(['.', '\''])) {
        assert!(macros.iter().any(|name| line.split(' ').next() == Some(name)), "{line}");
    }
}
