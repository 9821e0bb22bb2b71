// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/transfers/buffer.rs`.

use super::*;

fn block(len: usize) -> Arc<Block> {
    let memory = vec![0; len].leak().as_mut_ptr();
    // SAFETY: nothing else uses the memory, which stays.
    unsafe { Block::divide(memory, len) }
}

#[test]
fn parts_of_a_block_are_apart_and_come_back() {
    let block = block(Block::MOST);
    for _ in 0..2 {
        let [small, large] =
            [Size::Small, Size::Large].map(|size| std::iter::from_fn(|| block.take(size)).collect::<Vec<_>>());
        assert!(small.len() == THREADS && !large.is_empty());
        let mut all: Vec<Buffer> = small.into_iter().chain(large).collect();
        for (i, buffer) in all.iter_mut().enumerate() {
            buffer.resize(if i < THREADS { SMALL } else { LARGE });
            buffer.fill(i as u8);
        }
        assert!(all.iter().enumerate().all(|(i, buffer)| buffer.iter().all(|&byte| byte == i as u8)));
        assert_eq!(all.iter().map(|buffer| buffer.len()).sum::<usize>(), Block::MOST);
    }
}

#[test]
fn a_buffer_that_outgrows_its_part_keeps_its_bytes() {
    let block = block(Block::LEAST);
    assert!(block.take(Size::Large).is_none());
    let mut buffer = block.take(Size::Small).unwrap();
    buffer.resize(3);
    buffer.copy_from_slice(b"abc");
    buffer.resize(SMALL);
    assert!(matches!(buffer, Buffer::Pinned(_)));
    buffer.resize(SMALL + 1);
    assert!(matches!(buffer, Buffer::Heap(_)) && buffer.starts_with(b"abc") && buffer.len() == SMALL + 1);
    assert_eq!(block.free.lock().len(), THREADS);
}
