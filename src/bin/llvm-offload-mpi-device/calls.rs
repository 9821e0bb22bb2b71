// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Functions of the C library that regions may call with memory of the program, see [`omptarget_mpi::device_main::backend::cpu::calls`].
//!
//! The system can't read and write such memory until this process has fetched it; the C library's streams are others
//! here than in the program; and this process's malloc has not allocated the program's memory.

use omptarget_mpi::device_main::backend::cpu::calls::{OWN_STREAMS, STREAMS, next, own, refuse, will_read, will_write};
use std::arch::global_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicUsize;

/// Defines functions that prepare their arguments and call the system's functions of their names.
macro_rules! replace {
    ($( fn $name:ident($($arg:ident: $Type:ty),*) $(-> $Result:ty)? { $($prepare:tt)* } )+) => { $(
        #[unsafe(no_mangle)]
        #[allow(unused_mut, reason = "some arguments are replaced")]
        unsafe extern "C" fn $name($(mut $arg: $Type),*) $(-> $Result)? {
            type Function = unsafe extern "C" fn($($Type),*) $(-> $Result)?;
            static NEXT: AtomicUsize = AtomicUsize::new(0);
            // SAFETY: the system's function has this type; the caller's promise, and buffers are as long as the call
            // says.
            unsafe {
                $($prepare)*
                let name = const { CStr::from_bytes_with_nul_unchecked(concat!(stringify!($name), "\0").as_bytes()) };
                std::mem::transmute::<usize, Function>(next(&NEXT, name))($($arg),*)
            }
        }
    )+ };
}

replace! {
    fn write(file: c_int, from: *const c_void, n: usize) -> isize { will_read(from, n); }
    fn pwrite(file: c_int, from: *const c_void, n: usize, at: libc::off_t) -> isize { will_read(from, n); }
    fn pwrite64(file: c_int, from: *const c_void, n: usize, at: libc::off_t) -> isize { will_read(from, n); }
    fn send(socket: c_int, from: *const c_void, n: usize, flags: c_int) -> isize { will_read(from, n); }
    fn read(file: c_int, to: *mut c_void, n: usize) -> isize { will_write(to, n); }
    fn pread(file: c_int, to: *mut c_void, n: usize, at: libc::off_t) -> isize { will_write(to, n); }
    fn pread64(file: c_int, to: *mut c_void, n: usize, at: libc::off_t) -> isize { will_write(to, n); }
    fn recv(socket: c_int, to: *mut c_void, n: usize, flags: c_int) -> isize { will_write(to, n); }
    fn writev(file: c_int, parts: *const libc::iovec, n: c_int) -> isize { will_read_parts(parts, n); }
    fn readv(file: c_int, parts: *const libc::iovec, n: c_int) -> isize { will_write_parts(parts, n); }
    fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int { will_read_text(path); }
    fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int { will_read_text(path); }
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void { will_read_text(path); }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void { will_read_text(path); }
    fn unlink(path: *const c_char) -> c_int { will_read_text(path); }

    fn fwrite(from: *const c_void, size: usize, n: usize, stream: *mut c_void) -> usize {
        will_read(from, size.saturating_mul(n));
        stream = own(stream);
    }
    fn fread(to: *mut c_void, size: usize, n: usize, stream: *mut c_void) -> usize {
        will_write(to, size.saturating_mul(n));
        stream = own(stream);
    }
    fn vfprintf(stream: *mut c_void, format: *const c_char, arguments: *mut c_void) -> c_int { stream = own(stream); }
    fn fputs(text: *const c_char, stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fputc(character: c_int, stream: *mut c_void) -> c_int { stream = own(stream); }
    fn putc(character: c_int, stream: *mut c_void) -> c_int { stream = own(stream); }
    fn _IO_putc(character: c_int, stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fgets(to: *mut c_char, n: c_int, stream: *mut c_void) -> *mut c_char { stream = own(stream); }
    fn fgetc(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn getc(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn _IO_getc(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn ungetc(character: c_int, stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fflush(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn feof(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn ferror(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fileno(stream: *mut c_void) -> c_int { stream = own(stream); }

    fn free(at: *mut c_void) { refuse(at, "free"); }
    fn realloc(at: *mut c_void, size: usize) -> *mut c_void { refuse(at, "realloc"); }
}

unsafe fn will_read_text(text: *const c_char) {
    // SAFETY: the caller's promise; strlen fetches the text.
    unsafe { will_read(text.cast(), libc::strlen(text)) };
}

unsafe fn parts<'a>(parts: *const libc::iovec, n: c_int) -> &'a [libc::iovec] {
    // SAFETY: the caller's promise.
    if parts.is_null() || n <= 0 { &[] } else { unsafe { std::slice::from_raw_parts(parts, n as usize) } }
}

unsafe fn will_read_parts(list: *const libc::iovec, n: c_int) {
    // SAFETY: the caller's promise.
    unsafe { parts(list, n) }.iter().for_each(|part| unsafe { will_read(part.iov_base, part.iov_len) });
}

unsafe fn will_write_parts(list: *const libc::iovec, n: c_int) {
    // SAFETY: the caller's promise.
    unsafe { parts(list, n) }.iter().for_each(|part| unsafe { will_write(part.iov_base, part.iov_len) });
}

// Functions with any number of arguments, of which the first is a stream: only that changes.
global_asm!(
    ".macro replace_stream name, next",
    ".globl \\name",
    ".type \\name, @function",
    "\\name:",
    "cmp rdi, [rip + {streams}]",
    "cmove rdi, [rip + {own}]",
    "cmp rdi, [rip + {streams} + 8]",
    "cmove rdi, [rip + {own} + 8]",
    "cmp rdi, [rip + {streams} + 16]",
    "cmove rdi, [rip + {own} + 16]",
    "jmp [rip + \\next]",
    ".size \\name, . - \\name",
    ".endm",
    "replace_stream fprintf, {fprintf}",
    "replace_stream __fprintf_chk, {fprintf_chk}",
    streams = sym STREAMS,
    own = sym OWN_STREAMS,
    fprintf = sym FPRINTF,
    fprintf_chk = sym FPRINTF_CHK,
);

static FPRINTF: AtomicUsize = AtomicUsize::new(0);
static FPRINTF_CHK: AtomicUsize = AtomicUsize::new(0);

/// Finds the functions that have no other occasion to, before any library's constructor can call them.
#[used]
#[unsafe(link_section = ".preinit_array")]
static FIND: extern "C" fn() = find;

extern "C" fn find() {
    unsafe extern "C" {
        fn fprintf();
        fn __fprintf_chk();
    }
    next(&FPRINTF, c"fprintf");
    next(&FPRINTF_CHK, c"__fprintf_chk");
    // Keeps the linker from dropping them.
    std::hint::black_box([fprintf as *const () as usize, __fprintf_chk as *const () as usize]);
}
