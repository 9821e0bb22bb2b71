// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/output/libomptarget_errors.rs`.

use super::*;

#[test]
fn errors_become_one_line() {
    let text = "what a region prints, with no error: in it\n\
        \"PluginInterface\" error: Failure to load binary image: libx.so: no such file\n\
        Libomptarget error: Failed to init globals on device 0\n\
        Libomptarget error: Consult https://openmp.llvm.org/design/Runtimes.html for debugging options.\n\
        Libomptarget error: Source location information not present.\n\
        Libomptarget fatal error 1: failure of target construct\n";
    let expected = "; libomptarget says: Failure to load binary image: libx.so: no such file; \
        Failed to init globals on device 0; failure of target construct";
    assert_eq!(errors_in(text), expected);
    assert_eq!((errors_in(""), errors_in("error: mine\n")), (String::new(), String::new()));
}

#[test]
fn lines_of_all_releases_are_known() {
    let known = [
        "Libomptarget error: a",
        "omptarget fatal error 1: a",
        "PluginInterface error: a",
        "AMDGPU fatal error 1:a",
        "OFFLOAD ERROR: a",
    ];
    assert!(known.iter().all(|line| is_error(line.as_bytes()) && errors_in(line) == "; libomptarget says: a"));
    let others =
        ["Libomptarget device 0 info: error", "my CUDA error: a", "error: a", "CUDA errors: a", "CUDA fatal error a"];
    assert!(!others.iter().any(|line| is_error(line.as_bytes())));
}
