// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/output.rs`.

use super::*;

#[test]
fn all_that_is_written_is_taken_in_order() {
    let mut sink = Sink::new(Stream::Out).unwrap();
    let mut written = Vec::new();
    let mut taken = Vec::new();
    for i in 0..3000usize {
        assert!(!sink.is_pending());
        let text = format!("{i}").repeat(i % 700 + 1);
        (&sink.file).write_all(text.as_bytes()).unwrap();
        written.extend_from_slice(text.as_bytes());
        assert!(sink.is_pending(), "{i}");
        loop {
            let mut out = Vec::with_capacity(1000);
            if !sink.take(&mut out).unwrap() {
                break;
            }
            taken.extend(out);
        }
    }
    assert!(taken == written && written.len() > 3 << 20);
}
