// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Changes that were sent to a program on this node, which may not have merged them yet. What is read from its process gets
//! them here, as the program will merge them.

use crate::base::Result;
use crate::base::limits::UNMERGED;
use crate::wire::reply::Changes;
use std::collections::VecDeque;

#[derive(Default)]
pub(super) struct Unmerged {
    /// The changes of each message, the oldest first.
    sent: VecDeque<Vec<u8>>,
    /// There were too many to keep.
    is_incomplete: bool,
}

impl Unmerged {
    /// Notes the changes of a message that is sent.
    pub fn add(&mut self, changes: Vec<u8>) {
        self.is_incomplete |= self.sent.len() == UNMERGED;
        match self.is_incomplete {
            true => self.sent.clear(),
            false => self.sent.push_back(changes),
        }
    }

    /// Forgets what is merged: all messages but the last `left`. False if not all that is left is known.
    pub fn settle(&mut self, left: u32) -> bool {
        self.is_incomplete &= left > 0;
        let merged = self.sent.len().saturating_sub(left as usize);
        self.sent.drain(..merged);
        !self.is_incomplete
    }

    pub fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Merges the changes into bytes that were read at an address.
    pub fn merge(&self, at: u64, bytes: &mut [u8]) -> Result<()> {
        let end = at + bytes.len() as u64;
        for changes in &self.sent {
            let mut changes = Changes(changes);
            while let Some((from, new, old)) = changes.take()? {
                let common = at.max(from)..end.min(from + new.len() as u64);
                if common.is_empty() {
                    continue;
                }
                let here = &mut bytes[(common.start - at) as usize..(common.end - at) as usize];
                let part = (common.start - from) as usize..(common.end - from) as usize;
                for ((here, new), old) in here.iter_mut().zip(&new[part.clone()]).zip(&old[part]) {
                    // Another value is the program's own, later one, or in conflict.
                    *here = if *here == *old { *new } else { *here };
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "../../../../../test/rust/unit/device_main/backend/cpu/unified/unmerged.rs"]
mod tests;
