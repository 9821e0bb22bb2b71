// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/plugin/unified/watch.rs`, with memory of this process. Where Linux can't watch it they test nothing;
//! the error is for `test/lit/unified/watched.c`.

use super::*;

const PART: usize = 128 << 10;

/// `None` where Linux can't watch memory, or this process has a file open that prevents it.
fn watch_for(devices: usize) -> Option<Watch> {
    Watch::new(devices).ok().filter(|_| open_writer().is_none())
}

/// Four parts of memory, all written.
fn memory() -> memmap2::MmapMut {
    let mut memory = memmap2::MmapMut::map_anon(4 * PART).unwrap();
    memory.fill(1);
    memory
}

fn part(memory: &memmap2::MmapMut, n: usize) -> Range<u64> {
    let start = memory.as_ptr() as u64 + (n * PART) as u64;
    start..start + PART as u64
}

#[test]
fn a_device_learns_what_is_unchanged() {
    let Some(watch) = watch_for(2) else { return };
    let mut memory = memory();
    let all = part(&memory, 0).start..part(&memory, 3).end;
    assert_eq!(watch.look(0), Looked { number: 1, ..Looked::default() });
    watch.want(0, std::iter::once(all.clone()));
    assert_eq!(watch.look(0), Looked { number: 2, more: vec![all.clone()], ..Looked::default() });
    assert_eq!(watch.look(0), Looked { number: 3, unchanged: vec![all.clone()], ..Looked::default() });
    memory[PART] = 2;
    let Looked { unchanged, more, .. } = watch.look(0);
    let unchanged: Ranges = unchanged.into_iter().collect();
    assert!(unchanged.covers(&part(&memory, 0)) && unchanged.covers(&part(&memory, 2)) && more.is_empty());
    assert!(!unchanged.covers(&part(&memory, 1)));
}

#[test]
fn what_is_watched_anew_for_one_device_has_changed_for_the_others() {
    let Some(watch) = watch_for(2) else { return };
    let mut memory = memory();
    let all = part(&memory, 0).start..part(&memory, 3).end;
    for device in [0, 1] {
        watch.want(device, std::iter::once(all.clone()));
        watch.look(device);
    }
    // The second one's wish has changed nothing for the first one.
    assert_eq!(watch.look(0).unchanged, std::slice::from_ref(&all));
    memory[2 * PART..3 * PART].fill(3);
    watch.want(1, std::iter::once(all.clone()));
    assert_eq!(watch.look(1).more, std::slice::from_ref(&all));
    let unchanged: Ranges = watch.look(0).unchanged.into_iter().collect();
    assert!(unchanged.covers(&part(&memory, 0)) && unchanged.within(&part(&memory, 2)).next().is_none());
}

#[test]
fn only_memory_of_this_process_is_watched() {
    let Some(watch) = watch_for(1) else { return };
    let file = crate::sys::node::memfd(c"test", 0).unwrap();
    file.set_len(PART as u64).unwrap();
    // SAFETY: only this test has the file.
    let shared = unsafe { memmap2::MmapMut::map_mut(&file).unwrap() };
    let memory = memory();
    watch.want(0, [part(&shared, 0), part(&memory, 1)].into_iter());
    assert_eq!(watch.look(0).more, [part(&memory, 1)]);
}

#[test]
fn no_more_is_watched_than_a_device_keeps() {
    let Some(watch) = watch_for(1) else { return };
    let memory = memmap2::MmapOptions::new().len(MEMORY_KEPT as usize + 2 * PART).no_reserve_swap().map_anon().unwrap();
    let start = memory.as_ptr() as u64;
    watch.want(0, [start..start + MEMORY_KEPT, start + MEMORY_KEPT..start + MEMORY_KEPT + PART as u64].into_iter());
    assert_eq!(watch.look(0).more.len(), 1);
}
