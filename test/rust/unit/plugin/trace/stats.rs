// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/trace/stats.rs`.

use super::*;

#[test]
fn durations_have_units() {
    let all = [0, 1, 999_999, 1_000_000, 61_000_000_000].map(duration);
    assert_eq!(all, ["0", "0.001 us", "999.999 us", "1.000 ms", "61.000 s"]);
}

#[test]
fn rows_line_up() {
    let mut out = String::new();
    row(&mut out, "a", ["1", "", "2 us"].map(str::to_string));
    row(&mut out, "b", ["", "3", ""].map(str::to_string));
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!((&lines[0][..3], lines[0].len()), ("  a", 2 + 26 + 11 + 17 + 13));
    assert_eq!((&lines[1][..3], lines[1].len()), ("  b", 2 + 26 + 11 + 17));
    assert!(lines[0].ends_with(" 2 us") && lines[1].ends_with(" 3"));
}
