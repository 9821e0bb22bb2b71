// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The parts of a device that all its threads share. Each guards its own state.

use super::asker::Answers;
use super::host::Host;
use super::loader::Loader;
use super::output::Output;
use super::pool::Pool;
use super::staging::Staging;
use super::trace::Trace;

pub(super) struct Parts<B> {
    pub host: Host,
    pub backend: B,
    pub loader: Loader,
    pub output: Output,
    pub pool: Pool,
    pub staging: Staging,
    pub trace: Trace,
    pub answers: Answers,
}
