// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What all threads of a device share. Each part guards its own state.

use super::host::Host;
use super::images::loader::Loader;
use super::messages::trace::Trace;
use super::output::capture::Output;
use super::threads::pool::Pool;
use super::transfers::staging::Staging;
use super::upcalls::asker::Answers;

pub(crate) struct SharedState<B> {
    pub host: Host,
    pub backend: B,
    pub loader: Loader,
    pub output: Output,
    pub pool: Pool,
    pub staging: Staging,
    pub trace: Trace,
    pub answers: Answers,
}
