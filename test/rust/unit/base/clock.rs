// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/clock.rs`.

use super::*;

#[test]
fn time_does_not_go_back() {
    let stamps: Vec<u64> = (0..1000).map(|_| now()).collect();
    assert!(stamps.windows(2).all(|w| w[0] <= w[1]));
}

#[test]
fn a_line_goes_through_its_points_and_on() {
    let line = Line::through((1000, 50), (3000, 1050));
    assert_eq!([line.at(1000), line.at(3000), line.at(2000), line.at(0)], [50, 1050, 550, -450]);
    assert_eq!(line.length(200), 100);
    assert_eq!(Line::through((5, 7), (5, 7)).at(5), 7);
}
