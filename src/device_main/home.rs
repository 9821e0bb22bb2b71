// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The program's memory and functions, for regions that use them by their addresses in the program.

use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::wire::command::SharedFile;
use crate::wire::reply::Known;
use std::collections::VecDeque;
use std::thread::Thread;
use std::time::{Duration, Instant};

/// How long an asking thread polls before it sleeps, and how long it sleeps if nothing wakes it: the receiver does,
/// unless it is in a kernel that waits for the answer.
const POLLS: Duration = Duration::from_micros(50);
const SLEEP: Duration = Duration::from_micros(100);

/// What a backend asks the program for. One thread asks at a time.
pub(crate) trait Home: Send + Sync {
    /// The program's process, if it is on this node.
    fn process(&self) -> Option<i32>;

    /// Reads the program's memory from the page at `at` on, `len` bytes or as many as there are, and passes them on in
    /// pieces that follow each other. What this process has already, `known`, only counts if it is still so.
    fn fetch(&self, at: u64, len: u64, known: Known<'_>, piece: &mut dyn FnMut(Piece<'_>) -> Result<()>) -> Result<()>;

    /// The program's function at this address.
    fn function(&self, at: u64) -> Result<Function>;

    /// Has the program read from this process how the kernel of message `seq` has changed its memory at `at`; false if
    /// it can't. `old` is a file that has the old bytes at that offset.
    fn offer_changes(&self, seq: u64, at: u64, new: &[u8], old: SharedFile) -> Result<bool>;

    /// Sends a `Changed` message, which `write` completes, for the kernel of message `seq`.
    fn send_changes(&self, seq: u64, write: &mut dyn FnMut(&mut Vec<u8>));
}

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
    /// A shared library exports it, not the program itself.
    pub is_exported: bool,
}

/// A message of the program to the thread that has asked.
pub(super) enum Answer {
    Pages { at: u64, same: u64, bytes: Vec<u8>, more: bool },
    Function(Function),
    Taken,
    Refused(String),
}

/// The answers that have arrived, and the thread that waits for them.
#[derive(Default)]
pub(super) struct Answers {
    arrived: Mutex<VecDeque<Answer>, { order::LEAF }>,
    asker: Mutex<Option<Thread>, { order::LEAF }>,
}

impl Answer {
    /// The error if this is not the answer that was asked for.
    pub fn error(self) -> Error {
        match self {
            Answer::Refused(why) => Error::new(why),
            _ => Error::new("the program answers something else than this device has asked for"),
        }
    }
}

impl Answers {
    pub fn arrive(&self, answer: Answer) {
        self.arrived.lock().push_back(answer);
        if let Some(asker) = &*self.asker.lock() {
            asker.unpark();
        }
    }

    /// Waits for an answer; `drive` makes progress.
    pub fn wait(&self, drive: impl Fn()) -> Answer {
        *self.asker.lock() = Some(std::thread::current());
        let since = Instant::now();
        loop {
            drive();
            match self.arrived.lock().pop_front() {
                Some(answer) => return answer,
                None if since.elapsed() < POLLS => std::thread::yield_now(),
                None => std::thread::park_timeout(SLEEP),
            }
        }
    }
}
