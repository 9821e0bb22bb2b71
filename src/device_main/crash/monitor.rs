// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Monitors kernels for crashes: the faulting thread stops where it is, and another thread of the device reports the
//! fault to the host.
//!
//! The crash board records which kernel runs on which thread, in atomics that a signal handler may read. A handler only
//! notes the fault and parks its thread forever; everything else happens on a healthy thread. The supervisor reports
//! crashes that no handler sees.

use super::board::{COPY_CODE, CrashBoard, IMAGE_CODE, LAST_CODE, MPI_CODE, RUNTIME_CODE};
use super::{host_exit, stack};
use crate::base::limits::THREADS;
use crate::base::{clock, name};
use crate::device_main::backend::cpu::thunks::{Called, THUNKS};
use crate::device_main::backend::cpu::unified::{self, Access};
use crate::sys::node;
use crate::wire::reply::Failure;
use std::cell::{Cell, UnsafeCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

/// After this many seconds an unreported fault ends the device: the faulting thread may hold a needed lock.
const LAST_RESORT: u32 = 10;
/// Addresses below this one come from null pointers.
const NULL_PAGE: u64 = 4096;
/// `si_code` of accesses to unmapped memory, and to memory that does not allow them.
const SEGV_MAPERR: c_int = 1;
const SEGV_ACCERR: c_int = 2;
/// `si_code` of a fault without an address (asm-generic/siginfo.h).
const SI_KERNEL: c_int = 0x80;

/// When each slot's kernel began, if kernels have a time limit.
static BEGAN: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
static BOARD: OnceLock<&'static CrashBoard> = OnceLock::new();
/// The process whose kernels are on the board.
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// The first fault. The thread that sets `CLAIMED` writes it, and then sets `FAULTED`.
static FIRST: First = First(UnsafeCell::new(None));
static CLAIMED: AtomicBool = AtomicBool::new(false);
static FAULTED: AtomicBool = AtomicBool::new(false);
/// The fault was reported.
static REPORTED: AtomicBool = AtomicBool::new(false);

struct First(UnsafeCell<Option<Record>>);

// SAFETY: one thread writes the record, and others read it only after that, see `claim` and `report`.
unsafe impl Sync for First {}

struct Record {
    cause: Cause,
    /// The slot of the kernel's thread.
    slot: usize,
    kernel: u64,
    /// The faulting thread was started by a kernel.
    in_team: bool,
}

enum Cause {
    Signal(Signal),
    /// A call of `exit` with this status.
    Exit(c_int),
    /// A call of this function with memory of the program, its address, and why that is not possible.
    Call(&'static str, u64, &'static str),
    /// The kernel exceeded this time limit.
    Timeout(Duration),
}

struct Signal {
    number: c_int,
    /// `si_code` and sender.
    code: c_int,
    sender: c_int,
    address: u64,
    access: Access,
    /// Bytes of the stack that overflowed, or 0.
    overflowed: usize,
    /// The mangled name of the escaped exception's type, empty after a call of `std::terminate`.
    escaped: Option<&'static CStr>,
}

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    static ESCAPES: Cell<Option<&'static CStr>> = const { Cell::new(None) };
}

/// A fault that ended all execution.
pub(crate) struct Fault {
    pub failure: &'static Failure,
    /// The slot of the faulting kernel's thread.
    pub slot: usize,
    /// That thread was loading or unloading an image, and still holds the loader's locks.
    pub keeps_loader: bool,
}

#[inline]
fn board() -> Option<&'static CrashBoard> {
    BOARD.get().copied()
}

/// True once the handlers are installed, which happens before the first kernel.
pub(crate) fn is_installed() -> bool {
    board().is_some()
}

fn kernel_of(slot: usize) -> u64 {
    board().map_or(0, |board| board.kernel(slot).load(Ordering::Acquire))
}

/// Claims a slot for the calling thread.
pub(crate) fn use_slot(slot: usize) {
    MINE.set(slot);
    stack::note_stack();
}

/// The slot of the calling thread's kernel, for threads that it starts.
pub(crate) fn origin() -> usize {
    let mine = MINE.get();
    if mine < THREADS && kernel_of(mine) != 0 { mine } else { stack::origin() }
}

/// The slot of the calling thread, which runs a kernel.
pub(crate) fn own_slot() -> usize {
    MINE.get()
}

#[inline]
pub(crate) fn enter(slot: usize, kernel: u64, timed: bool) {
    if timed {
        begin_timer(slot);
    }
    if let Some(board) = board() {
        board.kernel(slot).store(kernel, Ordering::Release);
    }
}

/// Starts the kernel's time.
#[inline]
pub(crate) fn begin_timer(slot: usize) {
    if let Some(began) = BEGAN.get(slot) {
        began.store(clock::nanoseconds(), Ordering::Relaxed);
    }
}

/// Stops the kernel's time, because it has ended or waits: further work for it does not count. Threads of tests have no
/// slot.
#[inline]
pub(crate) fn end_timer(slot: usize) {
    if let Some(began) = BEGAN.get(slot) {
        began.store(u64::MAX, Ordering::Relaxed);
    }
}

#[inline]
pub(crate) fn leave(slot: usize) {
    if let Some(board) = board() {
        board.kernel(slot).store(0, Ordering::Relaxed);
    }
}

/// Treats a kernel that has run for longer than `limit` as a fault. Its thread runs on, because it can't be stopped
/// from outside.
pub(crate) fn check_time(limit: Duration) {
    let (now, longest) = (clock::nanoseconds(), limit.as_nanos() as u64);
    let ran = |slot: usize| now.saturating_sub(BEGAN[slot].load(Ordering::Relaxed));
    let mut kernels = (0..THREADS).map(|slot| (slot, kernel_of(slot)));
    if let Some(late) = kernels.find(|&(slot, kernel)| kernel > LAST_CODE && ran(slot) > longest) {
        claim(late, false, || Cause::Timeout(limit));
    }
}

#[inline]
pub(crate) fn fault() -> Option<Fault> {
    FAULTED.load(Ordering::Acquire).then(report).flatten()
}

fn report() -> Option<Fault> {
    static FAILURE: OnceLock<Failure> = OnceLock::new();
    // SAFETY: `FAULTED` is set: the record is written and no longer changes.
    let record = unsafe { (*FIRST.0.get()).as_ref()? };
    let keeps_loader = [IMAGE_CODE, RUNTIME_CODE].contains(&record.kernel);
    Some(Fault { failure: FAILURE.get_or_init(|| describe(record)), slot: record.slot, keeps_loader })
}

fn describe(record: &Record) -> Failure {
    let (text, address) = words(record);
    let (kernel, text) = match record.kernel {
        0 => (0, format!("a thread that a kernel had started crashed: {text}")),
        IMAGE_CODE => (0, format!("a constructor or destructor of the program's image failed: {text}")),
        RUNTIME_CODE => (0, format!("the accelerator's libomptarget, or an image that it loaded, failed: {text}")),
        COPY_CODE => (0, format!("a copy to or from the accelerator failed: {text}")),
        kernel => (kernel, text),
    };
    let signal = if let Cause::Signal(signal) = &record.cause { signal.number as u32 } else { 0 };
    Failure { lost: true, kernel, signal, address, text }
}

/// Describes the fault; also returns the address if the host may know more about it.
fn words(record: &Record) -> (String, u64) {
    let signal = match &record.cause {
        Cause::Exit(status) => return (format!("it called exit, with status {status}"), 0),
        Cause::Timeout(limit) => {
            return (format!("it has not ended within {limit:?}, which OMPTARGET_MPI_KERNEL_TIMEOUT allows"), 0);
        }
        Cause::Call(function, at, why) => return (format!("it called {function} with {at:#x}, {why}"), 0),
        Cause::Signal(signal) => signal,
    };
    let Signal { number, code, sender, .. } = *signal;
    let name = name::of_signal(number);
    let own = sender == std::process::id() as c_int;
    if code <= 0 && !(own && number == libc::SIGABRT) {
        let who = if own { "which it raised itself".to_string() } else { format!("sent by process {sender}") };
        return (format!("{name}, {who}"), 0);
    }
    let what = match number {
        libc::SIGSEGV | libc::SIGBUS => {
            return (format!("{name} {}", reference(signal, record.in_team)), address_for_host(signal));
        }
        libc::SIGFPE if code == 1 => "(division of an integer by zero)".to_string(),
        libc::SIGFPE => "(arithmetic exception)".to_string(),
        libc::SIGILL => "(illegal instruction, or a trap of the compiler's)".to_string(),
        libc::SIGTRAP => "(breakpoint or trap)".to_string(),
        libc::SIGABRT => signal.escaped.map_or_else(|| "(abort was called)".to_string(), uncaught),
        _ => String::new(),
    };
    (format!("{name} {what}").trim_end().to_string(), 0)
}

/// Describes an invalid memory reference and its target, as far as this process knows it.
fn reference(signal: &Signal, in_team: bool) -> String {
    let Signal { code, address, overflowed, .. } = *signal;
    if overflowed > 0 {
        let variable = if in_team { "OMP_STACKSIZE" } else { "ulimit -s" };
        return format!(
            "(stack overflow) at address {address:#x}: the thread's stack of {} KiB, for which {variable} counts, is full",
            overflowed >> 10
        );
    }
    if code == SI_KERNEL {
        return "(invalid memory reference) at an address that can't exist".into();
    }
    let kind = match signal.access {
        _ if signal.number == libc::SIGBUS && code == 1 => "(misaligned address)",
        _ if signal.number == libc::SIGBUS => "(no memory behind the address)",
        Access::Read => "(invalid read)",
        Access::Write => "(invalid write)",
        Access::Call => "(no code to execute)",
        Access::Unknown => "(invalid memory reference)",
    };
    let refused = unified::refusal();
    let place = match node::mapping(address) {
        _ if !refused.is_empty() => format!(": {refused}"),
        None if address == 0 => ", a null pointer".into(),
        None if address < NULL_PAGE => format!(", {address} bytes from a null pointer"),
        Some((_, what)) if signal.number == libc::SIGSEGV => {
            let forbidden = if signal.access == Access::Write { "written" } else { "used so" };
            format!(", which can't be {forbidden}: it lies in {what}")
        }
        _ => String::new(),
    };
    format!("{kind} at address {address:#x}{place}")
}

/// The address, or 0 if this process itself knows what is there.
fn address_for_host(&Signal { code, address, overflowed, .. }: &Signal) -> u64 {
    let known = overflowed > 0 || code == SI_KERNEL || address < NULL_PAGE || !unified::refusal().is_empty();
    if known || node::mapping(address).is_some() { 0 } else { address }
}

fn uncaught(exception: &CStr) -> String {
    let symbol = exception.to_string_lossy();
    match symbol.strip_prefix('*').unwrap_or(&symbol) {
        "" => "(std::terminate was called)".into(),
        symbol => format!("(an exception escaped: {})", name::of_type(symbol)),
    }
}

/// Notes that the fault was reported, and cancels the last resort.
pub(crate) fn reported() {
    REPORTED.store(true, Ordering::SeqCst);
    // SAFETY: alarm has no preconditions.
    unsafe { libc::alarm(0) };
}

/// Puts the last resort off while a thread waits for the program, which may take long.
pub(crate) fn put_off_last_resort() {
    if FAULTED.load(Ordering::Relaxed) && !REPORTED.load(Ordering::SeqCst) {
        // SAFETY: as above.
        unsafe { libc::alarm(LAST_RESORT) };
        if REPORTED.load(Ordering::SeqCst) {
            // Another thread has just canceled it.
            reported();
        }
    }
}

/// Notes that the device exits by itself: from now on a call of `exit` is not a fault.
pub(crate) fn ending() {
    if let Some(board) = board() {
        board.end();
    }
}

/// Records a fault, if it is the first.
fn claim((slot, kernel): (usize, u64), in_team: bool, cause: impl FnOnce() -> Cause) {
    if CLAIMED.swap(true, Ordering::AcqRel) {
        return;
    }
    let record = Record { cause: cause(), slot, kernel, in_team };
    // SAFETY: `CLAIMED` lets only one thread come here, and others read only after `FAULTED` is set.
    unsafe { *FIRST.0.get() = Some(record) };
    FAULTED.store(true, Ordering::Release);
    if let Some(board) = board() {
        board.fault();
    }
    // SAFETY: alarm is safe in a signal handler; its signal ends the process.
    unsafe { libc::alarm(LAST_RESORT) };
}

/// The slot of the calling thread's kernel in this process, if any, and whether the kernel started the thread.
fn slot_of_kernel() -> Option<(usize, bool)> {
    let mine = MINE.get();
    let (slot, in_team) = if mine < THREADS { (mine, false) } else { (stack::origin(), true) };
    // SAFETY: getpid has no preconditions. A kernel may have forked.
    let is_device = PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() };
    let runs = || in_team || ![0, MPI_CODE].contains(&kernel_of(slot));
    (slot < THREADS && is_device && runs()).then_some((slot, in_team))
}

/// Notes a fault of the calling thread and parks it forever; returns if no kernel of this process caused it.
fn note(cause: impl FnOnce() -> Cause) {
    let Some((slot, in_team)) = slot_of_kernel() else { return };
    claim((slot, kernel_of(slot)), in_team, cause);
    loop {
        // SAFETY: pause is safe in a signal handler.
        unsafe { libc::pause() };
    }
}

/// Ends the calling thread's kernel, because it called `function` with memory of the program.
#[cold]
pub(crate) fn note_call(function: &'static str, at: u64, why: &'static str) {
    note(|| Cause::Call(function, at, why));
}

extern "C" fn on_signal(raised: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid records; address and sender are plain numbers.
    let (code, address, sender) = unsafe { ((*info).si_code, (*info).si_addr() as u64, (*info).si_pid()) };
    // SAFETY: as above.
    let (top, access) = unsafe { registers(context.cast()) };
    // SAFETY: as above.
    let trap = if raised == libc::SIGTRAP { unsafe { called_at_trap(context.cast()) } } else { None };
    let (number, code, address, access) = match trap {
        // SAFETY: as above; the called function is there.
        Some((_, Called::Function(to))) => return unsafe { continue_at(context.cast(), to) },
        // Treat it as if nothing were there.
        Some((at, Called::Other)) => (libc::SIGSEGV, SEGV_MAPERR, at, Access::Call),
        None => (raised, code, address, access),
    };
    if raised == libc::SIGABRT && host_exit::await_end() {
        ending();
        host_exit::follow();
    }
    // Fetched memory can be read and written, unless the region itself has changed that; it can't be executed.
    let may_be_fetched = code == SEGV_MAPERR || (code == SEGV_ACCERR && access == Access::Call);
    if number == libc::SIGSEGV
        && may_be_fetched
        && let Some((slot, _)) = slot_of_kernel()
        && let Some(on) = unified::resolve(address, access, (slot, kernel_of(slot)))
    {
        if access == Access::Call {
            // SAFETY: as above; the called function is there.
            unsafe { continue_at(context.cast(), on) };
        }
        return;
    }
    note(|| {
        let may_overflow = number == libc::SIGSEGV && code > 0;
        let overflowed = if may_overflow { stack::overflowed(address as usize, top as usize) } else { 0 };
        Cause::Signal(Signal { number, code, sender, address, access, overflowed, escaped: ESCAPES.get() })
    });
    // The device caused this fault, not a kernel: the device dies of it, and the supervisor reports that.
    // SAFETY: signal and raise are safe in a signal handler; returning repeats the fault.
    unsafe {
        libc::signal(raised, libc::SIG_DFL);
        if code <= 0 || raised == libc::SIGTRAP {
            libc::raise(raised);
        }
    }
}

/// The stack pointer and the kind of memory access, from a signal handler's context.
#[cfg(target_arch = "x86_64")]
unsafe fn registers(context: *const libc::ucontext_t) -> (u64, Access) {
    // SAFETY: the caller's promise.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    let error = registers[libc::REG_ERR as usize];
    let access = match error {
        // A page fault's error code (Intel SDM, 4.7).
        _ if registers[libc::REG_TRAPNO as usize] != 14 => Access::Unknown,
        e if e & 16 != 0 => Access::Call,
        e if e & 2 != 0 => Access::Write,
        _ => Access::Read,
    };
    (registers[libc::REG_RSP as usize] as u64, access)
}

/// The address of the trap that the thread hit and the target of its call, if the trap is one of [`THUNKS`], from a
/// signal handler's context. A thread that executes code there does not hold their lock.
#[cfg(target_arch = "x86_64")]
unsafe fn called_at_trap(context: *const libc::ucontext_t) -> Option<(u64, Called)> {
    // SAFETY: the caller's promise.
    let registers = unsafe { &(*context).uc_mcontext.gregs };
    // Exception 3: a breakpoint, which the thread has passed.
    let at = registers[libc::REG_RIP as usize].wrapping_sub(1) as u64;
    if registers[libc::REG_TRAPNO as usize] == 3 { Some((at, THUNKS.lock().called(at)?)) } else { None }
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn called_at_trap(_: *const libc::ucontext_t) -> Option<(u64, Called)> {
    None
}

/// Makes interrupted code continue at another address, by changing the signal handler's context.
#[cfg(target_arch = "x86_64")]
unsafe fn continue_at(context: *mut libc::ucontext_t, address: u64) {
    // SAFETY: the caller's promise.
    unsafe { (*context).uc_mcontext.gregs[libc::REG_RIP as usize] = address as i64 };
}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn continue_at(_: *mut libc::ucontext_t, _: u64) {}

#[cfg(not(target_arch = "x86_64"))]
unsafe fn registers(_: *const libc::ucontext_t) -> (u64, Access) {
    (u64::MAX, Access::Unknown)
}

extern "C" fn on_exit(status: c_int, _: *mut c_void) {
    if !board().is_some_and(CrashBoard::is_ending) {
        note(|| Cause::Exit(status));
    }
}

/// Treats a call of `exit` as a fault, before the exit handlers registered so far run.
pub(crate) fn notice_exit() {
    unsafe extern "C" {
        fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    // SAFETY: the handler is a function of this executable.
    unsafe { on_exit(self::on_exit, ptr::null_mut()) };
}

/// C++'s `std::terminate_handler`.
type Terminate = unsafe extern "C" fn();
/// The handler before ours.
static TERMINATE: OnceLock<Terminate> = OnceLock::new();
/// `__cxa_current_exception_type` of the Itanium C++ ABI.
static CURRENT_TYPE: OnceLock<unsafe extern "C" fn() -> *const TypeInfo> = OnceLock::new();

/// The head of `std::type_info`.
#[repr(C)]
struct TypeInfo {
    functions: *const c_void,
    name: *const c_char,
}

/// Makes the C++ library report uncaught exceptions, once an image has loaded it.
pub(crate) fn notice_exceptions() {
    if CURRENT_TYPE.get().is_some() {
        return;
    }
    // SAFETY: the names are C strings, and these functions have these types.
    unsafe {
        let find = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let (set, current) = (find(c"_ZSt13set_terminatePFvvE"), find(c"__cxa_current_exception_type"));
        if !set.is_null() && !current.is_null() {
            let set: unsafe extern "C" fn(Option<Terminate>) -> Option<Terminate> = std::mem::transmute(set);
            CURRENT_TYPE.get_or_init(|| std::mem::transmute(current));
            if let Some(old) = set(Some(on_terminate)) {
                TERMINATE.get_or_init(|| old);
            }
        }
    }
}

/// Notes the exception for the SIGABRT that follows.
unsafe extern "C" fn on_terminate() {
    // SAFETY: a terminating thread may have no exception. The name of an exception's type is a C string in the
    // image or in one of its libraries, which stay loaded: the device is lost. The old handler has no preconditions.
    unsafe {
        let exception = CURRENT_TYPE.get().map_or(ptr::null(), |current| current());
        ESCAPES.set(Some(if exception.is_null() { c"" } else { CStr::from_ptr((*exception).name) }));
        if let Some(before) = TERMINATE.get() {
            before();
        }
        libc::abort()
    }
}

/// Resets the state in a forked process, in which no kernel runs.
pub(crate) fn start_anew() {
    PROCESS.store(std::process::id() as i32, Ordering::Relaxed);
    if let Some(board) = board() {
        board.start_anew();
    }
}

/// Installs the handlers, which use the running kernels on `board`.
pub(crate) fn install_handlers(board: &'static CrashBoard) {
    BOARD.get_or_init(|| board);
    start_anew();
    // SAFETY: the action is fully initialized, and the handler is async-signal-safe. It runs on each
    // thread's alternate stack, which is Rust's or from `stack`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_signal as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&mut action.sa_mask);
        for signal in
            [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGABRT, libc::SIGTRAP, libc::SIGSYS]
        {
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
    notice_exit();
}
