// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Checks that `include/omptarget-mpi.h` is what cbindgen generates from `src/ffi`, and that C and C++ accept it.

use omptarget_mpi::sys::launchers;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

const HEADER: &str = "include/omptarget-mpi.h";

fn generated() -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    // cbindgen has no string constants.
    config.after_includes = Some(format!(
        "\n// Environment variables: one of an MPI launcher, or the user's wish to spawn devices, is set\n\
         // in every process that has any. In others this library need not even be loaded.\n\
         #define OMPTARGET_MPI_VARIABLES \"{} OMPTARGET_MPI_DEVICES\"",
        launchers::VARIABLES.join(" ")
    ));
    let sources = ["start", "images", "memory", "kernels", "events", "types"];
    let builder = cbindgen::Builder::new().with_config(config);
    let bindings = sources.iter().fold(builder, |b, s| b.with_src(root.join(format!("src/ffi/{s}.rs"))));
    let bindings = bindings.generate().unwrap();
    let mut text = Vec::new();
    bindings.write(&mut text);
    String::from_utf8(text).unwrap()
}

#[test]
fn header_is_up_to_date_and_compiles() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(HEADER);
    let generated = generated();
    if env::var_os("UPDATE_HEADER").is_some() {
        fs::write(&path, &generated).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == generated,
        "{HEADER} differs from src/ffi; to update it: UPDATE_HEADER=1 cargo test --test header"
    );
    for (compiler, language) in [("cc", "c"), ("c++", "c++")] {
        let flags = ["-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", language];
        let status = Command::new(compiler).args(flags).arg(&path).status().unwrap();
        assert!(status.success(), "{compiler} does not accept {HEADER}");
    }
}
