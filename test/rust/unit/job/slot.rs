// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/job/slot.rs`.

use super::*;

#[test]
fn a_file_is_claimed_once() {
    let path = std::env::temp_dir().join(format!("omptarget-mpi-slot-{}", std::process::id()));
    let claims = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| claim_file(&path))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).filter(|claim| claim.is_ok()).count()
    });
    let later = claim_file(&path);
    fs::remove_file(&path).unwrap();
    assert_eq!((claims, later), (1, Err(Taken::By(Some(std::process::id())))));
}

#[test]
fn where_no_file_can_be_there_is_no_claim() {
    assert_eq!(claim_file(Path::new("/proc/no/such/folder")), Ok(()));
}

#[test]
fn errors_name_the_owner() {
    let text = |taken| explain(taken).to_string();
    assert!(text(Taken::By(Some(std::process::id()))).contains("by this process, before it executed"));
    assert!(text(Taken::By(Some(1))).contains("by process 1, which still runs"));
    // The largest process id is 2^22.
    assert!(text(Taken::By(Some(1 << 30))).contains("which has ended"));
    assert!(text(Taken::Disconnected).contains("PMI_FD"));
}

#[test]
fn devices_are_shared_out_as_at_the_start() {
    let shares = |ranks, programs| (0..programs).map(|program| share(ranks, programs, program)).collect::<Vec<_>>();
    assert_eq!(shares(4, 1), [4]);
    assert_eq!(shares(5, 2), [3, 2]);
    // An unknown number of ranks.
    assert_eq!(shares(0, 1), [1]);
}
