// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/cpu/unified/read_ahead.rs`.

use super::*;

const START: u64 = 0x7000_0000_0000;
const PAGE: u64 = 4096;

fn before(range: Range<u64>) -> Before {
    Before { range, is_other: false }
}

/// Goes through `len` bytes in order, as a kernel that faults wherever it has nothing. Returns the number of faults.
fn run_through(read_ahead: &mut ReadAhead, start: u64, len: u64) -> usize {
    let (mut at, mut faults) = (start, 0);
    while at < start + len {
        let (around, _) = read_ahead.around(at, false);
        assert!(around.contains(&at));
        let got = around.start.max(start)..around.end.min(start + len);
        read_ahead.note(at, before(got.clone()));
        at = got.end;
        faults += 1;
    }
    faults
}

#[test]
fn faults_grow_with_the_logarithm_of_the_length() {
    // 64 KiB first, then each time four times as many, and from 4 MiB on twice as many.
    assert_eq!(run_through(&mut ReadAhead::default(), START, LEAST), 1);
    assert_eq!(run_through(&mut ReadAhead::default(), START, 21 * LEAST), 3);
    assert_eq!(run_through(&mut ReadAhead::default(), START, MOST), 8);
    // No more than so much at a time.
    assert_eq!(
        run_through(&mut ReadAhead::default(), START, 16 * MOST)
            - run_through(&mut ReadAhead::default(), START, 8 * MOST),
        8
    );
}

#[test]
fn what_is_in_no_order_is_handled_in_small_pieces() {
    let mut read_ahead = ReadAhead::default();
    for i in 0..1000 {
        let page = START + i * 7919 % 1000 * MOST;
        let (around, _) = read_ahead.around(page, false);
        assert_eq!(around.end - around.start, LEAST);
        assert!(around.contains(&page) && around.start % LEAST == 0);
        read_ahead.note(page, before(around));
    }
}

#[test]
fn streams_beside_each_other_are_followed() {
    let faults = |streams: u64| {
        let mut read_ahead = ReadAhead::default();
        let mut at: Vec<u64> = (0..streams).map(|n| START + n * (1 << 32)).collect();
        let mut faults = 0;
        for _ in 0..6 {
            for at in &mut at {
                let (around, _) = read_ahead.around(*at, false);
                read_ahead.note(*at, before(around.clone()));
                faults += (around.end - around.start) / LEAST;
                *at = around.end;
            }
        }
        faults / streams
    };
    assert_eq!(faults(1), 469);
    assert_eq!(faults(STREAMS as u64 / 2), 469);
    assert_eq!(faults(STREAMS as u64), 469);
    // With more of them each is forgotten before its turn comes again.
    assert_eq!(faults(2 * STREAMS as u64), 6);
}

#[test]
fn a_stream_may_skip_some_pages() {
    let mut read_ahead = ReadAhead::default();
    read_ahead.note(START, before(START..START + LEAST));
    let next = START + LEAST + 3 * PAGE;
    assert_eq!(read_ahead.around(next, false).0, next..next + 4 * LEAST);
    // Backwards, or far away, is another stream.
    for other in [START - PAGE, START + 3 * LEAST] {
        let (around, _) = read_ahead.around(other, false);
        assert_eq!(around.end - around.start, LEAST);
    }
}

#[test]
fn what_is_near_is_copied_in_smaller_steps() {
    let mut read_ahead = ReadAhead::default();
    read_ahead.note(START, before(START..START + LEAST));
    let next = START + LEAST;
    let steps = [true, false].map(|is_near| read_ahead.around(next, is_near).0);
    assert_eq!(steps, [next..next + 2 * LEAST, next..next + 4 * LEAST]);
}

#[test]
fn a_stream_knows_what_it_has_got() {
    let mut read_ahead = ReadAhead::default();
    assert_eq!(read_ahead.around(START, false).1, None);
    read_ahead.note(START, before(START..START + LEAST));
    let mut last = before(START..START + LEAST);
    assert_eq!(read_ahead.around(START + LEAST, false).1, Some(last.clone()));
    last.is_other = true;
    let mut read_ahead = ReadAhead::default();
    read_ahead.note(START, last.clone());
    assert_eq!(read_ahead.around(START + LEAST, false).1, Some(last));
}

#[test]
fn the_ends_of_the_address_space_are_no_limit() {
    let mut read_ahead = ReadAhead::default();
    assert_eq!(read_ahead.around(0, false).0, 0..LEAST);
    let last = u64::MAX - LEAST;
    read_ahead.note(last - PAGE, before(last - PAGE..last));
    assert_eq!(read_ahead.around(last, false).0.start, last);
}
