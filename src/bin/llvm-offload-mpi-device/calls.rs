// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Functions of the C library that regions may call with memory of the program, see
//! [`omptarget_mpi::device_main::backend::cpu::calls`].
//!
//! The system can't read or write the program's memory until this process has fetched it; the C library's streams
//! differ from the program's; this process's malloc did not allocate the program's memory; and its libomp does not know
//! the program's locks.

use omptarget_mpi::device_main::backend::cpu::calls::{
    FREED, KEPT, LOCKED, OWN_STREAMS, STREAMS, fetch, find_next, is_of_program, next, own, refuse,
};
use std::arch::global_asm;
use std::ffi::{CStr, c_char, c_int, c_long, c_void};
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

/// Defines functions that prepare their arguments and call the system's functions of the same names.
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

            /// Finds the functions of libraries that are already loaded, which libomp is not.
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
    fn recvfrom(socket: c_int, to: *mut c_void, n: usize, flags: c_int, from: *mut c_void, len: *mut u32) -> isize {
        fetch(to, n);
        fetch_sized(from, len);
    }
    fn sendto(socket: c_int, from: *const c_void, n: usize, flags: c_int, to: *const c_void, len: u32) -> isize {
        fetch(from, n);
        fetch(to, len as usize);
    }
    fn __pread_chk(file: c_int, to: *mut c_void, n: usize, at: libc::off_t, most: usize) -> isize { fetch(to, n); }
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
    fn preadv(file: c_int, parts: *const libc::iovec, n: c_int, at: libc::off_t) -> isize { fetch_parts(parts, n); }
    fn preadv64(file: c_int, parts: *const libc::iovec, n: c_int, at: libc::off_t) -> isize { fetch_parts(parts, n); }
    fn pwritev(file: c_int, parts: *const libc::iovec, n: c_int, at: libc::off_t) -> isize { fetch_parts(parts, n); }
    fn pwritev64(file: c_int, parts: *const libc::iovec, n: c_int, at: libc::off_t) -> isize { fetch_parts(parts, n); }
    fn sendmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> isize { fetch_message(message); }
    fn recvmsg(socket: c_int, message: *const libc::msghdr, flags: c_int) -> isize { fetch_message(message); }

    // Most calls have fewer arguments; the others are whatever the caller's registers hold.
    fn syscall(
        number: c_long, first: usize, second: usize, third: usize, fourth: usize, fifth: usize, sixth: usize,
    ) -> c_long {
        fetch_for(number, [first, second, third, fourth, fifth, sixth]);
    }

    // Sockets, pipes and waiting.
    fn connect(socket: c_int, address: *const c_void, len: u32) -> c_int { fetch(address, len as usize); }
    fn bind(socket: c_int, address: *const c_void, len: u32) -> c_int { fetch(address, len as usize); }
    fn accept(socket: c_int, address: *mut c_void, len: *mut u32) -> c_int { fetch_sized(address, len); }
    fn accept4(socket: c_int, address: *mut c_void, len: *mut u32, flags: c_int) -> c_int { fetch_sized(address, len); }
    fn getsockname(socket: c_int, address: *mut c_void, len: *mut u32) -> c_int { fetch_sized(address, len); }
    fn getpeername(socket: c_int, address: *mut c_void, len: *mut u32) -> c_int { fetch_sized(address, len); }
    fn getsockopt(socket: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut u32) -> c_int {
        fetch_sized(value, len);
    }
    fn setsockopt(socket: c_int, level: c_int, name: c_int, value: *const c_void, len: u32) -> c_int {
        fetch(value, len as usize);
    }
    fn socketpair(domain: c_int, kind: c_int, protocol: c_int, pair: *mut [c_int; 2]) -> c_int { fetch_one(pair); }
    fn pipe(pair: *mut [c_int; 2]) -> c_int { fetch_one(pair); }
    fn pipe2(pair: *mut [c_int; 2], flags: c_int) -> c_int { fetch_one(pair); }
    fn poll(files: *mut libc::pollfd, n: libc::nfds_t, timeout: c_int) -> c_int { fetch_all(files, n as usize); }
    fn ppoll(files: *mut libc::pollfd, n: libc::nfds_t, timeout: *const libc::timespec, mask: *const u64) -> c_int {
        fetch_all(files, n as usize);
        fetch_one(mask);
    }
    fn select(n: c_int, read: *mut c_void, write: *mut c_void, except: *mut c_void, timeout: *mut libc::timeval) -> c_int {
        fetch_one(timeout);
        [read, write, except].into_iter().for_each(|set| fetch(set, (n.max(0) as usize).div_ceil(64) * 8));
    }
    fn epoll_ctl(queue: c_int, action: c_int, file: c_int, event: *mut libc::epoll_event) -> c_int { fetch_one(event); }
    fn epoll_wait(queue: c_int, events: *mut libc::epoll_event, n: c_int, timeout: c_int) -> c_int {
        fetch_all(events, n.max(0) as usize);
    }
    fn open(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn open64(path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void { fetch_text(path); }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void { fetch_text(path); }
    fn freopen(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void {
        fetch_text(path);
        stream = own(stream);
    }
    fn freopen64(path: *const c_char, mode: *const c_char, stream: *mut c_void) -> *mut c_void {
        fetch_text(path);
        stream = own(stream);
    }
    fn __open_2(path: *const c_char, flags: c_int) -> c_int { fetch_text(path); }
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int { fetch_text(path); }
    fn openat(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn openat64(folder: c_int, path: *const c_char, flags: c_int, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn creat(path: *const c_char, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn creat64(path: *const c_char, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn opendir(path: *const c_char) -> *mut c_void { fetch_text(path); }
    fn unlink(path: *const c_char) -> c_int { fetch_text(path); }
    fn unlinkat(folder: c_int, path: *const c_char, flags: c_int) -> c_int { fetch_text(path); }
    fn remove(path: *const c_char) -> c_int { fetch_text(path); }
    fn rename(from: *const c_char, to: *const c_char) -> c_int { fetch_texts([from, to]); }
    fn renameat(folder: c_int, from: *const c_char, other: c_int, to: *const c_char) -> c_int { fetch_texts([from, to]); }
    fn link(from: *const c_char, to: *const c_char) -> c_int { fetch_texts([from, to]); }
    fn symlink(target: *const c_char, path: *const c_char) -> c_int { fetch_texts([target, path]); }
    fn mkdir(path: *const c_char, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn mkdirat(folder: c_int, path: *const c_char, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn rmdir(path: *const c_char) -> c_int { fetch_text(path); }
    fn chdir(path: *const c_char) -> c_int { fetch_text(path); }
    fn chmod(path: *const c_char, mode: libc::mode_t) -> c_int { fetch_text(path); }
    fn access(path: *const c_char, mode: c_int) -> c_int { fetch_text(path); }
    fn faccessat(folder: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int { fetch_text(path); }
    fn truncate(path: *const c_char, len: libc::off_t) -> c_int { fetch_text(path); }
    fn truncate64(path: *const c_char, len: libc::off_t) -> c_int { fetch_text(path); }
    fn memfd_create(name: *const c_char, flags: u32) -> c_int { fetch_text(name); }
    fn readlink(path: *const c_char, to: *mut c_void, n: usize) -> isize {
        fetch_text(path);
        fetch(to, n);
    }
    fn readlinkat(folder: c_int, path: *const c_char, to: *mut c_void, n: usize) -> isize {
        fetch_text(path);
        fetch(to, n);
    }
    fn getcwd(to: *mut c_void, n: usize) -> *mut c_char { fetch(to, n); }
    fn statx(folder: c_int, path: *const c_char, flags: c_int, mask: u32, to: *mut libc::statx) -> c_int {
        fetch_text(path);
        fetch_one(to);
    }
    fn statfs(path: *const c_char, to: *mut libc::statfs) -> c_int {
        fetch_text(path);
        fetch_one(to);
    }
    fn statfs64(path: *const c_char, to: *mut libc::statfs64) -> c_int {
        fetch_text(path);
        fetch_one(to);
    }
    fn statvfs(path: *const c_char, to: *mut libc::statvfs) -> c_int { fetch_text(path); }
    fn statvfs64(path: *const c_char, to: *mut libc::statvfs) -> c_int { fetch_text(path); }

    // Time, limits and the machine.
    fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int {
        fetch_one(time);
        fetch_one(left);
    }
    fn clock_nanosleep(clock: c_int, flags: c_int, time: *const libc::timespec, left: *mut libc::timespec) -> c_int {
        fetch_one(time);
        fetch_one(left);
    }
    fn clock_gettime(clock: c_int, to: *mut libc::timespec) -> c_int { fetch_one(to); }
    fn clock_getres(clock: c_int, to: *mut libc::timespec) -> c_int { fetch_one(to); }
    fn times(to: *mut libc::tms) -> libc::clock_t { fetch_one(to); }
    fn getrusage(who: c_int, to: *mut libc::rusage) -> c_int { fetch_one(to); }
    fn getrlimit(which: c_int, to: *mut libc::rlimit) -> c_int { fetch_one(to); }
    fn getrlimit64(which: c_int, to: *mut libc::rlimit) -> c_int { fetch_one(to); }
    fn setrlimit(which: c_int, from: *const libc::rlimit) -> c_int { fetch_one(from); }
    fn setrlimit64(which: c_int, from: *const libc::rlimit) -> c_int { fetch_one(from); }
    fn uname(to: *mut libc::utsname) -> c_int { fetch_one(to); }
    fn sysinfo(to: *mut libc::sysinfo) -> c_int { fetch_one(to); }
    fn getrandom(to: *mut c_void, n: usize, flags: u32) -> isize { fetch(to, n); }
    fn getentropy(to: *mut c_void, n: usize) -> c_int { fetch(to, n); }
    fn sched_getaffinity(process: libc::pid_t, n: usize, to: *mut c_void) -> c_int { fetch(to, n); }
    fn sched_setaffinity(process: libc::pid_t, n: usize, from: *const c_void) -> c_int { fetch(from, n); }
    fn sigprocmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
        fetch_one(set);
        fetch_one(old);
    }
    fn pthread_sigmask(how: c_int, set: *const u64, old: *mut u64) -> c_int {
        fetch_one(set);
        fetch_one(old);
    }

    // Streams.

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
    // The stream outlives the region.
    fn setvbuf(stream: *mut c_void, to: *mut c_char, mode: c_int, n: usize) -> c_int {
        refuse(to.cast(), "setvbuf", KEPT);
        stream = own(stream);
    }
    fn setbuf(stream: *mut c_void, to: *mut c_char) {
        refuse(to.cast(), "setbuf", KEPT);
        stream = own(stream);
    }
    fn setlinebuf(stream: *mut c_void) { stream = own(stream); }
    // These may let the buffer grow.
    fn getline(line: *mut *mut c_char, n: *mut usize, stream: *mut c_void) -> isize {
        refuse_at(line, "getline");
        stream = own(stream);
    }
    fn getdelim(line: *mut *mut c_char, n: *mut usize, delimiter: c_int, stream: *mut c_void) -> isize {
        refuse_at(line, "getdelim");
        stream = own(stream);
    }
    fn __getdelim(line: *mut *mut c_char, n: *mut usize, delimiter: c_int, stream: *mut c_void) -> isize {
        refuse_at(line, "getline");
        stream = own(stream);
    }
    fn fgets_unlocked(to: *mut c_char, n: c_int, stream: *mut c_void) -> *mut c_char { stream = own(stream); }
    fn fgetc_unlocked(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fread_unlocked(to: *mut c_void, size: usize, n: usize, stream: *mut c_void) -> usize {
        fetch(to, size.saturating_mul(n));
        stream = own(stream);
    }
    fn fseeko(stream: *mut c_void, at: libc::off_t, from: c_int) -> c_int { stream = own(stream); }
    fn fseeko64(stream: *mut c_void, at: libc::off_t, from: c_int) -> c_int { stream = own(stream); }
    fn ftello(stream: *mut c_void) -> libc::off_t { stream = own(stream); }
    fn ftello64(stream: *mut c_void) -> libc::off_t { stream = own(stream); }
    fn putwc(character: u32, stream: *mut c_void) -> u32 { stream = own(stream); }
    fn getwc(stream: *mut c_void) -> u32 { stream = own(stream); }
    fn ungetwc(character: u32, stream: *mut c_void) -> u32 { stream = own(stream); }
    fn fwide(stream: *mut c_void, mode: c_int) -> c_int { stream = own(stream); }
    fn feof_unlocked(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn ferror_unlocked(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fileno_unlocked(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn clearerr_unlocked(stream: *mut c_void) { stream = own(stream); }
    fn vfscanf(stream: *mut c_void, format: *const c_char, arguments: *mut c_void) -> c_int { stream = own(stream); }
    fn __fgets_chk(to: *mut c_char, most: usize, n: c_int, stream: *mut c_void) -> *mut c_char { stream = own(stream); }
    fn fseek(stream: *mut c_void, at: libc::c_long, from: c_int) -> c_int { stream = own(stream); }
    fn ftell(stream: *mut c_void) -> libc::c_long { stream = own(stream); }
    fn rewind(stream: *mut c_void) { stream = own(stream); }
    fn ftrylockfile(stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fputws(text: *const c_void, stream: *mut c_void) -> c_int { stream = own(stream); }
    fn fgetws(to: *mut c_void, n: c_int, stream: *mut c_void) -> *mut c_void { stream = own(stream); }
    fn fgetwc(stream: *mut c_void) -> u32 { stream = own(stream); }
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
    fn reallocarray(at: *mut c_void, n: usize, size: usize) -> *mut c_void { refuse(at, "reallocarray", FREED); }
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

/// Defines `stat` and its relatives by their system call: up to glibc 2.32 no library has them.
macro_rules! replace_stat {
    ($( fn $name:ident($($arg:ident: $Type:ty),*) { $folder:expr, $path:expr, $to:expr, $flags:expr } )+) => {
        $(
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($arg: $Type),*) -> c_int {
                let path: *const c_char = $path;
                let to: *mut libc::stat = $to;
                // SAFETY: the caller's promise.
                unsafe {
                    fetch_text(path);
                    fetch_one(to);
                    libc::syscall(libc::SYS_newfstatat, $folder, path, to, $flags) as c_int
                }
            }
        )+
    };
}

replace_stat! {
    fn stat(path: *const c_char, to: *mut libc::stat) { libc::AT_FDCWD, path, to, 0 }
    fn stat64(path: *const c_char, to: *mut libc::stat) { libc::AT_FDCWD, path, to, 0 }
    fn lstat(path: *const c_char, to: *mut libc::stat) { libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW }
    fn lstat64(path: *const c_char, to: *mut libc::stat) { libc::AT_FDCWD, path, to, libc::AT_SYMLINK_NOFOLLOW }
    // A negative number is no file, not even AT_FDCWD.
    fn fstat(file: c_int, to: *mut libc::stat) { file.max(-1), c"".as_ptr(), to, libc::AT_EMPTY_PATH }
    fn fstat64(file: c_int, to: *mut libc::stat) { file.max(-1), c"".as_ptr(), to, libc::AT_EMPTY_PATH }
    fn fstatat(folder: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) { folder, path, to, flags }
    fn fstatat64(folder: c_int, path: *const c_char, to: *mut libc::stat, flags: c_int) { folder, path, to, flags }
}

/// Fetches the memory that a system call reads and writes, for calls that transfer data, and for those without a
/// function in older C libraries.
///
/// # Safety
/// The arguments are valid for the call.
unsafe fn fetch_for(number: c_long, arguments: [usize; 6]) {
    let at = |n: usize| arguments[n] as *mut c_void;
    // SAFETY: the caller's promise.
    unsafe {
        match number {
            libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64 => fetch(at(1), arguments[2]),
            // The system takes an int: the upper half may be anything.
            libc::SYS_getdents64 => fetch(at(1), arguments[2] as u32 as usize),
            libc::SYS_sendto => {
                fetch(at(1), arguments[2]);
                fetch(at(4), arguments[5] as u32 as usize);
            }
            libc::SYS_recvfrom => {
                fetch(at(1), arguments[2]);
                fetch_sized(at(4), at(5).cast());
            }
            libc::SYS_readv
            | libc::SYS_writev
            | libc::SYS_preadv
            | libc::SYS_pwritev
            | libc::SYS_preadv2
            | libc::SYS_pwritev2 => fetch_parts(at(1).cast(), arguments[2] as c_int),
            libc::SYS_sendmsg | libc::SYS_recvmsg => fetch_message(at(1).cast()),
            libc::SYS_getrandom => fetch(at(0), arguments[1]),
            libc::SYS_futex => fetch_one(at(0).cast::<u32>()),
            _ => {}
        }
    }
}

unsafe fn fetch_text(text: *const c_char) {
    if is_of_program(text.cast()) {
        // The call fetches the text; without `black_box` the compiler would drop it.
        // SAFETY: the caller's promise.
        std::hint::black_box(unsafe { libc::strlen(text) });
    }
}

unsafe fn fetch_texts(texts: [*const c_char; 2]) {
    // SAFETY: the caller's promise.
    texts.into_iter().for_each(|text| unsafe { fetch_text(text) });
}

unsafe fn fetch_one<T>(at: *const T) {
    // SAFETY: the caller's promise.
    unsafe { fetch_all(at, 1) };
}

unsafe fn fetch_all<T>(first: *const T, n: usize) {
    // SAFETY: the caller's promise.
    unsafe { fetch(first.cast(), n.saturating_mul(size_of::<T>())) };
}

/// Fetches a buffer and its length.
unsafe fn fetch_sized(at: *mut c_void, len: *const u32) {
    // SAFETY: the caller's promise; it fetches the length.
    unsafe { fetch(at, len.as_ref().map_or(0, |len| *len as usize)) };
}

/// Fetches the parts of a message.
unsafe fn fetch_message(message: *const libc::msghdr) {
    // SAFETY: the caller's promise; reading the message fetches it.
    unsafe {
        let Some(message) = message.as_ref() else { return };
        fetch(message.msg_name, message.msg_namelen as usize);
        fetch(message.msg_control, message.msg_controllen);
        fetch_parts(message.msg_iov, message.msg_iovlen as c_int);
    }
}

/// Ends the kernel if the buffer at a pointer is the program's.
unsafe fn refuse_at(buffer: *const *mut c_char, function: &'static str) {
    // SAFETY: the caller's promise.
    if let Some(buffer) = unsafe { buffer.as_ref() } {
        refuse(buffer.cast(), function, FREED);
    }
}

unsafe fn parts<'a>(parts: *const libc::iovec, n: c_int) -> &'a [libc::iovec] {
    /// The system refuses more (`IOV_MAX`).
    const MOST: c_int = 1024;
    if parts.is_null() || !(1..=MOST).contains(&n) {
        return &[];
    }
    // SAFETY: the caller's promise.
    unsafe { std::slice::from_raw_parts(parts, n as usize) }
}

unsafe fn fetch_parts(list: *const libc::iovec, n: c_int) {
    // SAFETY: the caller's promise.
    unsafe { parts(list, n) }.iter().for_each(|part| unsafe { fetch(part.iov_base, part.iov_len) });
}

// Variadic functions whose first argument is a stream: only that argument changes.
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
    "replace_stream fwprintf, {fwprintf}",
    "replace_stream fscanf, {fscanf}",
    "replace_stream __isoc99_fscanf, {isoc99_fscanf}",
    "replace_stream __isoc23_fscanf, {isoc23_fscanf}",
    streams = sym STREAMS,
    own = sym OWN_STREAMS,
    fprintf = sym FPRINTF,
    fprintf_chk = sym FPRINTF_CHK,
    fwprintf = sym FWPRINTF,
    fscanf = sym FSCANF,
    isoc99_fscanf = sym ISOC99_FSCANF,
    isoc23_fscanf = sym ISOC23_FSCANF,
);

static FPRINTF: AtomicUsize = AtomicUsize::new(0);
static FPRINTF_CHK: AtomicUsize = AtomicUsize::new(0);
static FWPRINTF: AtomicUsize = AtomicUsize::new(0);
static FSCANF: AtomicUsize = AtomicUsize::new(0);
static ISOC99_FSCANF: AtomicUsize = AtomicUsize::new(0);
static ISOC23_FSCANF: AtomicUsize = AtomicUsize::new(0);

/// Finds the system's functions before any library's constructor runs. Later, a thread could hold the dynamic loader's
/// lock forever, in a constructor that crashes.
pub fn find() {
    unsafe extern "C" {
        fn fprintf();
        fn __fprintf_chk();
    }
    system::find();
    for (cache, name) in [
        (&FPRINTF, c"fprintf"),
        (&FPRINTF_CHK, c"__fprintf_chk"),
        (&FWPRINTF, c"fwprintf"),
        (&FSCANF, c"fscanf"),
        (&ISOC99_FSCANF, c"__isoc99_fscanf"),
        (&ISOC23_FSCANF, c"__isoc23_fscanf"),
    ] {
        find_next(cache, name);
    }
    // Keeps the linker from dropping them.
    std::hint::black_box([fprintf as *const () as usize, __fprintf_chk as *const () as usize]);
}
