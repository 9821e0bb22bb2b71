// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! What C sees: the `__tgt_rtl_*` functions of a libomptarget plugin, those that LLVM 14 to
//! 18 look for, and what `cmake/offload-plugin` needs for later ones.
//!
//! A function checks its arguments, catches panics, tells the user what failed, and
//! calls one function below. No logic here.

pub mod events;
pub mod images;
pub mod kernels;
pub mod libomptarget;
pub mod memory;
pub mod start;
pub mod types;

use crate::base::deadline::{end, end_after, flush_and_wait, flush_streams};
use crate::base::settings::Settings;
use crate::base::{Error, Result, log};
use crate::plugin::start::Choice;
use crate::plugin::{self, Plugin, ending};
use libomptarget::Generation;
use parking_lot::Mutex;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::time::Duration;

/// What a function returns when it has done its work (`OFFLOAD_SUCCESS`).
const SUCCESS: i32 = 0;
/// What it returns otherwise (`OFFLOAD_FAIL`).
const FAIL: i32 = !0;
/// How long the end may take, behind the program's own exit handlers, of a process whose signal
/// handler has called `exit` in the midst of a call of the plugin.
const INTERRUPTED_REST: Duration = Duration::from_secs(2);

static CHOICE: OnceLock<Choice> = OnceLock::new();
/// The plugin with the devices of [`Choice::OnUse`].
static SPAWNED: OnceLock<Plugin> = OnceLock::new();
/// Programs and libraries with images that are registered now.
static REGISTERED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());
/// A device was asked to load an image.
static USED: AtomicBool = AtomicBool::new(false);
/// libomptarget never says that images go (LLVM 18): the end has to unload them, for the
/// destructors of their globals to run.
static LEAVES_IMAGES: AtomicBool = AtomicBool::new(false);
/// The process runs its exit handlers.
static EXITING: AtomicBool = AtomicBool::new(false);
/// The plugin while its devices can be used: every call asks for it.
static CURRENT: AtomicPtr<Plugin> = AtomicPtr::new(ptr::null_mut());
/// Whether devices can't be used any more, and why.
static CLOSED: AtomicU8 = AtomicU8::new(OPEN);
/// They can.
const OPEN: u8 = 0;
/// This process is a child, by fork, of the one that started MPI.
const FORKED: u8 = 1;
/// The program has ended the MPI that was shared with it.
const MPI_ENDED: u8 = 2;

/// A program or library with images.
struct Registered {
    /// Address of its descriptor.
    desc: usize,
    /// It may use devices until it goes: it has destructor kernels, or was there before
    /// any device was used, as a part of the program, whose destructors may have regions.
    needs_devices: bool,
}

/// The boundary of every export: no panic and no error leaves it but as `failure`.
#[inline]
fn guard<R>(operation: &str, failure: R, call: impl FnOnce() -> Result<R>) -> R {
    let Some(called) = ending::call(|| catch_unwind(AssertUnwindSafe(call))) else {
        report_interruption(operation);
        return failure;
    };
    match called {
        Ok(Ok(result)) => result,
        Ok(Err(Error::Told)) => failure,
        Ok(Err(Error::Text(text))) => {
            log::error(format_args!("{operation}: {text}"));
            failure
        }
        Err(_) => {
            log::error(format_args!("{operation}: internal error, see above"));
            failure
        }
    }
}

#[cold]
#[inline(never)]
fn report_interruption(operation: &str) {
    if crate::mpi::is_aborting() {
        // The reason why the job ends has been reported.
        return;
    }
    log::error(format_args!(
        "{operation}: a signal handler, or an exit handler that it runs, uses a device while its thread is in the \
         midst of another use"
    ));
}

#[inline]
fn done(result: Result<()>) -> Result<i32> {
    result.map(|()| SUCCESS)
}

/// Who serves this process; decided by the first call.
fn choice() -> &'static Choice {
    CHOICE.get_or_init(|| {
        // An answer that there are no devices would be taken for that of a program that wants none.
        let chosen =
            catch_unwind(plugin::start::choose).unwrap_or_else(|_| Err(Error::new("internal error, see above")));
        let choice = chosen.unwrap_or_else(|e| give_up(e));
        if !matches!(choice, Choice::Stock) {
            notice_exit(false);
            notice_exit_of_main_thread();
            // SAFETY: as for the exit handler.
            unsafe { libc::pthread_atfork(None, None, Some(on_fork)) };
        }
        choice
    })
}

/// The plugin; its devices are started now if they were not yet.
#[inline]
fn plugin() -> Result<&'static Plugin> {
    // SAFETY: null, or what `first_use` found in a static, which is never dropped.
    match unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        Some(plugin) => Ok(plugin),
        None => first_use(),
    }
}

/// [`fn@plugin`] where it is not known yet, or closed.
#[cold]
#[inline(never)]
fn first_use() -> Result<&'static Plugin> {
    match CLOSED.load(Ordering::Relaxed) {
        OPEN => {}
        FORKED => return Err(Error::new("a child process can't use the MPI devices of its parent")),
        _ => return Err(Error::new("the program has ended MPI: no target region can run after its MPI_Finalize")),
    }
    let plugin: &Plugin = match choice() {
        Choice::Ready(plugin) => plugin,
        Choice::OnUse(devices, settings) => {
            SPAWNED.get_or_init(|| ending::load(|| spawn(*devices, settings).unwrap_or_else(|e| give_up(e))))
        }
        Choice::Stock => return Err(Error::Told),
    };
    CURRENT.store(ptr::from_ref(plugin).cast_mut(), Ordering::SeqCst);
    if CLOSED.load(Ordering::SeqCst) != OPEN || ending::has_begun() {
        CURRENT.store(ptr::null_mut(), Ordering::SeqCst);
        ending::hold();
    }
    Ok(plugin)
}

/// No device is used from here on.
fn close(why: u8) {
    CLOSED.store(why, Ordering::SeqCst);
    CURRENT.store(ptr::null_mut(), Ordering::SeqCst);
}

/// The plugin, if its devices were started.
fn started() -> Option<&'static Plugin> {
    match CHOICE.get()? {
        Choice::Ready(plugin) => Some(plugin),
        Choice::OnUse(..) => SPAWNED.get(),
        Choice::Stock => None,
    }
}

fn is_closed() -> bool {
    CLOSED.load(Ordering::Relaxed) != OPEN
}

fn spawn(devices: usize, settings: &Settings) -> Result<Plugin> {
    extern "C" fn on_mpi_end() {
        guard("MPI_Finalize", (), || {
            close(MPI_ENDED);
            if let Some(plugin) = SPAWNED.get() {
                plugin.finish(LEAVES_IMAGES.load(Ordering::Relaxed));
            }
            Ok(())
        });
    }
    plugin::start::spawn(devices, settings, on_mpi_end)
}

/// Ends the process: the user asked for MPI devices, and without them the program must not
/// go on as if it had them.
fn give_up(e: Error) -> ! {
    if let Error::Text(text) = e {
        log::error(text);
    }
    // What the program printed is written; its exit handlers may use devices.
    flush_streams();
    end(1)
}

/// Which libomptarget calls; ends the process if that can't be known, for there is no other
/// way to tell any caller of `load_binary` that something failed. Never panics.
fn generation() -> Generation {
    let failed = |e: Error| give_up(e.context("this libomptarget can't use MPI devices"));
    match catch_unwind(libomptarget::generation) {
        Ok(Ok(generation)) => *generation,
        Ok(Err(e)) => failed(e.clone()),
        Err(_) => failed(Error::new("internal error, see above")),
    }
}

extern "C" fn on_fork() {
    if started().is_some() {
        close(FORKED);
    }
}

/// Ends the devices and MPI, if nobody needs them any more.
fn finish_if_unused() {
    if !REGISTERED.lock().iter().any(|r| r.needs_devices)
        && !is_closed()
        && let Some(plugin) = started()
    {
        hold_others();
        plugin.finish(LEAVES_IMAGES.load(Ordering::Relaxed));
    }
}

/// [`finish_if_unused`] where this thread is inside of another call: it has called `exit` in a
/// signal handler. What it has locked stays so, thus nothing is locked here.
fn finish_inside() {
    if !is_closed()
        && let Some(plugin) = started()
    {
        plugin.finish_inside();
    }
}

/// The program's own exit handlers are over: other threads' calls are held, see [`ending`].
fn hold_others() {
    if EXITING.load(Ordering::SeqCst)
        && !is_closed()
        && let Some(plugin) = started()
    {
        plugin.hold_others(|| CURRENT.store(ptr::null_mut(), Ordering::SeqCst));
    }
}

/// Lets [`on_exit`] run.
///
/// MPI must end behind the program's last region, which may be in an exit handler or a
/// destructor kernel, and before the destructors of MPI's own libraries. The loader runs
/// the destructors, the program's first, from an exit handler that it registers before
/// `main`; LLVM 16 starts its plugins before that, so a handler registered then comes too
/// late to tell that an `unregister_lib` is one of the end. Hence one is registered on
/// several occasions, of which one is late enough.
///
/// With `first` the handler was registered before any of the program's own, behind which it runs.
fn notice_exit(first: bool) {
    unsafe extern "C" {
        /// glibc's: `function(status, argument)` is an exit handler.
        #[link_name = "on_exit"]
        fn at_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    // SAFETY: the handler is a function of this library, which is never unloaded; it takes the
    // argument for a number.
    unsafe { at_exit(on_exit, ptr::without_provenance_mut(first.into())) };
}

/// Lets the main thread's call of `exit` be noticed before it runs any handler.
///
/// From LLVM 19 on a library whose constructor started the plugin, before the loader
/// registered its own exit handler, says that it goes when it is too late for the handler
/// of [`notice_exit`] to have run, if no device was ever used.
fn notice_exit_of_main_thread() {
    unsafe extern "C" {
        /// glibc's: `function(argument)` is called when the calling thread ends.
        fn __cxa_thread_atexit_impl(
            function: extern "C" fn(*mut c_void),
            argument: *mut c_void,
            library: *const c_void,
        ) -> i32;
    }
    extern "C" fn note(_: *mut c_void) {
        EXITING.store(true, Ordering::SeqCst);
    }
    // SAFETY: plain calls; the function is of this library, which is never unloaded.
    unsafe {
        if libc::gettid() == libc::getpid() {
            __cxa_thread_atexit_impl(note, ptr::null_mut(), note as *const c_void);
        }
    }
}

extern "C" fn on_exit(status: c_int, first: *mut c_void) {
    EXITING.store(true, Ordering::SeqCst);
    ending::begin(status);
    if !first.is_null() {
        if ending::is_inside() {
            // A signal handler has called exit. Its thread may have locked anything, malloc too.
            end_after(INTERRUPTED_REST, status);
        }
        if ending::is_loading() {
            // libomptarget would wait for this very thread, for ever.
            finish_inside();
            flush_and_wait();
            end(status);
        }
        hold_others();
    }
    if !ending::is_inside() && REGISTERED.lock().is_empty() {
        guard("exit", (), || {
            finish_if_unused();
            Ok(())
        });
    }
}
