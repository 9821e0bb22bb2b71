// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/program/console.rs`.

use super::*;
use proptest::prelude::*;

const FOR_EVER: [Duration; 2] = [Duration::MAX; 2];

fn taken(pending: &mut Pending, goes_on: bool) -> String {
    let mut all = Vec::new();
    while let Some((_, bytes)) = pending.take(&|_| goes_on) {
        all.extend(bytes);
    }
    String::from_utf8(all).unwrap()
}

#[test]
fn a_line_that_was_begun_is_ended_before_another_device_prints() {
    let mut pending = Pending::new(2, FOR_EVER);
    pending.push(0, b"one\ntwo");
    // With no other text waiting, a partial line is written at once.
    assert_eq!(taken(&mut pending, true), "one\ntwo");
    pending.push(1, b"other\n");
    assert_eq!(taken(&mut pending, true), "");
    pending.push(0, b" ends\nthree");
    assert_eq!(taken(&mut pending, true), " ends\nother\nthree");
}

#[test]
fn a_line_that_will_not_end_holds_nothing_up() {
    let mut pending = Pending::new(2, FOR_EVER);
    pending.push(0, b"prompt: ");
    assert_eq!(taken(&mut pending, true), "prompt: ");
    pending.push(1, b"other\n");
    assert_eq!(taken(&mut pending, false), "other\n");
    let mut pending = Pending::new(2, [Duration::ZERO; 2]);
    pending.push(0, b"prompt: ");
    assert_eq!(taken(&mut pending, true), "prompt: ");
    pending.push(1, b"other\n");
    std::thread::sleep(Duration::from_millis(1));
    assert_eq!(taken(&mut pending, true), "other\n");
}

#[test]
fn a_very_long_line_is_not_kept() {
    let mut pending = Pending::new(2, FOR_EVER);
    let long = "x".repeat(LINE_MAX + 1);
    pending.push(1, b"begin");
    pending.push(0, long.as_bytes());
    assert_eq!(taken(&mut pending, true), long);
}

proptest! {
    /// However lines arrive in pieces, and whenever they are written, no line is split or lost, and
    /// each device's lines keep their order.
    #[test]
    fn lines_are_whole(
        lens in prop::collection::vec((0usize..3, 0usize..40), 1..60),
        cuts in prop::collection::vec((0usize..3, 1usize..60, any::<bool>()), 1..200),
    ) {
        let mut texts = vec![Vec::new(); 3];
        for (i, (device, len)) in lens.iter().enumerate() {
            texts[*device].extend(format!("{device} {i} {}\n", "-".repeat(*len)).into_bytes());
        }
        let (mut pending, mut all) = (Pending::new(3, FOR_EVER), String::new());
        let mut rest: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
        for (device, len, writes) in cuts {
            let (now, later) = rest[device].split_at(len.min(rest[device].len()));
            if !now.is_empty() {
                pending.push(device, now);
            }
            rest[device] = later;
            if writes {
                all += &taken(&mut pending, true);
            }
        }
        for (device, text) in rest.into_iter().enumerate().filter(|(_, text)| !text.is_empty()) {
            pending.push(device, text);
        }
        all += &taken(&mut pending, true);
        for (device, text) in texts.iter().enumerate() {
            let own = all.split_inclusive('\n').filter(|line| line.starts_with(&device.to_string()));
            prop_assert_eq!(own.collect::<String>().into_bytes(), &text[..]);
        }
        prop_assert!(pending.texts.iter().all(|t| t.bytes.is_empty() && t.since.is_none()));
    }
}
