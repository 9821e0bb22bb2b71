// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The upcalls that a backend makes: requests for the program's memory and functions, which a region uses by their
//! addresses in the program.

use crate::base::Result;
use crate::wire::command::SharedFile;
use crate::wire::reply::Known;
use std::ops::Range;

/// What a backend asks the program for. Only one thread makes an upcall at a time.
pub(crate) trait Upcalls: Send + Sync {
    /// The program's process, if it is on this node.
    fn process(&self) -> Option<i32>;

    /// Reads ranges of whole pages of the program's memory, or of each range the part before the first missing page.
    /// Passes the pieces of each range to `piece` in order. The program only confirms bytes that this process already
    /// has, if they are unchanged. If the program refuses a range, that is an error, but the other ranges are read.
    fn fetch(&self, ranges: &[Wanted<'_>], piece: &mut dyn FnMut(Piece<'_>) -> Result<()>) -> Result<()>;

    /// The program's function at this address; none if regions may not use any.
    fn function(&self, at: u64) -> Result<Option<Function>>;

    /// Lets the program read from this process how the kernel of message `seq` changed the program's memory at `at`;
    /// false if the program can't. `old` is a file that has the old bytes at that offset.
    fn offer_changes(&self, seq: u64, at: u64, new: &[u8], old: SharedFile) -> Result<bool>;

    /// How many of the `Changed` messages that were sent, the last ones, the program may not have merged yet.
    fn unmerged(&self) -> u32;

    /// Sends a `Changed` message, which `write` completes, for the kernel of message `seq`.
    fn send_changes(&self, seq: u64, write: &mut dyn FnMut(&mut Vec<u8>));

    /// Sends a large range of changed memory as a whole, for the kernel of message `seq`. Returns the parts that the
    /// program did not take over, because it needs their old bytes, too.
    fn send_range(&self, seq: u64, at: u64, new: &[u8], old: &[u8]) -> Result<Vec<Range<u64>>>;
}

/// A range of the program's memory, and what this process has of it.
pub(crate) type Wanted<'a> = (Range<u64>, Known<'a>);

/// A piece of the program's memory from the page at `at` on: `same` bytes as this process has them, then `bytes`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub at: u64,
    pub same: u64,
    pub bytes: &'a [u8],
}

/// A function of the program.
#[derive(Debug)]
pub(crate) struct Function {
    pub symbol: String,
    /// A shared library exports it, rather than the program itself.
    pub is_exported: bool,
}
