// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/base/bitcode.rs`, and bitcode for others.

use super::*;
use proptest::prelude::*;

/// Bits, the lowest of each byte first.
#[derive(Default)]
struct Writer(Vec<bool>);

impl Writer {
    fn put(&mut self, width: u32, value: u64) {
        self.0.extend((0..width).map(|i| value >> i & 1 == 1));
    }

    /// A number in parts.
    fn parts(&mut self, width: u32, mut value: u64) {
        let more = 1 << (width - 1);
        while value >= more {
            self.put(width, more | (value & (more - 1)));
            value >>= width - 1;
        }
        self.put(width, value);
    }

    fn align(&mut self) {
        self.0.resize(self.0.len().next_multiple_of(32), false);
    }

    /// A block within one of `width`.
    fn block(&mut self, width: u32, id: u64, inner: u32, contents: &[bool]) {
        self.put(width, BLOCK);
        self.parts(8, id);
        self.parts(4, inner.into());
        self.align();
        let mut contents = Writer(contents.to_vec());
        contents.align();
        self.put(32, contents.0.len() as u64 / 32);
        self.0.extend(contents.0);
    }

    fn record(&mut self, width: u32, code: u64, values: impl ExactSizeIterator<Item = u64>) {
        self.put(width, RECORD);
        self.parts(6, code);
        self.parts(6, values.len() as u64);
        values.for_each(|value| self.parts(6, value));
    }

    fn bytes(&self) -> Vec<u8> {
        let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit));
        self.0.chunks(8).map(byte).collect()
    }
}

/// A file as LLVM writes it: an identification block, then a module with a block before its triple and other text behind it.
pub(in crate::base) fn file(triple: &str) -> Vec<u8> {
    const WIDTH: u32 = 3;
    let mut module = Writer::default();
    module.record(WIDTH, 1, [2].into_iter());
    module.block(WIDTH, 17, 4, &[true; 77]);
    module.record(WIDTH, TRIPLE, triple.bytes().map(u64::from).collect::<Vec<_>>().into_iter());
    module.record(WIDTH, 3, b"nvptx64-".map(u64::from).into_iter());
    let mut all = Writer::default();
    all.block(OUTER_WIDTH, 13, 5, &[true; 40]);
    all.block(OUTER_WIDTH, MODULE, WIDTH, &module.0);
    [&MAGIC[..], &all.bytes(), b"amdgcn-"].concat()
}

#[test]
fn the_triple_is_read() {
    for text in ["amdgcn-amd-amdhsa", "x", ""] {
        assert_eq!(triple(&file(text)).as_deref(), Some(text));
    }
    let whole = file("nvptx64-nvidia-cuda");
    assert!((0..whole.len() / 2).all(|len| triple(&whole[..len]).is_none()));
    assert_eq!((triple(b"\x7fELF"), triple(&MAGIC)), (None, None));
}

proptest! {
    #[test]
    fn any_bytes_are_safe_to_read(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..100) {
        triple(&[&MAGIC[..], &bytes].concat());
        let mut changed = file("amdgcn-amd-amdhsa");
        let at = 4 + at % (changed.len() - 4);
        changed[at] ^= bytes.first().copied().unwrap_or(1);
        triple(&changed);
    }
}
