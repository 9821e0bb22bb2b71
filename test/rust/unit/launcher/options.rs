// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/launcher/options.rs`.

use super::*;
use clap::CommandFactory;

#[test]
fn the_table_is_sound() {
    Options::command().debug_assert();
}

#[test]
fn what_follows_the_program_is_the_programs() {
    let o = Options::parse_from(["llvm-offload-mpirun", "-n", "2", "./p", "-n", "3", "--", "--help"]);
    assert_eq!(
        (o.placement.devices, o.command),
        (Some(2), ["./p", "-n", "3", "--", "--help"].map(OsString::from).to_vec())
    );
    let o = Options::parse_from(["llvm-offload-mpirun", "--", "-p", "x"]);
    assert_eq!(o.command, ["-p", "x"]);
    let o = Options::parse_from(["llvm-offload-mpirun", "--backend", "offload", "./p", "--backend", "cpu"]);
    assert_eq!((o.backend, o.command.len()), (Some(Backend::Offload), 3));
    assert!(Options::try_parse_from(["llvm-offload-mpirun"]).is_err());
    assert!(Options::try_parse_from(["llvm-offload-mpirun", "-n", "0", "./p"]).is_err());
}
