// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/unified/arguments.rs`.

use super::*;

#[test]
fn arguments_that_have_pointed_to_used_memory_do_so_again() {
    let arguments = Arguments::default();
    assert!(arguments.likely(1, &[10, 20, 30]).is_empty());
    arguments.learn(1, &[10, 20, 30], |at| at != 20);
    assert_eq!(arguments.likely(1, &[11, 21, 31]), [11, 31]);
    assert!(arguments.likely(2, &[11, 21, 31]).is_empty(), "another kernel");
    arguments.learn(1, &[11, 21, 31], |at| at != 11);
    assert_eq!(arguments.likely(1, &[12, 22, 32]), [32], "the program has nothing at 11");
    assert!(arguments.likely(1, &[12]).is_empty());
}

#[test]
fn what_a_kernel_does_not_use_any_more_is_found_out() {
    let arguments = Arguments::default();
    arguments.learn(1, &[10, 20], |_| true);
    // What was fetched before the kernel is here, whether it uses that or not.
    let run = |here: &dyn Fn(u64) -> bool| {
        let likely = arguments.likely(1, &[10, 20]);
        arguments.learn(1, &[10, 20], |at| likely.contains(&at) || here(at));
        likely.len()
    };
    let uses_second = |at| at == 20;
    assert!((1..RELEARN).all(|_| run(&uses_second) == 2));
    assert_eq!(run(&uses_second), 0, "it shows what it uses");
    assert!((1..RELEARN).all(|_| run(&uses_second) == 1));
    assert_eq!((run(&|_| true), run(&|_| true)), (0, 2));
}

#[test]
fn arguments_behind_the_first_64_are_not_remembered() {
    let (arguments, many) = (Arguments::default(), (100..200).collect::<Vec<_>>());
    arguments.learn(1, &many, |_| true);
    assert_eq!(arguments.likely(1, &many), (100..164).collect::<Vec<_>>());
}

#[test]
fn not_all_kernels_are_remembered() {
    let arguments = Arguments::default();
    let kernels = 1..=KERNELS_REMEMBERED as u64 + 1;
    kernels.clone().for_each(|kernel| arguments.learn(kernel, &[7], |_| true));
    assert_eq!(kernels.filter(|&kernel| arguments.likely(kernel, &[7]) == [7]).count(), KERNELS_REMEMBERED);
}
