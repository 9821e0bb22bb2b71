// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Ends the use of the devices: shuts down devices and MPI, or leaves the job without that.

use super::messages::queue::Queue;
use super::program::ending;
use super::progress::connection::Connection;
use super::progress::engine::Engine;
use super::progress::upcalls::Upcalls;
use crate::base::{Error, log};
use crate::link::Progress;
use crate::mpi::{self, pmi};
use crate::sys::deadline::{Deadline, flush_streams};
use crate::sys::launchers::{Launcher, launcher};
use crate::wire::control::Control;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a process that leaves its devices still receives their output.
const OUTPUT_PATIENCE: Duration = Duration::from_millis(20);
/// How long data may still move once all devices have ended: they finish only transfers that they had begun.
const DATA_PATIENCE: Duration = Duration::from_secs(2);
/// How long another thread may hold the link's lock while the process ends.
const LINK_PATIENCE: Duration = Duration::from_secs(2);

/// True if the process should end without waiting for devices and MPI: other threads may continue,
/// and libomptarget aborts when one of them starts a region from here on. The launcher then ends the job
/// with the program's status; not all launchers do so if the status is 0.
pub(crate) fn may_leave(connection: &Connection) -> bool {
    if !connection.ports.are_whole_job() || !ending::has_begun() || !ending::has_other_users() {
        return false;
    }
    ending::status() != Some(0) || ((ending::holds() || connection.ports.is_busy()) && pmi::leaves_with_success())
}

/// Waits for the unawaited messages. Reports their failures, because nobody else does.
pub(crate) fn settle(engine: &Engine) {
    let settled = engine.settle_unawaited(LINK_PATIENCE);
    check(engine);
    if let Err(Error::Text(text)) = settled {
        log::error(text);
        engine.connection.abort(1);
    }
}

/// Ends the job if an unawaited message failed and no call of the program has failed since.
pub(crate) fn check(engine: &Engine) {
    let connection = &engine.connection;
    if connection.ports.iter().any(|port| port.failures.has_unseen()) {
        (0..connection.ports.len()).for_each(|port| Upcalls(connection).finish_output(port));
        connection.abort(1);
    }
}

/// Leaves the devices, which exit when this process does.
pub(crate) fn leave(engine: &Engine) {
    engine.connection.begin_end();
    // Write the output that has already arrived.
    let since = Instant::now();
    let is_more = || match engine.poll() {
        Ok(Progress::Elsewhere) => {
            std::thread::yield_now();
            true
        }
        polled => matches!(polled, Ok(Progress::Made)),
    };
    while since.elapsed() < OUTPUT_PATIENCE && is_more() {}
    engine.connection.leave(LINK_PATIENCE);
    leave_job();
}

/// Leaves the devices while this thread, or one that does not return, may hold any lock. The process is
/// about to exit without `MPI_Finalize`. Open MPI's launcher reports that as a failure, but not an abort
/// with status 0.
pub(crate) fn leave_job() {
    if aborts_with_success() {
        flush_streams();
        mpi::abort_job(0);
    }
    pmi::leave();
}

/// True if an abort ends the job with the program's status, which is 0.
fn aborts_with_success() -> bool {
    ending::status() == Some(0) && matches!(launcher(), Some((Launcher::OpenMpi, _)))
}

/// Shuts down all devices through their control queues, then MPI. Ends the job if nothing arrives for `patience`.
pub(crate) fn end_devices(engine: &Engine, queues: &[Arc<Queue>], patience: Duration) {
    let connection = &engine.connection;
    connection.begin_end();
    // If a link is broken, the poll below reports it.
    let asked = queues.iter().try_for_each(|q| connection.control(q, |batch| batch.control(Control::Shutdown)));
    let (mut backoff, mut since) = (connection.link.backoff(engine.waiting.policy), Instant::now());
    let (mut driven, mut has_asked) = (since, false);
    let have_ended = || queues.iter().all(|q| q.pending.is_idle());
    while asked.is_err() || !(have_ended() && connection.link.is_flushed()) {
        // Devices that have ended wait for each other in MPI, where only an abort ends them.
        let may_abort = connection.ports.are_whole_job() && aborts_with_success();
        if asked.is_ok()
            && may_abort
            && since.elapsed() > DATA_PATIENCE
            && (have_ended() || ending::has_begun() && ending::has_other_users())
        {
            // Another thread's copy waits for a kernel and now never begins, or an image is to pass through the first
            // device to one that has ended.
            connection.leave(LINK_PATIENCE);
            (0..connection.ports.len()).for_each(|port| Upcalls(connection).finish_output(port));
            return leave_job();
        }
        if since.elapsed() > patience / 2 && !std::mem::replace(&mut has_asked, true) {
            // A worker that repeats the work of a lost one shuts down only after that work, and answers meanwhile.
            let awaited = queues.iter().filter(|q| !q.pending.is_idle());
            awaited.for_each(|q| connection.ask_for_answer(q.port()));
        }
        if since.elapsed() > patience {
            let has_data = |q: &Queue| connection.link.bulk_with(connection.ports[q.port()].rank).1 > 0;
            let silent = queues.iter().filter(|q| !q.pending.is_idle() || has_data(q));
            let silent = silent.map(|q| connection.ports[q.port()].name.as_str());
            let silent = silent.collect::<Vec<_>>().join(", ");
            log::error(format_args!("no answer at the end of the program from {silent}; ending the job"));
            connection.abort(1);
        }
        let polled = engine.poll();
        if !matches!(polled, Ok(Progress::Elsewhere)) {
            driven = Instant::now();
        } else if driven.elapsed() > LINK_PATIENCE {
            // The driving thread does not return, for instance because a signal handler runs there.
            return leave_job();
        }
        match polled {
            Ok(Progress::Made) => {
                // Read the clock after writing the output that arrived, which may take forever.
                (since, has_asked) = (Instant::now(), false);
                backoff.reset();
            }
            Ok(_) => {
                engine.waiting.heartbeat.check(connection);
                backoff.pause(None);
            }
            Err(e) => {
                if let Error::Text(text) = e {
                    log::error(text);
                }
                connection.abort(1)
            }
        }
    }
    (0..connection.ports.len()).for_each(|port| Upcalls(connection).finish_output(port));
    // MPI waits for every rank, even a dead one, and for other programs of the job as long as they run. By now
    // a wait can cost only time.
    let late = move || {
        log::error(format_args!(
            "MPI has not ended within {} s: a device is stopped, dead or cut off; ending the job",
            3 * patience.as_secs()
        ));
    };
    let deadline = connection.ports.are_whole_job().then(|| Deadline::start(3 * patience, 1, late));
    connection.link.finish();
    drop(deadline);
}
