// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The threads of a device, and which of them receives.
//!
//! - `idle_threads`: threads without work: one watches the receiver, the others sleep.
//! - `placement`: which core the receiver runs on, beside a host on the same node.
//! - `pool`: all threads, the work that is ready for them, and when another thread receives.
//! - `receiver_token`: the right to receive, which threads pass on.
//! - `work_queue`: a queue of messages whose length is known without its lock.

mod idle_threads;
mod placement;
pub(super) mod pool;
mod receiver_token;
mod work_queue;
