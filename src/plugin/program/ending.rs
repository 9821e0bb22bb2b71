// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Process exit: its status, the thread that runs the exit handlers, and the hold on other threads.
//!
//! A thread that still runs regions must not continue while libomptarget deinitializes itself: libomptarget 16 first
//! removes the program's regions, and aborts when one of them starts; then it frees what the regions use, and crashes.
//! Hence calls of other threads do not return once the program's own exit handlers have run ([`hold`]):
//!
//! | the end ([`Phase`]) | a thread that has not used a device | that uses one | that is held |
//! | --- | --- | --- | --- |
//! | has not begun | starts the devices if need be | goes on | (there is none) |
//! | has begun | is held at its first use | is held: where it waits, or fails | goes on after [`PAUSE`] (1) |
//! | ends the devices | is held (2) | is held (2) | stays, however long that takes |
//! | has ended them | is held, and starts none | is held | stays, at most for [`REST`] (3) |
//!
//! 1. A library's destructor may wait for that thread.
//! 2. Unless it has locks ([`with_locks`]), which the end may wait for: then a first use fails, and any other call may.
//! 3. Then the process ends, with its status.
//!
//! The thread that ends the process is never held. A thread counts from its first call on. Other threads may be on
//! their way to a first call, in libomptarget: hence the table does not depend on the count. The count only decides how
//! long to wait for threads to be held, and whether to leave the devices.
//!
//! A signal handler may call `exit` while its thread is inside the plugin ([`is_inside`]). The thread's locks then stay
//! locked, and a call of MPI may be incomplete. Hence process exit must then not use locks or MPI.

use crate::mpi::pmi;
use crate::sys::crew;
use crate::sys::deadline::{end, flush_streams};
use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicUsize, Ordering, compiler_fence};
use std::time::{Duration, Instant};

/// How long calls are held before the plugin begins to end the devices.
const PAUSE: Duration = Duration::from_millis(500);
/// How long the thread that ends the process waits until other threads' calls are held.
const SETTLE: Duration = Duration::from_millis(20);
/// [`SETTLE`] if no region is running.
const SETTLE_IDLE: Duration = Duration::from_millis(2);
/// How long the rest of process exit may take while a thread is held. Process exit may wait for that thread: libomp
/// does if the thread runs a `nowait` region, and some libraries wait for threads of their own.
const REST: Duration = Duration::from_secs(1);
/// How often a held thread checks whether it may continue.
const CHECK_INTERVAL: Duration = Duration::from_millis(2);

/// The progress of process exit.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Phase {
    Running,
    /// The process runs exit handlers, perhaps the program's own.
    Exiting,
    /// The program's own exit handlers have run: other threads' calls are held.
    Begun,
    /// The thread that runs the exit handlers ends the devices. Meanwhile it runs no destructor that could wait for a
    /// held thread.
    EndingDevices,
    /// The devices have ended, or end with the process.
    Ended,
    /// No thread could be created to end the process when its time is over: a held thread does that.
    Unwatched,
}

static PHASE: AtomicU8 = AtomicU8::new(Phase::Running as u8);
/// When [`Phase::Begun`] was reached.
static BEGUN: OnceLock<Instant> = OnceLock::new();
/// The thread that runs the exit handlers; 0 before they run.
static THREAD: AtomicI32 = AtomicI32::new(0);
static STATUS: AtomicI32 = AtomicI32::new(0);
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
    /// The thread counts in [`USERS`], until its thread-local data is destroyed, which is the first step of `exit`.
    static IS_COUNTED: Cell<bool> = const { Cell::new(false) };
}

/// The ids of the threads in [`USERS`], as many as fit, for signal handlers to read. 0 is free.
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
        IS_COUNTED.set(false);
        USERS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// True unless the thread is inside a call; counts a new thread.
#[cold]
#[inline(never)]
fn may_enter(stage: Stage) -> bool {
    if stage == Stage::New && USER.try_with(|_| ()).is_ok() {
        IS_COUNTED.set(true);
        USERS.fetch_add(1, Ordering::Relaxed);
        User::replace(0, thread());
    }
    stage != Stage::Inside
}

/// Makes a call of the plugin. Returns `None` if the thread is inside another call that a signal handler
/// has interrupted.
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

/// Makes a call during which this thread holds a lock of libomptarget, the dynamic loader or the plugin that process
/// exit also needs: one that initializes a device, or loads or unloads images.
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

/// Advances to this phase. False if it was already reached.
fn reach(phase: Phase) -> bool {
    PHASE.fetch_max(phase as u8, Ordering::SeqCst) < phase as u8
}

fn phase() -> Phase {
    const ALL: [Phase; 6] =
        [Phase::Running, Phase::Exiting, Phase::Begun, Phase::EndingDevices, Phase::Ended, Phase::Unwatched];
    ALL[usize::from(PHASE.load(Ordering::SeqCst))]
}

/// Notes that the process runs its exit handlers.
pub(crate) fn note_exit() {
    reach(Phase::Exiting);
}

/// True if the process runs its exit handlers.
pub(crate) fn is_exiting() -> bool {
    phase() >= Phase::Exiting
}

/// Notes that the calling thread ends the process with this status.
pub(crate) fn begin(status: i32) {
    note_exit();
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
    phase() >= Phase::Begun
}

/// True if the devices end or have ended, and the calling thread must not start to use any.
pub(crate) fn is_over() -> bool {
    phase() >= Phase::EndingDevices && !is_ending_thread()
}

/// True if another live thread has called the plugin.
pub(crate) fn has_other_users() -> bool {
    USERS.load(Ordering::Relaxed) > usize::from(IS_COUNTED.get())
}

/// True if the calling thread has called the plugin. Safe in a signal handler.
pub(crate) fn is_user() -> bool {
    let this = thread();
    USER_IDS.iter().any(|id| id.load(Ordering::Relaxed) == this)
}

/// In a child by `fork`, where the thread has another id: it ends the process if its parent's thread did.
pub(crate) fn note_fork() {
    if THREAD.load(Ordering::SeqCst) != 0 {
        THREAD.store(thread(), Ordering::SeqCst);
    }
}

pub(crate) fn holds() -> bool {
    HELD.load(Ordering::Relaxed) > 0
}

/// Holds the calls of all other threads from here on; `catch` makes them reach [`hold`]. Waits briefly until they
/// are held: a thread whose call has just returned soon makes another one. `is_busy` is true while a region runs.
pub(crate) fn hold_others(catch: impl FnOnce(), is_busy: &dyn Fn() -> bool) {
    if has_begun() || !is_ending_thread() {
        return;
    }
    let since = *BEGUN.get_or_init(Instant::now);
    reach(Phase::Begun);
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

/// The calling thread ends the devices, see [`Phase::EndingDevices`].
pub(crate) fn devices_are_ending() {
    if has_begun() && is_ending_thread() {
        reach(Phase::EndingDevices);
    }
}

/// Held calls never return from here on, because the devices have ended or end with the process. If process exit waits
/// for a held thread, a timeout ends the process with the program's status.
pub(crate) fn devices_have_ended() {
    if !has_begun() || !reach(Phase::Ended) {
        return;
    }
    let watch = || {
        loop {
            std::thread::sleep(REST);
            if holds() {
                flush_streams();
                leave();
            }
        }
    };
    if std::thread::Builder::new().spawn(watch).is_err() {
        reach(Phase::Unwatched);
    }
}

/// Ends the process with the program's status. Safe in a signal handler.
fn leave() -> ! {
    pmi::leave();
    end(STATUS.load(Ordering::Relaxed))
}

/// True if the calling thread ends the process.
pub(crate) fn is_ending_thread() -> bool {
    THREAD.load(Ordering::SeqCst) == thread()
}

/// Holds the calling thread while another one ends the process.
#[cold]
pub(crate) fn hold() {
    if is_ending_thread() {
        return;
    }
    HELD.fetch_add(1, Ordering::Relaxed);
    let since = Instant::now();
    while is_held(phase(), BEGUN.get().map_or(Duration::ZERO, Instant::elapsed), has_locks()) {
        if phase() == Phase::Unwatched && since.elapsed() > REST {
            leave();
        }
        std::thread::sleep(CHECK_INTERVAL);
    }
    HELD.fetch_sub(1, Ordering::Relaxed);
}

/// [`hold`] for a thread that crashes in libomptarget, which may begin to deinitialize itself before the other threads
/// are held. If the devices do not end soon, the crash takes its course.
pub(crate) fn hold_crashed() {
    let since = Instant::now();
    while phase() < Phase::EndingDevices && since.elapsed() < 3 * REST && !is_ending_thread() {
        std::thread::sleep(CHECK_INTERVAL);
    }
    hold();
}

/// Whether a thread is held in this phase, `since_begun` after [`Phase::Begun`] was reached: the table above.
fn is_held(phase: Phase, since_begun: Duration, has_locks: bool) -> bool {
    match phase {
        Phase::Running | Phase::Exiting => false,
        Phase::Begun => since_begun < PAUSE,
        Phase::EndingDevices => !has_locks,
        Phase::Ended | Phase::Unwatched => true,
    }
}

fn thread() -> i32 {
    // SAFETY: gettid has no preconditions.
    unsafe { libc::gettid() }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/plugin/program/ending.rs"]
mod tests;
