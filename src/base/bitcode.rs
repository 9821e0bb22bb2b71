// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Reads the target triple of LLVM bitcode, and nothing else.
//!
//! Bitcode is a stream of bits, in blocks that contain their lengths. A module's triple precedes all abbreviated
//! records, so the reader need not understand abbreviations.

/// The first bytes of bitcode.
pub(crate) const MAGIC: [u8; 4] = *b"BC\xc0\xde";

/// Abbreviation ids. (The other values end a block, define an abbreviation or use one.)
const BLOCK: u64 = 1;
const RECORD: u64 = 3;
/// Bits of an abbreviation id outside of all blocks.
const OUTER_WIDTH: u32 = 2;
/// LLVM's `MODULE_BLOCK_ID` and `MODULE_CODE_TRIPLE`.
const MODULE: u64 = 8;
const TRIPLE: u64 = 2;

/// The target triple of the first module in a file, if it has one.
pub(crate) fn triple(file: &[u8]) -> Option<String> {
    let mut bits = Bits { bytes: file.strip_prefix(&MAGIC)?, at: 0 };
    loop {
        if bits.take(OUTER_WIDTH)? != BLOCK {
            return None;
        }
        let block = bits.block()?;
        if block.id == MODULE {
            return bits.triple(block.width);
        }
        bits.at = block.end;
    }
}

/// The head of a block.
struct Block {
    id: u64,
    /// Bits of the abbreviation ids in the block.
    width: u32,
    /// Where it ends, in bits.
    end: u64,
}

struct Bits<'a> {
    bytes: &'a [u8],
    /// How many bits were read.
    at: u64,
}

impl Bits<'_> {
    /// A number of this many bits, the lowest one first.
    fn take(&mut self, width: u32) -> Option<u64> {
        let bit = |at: u64| {
            let byte = self.bytes.get(usize::try_from(at / 8).ok()?)?;
            Some(u64::from(byte >> (at % 8) & 1))
        };
        let value = (0..width.min(u64::BITS)).try_fold(0, |value, i| Some(value | bit(self.at + u64::from(i))? << i));
        self.at += u64::from(width);
        value
    }

    /// A number in parts of this many bits (VBR); the highest bit says whether another part follows.
    fn parts(&mut self, width: u32) -> Option<u64> {
        let (more, mut value, mut shift) = (1 << (width - 1), 0, 0);
        loop {
            let part = self.take(width)?;
            value |= (part & (more - 1)).checked_shl(shift)?;
            if part & more == 0 {
                return Some(value);
            }
            shift += width - 1;
        }
    }

    fn block(&mut self) -> Option<Block> {
        let (id, width) = (self.parts(8)?, u32::try_from(self.parts(4)?).ok()?);
        self.at = self.at.next_multiple_of(32);
        let words = self.take(32)?;
        Some(Block { id, width, end: self.at + 32 * words })
    }

    /// The triple in a module.
    fn triple(&mut self, width: u32) -> Option<String> {
        loop {
            match self.take(width)? {
                BLOCK => self.at = self.block()?.end,
                RECORD => {
                    let (code, len) = (self.parts(6)?, self.parts(6)?);
                    let values = (0..len).map(|_| self.parts(6));
                    match code {
                        TRIPLE => return values.map(|c| char::from_u32(u32::try_from(c?).ok()?)).collect(),
                        _ => values.map(|value| value.map(drop)).collect::<Option<()>>()?,
                    }
                }
                _ => return None,
            }
        }
    }
}

#[cfg(test)]
#[path = "../../test/rust/unit/base/bitcode.rs"]
pub(super) mod tests;
