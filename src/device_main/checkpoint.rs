// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Snapshots: sleeping copies of an idle device process, from which its rank can replace it.

use super::backend::Backend;
use super::crash::exit::quit;
use super::crash::monitor;
use super::shared_state::SharedState;
use super::threads::pool::Me;
use crate::base::Result;
use crate::sys::process;
use crate::wire::reply::Failure;

/// Requests copies of a device process, and handles them.
pub(crate) trait Checkpoint: Send + Sync {
    fn is_wanted(&self) -> bool;

    /// If set, every message fails for this reason.
    fn failure(&self) -> Option<&Failure>;

    /// True in a process that replaces the original, while it replays the original's messages.
    fn replays(&self) -> bool;

    /// Reports a copy with this process id; 0 means that no copy can be made.
    fn taken(&self, pid: u32) -> Result<()>;

    /// In a copy: sleeps. Returns in each process that replaces the original; fails if the copy is not needed.
    fn sleep(&self) -> Result<()>;
}

/// Leaves a sleeping copy of this process behind unless another thread is busy; the caller soon tries again.
/// Returns true in a process that a copy has made, which has only this thread.
#[cold]
pub(super) fn take<B: Backend>(shared: &SharedState<B>, checkpoint: &dyn Checkpoint, me: &mut Me) -> bool {
    let SharedState { host, backend, output, pool, .. } = shared;
    // The rank would answer these transfers only for this process: the parts of an image that a device
    // passes on belong to no message that the rank tracks.
    if host.link().has_bulk() || backend.fault().is_some() {
        return false;
    }
    let (Some(silent), Some(idle)) = (output.try_hold(), pool.hold_idle()) else { return false };
    // SAFETY: this thread, or the fork handlers of libc and libomp, hold all locks that the copy uses.
    let pid = unsafe { libc::fork() };
    drop((silent, idle));
    if pid != 0 {
        if backend.fault().is_some() {
            // The copy may have the fault too.
            if pid > 0 {
                process::kill(pid);
                let _ = process::reap(pid, true);
            }
        } else {
            host.require(checkpoint.taken(pid.max(0) as u32));
        }
        return false;
    }
    if checkpoint.sleep().is_err() {
        quit(1);
    }
    *me = pool.start_anew();
    host.link().doorbells().start_anew();
    monitor::start_anew();
    monitor::use_slot(me.slot);
    host.require(output.start_anew());
    true
}
