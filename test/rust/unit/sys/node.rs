// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/node.rs`.

use super::*;

#[test]
fn processors_are_read_from_the_systems_text() {
    let text = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some: CPU @ 2.10GHz\ncpu MHz\t\t: 2099.998\n\n\
                processor\t: 1\ncpu MHz\t\t: 800.000\n";
    let found = Processor {
        vendor: "GenuineIntel".into(),
        name: "Some: CPU @ 2.10GHz".into(),
        megahertz: 2100,
        ..Processor::default()
    };
    assert_eq!(processor_in(text), found);
    assert_eq!(processor_in("CPU implementer\t: 0x41\n"), Processor::default());
}

#[test]
fn threads_that_run_on_a_core_are_found_in_the_systems_text() {
    let stat = |name: &str, state: &str, core: u16| {
        let between = "0 ".repeat(35);
        format!("7 ({name}) {state} {between}{core} 0 0\n")
    };
    assert!(runs_on(&stat("worker", "R", 1), 1));
    assert!(runs_on(&stat("a) R (b", "R", 12), 12));
    assert!(!runs_on(&stat("worker", "R", 1), 0), "it runs elsewhere");
    assert!(!runs_on(&stat("worker", "S", 1), 1), "it sleeps");
    assert!(!runs_on("", 0) && !runs_on("7 (worker) R 0", 0), "no such text");
}

#[test]
fn a_thread_joins_a_core_and_leaves_it() {
    let cores = cores();
    for &core in &cores {
        join_core(core);
        assert_eq!(super::cores(), cores, "the thread keeps its cores");
        leave_core(None, core);
        assert_eq!(super::cores(), cores);
    }
    join_core(u16::MAX);
    leave_core(None, u16::MAX);
    assert_eq!(super::cores(), cores, "no machine has these cores");
    let me = rustix::thread::gettid();
    let runs_here = (0..1000).any(|_| threads_on(current_core()).contains(&me));
    assert!(runs_here, "the calling thread runs on its core");
}
