// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Limits of time for calls that may never return: those into MPI, when a rank is gone.

use super::launcher;
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// How long writing what the program's streams hold may take.
const FLUSH_PATIENCE: Duration = Duration::from_millis(500);

/// Ends the process unless it is dropped in time.
pub struct Deadline(Arc<(Mutex<bool>, Condvar)>);

impl Deadline {
    /// A deadline that begins now; `late` is called, by a thread of its own, before the
    /// process is ended with this status.
    ///
    /// Does not wait for that thread to run: the caller may be the constructor of a library, which
    /// holds the loader's lock, and a thread that starts needs that.
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
    pub fn stop(self) {}
}

/// Also where that has failed, and the process goes on without it.
impl Drop for Deadline {
    fn drop(&mut self) {
        *self.0.0.lock() = true;
        self.0.1.notify_one();
    }
}

/// Writes what the program's streams hold, but does not wait long for a stream that is locked:
/// standard input is, for as long as a thread waits for a line.
pub fn flush_streams() {
    let (done, is_done) = mpsc::channel::<()>();
    let flush = move || {
        flush_and_wait();
        drop(done);
    };
    if std::thread::Builder::new().spawn(flush).is_ok() {
        let _ = is_done.recv_timeout(FLUSH_PATIENCE);
    }
}

/// Writes what the program's streams hold, and waits for a stream that another thread has locked.
pub fn flush_and_wait() {
    // SAFETY: null means all streams. The C library takes the newest first, and of the
    // standard streams the input last.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Ends the process with this status unless it ends in time. For a thread that a signal handler has
/// interrupted, which may hold any lock: it needs neither memory nor a thread, but takes SIGALRM.
pub fn end_after(limit: Duration, status: i32) {
    static STATUS: AtomicI32 = AtomicI32::new(0);
    extern "C" fn on_alarm(_: libc::c_int) {
        end(STATUS.load(Ordering::Relaxed));
    }
    STATUS.store(status, Ordering::Relaxed);
    // SAFETY: plain records of the stack, of which zero is a valid value; the handler may run at any
    // moment, as all that it does is to end the process.
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

/// Ends the process at once.
pub fn end(status: i32) -> ! {
    // SAFETY: it may be called from anywhere. Exit handlers could wait for a thread that hangs.
    unsafe { libc::_exit(status) }
}

/// Sees to it that the launcher of this job ends, as it should when a rank aborts: one that
/// waits for a node that is cut off is ended by signals, SIGTERM at first. A process of its
/// own waits for that, as the launcher may end this one. Launchers of other nodes than this
/// one are not reached, nor are those of other jobs.
pub fn end_launcher(patience: Duration) {
    let Some(launcher) = launcher::find() else { return };
    let wait = libc::c_int::try_from(patience.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: plain numbers and a record of the stack. The child makes system calls only, so
    // it does not matter what other threads held when it was made; fork handlers do not run.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, launcher, 0) as libc::c_int;
        // SYS_fork is not there on every processor.
        let flags = libc::c_long::from(libc::SIGCHLD);
        // It may have ended since, and another process may have its number.
        if process < 0 || launcher::find() != Some(launcher) {
            return;
        }
        if libc::syscall(libc::SYS_clone, flags, 0usize, 0usize, 0usize, 0usize) != 0 {
            return;
        }
        // Nobody shall wait for the child: it holds no pipe and belongs to no terminal.
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
