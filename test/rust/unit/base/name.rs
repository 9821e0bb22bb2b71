// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/name.rs`.

use super::*;

#[test]
fn signals_have_names() {
    assert_eq!((of_signal(libc::SIGBUS), of_signal(200)), ("signal SIGBUS".into(), "signal 200".into()));
}

#[test]
fn types_are_named_as_in_the_source() {
    assert_eq!(["i", "St13runtime_error", "PKc", "?"].map(of_type), ["int", "std::runtime_error", "char const*", "?"]);
}

#[test]
fn kernels_are_named_by_function_and_line() {
    for (symbol, name) in [
        ("__omp_offloading_10302_2f6a_main_l12", "main, line 12"),
        ("__omp_offloading_fd00_1a_a_long_l_name_l7", "a_long_l_name, line 7"),
        ("__omp_offloading_3b_4c__ZN1a4stepEPdi_l140", "a::step(double*, int), line 140"),
        ("__omp_offloading__3b_4c_table_l5_ctor", "table, line 5 (ctor)"),
        ("__omp_offloading_3b_4c_main_l9_1", "main, line 9 (1)"),
        ("__omp_offloading_3b_4c__Znonsense_l9", "_Znonsense, line 9"),
    ] {
        assert_eq!(of_kernel(symbol), name);
    }
}

#[test]
fn names_that_double_themselves_stay() {
    // f(a<int>, a<a<int>, a<int>>, …): each parameter contains the one before twice.
    let mut symbol = String::from("_Z1f1aIiE");
    assert_eq!(demangled(&(symbol.clone() + "S_IS0_S0_E")), "f(a<int>, a<a<int>, a<int> >)");
    for last in "0123456789ABCDEFGHIJKLMNOPQRST".chars() {
        symbol += &format!("S_IS{last}_S{last}_E");
    }
    assert_eq!(demangled(&symbol), symbol);
}

#[test]
fn names_that_look_alike_have_their_file() {
    let symbols = ["__omp_offloading_3_1a_f_l7", "__omp_offloading_3_1b_f_l7", "__omp_offloading_3_1b_f_l8", "f"];
    let names = of_kernels(&symbols.map(str::to_string));
    assert_eq!(names, ["f, line 7 (file 3_1a)", "f, line 7 (file 3_1b)", "f, line 8", "f"]);
}

#[test]
fn other_names_stay() {
    let none = ["", "f", "at 0x1234", "__omp_offloading_", "__omp_offloading_xy_1_main_l3", "__omp_offloading_1_2_l3"];
    assert_eq!(none.map(of_kernel), none);
}
