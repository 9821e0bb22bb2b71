// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/trace/mod.rs`.

use super::*;

#[test]
fn a_path_can_contain_the_process_id() {
    let n = std::process::id();
    assert_eq!(own("a%p/%pb%".as_ref()), PathBuf::from(format!("a{n}/{n}b%")));
    assert_eq!(own("a.json".as_ref()), PathBuf::from("a.json"));
}
