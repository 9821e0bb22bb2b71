// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/quiet.rs`.

use super::*;

#[test]
fn names_are_sorted_for_the_search() {
    assert!(MATH.is_sorted());
}

#[test]
fn functions_that_only_compute() {
    for name in [
        "sqrt",
        "sqrtf",
        "fabsl",
        "sin",
        "memcpy",
        "malloc",
        "__kmpc_fork_call",
        "omp_get_num_threads",
        "_Znwm",
        "_ZGVbN2v_sin",
        "_ZGVdN8v_sinf",
    ] {
        assert!(only_computes(name), "{name}");
    }
    for name in [
        "printf",
        "puts",
        "write",
        "stderr",
        "exit",
        "abort",
        "system",
        "dlsym",
        "syscall",
        "fopen",
        "getenv",
        "omp_display_env",
        "omp_target_alloc",
        "__tgt_target_kernel",
        "user_function",
        "free_all",
        "__kmpc_error",
        "_ZGVbN4v_user",
        "_ZGVbN2v_fast_sin",
        "f",
        "l",
        "",
    ] {
        assert!(!only_computes(name), "{name}");
    }
}

#[test]
fn a_file_with_input_and_output_is_not_quiet() {
    let own = std::fs::read("/proc/self/exe").unwrap();
    assert!(check(&own).unwrap_err().to_string().starts_with("it uses "));
    assert!(check(b"no ELF file").is_err());
}

#[test]
#[cfg(target_arch = "x86_64")]
fn instructions_that_call_the_system() {
    // mov eax, 60; syscall
    assert!(calls_system(&[0xb8, 60, 0, 0, 0, 0x0f, 0x05]));
    // sysenter; int 0x80
    assert!(calls_system(&[0x90, 0x0f, 0x34]) && calls_system(&[0xcd, 0x80]));
    // A jump whose distance has the bytes of a syscall; ret
    assert!(!calls_system(&[0xe9, 0x0f, 0x05, 0, 0, 0xc3]));
    // No instruction
    assert!(calls_system(&[0x06]));
}
