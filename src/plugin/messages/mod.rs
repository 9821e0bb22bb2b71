// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Queues, and the messages that they send: collected, in flight, answered.
//!
//! | file | contents |
//! | --- | --- |
//! | `diagnose` | the texts of failures |
//! | `port` | the host's ends of the devices: the messages sent to each, and the state of each |
//! | `failures` | what has failed on a device |
//! | `in_flight` | a device's incomplete messages |
//! | `unawaited` | a device's incomplete messages that nobody waits for |
//! | `queue` | queues and events |
//! | `batch` | the message that a queue collects |
//! | `queue_trace` | what the program requested of queues, and when |
//! | `pending` | counts the incomplete operations of one queue, and wakes the thread that waits for them |
//! | `bulk_tags` | reserves MPI's tags for bulk transfers |

pub(crate) mod batch;
pub(crate) mod bulk_tags;
pub(crate) mod diagnose;
pub(crate) mod failures;
pub(crate) mod in_flight;
pub(crate) mod pending;
pub(crate) mod port;
pub(crate) mod queue;
pub(crate) mod queue_trace;
pub(crate) mod unawaited;
