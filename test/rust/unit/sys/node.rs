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
