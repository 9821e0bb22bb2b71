// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The end of the process: its status, the thread that runs the exit handlers, and where the
//! other threads wait meanwhile.
//!
//! A thread that still runs regions must not go on while libomptarget takes itself apart:
//! libomptarget 16 first forgets the program's regions, and aborts when one of them starts, then
//! frees what it uses, and crashes. Hence calls of the other threads do not return once the
//! program's own exit handlers are over ([`hold`]). Until the devices are ended each call is held
//! for half a second at most: a destructor of a library may wait for such a thread.
//!
//! A signal handler may call `exit` while its thread is inside of the plugin. Whatever the thread
//! has locked then stays locked, and MPI is in the midst of a call: [`is_inside`] says so, and
//! nothing that needs either may be done.

use crate::base::deadline::{end, flush_streams};
use crate::mpi;
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, compiler_fence};
use std::time::{Duration, Instant};

/// How long calls are held before the devices are ended.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the thread that ends the process waits for other threads' regions to be held.
const SETTLE: Duration = Duration::from_millis(20);
/// The same if none is under way.
const SETTLE_IDLE: Duration = Duration::from_millis(2);
/// How long the rest of the end may take where it may wait for a held thread: libomp does for one
/// that runs a `nowait` region, and some libraries for threads of theirs.
const REST: Duration = Duration::from_secs(2);
/// Nothing ends the process for so long: held threads fail.
const GRACE: Duration = Duration::from_secs(60);
/// A held thread looks this often whether it may go on.
const LOOK: Duration = Duration::from_millis(2);

/// The thread that runs the exit handlers, 0 before.
static THREAD: AtomicI32 = AtomicI32::new(0);
static STATUS: AtomicI32 = AtomicI32::new(0);
/// When other threads' calls began to be held.
static HOLDING: OnceLock<Instant> = OnceLock::new();
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// When the devices were ended, or given up.
static DEVICES_ENDED: OnceLock<Instant> = OnceLock::new();
/// Calls that are held.
static HELD: AtomicUsize = AtomicUsize::new(0);
/// Threads that have called the plugin and still exist.
static USERS: AtomicUsize = AtomicUsize::new(0);

struct Calls {
    stage: Cell<Stage>,
    /// libomptarget has locked what it needs when the process ends.
    loads: Cell<bool>,
}

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has not called the plugin yet.
    New,
    Outside,
    Inside,
}

thread_local! {
    // Without a destructor: this is looked at in every call.
    static CALLS: Calls = const { Calls { stage: Cell::new(Stage::New), loads: Cell::new(false) } };
    static USER: User = const { User };
}

/// A thread that has called the plugin.
struct User;

impl Drop for User {
    fn drop(&mut self) {
        USERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// True unless the thread is inside of a call; one that was new has been counted then.
#[cold]
#[inline(never)]
fn may_enter(calls: &Calls) -> bool {
    if calls.stage.get() == Stage::New && USER.try_with(|_| ()).is_ok() {
        USERS.fetch_add(1, Ordering::Relaxed);
    }
    calls.stage.get() != Stage::Inside
}

/// Makes a call of the plugin; none if the thread is inside of another one, which a signal handler
/// has interrupted.
#[inline]
pub fn call<R>(call: impl FnOnce() -> R) -> Option<R> {
    CALLS.with(|calls| {
        if calls.stage.get() != Stage::Outside && !may_enter(calls) {
            return None;
        }
        calls.stage.set(Stage::Inside);
        // A signal handler of this thread must see it before anything is locked.
        compiler_fence(Ordering::SeqCst);
        let result = call();
        compiler_fence(Ordering::SeqCst);
        calls.stage.set(Stage::Outside);
        Some(result)
    })
}

/// Makes a device ready or loads an image: libomptarget then has locked what it needs when the
/// process ends.
pub fn load<R>(load: impl FnOnce() -> R) -> R {
    /// Also where it panics.
    struct Loading<'a>(&'a Cell<bool>);
    impl Drop for Loading<'_> {
        fn drop(&mut self) {
            compiler_fence(Ordering::SeqCst);
            self.0.set(false);
        }
    }
    CALLS.with(|calls| {
        calls.loads.set(true);
        compiler_fence(Ordering::SeqCst);
        let _loading = Loading(&calls.loads);
        load()
    })
}

/// True if this thread is in the midst of [`fn@load`].
pub fn is_loading() -> bool {
    CALLS.with(|calls| calls.loads.get())
}

/// True if this thread is inside of a call of the plugin.
pub fn is_inside() -> bool {
    CALLS.with(|calls| calls.stage.get() == Stage::Inside)
}

/// The calling thread ends the process with this status.
pub fn begin(status: i32) {
    STATUS.store(status, Ordering::Relaxed);
    THREAD.store(thread(), Ordering::SeqCst);
}

/// The status that the program ends with, if it is ending.
pub fn status() -> Option<i32> {
    (THREAD.load(Ordering::SeqCst) != 0).then(|| STATUS.load(Ordering::Relaxed))
}

/// True once calls of other threads than the one that ends the process are held.
#[inline]
pub fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::Relaxed)
}

/// True if threads exist that have called the plugin, apart from this one.
pub fn has_other_users() -> bool {
    let this = CALLS.with(|calls| calls.stage.get() != Stage::New);
    USERS.load(Ordering::Relaxed) > usize::from(this)
}

/// True if a call is held.
pub fn holds() -> bool {
    HELD.load(Ordering::Relaxed) > 0
}

/// Holds the calls of all other threads from here on, which `catch` makes come to [`hold`], and
/// waits a moment for them: one that has just returned will soon be back. `is_busy` is true while
/// a region runs.
pub fn hold_others(catch: impl FnOnce(), is_busy: &dyn Fn() -> bool) {
    if HOLDING.get().is_some() || THREAD.load(Ordering::SeqCst) != thread() {
        return;
    }
    let since = *HOLDING.get_or_init(Instant::now);
    HAS_BEGUN.store(true, Ordering::SeqCst);
    catch();
    let mut changed = since;
    let mut held = 0;
    while has_other_users() && since.elapsed() < SETTLE && (is_busy() || changed.elapsed() < SETTLE_IDLE) {
        std::thread::sleep(Duration::from_micros(200));
        let now = HELD.load(Ordering::Relaxed);
        if now != held {
            (held, changed) = (now, Instant::now());
        }
    }
}

/// The devices are ended, or will be with the process: held calls do not return any more. Should
/// the process wait for such a thread, it ends all the same, with the program's status.
pub fn devices_have_ended() {
    if !has_begun() || DEVICES_ENDED.set(Instant::now()).is_err() || !has_other_users() {
        return;
    }
    // Where no thread can be had, the held ones fail in the end.
    let _ = std::thread::Builder::new().spawn(|| {
        std::thread::sleep(REST);
        if holds() {
            flush_streams();
            mpi::leave_launcher();
            end(STATUS.load(Ordering::Relaxed));
        }
    });
}

/// Keeps the calling thread from going on while another one ends the process.
#[cold]
pub fn hold() {
    if THREAD.load(Ordering::SeqCst) == thread() {
        return;
    }
    HELD.fetch_add(1, Ordering::Relaxed);
    loop {
        match (HOLDING.get(), DEVICES_ENDED.get()) {
            (_, Some(ended)) if ended.elapsed() < GRACE => {}
            (Some(since), None) if since.elapsed() < PAUSE => {}
            _ => break,
        }
        std::thread::sleep(LOOK);
    }
    HELD.fetch_sub(1, Ordering::Relaxed);
}

fn thread() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_call_within_a_call_is_not_made() {
        assert!(!is_inside());
        let inner = call(|| {
            assert!(is_inside());
            std::thread::spawn(|| assert!(!is_inside() && call(|| ()).is_some())).join().unwrap();
            call(|| ())
        });
        assert_eq!(inner, Some(None));
        assert!(!is_inside() && call(|| ()).is_some());
    }

    #[test]
    fn what_is_loaded_in_vain_is_not_loaded_for_ever() {
        load(|| assert!(is_loading()));
        assert!(catch_unwind(AssertUnwindSafe(|| load(|| panic!("as intended")))).is_err());
        assert!(!is_loading());
    }

    #[test]
    fn threads_that_have_called_are_known_while_they_live() {
        let (begun, has_begun) = std::sync::mpsc::channel();
        let (end, has_ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || {
            call(|| begun.send(()).unwrap());
            let _ = has_ended.recv();
        });
        has_begun.recv().unwrap();
        assert!(has_other_users());
        drop(end);
        other.join().unwrap();
    }
}
