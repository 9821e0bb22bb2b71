// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Functions of the C library that regions may call with memory of the program, see [`omptarget_mpi::device_main::backend::cpu::calls`].
//!
//! The system can't read and write such memory until this process has fetched it; the C library's streams are others
//! here than in the program; this process's malloc has not allocated the program's memory; and its libomp does not know
//! the program's locks.

use omptarget_mpi::device_main::backend::cpu::calls::{
    FREED, LOCKED, OWN_STREAMS, STREAMS, fetch, find_next, is_of_program, next, own, refuse,
};
use std::arch::global_asm;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::AtomicUsize;

/// A function's name as a C string.
macro_rules! name {
    ($name:ident) => {
        const {
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("it has one NUL byte, its last"),
            }
        }
    };
}

/// Defines functions that prepare their arguments and call the system's functions of their names.
macro_rules! replace {
    ($( fn $name:ident($($arg:ident: $Type:ty),* $(,)?) $(-> $Result:ty)? { $($prepare:tt)* } )+) => {
        $(
            #[unsafe(no_mangle)]
            #[allow(unused_mut, reason = "some arguments are replaced")]
            unsafe extern "C" fn $name($(mut $arg: $Type),*) $(-> $Result)? {
                type Function = unsafe extern "C" fn($($Type),*) $(-> $Result)?;
                // SAFETY: the system's function has this type; the caller's promise, and buffers are as long as the
                // call says.
                unsafe {
                    $($prepare)*
                    std::mem::transmute::<usize, Function>(next(&system::$name, name!($name)))($($arg),*)
                }
            }
        )+

        /// The system's functions.
        #[allow(non_upper_case_globals, reason = "they have the functions' names")]
        mod system {
            use super::{AtomicUsize, CStr, find_next};

            $( pub static $name: AtomicUsize = AtomicUsize::new(0); )+

            /// Finds those of libraries that are loaded already: not libomp's.
            pub fn find() {
                $( find_next(&$name, name!($name)); )+
            }
        }
    };
}

replace! {
    fn write(file: c_int, from: *const c_void, n: usize) -> isize { fetch(from, n); }
    fn pwrite(file: c_int, from: *const c_void, n: usize, at: libc::off_t) -> isize { fetch(from, n); }
    fn pwrite64(file: c_int, from: *const c_void, n: usize, at: libc::off_t) -> isize { fetch(from, n); }
    fn send(socket: c_int, from: *const c_void, n: usize, flags: c_int) -> isize { fetch(from, n); }
    fn read(file: c_int, to: *mut c_void, n: usize) -> isize { fetch(to, n); }
    fn pread(file: c_int, to: *mut c_void, n: usize, at: libc::off_t) -> isize { fetch(to, n); }
    fn pread64(file: c_int, to: *mut c_void, n: usize, at: libc::off_t) -> isize { fetch(to, n); }
    fn recvfrom(socket: c_int, to: *mut c_void, n: usize, flags: c_int, from: *mut c_void, len: *mut c_void) -> isize {
        fetch(to, n);
    }
    fn sendto(socket: c_int, from: *const c_void, n: usize, flags: c_int, to: *const c_void, len: u32) -> isize {
        fetch(from, n);
    }
    fn __read_chk(file: c_int, to: *mut c_void, n: usize, most: usize) -> isize { fetch(to, n); }
    fn __fread_chk(to: *mut c_void, most: usize, size: usize, n: usize, stream: *mut c_void) -> usize {
        fetch(to, size.saturating_mul(n));
        stream = own(stream);
    }
    fn fwrite_unlocked(from: *const c_void, size: usize, n: usize, stream: *mut c_void) -> usize {
        fetch(from, size.saturating_mul(n));
        stream = own(stream);
    }
    fn recv(socket: c_int, to: *mut c_void, n: usize, flags: c_int) -> isize { fetch(to, n); }
    fn writev(file: c_int, parts: *const libc::iovec, n: c_int) -> isize { fetch_parts(parts, n); }
    fn readv(file: c_int, parts: *const libc::iovec, n: c_int) -> isize { fetch_parts(parts, n); }
    fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void { fetch_text(path); }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void { fetch_text(path); }
    fn unlink(path: *const c_char) -> c_int { fetch_text(path); }

    fn fwrite(from: *const c_void, size: usize, n: usize, stream: *mut c_void) -> usize {
        fetch(from, size.saturating_mul(n));
        stream = own(stream);
    }
    fn fread(to: *mut c_void, size: usize, n: usize, stream: *mut c_void) -> usize {
        fetch(to, size.saturating_mul(n));
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
    fn fclose(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn clearerr(stream: *mut c_void) { stream = own(stream); }
    fn setvbuf(stream: *mut c_void, to: *mut c_char, mode: c_int, n: usize) -> c_int { stream = own(stream); }
    fn flockfile(stream: *mut c_void) { stream = own(stream); }
    fn funlockfile(stream: *mut c_void) { stream = own(stream); }
    fn putc_unlocked(character: c_int, stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fputc_unlocked(character: c_int, stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fputs_unlocked(text: *const c_char, stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fflush_unlocked(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn getc_unlocked(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fputwc(character: u32, stream: *mut c_void) -> u32 { stream = own(stream); }
    fn __vfprintf_chk(stream: *mut c_void, flag: c_int, format: *const c_char, arguments: *mut c_void) -> c_int {
        stream = own(stream);
    }

    fn free(at: *mut c_void) { refuse(at, "free", FREED); }
    fn realloc(at: *mut c_void, size: usize) -> *mut c_void { refuse(at, "realloc", FREED); }
    fn omp_free(at: *mut c_void, allocator: usize) { refuse(at, "omp_free", FREED); }
    fn omp_realloc(at: *mut c_void, size: usize, allocator: usize, old: usize) -> *mut c_void {
        refuse(at, "omp_realloc", FREED);
    }

    // libomp's, for C and for Fortran.
    fn omp_init_lock(lock: *mut c_void) { refuse(lock, "omp_init_lock", LOCKED); }
    fn omp_init_lock_with_hint(lock: *mut c_void, hint: usize) { refuse(lock, "omp_init_lock_with_hint", LOCKED); }
    fn omp_destroy_lock(lock: *mut c_void) { refuse(lock, "omp_destroy_lock", LOCKED); }
    fn omp_set_lock(lock: *mut c_void) { refuse(lock, "omp_set_lock", LOCKED); }
    fn omp_unset_lock(lock: *mut c_void) { refuse(lock, "omp_unset_lock", LOCKED); }
    fn omp_test_lock(lock: *mut c_void) -> c_int { refuse(lock, "omp_test_lock", LOCKED); }
    fn omp_init_nest_lock(lock: *mut c_void) { refuse(lock, "omp_init_nest_lock", LOCKED); }
    fn omp_init_nest_lock_with_hint(lock: *mut c_void, hint: usize) { refuse(lock, "omp_init_nest_lock_with_hint", LOCKED); }
    fn omp_destroy_nest_lock(lock: *mut c_void) { refuse(lock, "omp_destroy_nest_lock", LOCKED); }
    fn omp_set_nest_lock(lock: *mut c_void) { refuse(lock, "omp_set_nest_lock", LOCKED); }
    fn omp_unset_nest_lock(lock: *mut c_void) { refuse(lock, "omp_unset_nest_lock", LOCKED); }
    fn omp_test_nest_lock(lock: *mut c_void) -> c_int { refuse(lock, "omp_test_nest_lock", LOCKED); }
    fn omp_init_lock_(lock: *mut c_void) { refuse(lock, "omp_init_lock", LOCKED); }
    fn omp_init_lock_with_hint_(lock: *mut c_void, hint: usize) { refuse(lock, "omp_init_lock_with_hint", LOCKED); }
    fn omp_destroy_lock_(lock: *mut c_void) { refuse(lock, "omp_destroy_lock", LOCKED); }
    fn omp_set_lock_(lock: *mut c_void) { refuse(lock, "omp_set_lock", LOCKED); }
    fn omp_unset_lock_(lock: *mut c_void) { refuse(lock, "omp_unset_lock", LOCKED); }
    fn omp_test_lock_(lock: *mut c_void) -> c_int { refuse(lock, "omp_test_lock", LOCKED); }
    fn omp_init_nest_lock_(lock: *mut c_void) { refuse(lock, "omp_init_nest_lock", LOCKED); }
    fn omp_init_nest_lock_with_hint_(lock: *mut c_void, hint: usize) { refuse(lock, "omp_init_nest_lock_with_hint", LOCKED); }
    fn omp_destroy_nest_lock_(lock: *mut c_void) { refuse(lock, "omp_destroy_nest_lock", LOCKED); }
    fn omp_set_nest_lock_(lock: *mut c_void) { refuse(lock, "omp_set_nest_lock", LOCKED); }
    fn omp_unset_nest_lock_(lock: *mut c_void) { refuse(lock, "omp_unset_nest_lock", LOCKED); }
    fn omp_test_nest_lock_(lock: *mut c_void) -> c_int { refuse(lock, "omp_test_nest_lock", LOCKED); }
}

unsafe fn fetch_text(text: *const c_char) {
    if is_of_program(text.cast()) {
        // SAFETY: the caller's promise; it fetches the text.
        unsafe { libc::strlen(text) };
    }
}

unsafe fn parts<'a>(parts: *const libc::iovec, n: c_int) -> &'a [libc::iovec] {
    // SAFETY: the caller's promise.
    if parts.is_null() || n <= 0 { &[] } else { unsafe { std::slice::from_raw_parts(parts, n as usize) } }
}

unsafe fn fetch_parts(list: *const libc::iovec, n: c_int) {
    // SAFETY: the caller's promise.
    unsafe { parts(list, n) }.iter().for_each(|part| unsafe { fetch(part.iov_base, part.iov_len) });
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

/// Finds the system's functions before any library's constructor runs. Later a thread could hold the dynamic loader's lock
/// for ever: in a constructor that crashes.
#[used]
#[unsafe(link_section = ".preinit_array")]
static FIND: extern "C" fn() = find;

extern "C" fn find() {
    unsafe extern "C" {
        fn fprintf();
        fn __fprintf_chk();
    }
    system::find();
    find_next(&FPRINTF, c"fprintf");
    find_next(&FPRINTF_CHK, c"__fprintf_chk");
    // Keeps the linker from dropping them.
    std::hint::black_box([fprintf as *const () as usize, __fprintf_chk as *const () as usize]);
}
