// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/crash/board.rs`.

use super::*;

#[test]
fn kernels_that_run_are_named() {
    let board = CrashBoard::new().unwrap();
    assert_eq!((board.identity(), board.running()), (None, vec![]));
    board.introduce(0, 3);
    assert_eq!(board.identity(), Some((0, 3)));
    board.add_names([(0x10, "__omp_offloading_3b_4c_old_l1"), (0x20, "two")].into_iter());
    board.forget_names();
    board.add_names([(0x10, "__omp_offloading_3b_4c_main_l12"), (0x20, "two")].into_iter());
    for (slot, kernel) in [(0, 0x10), (1, 0x30), (THREADS - 1, 0x10)] {
        board.kernel(slot).store(kernel, Ordering::Release);
    }
    assert_eq!(board.running(), ["main, line 12", "at 0x30"]);
    assert_eq!(board.only_kernel(), 0);
    [0, 1].iter().for_each(|&slot| board.kernel(slot).store(0, Ordering::Release));
    assert_eq!(board.only_kernel(), 0x10);
}

#[test]
fn what_has_no_room_has_no_name() {
    let board = CrashBoard::new().unwrap();
    let long = "x".repeat(NAMES - 100);
    board.add_names([(1, long.as_str()), (2, long.as_str()), (3, "short")].into_iter());
    assert_eq!(board.names().keys().copied().collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn nonsense_is_safe_to_read() {
    let board = CrashBoard::new().unwrap();
    board.add_names([(7, "name")].into_iter());
    board.names[8].store(0xff, Ordering::Relaxed);
    board.used.store(usize::MAX, Ordering::Relaxed);
    let _ = board.names();
}
