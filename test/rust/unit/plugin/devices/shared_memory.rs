// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/devices/shared_memory.rs`.

use super::*;

const AT: u64 = 0x2347_0000_0000;
const CAPACITY: u64 = 8 << 20;

fn shared() -> SharedPart {
    let offer = Offer::new(CAPACITY).unwrap();
    let nonce = offer.nonce;
    offer.accepted(AT, nonce).unwrap()
}

#[test]
fn a_window_is_found_by_its_addresses() {
    let shared = shared();
    let page = u64::from(node::page_size());
    let (start, here) = (AT + (CAPACITY / 2), shared.map.as_mut_ptr() as u64);
    assert_eq!(shared.here(AT + 5, 10).unwrap() as u64, here + 5);
    assert!(shared.here(start + 5, 10).is_none());
    let window = shared.new_window(start + 5).unwrap();
    let (len, offset) = (window.len, window.offset);
    assert!(shared.here(start + 5, 10).is_none(), "its pages are not there yet");
    assert!(shared.new_window(start + 5).is_none(), "one at a time");
    window.add();
    assert_eq!(shared.here(start + 5, COPY_MAX).unwrap() as u64, here + offset + 5);
    assert!(shared.here(start + len - 5, 5).is_some() && shared.here(start + len - 5, 6).is_none());
    assert!(shared.here(start - 1, 2).is_none());
    let next = shared.new_window(start + len - 1).unwrap();
    assert_eq!((next.at, next.offset), (start + len, offset + len), "no page twice");
    next.add();
    assert_eq!(shared.here(start + len - 5, 10).unwrap() as u64, here + offset + len - 5, "one window");
    let before = shared.new_window(start - page).unwrap();
    assert_eq!((before.at, before.len), (start - page, page), "up to the next one");
    before.add();
    shared.new_window(AT + CAPACITY - page).unwrap().add();
    assert!(shared.here(AT + CAPACITY - page, page).is_some() && shared.here(start - page, page + 1).is_none());
}

#[test]
fn windows_stay_in_the_arena_and_the_file() {
    let shared = shared();
    assert!(shared.new_window(AT).is_none(), "it is shared anyway");
    assert!(shared.new_window(AT - 1).is_none() && shared.new_window(AT + CAPACITY).is_none(), "not the arena");
    let last = shared.new_window(AT + CAPACITY - 1).unwrap();
    assert_eq!(last.at + last.len, AT + CAPACITY);
    last.add();
    let mut bytes = 0;
    for at in (AT + shared.beginning..).step_by(COPY_MAX as usize * 2) {
        let Some(window) = shared.new_window(at) else { break };
        assert!(window.offset + window.len <= shared.map.len() as u64);
        bytes += window.len;
        window.add();
    }
    assert!(0 < bytes && bytes <= SHARED_WINDOWS);
}

#[test]
fn a_window_is_due_after_several_copies() {
    let shared = shared();
    let due = (1..=3 * COPIES_TO_SHARE).filter(|_| shared.is_window_due(AT + 5)).count();
    assert_eq!(due, 3, "tried again if the device was busy");
    (0..2 * COUNTED as u64).for_each(|n| assert!(!shared.is_window_due(AT + n * u64::from(node::page_size()))));
    assert!(shared.counts.lock().len() <= COUNTED);
}
