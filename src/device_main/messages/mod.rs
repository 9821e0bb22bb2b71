// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Messages of queues, from their arrival to their reply.
//!
//! - `interpreter`: executes messages, command by command, and sends their replies.
//! - `schedule`: the order of messages within a queue and between queues.
//! - `trace`: the device's records of each message, if the host requests them.
//! - `work`: a message in execution: its position, its reply and its early bulk data.

pub(super) mod interpreter;
pub(super) mod schedule;
pub(super) mod trace;
pub(super) mod work;
