// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/backend/mod.rs`.

use super::cpu::Cpu;
use super::fake_accelerator::FakeAccelerator;
use super::*;

const LEN: u64 = 1 << 20;

extern "C" fn add(at: *mut u8, len: u64, number: u64) {
    // SAFETY: the tests pass bytes of the arena that nothing else uses.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at, len as usize) };
    bytes.iter_mut().for_each(|b| *b = b.wrapping_add(number as u8));
}

extern "C" fn add_of_array(args: &[&u64; 3]) {
    add(*args[0] as *mut u8, *args[1], *args[2]);
}

fn kernels() -> [u64; 2] {
    [add as *const () as u64, add_of_array as *const () as u64]
}

fn keeps_bytes_and_runs_kernels<B: Backend>(backend: &B, run: fn(&B, &Launch<'_>) -> Result<()>, at: u64) {
    // SAFETY: the first call; nothing else has these addresses.
    unsafe { backend.start(at, LEN, Default::default()) }.unwrap();
    let read = |from, len| {
        let mut out = b">".to_vec();
        backend.read(from, len, &mut out).map(|()| out)
    };
    backend.write(at + 16, b"hello").unwrap();
    backend.copy(at + 18, at + 16, 5).unwrap();
    assert_eq!(read(at + 16, 7).unwrap(), b">hehello");
    backend.write(at + LEN - 5, b"world").unwrap();
    backend.copy(at, at + LEN - 5, 5).unwrap();
    assert_eq!(read(at, 5).unwrap(), b">world");
    if let Some(direct) = backend.direct(at, 5) {
        // SAFETY: the backend says so.
        assert_eq!(unsafe { direct.cast::<[u8; 5]>().read() }, *b"world");
    }
    for (kernel, array) in kernels().into_iter().zip([false, true]) {
        assert!(backend.has_kernel(kernel) && !backend.has_kernel(kernel + 1));
        run(backend, &Launch { message: 1, kernel, args: &[at, 3, 2], array, shape: None }).unwrap();
    }
    assert_eq!(read(at, 5).unwrap(), b">{svld");
    for wild in [0, 16, u64::MAX - 3, 1 << 62] {
        assert!(read(wild, 8).is_err() && backend.write(wild, &[1; 8]).is_err());
        assert!(backend.copy(wild, at, 8).is_err() && backend.copy(at, wild, 8).is_err());
        assert!(backend.direct(wild, 8).is_none());
    }
    backend.discard(at, 4096);
    assert_eq!(read(at + 16, 1).unwrap(), b">\0");
    assert!(backend.relocate(7).is_err() && backend.fault().is_none());
    backend.unload(7);
}

#[test]
fn the_processor_keeps_bytes_and_runs_kernels() {
    keeps_bytes_and_runs_kernels(&Cpu::with_kernels(&kernels()).unwrap(), Cpu::run, 0x2355_0000_0000);
}

#[test]
fn memory_out_of_reach_keeps_bytes_too() {
    let accelerator = FakeAccelerator::new(&kernels());
    let run = |accelerator: &FakeAccelerator, launch: &Launch<'_>| accelerator.run(launch, &mut Copies::default());
    keeps_bytes_and_runs_kernels(&accelerator, run, 0x2356_0000_0000);
    assert!(accelerator.direct(0x2356_0000_0000, 1).is_none());
}

#[test]
fn an_accelerator_copies_before_and_after_a_kernel() {
    let (accelerator, at) = (FakeAccelerator::new(&kernels()), 0x2357_0000_0000);
    // SAFETY: the first call; nothing else has these addresses.
    unsafe { accelerator.start(at, LEN, Default::default()) }.unwrap();
    let mut copies = Copies::default();
    copies.write(at + 40, b"abc");
    copies.write(at + 43, b"defg");
    copies.read(at + 41, 3);
    copies.read(at + 40, 1);
    copies.read(at + 40, 3);
    let launch = Launch { message: 1, kernel: kernels()[0], args: &[at + 40, 2, 1], array: false, shape: None };
    accelerator.run(&launch, &mut copies).unwrap();
    let results: Vec<&[u8]> = copies.reads.iter().map(|read| &copies.bytes[read.bytes.clone()]).collect();
    assert_eq!(results, [&b"ccd"[..], b"b", b"bcc"]);
    // What is written and read has one place.
    assert_eq!((copies.writes[0].is_both, copies.writes[1].is_both), (true, false));
    assert_eq!((&copies.reads[2].bytes, copies.bytes.len()), (&copies.writes[0].bytes, 7 + 3 + 1));
    copies.write(1 << 62, b"x");
    assert!(accelerator.run(&launch, &mut copies).is_err());
}
