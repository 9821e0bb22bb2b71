// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Manual pages, generated from the executables' options and the table of settings.

use super::Result;
use super::settings::{self, Preset, Reader, Setting};
use std::fmt::Write as _;
use std::io::Write as _;

/// Prints a program's manual page in roff.
pub fn print(command: clap::Command, reader: Reader) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command).render(&mut page)?;
    let page = String::from_utf8_lossy(&page);
    let (before, after) = page.split_at(page.find(".SH VERSION").unwrap_or(page.len()));
    let page = [before, &environment(reader), after].concat();
    Ok(std::io::stdout().write_all(page.as_bytes())?)
}

/// The section with the variables that a program reads or passes on.
fn environment(reader: Reader) -> String {
    let mut section = String::from(".SH ENVIRONMENT\n");
    let reads = |s: &Setting| s.read_by.contains(&reader);
    let (own, others): (Vec<_>, Vec<_>) = settings::table().into_iter().partition(reads);
    list(&mut section, "This program reads these variables:", &own);
    if reader == Reader::Launcher {
        list(&mut section, "It passes these and the following variables on to PROGRAM and its devices:", &others);
    } else {
        section.push_str(".PP\nllvm\\-offload\\-mpirun(1) lists those that PROGRAM reads.\n");
    }
    section
}

fn list(section: &mut String, title: &str, settings: &[Setting]) {
    let _ = writeln!(section, ".PP\n{title}");
    for s in settings {
        let default = match s.default {
            Preset::Value(text) | Preset::Unset(text) => text,
        };
        let _ = writeln!(section, ".TP\n\\fB{}\\fR\n{}", s.name, roff(s.meaning));
        let _ = writeln!(section, ".br\nValues: {}. Default: {}.", roff(&s.values), roff(default));
    }
}

/// Markdown as roff: code is bold.
fn roff(markdown: &str) -> String {
    let escaped = markdown.replace('\\', "\\e").replace('-', "\\-");
    let font = |(i, word)| if i % 2 == 0 { word } else { format!("\\fB{word}\\fR") };
    escaped.split('`').map(String::from).enumerate().map(font).collect()
}

#[cfg(test)]
#[path = "../../test/rust/unit/base/manual.rs"]
mod tests;
