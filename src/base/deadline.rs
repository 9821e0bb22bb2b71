// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Limits of time for calls that may never return: those into MPI, when a rank is gone.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Ends the process unless it is stopped in time.
pub struct Deadline(Arc<(Mutex<bool>, Condvar)>);

impl Deadline {
    /// A deadline that begins now; `late` is called, by a thread of its own, before the
    /// process is ended with this status.
    pub fn start(limit: Duration, status: i32, late: impl FnOnce() + Send + 'static) -> Deadline {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = shared.clone();
        // Where no thread can be had, what follows has to do without.
        let _ = std::thread::Builder::new().spawn(move || {
            let mut stopped = theirs.0.lock();
            if theirs.1.wait_while_for(&mut stopped, |stopped| !*stopped, limit).timed_out() {
                late();
                end(status);
            }
        });
        Deadline(shared)
    }

    /// What was to be done in time is done.
    pub fn stop(self) {
        *self.0.0.lock() = true;
        self.0.1.notify_one();
    }
}

/// Ends the process at once.
pub fn end(status: i32) -> ! {
    // SAFETY: it may be called from anywhere. Exit handlers could wait for a thread that hangs.
    unsafe { libc::_exit(status) }
}
