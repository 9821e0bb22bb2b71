// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/sys/launchers/slurm.rs`.

use super::*;

#[test]
fn releases_are_compared_by_year_and_month() {
    assert_eq!(release("slurm 22.05.8\n"), Some((22, 5)));
    assert!(release("slurm 20.11.0") >= Some((20, 11)) && release("slurm-wlm 24.11.5") >= Some((20, 11)));
    assert!(release("slurm 20.02.7") < Some((20, 11)) && release("slurm") < Some((20, 11)));
}
