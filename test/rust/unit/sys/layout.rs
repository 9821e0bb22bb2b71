// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/layout.rs`.

use super::*;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Set where a test has executed itself with the other layout.
const MARK: &str = "OMPTARGET_TEST_IN_WINDOW";

#[test]
fn programs_are_outside_of_the_window() {
    if std::env::var_os(MARK).is_none() {
        assert!(!is_in_window());
        assert_eq!(outside(), None);
    }
}

/// What a device does: it is executed anew, and has everything but its first stack in the window then.
#[test]
#[cfg(all(target_arch = "x86_64", not(sanitized)))]
fn a_process_can_move_into_the_window() {
    if std::env::var_os(MARK).is_some() {
        settle(std::env::var(MARK).unwrap().parse().unwrap());
        let here = 0;
        assert!(is_in_window() && WINDOW.contains(&((&raw const here) as u64)), "this thread's stack is elsewhere");
        let small: Vec<Box<u64>> = (0..100_000).map(Box::new).collect();
        let large = vec![1u8; 64 << 20];
        let heap = small.iter().map(|b| (&raw const **b) as u64).chain([large.as_ptr() as u64]);
        assert!(heap.into_iter().all(|at| WINDOW.contains(&at)), "the heap is elsewhere");
        // The first stack, and what the kernel maps beside it.
        let outside = outside().unwrap();
        assert!(WINDOW.end < outside.start && outside.end - outside.start < 1 << 32, "{outside:x?}");
        // The stack has an end.
        assert_eq!(Mappings::now().free_in(outside.start - PAGE..outside.start), []);
        let limit = getrlimit(Resource::Data);
        assert_eq!(limit.current, limit.maximum);
        assert!(getrlimit(Resource::Stack).current.is_none_or(|limit| limit < STACK_LIMIT));
        let local = std::thread::spawn(|| {
            let here = 0u8;
            (&raw const here) as u64
        });
        assert!(WINDOW.contains(&local.join().unwrap()), "a thread's stack is elsewhere");
        return;
    }
    let arguments = ["--exact", "sys::layout::tests::a_process_can_move_into_the_window"];
    let executable = std::env::current_exe().unwrap();
    let mut child = Command::new("/proc/self/exe");
    // SAFETY: glibc lets the child of a process with threads allocate memory.
    unsafe {
        child.pre_exec(move || {
            let moved = choose_window().ok_or(std::io::ErrorKind::Unsupported)?;
            Err(Command::new(moved.loader)
                .arg(&executable)
                .args(arguments)
                .env(MARK, moved.stack_limit.to_string())
                .exec())
        });
    }
    let output = child.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}{}", String::from_utf8_lossy(&output.stderr));
}
