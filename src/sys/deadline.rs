// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Time limits for calls that may never return: calls into MPI after a rank was lost.

use super::launchers::processes;
use crate::base::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Condvar, PoisonError, mpsc};
use std::time::Duration;

const FLUSH_PATIENCE: Duration = Duration::from_millis(500);

/// Ends the process unless it is dropped in time.
pub(crate) struct Deadline(Arc<(Mutex<bool>, Condvar)>);

impl Deadline {
    /// Starts a deadline. When it expires, a thread of its own calls `late` and ends the process
    /// with this status.
    ///
    /// Does not wait for that thread to start: a starting thread needs the loader's lock, which the
    /// caller holds if it is the constructor of a library.
    pub(crate) fn start(limit: Duration, status: i32, late: impl FnOnce() + Send + 'static) -> Deadline {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let theirs = shared.clone();
        // If no thread can be started, there is no deadline.
        let _ = std::thread::Builder::new().spawn(move || {
            let stopped = theirs.0.lock();
            let waited = theirs.1.wait_timeout_while(stopped, limit, |stopped| !*stopped);
            let (_stopped, waited) = waited.unwrap_or_else(PoisonError::into_inner);
            if waited.timed_out() {
                late();
                end(status);
            }
        });
        Deadline(shared)
    }

    /// Stops the deadline: the work was done in time.
    pub(crate) fn stop(self) {}
}

/// Stops the deadline, even if the work failed and the process goes on.
impl Drop for Deadline {
    fn drop(&mut self) {
        *self.0.0.lock() = true;
        self.0.1.notify_one();
    }
}

/// Flushes the program's streams, but gives up on a locked stream: input is locked while a thread waits for it.
pub(crate) fn flush_streams() {
    let (done, is_done) = mpsc::channel::<()>();
    // A locked stream blocks the flush of older ones, such as the standard streams.
    for flush in [flush_and_wait, flush_output] {
        let done = done.clone();
        let _ = std::thread::Builder::new().spawn(move || (flush(), drop(done)));
    }
    drop(done);
    let _ = is_done.recv_timeout(FLUSH_PATIENCE);
}

/// Flushes the program's standard output and error output.
fn flush_output() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
        static stderr: *mut libc::FILE;
    }
    // SAFETY: libc initializes the streams before any library.
    unsafe {
        libc::fflush(stdout);
        libc::fflush(stderr);
    }
}

/// Flushes the program's streams, and waits for streams that other threads have locked.
pub(crate) fn flush_and_wait() {
    // SAFETY: null means all streams. The C library flushes the newest first, standard input last.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Ends the process with this status unless it ends in time. For a thread that a signal handler has
/// interrupted, which may hold any lock: this uses SIGALRM, and neither allocates memory nor starts a thread.
pub(crate) fn end_after(limit: Duration, status: i32) {
    static STATUS: AtomicI32 = AtomicI32::new(0);
    extern "C" fn on_alarm(_: libc::c_int) {
        end(STATUS.load(Ordering::Relaxed));
    }
    STATUS.store(status, Ordering::Relaxed);
    // SAFETY: zero is valid for all these records. The handler may run at any moment: it only ends the process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_alarm as *const () as usize;
        libc::sigaction(libc::SIGALRM, &action, std::ptr::null_mut());
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigaddset(&mut signals, libc::SIGALRM);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &signals, std::ptr::null_mut());
        let mut timer: libc::itimerval = std::mem::zeroed();
        timer.it_value.tv_sec = limit.as_secs() as libc::time_t;
        timer.it_value.tv_usec = limit.subsec_micros() as libc::suseconds_t;
        libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut());
    }
}

/// Ends the process at once. Exit handlers do not run: they could wait for a thread that hangs.
pub(crate) fn end(status: i32) -> ! {
    // SAFETY: `_exit` may be called from anywhere.
    unsafe { libc::_exit(status) }
}

/// Makes sure that this job's launcher exits, as it must after a rank aborts. A launcher that waits for a
/// node that is cut off gets SIGTERM after `patience`, then SIGKILL. A separate process waits and sends
/// these, since the launcher may kill this one. Launchers on other nodes and those of other jobs are not
/// affected.
pub(crate) fn end_launcher(patience: Duration) {
    let Some(launcher) = processes::find() else { return };
    let wait = libc::c_int::try_from(patience.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: numbers, and a record on the stack. The child only makes system calls, so it does not
    // matter which locks other threads held at the fork. Fork handlers do not run.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, launcher, 0) as libc::c_int;
        // SYS_fork does not exist on every architecture.
        let flags = libc::c_long::from(libc::SIGCHLD);
        // The launcher may have exited before `pidfd_open`, and its process id may have been reused.
        if process < 0 || processes::find() != Some(launcher) {
            return;
        }
        if libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) != 0 {
            return;
        }
        // Nothing may wait for the child: it keeps no pipe open and leaves the terminal's session.
        libc::dup2(process, 0);
        libc::syscall(libc::SYS_close_range, 1, libc::c_uint::MAX, 0);
        libc::setsid();
        for signal in [libc::SIGTERM, libc::SIGKILL] {
            let mut ended = libc::pollfd { fd: 0, events: libc::POLLIN, revents: 0 };
            if libc::poll(&mut ended, 1, wait) != 0 {
                break;
            }
            libc::syscall(libc::SYS_pidfd_send_signal, 0, signal, 0, 0);
        }
        libc::_exit(0)
    }
}
