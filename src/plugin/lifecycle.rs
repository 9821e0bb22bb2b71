// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The plugin of this process, from the first call to the last.
//!
//! It starts at the first query for devices or, with spawned devices, at the first use of one.
//! It can be used until the process forks (in the child), the program ends MPI, or process exit no
//! longer needs it.
//!
//! MPI must end after the program's last region, which may be in an exit handler or a destructor
//! kernel, and before the destructors of MPI's own libraries. The loader runs the destructors, the
//! program's first, from an exit handler that it registers before `main`. LLVM 16 starts its
//! plugins before that: an exit handler registered then runs too late to recognize an
//! `unregister_lib` as part of process exit. Hence the plugin registers a handler on several occasions,
//! one of which is late enough.

use super::Plugin;
use super::devices::device::Device;
use super::program::boundary::{catch, guard};
use super::program::ending;
use super::program::late_aborts;
use super::shutdown;
use super::start::{self, Choice};
use crate::base::settings::{Backend, Settings};
use crate::base::sync::Mutex;
use crate::base::target::Target;
use crate::base::{Error, Result, log};
use crate::mpi::{self, pmi};
use crate::sys::deadline::{end, end_after, flush_and_wait, flush_streams};
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::time::Duration;

/// How long process exit may take, after the program's own exit handlers, if a signal handler has
/// called `exit` during a call of the plugin.
const INTERRUPTED_REST: Duration = Duration::from_secs(2);

static CHOICE: OnceLock<Choice> = OnceLock::new();
/// The plugin with the devices of [`Choice::OnUse`].
static SPAWNED: OnceLock<Plugin> = OnceLock::new();
/// Held while spawned devices start: process exit waits for their start, and then ends them.
static STARTING: Mutex<()> = Mutex::new(());
/// Programs and libraries with images that are registered now.
static REGISTERED: Mutex<Vec<Registered>> = Mutex::new(Vec::new());
/// A device was asked for memory, or to load an image.
static USED: AtomicBool = AtomicBool::new(false);
/// An exit handler of [`notice_exit`] was registered late enough.
static EXIT_IS_NOTICED: AtomicBool = AtomicBool::new(false);
/// The plugin must unload the images at the end, see [`unload_at_end`].
static LEAVES_IMAGES: AtomicBool = AtomicBool::new(false);
/// The plugin while its devices can be used, for the fast path of every call.
static CURRENT: AtomicPtr<Plugin> = AtomicPtr::new(ptr::null_mut());
/// Whether devices can still be used, and why not.
static CLOSED: AtomicU8 = AtomicU8::new(OPEN);
const OPEN: u8 = 0;
/// This process is a child, by fork, of the one that started MPI.
const FORKED: u8 = 1;
/// The program has ended MPI.
const MPI_ENDED: u8 = 2;

/// A program or library with images.
struct Registered {
    /// Address of its descriptor.
    desc: usize,
    /// It may use devices until it is unregistered: it has destructor kernels, or it was registered before any
    /// device was used, so that it is a part of the program, whose destructors may have regions.
    needs_devices: bool,
}

/// Which devices serve this process; the first call decides.
pub(crate) fn choice() -> &'static Choice {
    CHOICE.get_or_init(|| {
        // Reporting no devices instead would mean that the program does not want any.
        let choice = catch(start::choose).unwrap_or_else(|e| give_up_with(e, pmi::fail_at_start));
        if matches!(choice, Choice::Ready(_)) {
            mpi::at_end(on_mpi_end).unwrap_or_else(|e| give_up(e));
        }
        if !matches!(choice, Choice::Stock) {
            notice_exit(Handler::Last);
            EXIT_IS_NOTICED.store(false, Ordering::Relaxed);
            notice_exit_of_main_thread();
            // SAFETY: the handler is a function of this library, which is never unloaded.
            unsafe { libc::pthread_atfork(None, None, Some(on_fork)) };
        }
        choice
    })
}

/// The plugin; starts its devices if necessary.
#[inline]
pub(crate) fn plugin() -> Result<&'static Plugin> {
    // SAFETY: null, or what `first_use` found in a static, which is never dropped.
    match unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        Some(plugin) => Ok(plugin),
        None => first_use(),
    }
}

/// The slow path of [`fn@plugin`]: the plugin has not started yet, is closed, or the process ends.
#[cold]
#[inline(never)]
fn first_use() -> Result<&'static Plugin> {
    check_open()?;
    let plugin: &Plugin = match choice() {
        Choice::Ready(plugin) => plugin,
        Choice::OnUse(devices, settings) => spawned(*devices, settings),
        // Only one of several threads reports it.
        Choice::Refused(_, why) => SPAWNED.get_or_init(|| refuse(why)),
        Choice::Stock => return Err(Error::new("this process has no MPI devices")),
    };
    if !ending::has_begun() {
        CURRENT.store(ptr::from_ref(plugin).cast_mut(), Ordering::SeqCst);
    }
    // Whoever clears `CURRENT` first sets one of these.
    if ending::has_begun() || is_closed() {
        CURRENT.store(ptr::null_mut(), Ordering::SeqCst);
        ending::hold();
        check_open()?;
        if ending::is_over() {
            // `hold` let this thread pass because it has locks. Devices that shut down might never answer it.
            return Err(Error::Closed);
        }
    }
    Ok(plugin)
}

fn check_open() -> Result<()> {
    match CLOSED.load(Ordering::SeqCst) {
        OPEN => Ok(()),
        FORKED => Err(Error::new("a child process can't use the MPI devices of its parent")),
        _ => Err(Error::new("the program has ended MPI: no target region can run after its MPI_Finalize")),
    }
}

/// The plugin with the devices of [`Choice::OnUse`]; starts them, unless process exit has ended without them.
fn spawned(devices: usize, settings: &Settings) -> &'static Plugin {
    loop {
        ending::hold();
        let _starting = STARTING.lock();
        if SPAWNED.get().is_some() || !ending::is_over() {
            let spawn = || {
                start::claim_slot(settings).unwrap_or_else(|why| refuse(&why));
                spawn(devices, settings).unwrap_or_else(|e| give_up(e))
            };
            return SPAWNED.get_or_init(|| ending::with_locks(spawn));
        }
    }
}

fn spawn(devices: usize, settings: &Settings) -> Result<Plugin> {
    let plugin = start::spawn(devices, settings)?;
    mpi::at_end(on_mpi_end)?;
    Ok(plugin)
}

/// The program ends MPI, which it, or the plugin, has started.
extern "C" fn on_mpi_end() {
    if !mpi::can_be_ended() {
        give_up(start::early_end());
    }
    guard("MPI_Finalize", (), || {
        if let Some(plugin) = usable() {
            close(MPI_ENDED);
            plugin.finish(LEAVES_IMAGES.load(Ordering::Relaxed));
        }
        Ok(())
    });
}

/// Ends the process if [`start::check_libraries`] fails.
pub(crate) fn check_libraries() {
    start::check_libraries().unwrap_or_else(|e| give_up(e));
}

/// The devices' targets, if some devices are accelerators; empty if the targets are not known yet.
pub(crate) fn accelerators() -> Option<Vec<Target>> {
    match (choice(), started()) {
        (_, Some(plugin)) if plugin.devices.iter().any(Device::is_accelerator) => {
            Some(plugin.devices.iter().map(|device| device.executor.target).collect())
        }
        (Choice::OnUse(_, settings), None) if settings.backend == Backend::Offload => Some(Vec::new()),
        _ => None,
    }
}

/// The plugin, if its devices were started.
pub(crate) fn started() -> Option<&'static Plugin> {
    match CHOICE.get()? {
        Choice::Ready(plugin) => Some(plugin),
        Choice::OnUse(..) => SPAWNED.get(),
        Choice::Stock | Choice::Refused(..) => None,
    }
}

/// Registers a program or library with images by the address of its descriptor.
pub(crate) fn register(desc: usize, has_destructors: bool) {
    let is_early = !USED.load(Ordering::SeqCst);
    REGISTERED.lock().push(Registered { desc, needs_devices: has_destructors || is_early });
    if is_early {
        notice_exit(Handler::First);
    }
}

/// Unregisters a program or library with images. Returns the plugin if the caller must unload the images;
/// otherwise the devices end with the process, or now if nobody needs them any more.
pub(crate) fn unregister(desc: usize) -> Option<&'static Plugin> {
    REGISTERED.lock().retain(|r| r.desc != desc);
    if ending::is_exiting() || is_closed() {
        // The devices exit soon, and their memory with them.
        finish_if_unused();
        return None;
    }
    started()
}

/// Notes that a device is used. `init_device` is not a use: LLVM 18 calls it for all devices when a
/// library's constructor registers its images.
#[inline]
pub(crate) fn note_use() {
    if !USED.load(Ordering::Relaxed) && !USED.swap(true, Ordering::SeqCst) {
        check_libraries();
        notice_exit(Handler::Last);
    }
}

/// Notes that the plugin was shown an image: LLVM 18 gives no other sign of a new program, which may not
/// use any device.
pub(crate) fn note_image() {
    if !USED.load(Ordering::Relaxed) {
        notice_exit(Handler::Last);
    }
}

/// Unloads the images at the end, so that the destructors of their globals run: LLVM 18's
/// libomptarget never unloads images.
pub(crate) fn unload_at_end() {
    LEAVES_IMAGES.store(true, Ordering::Relaxed);
}

fn close(why: u8) {
    CLOSED.store(why, Ordering::SeqCst);
    CURRENT.store(ptr::null_mut(), Ordering::SeqCst);
}

pub(crate) fn is_closed() -> bool {
    CLOSED.load(Ordering::SeqCst) != OPEN
}

/// The plugin, if its devices were started and can still be used.
pub(crate) fn usable() -> Option<&'static Plugin> {
    started().filter(|_| !is_closed())
}

/// Ends the process: the user requested MPI devices, and the program must not continue without them.
pub(crate) fn give_up(e: Error) -> ! {
    give_up_with(e, pmi::fail_everywhere)
}

/// Ends the process; `fail` ends the job where the exit of a process does not.
fn give_up_with(e: Error, fail: fn()) -> ! {
    if let Error::Text(text) = e {
        log::error(text);
    }
    // Exit handlers do not run, because they may use devices; hence the output is flushed here.
    flush_streams();
    fail();
    end(1)
}

/// Ends the process because another process has claimed its slot of the job: job and launcher belong to that one.
fn refuse(why: &Error) -> ! {
    log::error(why);
    flush_streams();
    end(1)
}

/// Ends the devices and MPI, if nobody needs them any more. Waits for devices that are being started; if there are
/// none, prevents any later start.
fn finish_if_unused() {
    if is_closed() || REGISTERED.lock().iter().any(|r| r.needs_devices) {
        return;
    }
    hold_others();
    let starting = STARTING.lock();
    match started() {
        Some(plugin) => {
            drop(starting);
            plugin.finish(LEAVES_IMAGES.load(Ordering::Relaxed));
        }
        None => ending::devices_have_ended(),
    }
}

/// [`finish_if_unused`] for a thread that is inside another call, because a signal handler called
/// `exit`. The thread's locks stay locked, hence this function takes none.
pub(crate) fn finish_inside() {
    let Some(plugin) = usable().filter(|plugin| !plugin.finished.swap(true, Ordering::SeqCst)) else { return };
    if plugin.engine.tracing().on {
        log::warning("there are no statistics and no trace: a signal handler called exit in the midst of a region");
    }
    shutdown::leave_job();
}

/// Holds the calls of other threads once the program's own exit handlers have run, see [`ending`].
fn hold_others() {
    if ending::is_exiting() && !is_closed() {
        let catch = || CURRENT.store(ptr::null_mut(), Ordering::SeqCst);
        ending::hold_others(catch, &|| started().is_some_and(|plugin| plugin.engine.connection.ports.is_busy()));
    }
}

extern "C" fn on_fork() {
    // While devices start, a thread of the parent holds `STARTING`.
    if started().is_some() || STARTING.try_lock().is_none() {
        close(FORKED);
    }
    ending::note_fork();
}

/// What [`on_exit`] does besides noting the status.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum Handler {
    /// Nothing: it runs before the program's own exit handlers.
    Status,
    /// Holds other threads; registered before the program's own exit handlers, it runs after them.
    First,
    Last,
}

/// Registers [`on_exit`] as an exit handler.
fn notice_exit(handler: Handler) {
    unsafe extern "C" {
        /// Registers `function(status, argument)` as an exit handler (glibc).
        #[link_name = "on_exit"]
        fn at_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    // SAFETY: the handler is a function of this library, which is never unloaded; it does not
    // dereference the argument.
    unsafe { at_exit(on_exit, ptr::without_provenance_mut(handler as usize)) };
    EXIT_IS_NOTICED.store(true, Ordering::Relaxed);
}

/// Notices the main thread's call of `exit` before any exit handler runs.
///
/// A library of LLVM 19 or later may start the plugin in its constructor, before the loader registers its
/// own exit handler. If no device was ever used, the library unregisters its images before the handler of
/// [`notice_exit`] runs.
fn notice_exit_of_main_thread() {
    late_aborts::prepare();
    unsafe extern "C" {
        /// Calls `function(argument)` when the calling thread ends (glibc).
        fn __cxa_thread_atexit_impl(
            function: extern "C" fn(*mut c_void),
            argument: *mut c_void,
            library: *const c_void,
        ) -> i32;
    }
    extern "C" fn note(_: *mut c_void) {
        ending::note_exit();
        // If not, the program has no image and has used no device (LLVM 18).
        let is_noticed = EXIT_IS_NOTICED.load(Ordering::Relaxed);
        notice_exit(if is_noticed { Handler::Status } else { Handler::Last });
    }
    // SAFETY: plain calls; the function is of this library, which is never unloaded.
    unsafe {
        if libc::gettid() == libc::getpid() {
            __cxa_thread_atexit_impl(note, ptr::null_mut(), note as *const c_void);
        }
    }
}

extern "C" fn on_exit(status: c_int, handler: *mut c_void) {
    let handler = handler.addr();
    ending::begin(status);
    if !is_closed() {
        late_aborts::stop_others();
    }
    if handler == Handler::First as usize {
        if ending::is_inside() {
            // A signal handler has called exit. Its thread may hold any lock, even malloc's.
            end_after(INTERRUPTED_REST, status);
        }
        if ending::has_locks() {
            // libomptarget would wait for this thread forever.
            finish_inside();
            flush_and_wait();
            end(status);
        }
        hold_others();
    }
    if handler != Handler::Status as usize && !ending::is_inside() && REGISTERED.lock().is_empty() {
        guard("exit", (), || {
            finish_if_unused();
            Ok(())
        });
    }
}
