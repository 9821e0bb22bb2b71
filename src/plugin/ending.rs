// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Process exit: its status, the thread that runs the exit handlers, and the hold on other threads.
//!
//! A thread that still runs regions must not continue while libomptarget deinitializes itself:
//! libomptarget 16 first removes the program's regions, and aborts when one of them starts; then it
//! frees what the regions use, and crashes. Hence calls of other threads do not return once the
//! program's own exit handlers have run ([`hold`]). Until the plugin begins to end the devices, each
//! call is held for half a second at most: a destructor of a library may wait for such a thread.
//!
//! A signal handler may call `exit` while its thread is inside the plugin ([`is_inside`]). The
//! thread's locks then stay locked, and a call of MPI may be incomplete, so nothing may be done that
//! needs a lock or MPI.

use crate::mpi::pmi;
use crate::sys::crew;
use crate::sys::deadline::{end, flush_streams};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering, compiler_fence};
use std::time::{Duration, Instant};

/// How long calls are held before the plugin begins to end the devices.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the thread that ends the process waits until other threads' calls are held.
const SETTLE: Duration = Duration::from_millis(20);
/// [`SETTLE`] if no region is running.
const SETTLE_IDLE: Duration = Duration::from_millis(2);
/// How long the rest of process exit may take. It may wait for a held thread: libomp does if the
/// thread runs a `nowait` region, and some libraries wait for threads of their own.
const REST: Duration = Duration::from_secs(2);
/// Held calls fail if nothing has ended the process after this time.
const GRACE: Duration = Duration::from_secs(60);
/// How often a held thread checks whether it may continue.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// The thread that runs the exit handlers; 0 before they run.
static THREAD: AtomicI32 = AtomicI32::new(0);
static STATUS: AtomicI32 = AtomicI32::new(0);
/// The time since which other threads' calls are held.
static HOLDING: OnceLock<Instant> = OnceLock::new();
static HAS_BEGUN: AtomicBool = AtomicBool::new(false);
/// The thread that runs the exit handlers ends the devices, or has ended them: it runs no destructor that could wait
/// for a held thread.
static ENDS_DEVICES: AtomicBool = AtomicBool::new(false);
/// When the devices ended, or were left.
static DEVICES_ENDED: OnceLock<Instant> = OnceLock::new();
static HELD: AtomicUsize = AtomicUsize::new(0);
/// The number of live threads that have called the plugin.
static USERS: AtomicUsize = AtomicUsize::new(0);

/// Where a thread is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// It has not called the plugin yet.
    New,
    Outside,
    Inside,
}

thread_local! {
    // Without a destructor, because every call accesses it.
    static STAGE: Cell<Stage> = const { Cell::new(Stage::New) };
    /// The thread is inside [`with_locks`].
    static HAS_LOCKS: Cell<bool> = const { Cell::new(false) };
    static USER: User = const { User };
}

/// The ids of these threads, as far as there is room: a signal handler can read them. 0 is free.
static USER_IDS: [AtomicI32; 256] = [const { AtomicI32::new(0) }; 256];

/// A thread that has called the plugin.
struct User;

impl User {
    /// Replaces a thread id in the table.
    fn replace(id: i32, by: i32) {
        let _ =
            USER_IDS.iter().find(|place| place.compare_exchange(id, by, Ordering::Relaxed, Ordering::Relaxed).is_ok());
    }
}

impl Drop for User {
    fn drop(&mut self) {
        User::replace(thread(), 0);
        USERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// True unless the thread is inside a call; counts a new thread.
#[cold]
#[inline(never)]
fn may_enter(stage: Stage) -> bool {
    if stage == Stage::New && USER.try_with(|_| ()).is_ok() {
        USERS.fetch_add(1, Ordering::Relaxed);
        User::replace(0, thread());
    }
    stage != Stage::Inside
}

/// Makes a call of the plugin. Returns `None` if the thread is inside another call, which a signal
/// handler has interrupted.
#[inline]
pub(crate) fn call<R>(call: impl FnOnce() -> R) -> Option<R> {
    STAGE.with(|stage| {
        if stage.get() != Stage::Outside && !may_enter(stage.get()) {
            return None;
        }
        stage.set(Stage::Inside);
        // A signal handler of this thread must see the stage before the call takes a lock.
        compiler_fence(Ordering::SeqCst);
        let result = call();
        compiler_fence(Ordering::SeqCst);
        stage.set(Stage::Outside);
        Some(result)
    })
}

/// Makes a call during which libomptarget, the dynamic loader or the plugin has locked for this thread what is also
/// needed when the process exits: one that initializes a device, or loads or unloads images.
pub(crate) fn with_locks<R>(call: impl FnOnce() -> R) -> R {
    /// Ends the call, even if it panics.
    struct Locked(bool);
    impl Drop for Locked {
        fn drop(&mut self) {
            compiler_fence(Ordering::SeqCst);
            HAS_LOCKS.set(self.0);
        }
    }
    let _locked = Locked(HAS_LOCKS.replace(true));
    compiler_fence(Ordering::SeqCst);
    call()
}

/// True if this thread is inside [`with_locks`].
pub(crate) fn has_locks() -> bool {
    HAS_LOCKS.get()
}

/// True if this thread is inside a call of the plugin.
pub(crate) fn is_inside() -> bool {
    STAGE.get() == Stage::Inside
}

/// Notes that the calling thread ends the process with this status.
pub(crate) fn begin(status: i32) {
    STATUS.store(status, Ordering::Relaxed);
    THREAD.store(thread(), Ordering::SeqCst);
    crew::dismiss();
}

/// The exit status, if the process is exiting.
pub(crate) fn status() -> Option<i32> {
    (THREAD.load(Ordering::SeqCst) != 0).then(|| STATUS.load(Ordering::Relaxed))
}

/// True once the calls of all threads but the exiting one are held.
pub(crate) fn has_begun() -> bool {
    HAS_BEGUN.load(Ordering::Relaxed)
}

/// True if another live thread has called the plugin.
pub(crate) fn has_other_users() -> bool {
    let this = STAGE.get() != Stage::New;
    USERS.load(Ordering::Relaxed) > usize::from(this)
}

/// True if the calling thread has called the plugin. Safe in a signal handler.
pub(crate) fn is_user() -> bool {
    let this = thread();
    USER_IDS.iter().any(|id| id.load(Ordering::Relaxed) == this)
}

/// In a child by `fork`, whose thread has another id: it ends the process if its parent's did.
pub(crate) fn note_fork() {
    if THREAD.load(Ordering::SeqCst) != 0 {
        THREAD.store(thread(), Ordering::SeqCst);
    }
}

pub(crate) fn holds() -> bool {
    HELD.load(Ordering::Relaxed) > 0
}

/// Holds the calls of all other threads from here on; `catch` makes them reach [`hold`]. Waits a
/// moment for them: a thread whose call has just returned soon makes another one. `is_busy` is true
/// while a region runs.
pub(crate) fn hold_others(catch: impl FnOnce(), is_busy: &dyn Fn() -> bool) {
    if HOLDING.get().is_some() || !is_ending_thread() {
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

/// Holds calls until [`devices_have_ended`], however long that takes, but for those that have locks ([`with_locks`]).
pub(crate) fn devices_are_ending() {
    if is_ending_thread() {
        ENDS_DEVICES.store(true, Ordering::Relaxed);
    }
}

/// Makes held calls never return, because the devices have ended or end with the process. If process
/// exit waits for a held thread, a timeout ends the process with the program's status.
pub(crate) fn devices_have_ended() {
    if !has_begun() || DEVICES_ENDED.set(Instant::now()).is_err() || !has_other_users() {
        return;
    }
    // If no thread can be created, held calls fail after their time.
    let _ = std::thread::Builder::new().spawn(|| {
        loop {
            std::thread::sleep(REST);
            if holds() {
                flush_streams();
                pmi::leave();
                end(STATUS.load(Ordering::Relaxed));
            }
        }
    });
}

/// True if the calling thread ends the process.
pub(crate) fn is_ending_thread() -> bool {
    THREAD.load(Ordering::SeqCst) == thread()
}

/// Keeps the calling thread from continuing while another one ends the process.
#[cold]
pub(crate) fn hold() {
    if is_ending_thread() {
        return;
    }
    HELD.fetch_add(1, Ordering::Relaxed);
    loop {
        match (HOLDING.get(), DEVICES_ENDED.get()) {
            (_, Some(ended)) if ended.elapsed() < GRACE => {}
            (Some(_), None) if ENDS_DEVICES.load(Ordering::Relaxed) && !has_locks() => {}
            (Some(since), None) if since.elapsed() < PAUSE => {}
            _ => break,
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    HELD.fetch_sub(1, Ordering::Relaxed);
}

fn thread() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

#[cfg(test)]
#[path = "../../test/rust/unit/plugin/ending.rs"]
mod tests;
