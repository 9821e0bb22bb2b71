// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/crash/supervisor.rs`.

use super::*;
use crate::device_main::crash::board::MPI_CODE;
use std::sync::atomic::Ordering;

const EXITED: fn(c_int) -> c_int = |code| code << 8;

#[test]
fn the_end_of_a_device_is_reported_with_what_ran() {
    let board = CrashBoard::new().unwrap();
    let kills = Kills::default();
    let of = |status| obituary(77, status, board, &kills);
    assert_eq!(of(EXITED(1)), None);
    let ends = |status, end: &str| assert!(of(status).unwrap().ends_with(end), "{:?}", of(status));
    ends(libc::SIGSEGV, "pid 77) was ended by signal SIGSEGV, before it had met the program");
    board.introduce(1, 4);
    ends(libc::SIGTERM, "was ended by signal SIGTERM, while no kernel ran");
    board.add_names([(0x10, "__omp_offloading_3b_4c_main_l12")].into_iter());
    board.kernel(2).store(0x10, Ordering::Relaxed);
    let killed = of(libc::SIGKILL).unwrap();
    assert!(killed.starts_with("device 1 (rank 4 on host ") && killed.contains("signal SIGKILL ("), "{killed}");
    ends(libc::SIGKILL, ", while kernel main, line 12 ran");
    board.kernel(3).store(0x20, Ordering::Relaxed);
    ends(EXITED(0), "status 0 (something there called _exit), while kernels main, line 12; at 0x20 ran");
    board.set_direct(true);
    ends(
        libc::SIGSEGV,
        "at 0x20 ran; MPI accesses the accelerator's memory, which may be the cause (without that: OMPTARGET_MPI_GPU_DIRECT=off)",
    );
    ends(libc::SIGKILL, "at 0x20 ran");
    board.kernel(1).store(MPI_CODE, Ordering::Relaxed);
    board.set_direct(false);
    for status in [libc::SIGSEGV, libc::SIGBUS, libc::SIGABRT, EXITED(1)] {
        ends(
            status,
            ", while MPI made its first copy from or to the accelerator's memory, which it says it can (without that: OMPTARGET_MPI_GPU_DIRECT=off)",
        );
    }
    ends(libc::SIGKILL, "at 0x20 ran");
    board.end();
    assert_eq!(of(EXITED(0)), None);
}
