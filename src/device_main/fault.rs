// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Kernels that crash: the thread that faulted is stopped where it is, and another
//! thread of the device tells the host.
//!
//! Which kernel runs on which thread is written down in a table of atomics that a signal
//! handler may read. A handler only notes the fault and parks its thread for ever; all
//! else happens on a healthy thread. What no handler sees, the process above tells
//! (see [`super::supervise`]).

use super::board::Board;
use super::threads;
use crate::base::limits::THREADS;
use crate::base::{clock, name, node};
use crate::wire::reply::Failure;
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Seconds after which a device ends itself if the fault could not be told: the
/// faulting thread may hold a lock that telling needs.
const LAST_RESORT: u32 = 10;
/// An address below this is a null pointer's.
const NULL_PAGE: u64 = 4096;
/// `si_code` of a fault without an address (asm-generic/siginfo.h).
const SI_KERNEL: c_int = 0x80;

/// When the kernels of threads began, by slot, if there is a limit to that.
static BEGAN: [AtomicU64; THREADS] = [const { AtomicU64::new(0) }; THREADS];
/// Where their kernels are written down; the process that this is of.
static BOARD: OnceLock<&'static Board> = OnceLock::new();
static PROCESS: AtomicI32 = AtomicI32::new(0);

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
enum Cause {
    Signal,
    Exit,
    Timeout,
}

/// The first fault: set last, when the rest is written.
static FAULTED: AtomicBool = AtomicBool::new(false);
static CLAIMED: AtomicBool = AtomicBool::new(false);
static CAUSE: AtomicU32 = AtomicU32::new(0);
/// The signal or the exit status, and the signal's `si_code` and sender.
static NUMBER: AtomicI32 = AtomicI32::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);
static SENDER: AtomicI32 = AtomicI32::new(0);
static ADDRESS: AtomicU64 = AtomicU64::new(0);
/// What of the address was wanted, see [`Access`].
static ACCESS: AtomicU32 = AtomicU32::new(0);
/// Bytes of the stack that overflowed, or 0.
static STACK: AtomicUsize = AtomicUsize::new(0);
static KERNEL: AtomicU64 = AtomicU64::new(0);
static SLOT: AtomicU32 = AtomicU32::new(u32::MAX);
/// It was a thread of a kernel's own.
static IN_TEAM: AtomicBool = AtomicBool::new(false);
/// The name of the exception's type that escaped, as the compiler has it.
static ESCAPED: AtomicPtr<c_char> = AtomicPtr::new(ptr::null_mut());

thread_local! {
    static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    static ESCAPES: Cell<*const c_char> = const { Cell::new(ptr::null()) };
}

/// What an instruction wanted of an address.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Access {
    Unknown,
    Read,
    Write,
    Call,
}

#[inline]
fn board() -> Option<&'static Board> {
    BOARD.get().copied()
}

/// True once faults are noted, as they are before the first kernel.
pub fn is_watched() -> bool {
    board().is_some()
}

fn kernel_of(slot: usize) -> u64 {
    board().map_or(0, |board| board.kernel(slot).load(Ordering::Acquire))
}

/// Claims a slot for the calling thread.
pub fn use_slot(slot: usize) {
    MINE.set(slot);
    threads::note_stack();
}

/// The slot whose kernel the calling thread belongs to, if it does: for threads that it
/// starts.
pub fn origin() -> usize {
    let mine = MINE.get();
    if mine < THREADS && kernel_of(mine) != 0 { mine } else { threads::origin() }
}

/// A kernel starts on the thread of this slot.
#[inline]
pub fn enter(slot: usize, kernel: u64) {
    if let Some(board) = board() {
        board.kernel(slot).store(kernel, Ordering::Release);
    }
}

/// The time of the kernel that starts next in this slot begins.
pub fn limit_time(slot: usize) {
    BEGAN[slot].store(clock::nanoseconds(), Ordering::Relaxed);
}

/// The kernel has returned.
#[inline]
pub fn leave(slot: usize) {
    if let Some(board) = board() {
        board.kernel(slot).store(0, Ordering::Relaxed);
    }
}

/// The slot where the fault was; none of them if no kernel's thread is known for it.
pub fn slot() -> usize {
    SLOT.load(Ordering::Relaxed) as usize
}

/// True once a kernel has crashed.
#[inline]
pub fn happened() -> bool {
    FAULTED.load(Ordering::Acquire)
}

/// Looks for a kernel that has run for longer than this, which is a fault then. Its thread
/// runs on: it can't be stopped from outside, nor does it matter any more what it does.
pub fn look_at_time(limit: Duration) {
    let (now, limit) = (clock::nanoseconds(), limit.as_nanos() as u64);
    let late = |slot: &usize| kernel_of(*slot) != 0 && now.saturating_sub(BEGAN[*slot].load(Ordering::Relaxed)) > limit;
    if let Some(slot) = (0..THREADS).find(late) {
        claim(Cause::Timeout, Some(slot), || ADDRESS.store(limit, Ordering::Relaxed));
    }
}

/// What the host shall be told of the fault.
pub fn describe() -> &'static Failure {
    static FAILURE: OnceLock<Failure> = OnceLock::new();
    FAILURE.get_or_init(|| {
        let signal =
            if CAUSE.load(Ordering::Relaxed) == Cause::Signal as u32 { NUMBER.load(Ordering::Relaxed) } else { 0 };
        let (text, address) = words();
        let kernel = KERNEL.load(Ordering::Relaxed);
        let text = if kernel == 0 { format!("a thread that a kernel had started crashed: {text}") } else { text };
        Failure { lost: true, kernel, signal: signal as u32, address, text }
    })
}

/// The fault in words, and the address if the host may know more about it.
fn words() -> (String, u64) {
    let (number, address) = (NUMBER.load(Ordering::Relaxed), ADDRESS.load(Ordering::Relaxed));
    let cause = CAUSE.load(Ordering::Relaxed);
    if cause == Cause::Exit as u32 {
        return (format!("it called exit, with status {number}"), 0);
    }
    if cause == Cause::Timeout as u32 {
        let limit = Duration::from_nanos(address);
        return (format!("it has not ended within {limit:?}, which OMPTARGET_MPI_KERNEL_TIMEOUT allows"), 0);
    }
    let (code, sender) = (CODE.load(Ordering::Relaxed), SENDER.load(Ordering::Relaxed));
    let signal = name::of_signal(number);
    // SAFETY: getpid has no preconditions.
    let own = sender == unsafe { libc::getpid() };
    if code <= 0 && !(own && number == libc::SIGABRT) {
        let who = if own { "which it raised itself".to_string() } else { format!("sent by process {sender}") };
        return (format!("{signal}, {who}"), 0);
    }
    let what = match number {
        libc::SIGSEGV | libc::SIGBUS => {
            return (format!("{signal} {}", reference(number, code, address)), address_for_host(code, address));
        }
        libc::SIGFPE if code == 1 => "(division of an integer by zero)".to_string(),
        libc::SIGFPE => "(arithmetic exception)".to_string(),
        libc::SIGILL => "(illegal instruction, or a trap of the compiler's)".to_string(),
        libc::SIGTRAP => "(breakpoint or trap)".to_string(),
        libc::SIGABRT => escaped().unwrap_or_else(|| "(abort was called)".to_string()),
        _ => String::new(),
    };
    (format!("{signal} {what}").trim_end().to_string(), 0)
}

/// An invalid reference to memory, and where it went, as far as this process knows.
fn reference(signal: c_int, code: c_int, address: u64) -> String {
    let stack = STACK.load(Ordering::Relaxed);
    if stack > 0 {
        let variable = if IN_TEAM.load(Ordering::Relaxed) { "OMP_STACKSIZE" } else { "ulimit -s" };
        return format!(
            "(stack overflow) at address {address:#x}: the thread's stack of {} KiB, for which {variable} counts, is full",
            stack >> 10
        );
    }
    if code == SI_KERNEL {
        return "(invalid memory reference) at an address that can't exist".into();
    }
    let access = ACCESS.load(Ordering::Relaxed);
    let kind = match access {
        _ if signal == libc::SIGBUS && code == 1 => "(misaligned address)",
        _ if signal == libc::SIGBUS => "(no memory behind the address)",
        a if a == Access::Read as u32 => "(invalid read)",
        a if a == Access::Write as u32 => "(invalid write)",
        a if a == Access::Call as u32 => "(no code to execute)",
        _ => "(invalid memory reference)",
    };
    let place = match node::mapping(address) {
        None if address == 0 => ", a null pointer".into(),
        None if address < NULL_PAGE => format!(", {address} bytes from a null pointer"),
        Some((_, what)) if signal == libc::SIGSEGV => {
            let forbidden = if access == Access::Write as u32 { "written" } else { "used so" };
            format!(", which can't be {forbidden}: it lies in {what}")
        }
        _ => String::new(),
    };
    format!("{kind} at address {address:#x}{place}")
}

/// The address if this process knows nothing of it.
fn address_for_host(code: c_int, address: u64) -> u64 {
    let known = STACK.load(Ordering::Relaxed) > 0 || code == SI_KERNEL || address < NULL_PAGE;
    if known || node::mapping(address).is_some() { 0 } else { address }
}

/// The exception that nobody caught.
fn escaped() -> Option<String> {
    let escaped = ESCAPED.load(Ordering::Relaxed);
    if escaped.is_null() {
        return None;
    }
    // SAFETY: a C string in the image or one of its libraries, which stay: the device is lost.
    let symbol = unsafe { CStr::from_ptr(escaped) }.to_string_lossy().into_owned();
    let Some(symbol) = symbol.strip_prefix('*').or(Some(symbol.as_str())).filter(|s| !s.is_empty()) else {
        return Some("(std::terminate was called)".into());
    };
    Some(format!("(an exception escaped: {})", name::of_type(symbol)))
}

/// The fault was told; the device need not end by itself.
pub fn told() {
    // SAFETY: alarm has no preconditions.
    unsafe { libc::alarm(0) };
}

/// The device ends by itself: an exit from now on is no fault.
pub fn ending() {
    if let Some(board) = board() {
        board.end();
    }
}

/// Writes the first fault down; false if it is not the first.
fn claim(cause: Cause, slot: Option<usize>, details: impl FnOnce()) -> bool {
    if CLAIMED.swap(true, Ordering::AcqRel) {
        return false;
    }
    CAUSE.store(cause as u32, Ordering::Relaxed);
    details();
    if let Some(slot) = slot {
        SLOT.store(slot as u32, Ordering::Relaxed);
        KERNEL.store(kernel_of(slot), Ordering::Relaxed);
    }
    FAULTED.store(true, Ordering::Release);
    // SAFETY: alarm is safe in a signal handler; its signal ends the process.
    unsafe { libc::alarm(LAST_RESORT) };
    true
}

/// Notes a fault of the calling thread and stops it for ever; returns if the thread belongs
/// to no kernel, or to another process.
fn note(cause: Cause, details: impl FnOnce()) {
    let mine = MINE.get();
    let (slot, in_team) = if mine < THREADS { (mine, false) } else { (threads::origin(), true) };
    // SAFETY: getpid has no preconditions. A kernel may have forked.
    let is_device = PROCESS.load(Ordering::Relaxed) == unsafe { libc::getpid() };
    if slot >= THREADS || !is_device || (!in_team && kernel_of(slot) == 0) {
        return;
    }
    claim(cause, Some(slot), || {
        IN_TEAM.store(in_team, Ordering::Relaxed);
        details();
    });
    loop {
        // SAFETY: pause is safe in a signal handler.
        unsafe { libc::pause() };
    }
}

extern "C" fn on_signal(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes valid records; address and sender are plain numbers.
    let (code, address, sender) = unsafe { ((*info).si_code, (*info).si_addr() as u64, (*info).si_pid()) };
    note(Cause::Signal, || {
        // SAFETY: as above.
        let (top, access) = unsafe { registers(context.cast()) };
        NUMBER.store(signal, Ordering::Relaxed);
        CODE.store(code, Ordering::Relaxed);
        SENDER.store(sender, Ordering::Relaxed);
        ADDRESS.store(address, Ordering::Relaxed);
        ACCESS.store(access as u32, Ordering::Relaxed);
        ESCAPED.store(ESCAPES.get().cast_mut(), Ordering::Relaxed);
        if signal == libc::SIGSEGV && code > 0 {
            STACK.store(threads::overflowed(address as usize, top as usize), Ordering::Relaxed);
        }
    });
    // Not a kernel's fault but the device's own: die of it, as the process above will tell.
    // SAFETY: signal and raise are safe in a signal handler; returning repeats the fault.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        if code <= 0 || signal == libc::SIGTRAP {
            libc::raise(signal);
        }
    }
}

/// The stack pointer, and what the instruction wanted of memory.
///
/// # Safety
/// The context is one that a signal handler got.
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

/// The same where it is not known.
///
/// # Safety
/// None is needed.
#[cfg(not(target_arch = "x86_64"))]
unsafe fn registers(_: *const libc::ucontext_t) -> (u64, Access) {
    (u64::MAX, Access::Unknown)
}

extern "C" fn on_exit(status: c_int, _: *mut c_void) {
    if !board().is_some_and(Board::is_ending) {
        note(Cause::Exit, || NUMBER.store(status, Ordering::Relaxed));
    }
}

/// Takes a call of `exit` for a fault, if it comes before the handlers known so far.
pub fn notice_exit() {
    unsafe extern "C" {
        fn on_exit(handler: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    // SAFETY: the handler is a function of this executable.
    unsafe { on_exit(self::on_exit, ptr::null_mut()) };
}

/// C++'s `std::terminate_handler`.
type Terminate = Option<unsafe extern "C" fn()>;
/// The one before ours.
static TERMINATE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
/// `__cxa_current_exception_type` of the Itanium C++ ABI.
static CURRENT_TYPE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// Has the C++ library, if an image has brought one, tell of exceptions that escape.
pub fn notice_exceptions() {
    if !CURRENT_TYPE.load(Ordering::Acquire).is_null() {
        return;
    }
    // SAFETY: the names are C strings; what they are the names of has these types.
    unsafe {
        let find = |name: &CStr| libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr());
        let (set, current) = (find(c"_ZSt13set_terminatePFvvE"), find(c"__cxa_current_exception_type"));
        if !set.is_null() && !current.is_null() {
            let set: unsafe extern "C" fn(Terminate) -> Terminate = std::mem::transmute(set);
            CURRENT_TYPE.store(current, Ordering::Release);
            let old = set(Some(on_terminate));
            TERMINATE.store(old.map_or(ptr::null_mut(), |f| f as *mut c_void), Ordering::Release);
        }
    }
}

/// Notes the exception for the signal that follows.
unsafe extern "C" fn on_terminate() {
    /// The head of `std::type_info`.
    #[repr(C)]
    struct TypeInfo {
        functions: *const c_void,
        name: *const c_char,
    }
    // SAFETY: the functions have these types; who terminates has an exception or none.
    unsafe {
        let current: unsafe extern "C" fn() -> *const TypeInfo =
            std::mem::transmute(CURRENT_TYPE.load(Ordering::Acquire));
        let exception = current();
        ESCAPES.set(if exception.is_null() { c"".as_ptr() } else { (*exception).name });
        let before = TERMINATE.load(Ordering::Acquire);
        if !before.is_null() {
            std::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(before)();
        }
        libc::abort()
    }
}

/// This process is a copy of the one that it was: no kernel runs in it.
pub fn start_anew() {
    // SAFETY: getpid has no preconditions.
    PROCESS.store(unsafe { libc::getpid() }, Ordering::Relaxed);
    if let Some(board) = board() {
        (0..THREADS).for_each(|slot| board.kernel(slot).store(0, Ordering::Relaxed));
    }
}

/// Installs the handlers; kernels are written down on `board`.
pub fn watch(board: &'static Board) {
    BOARD.get_or_init(|| board);
    start_anew();
    // SAFETY: the action is fully initialised and the handler keeps to what is allowed in
    // one. It runs on the alternate stack that each thread has, of Rust's or of `threads`.
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
