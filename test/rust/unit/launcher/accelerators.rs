// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/launcher/accelerators.rs`.

use super::*;

#[test]
fn answers_are_found_among_other_lines() {
    let head = format!("{MARK}{ACCELERATORS}");
    let text = format!(
        "Warning: a key\n[1,0]<stdout>:{head} 4 a 10.0.0.1 localhost\n{MARK}missing /p\n{head} 0 b localhost\r\n"
    );
    let of = |host| counted(&text, Some(host));
    assert_eq!((of("a"), of("10.0.0.1"), of("b"), of("c")), (Some(4), Some(4), Some(0), None));
    // Each host is that, and they have different numbers.
    assert_eq!((of("localhost"), counted(&text, None)), (None, None));
    assert_eq!((counted(&format!("{head} 2\n"), None), counted("", None)), (Some(2), None));
}
