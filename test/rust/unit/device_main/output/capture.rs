// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/output/capture.rs`.

use super::*;
use crate::device_main::crash::board::CrashBoard;
use crate::link::backoff::BackoffPolicy;
use crate::link::doorbell::Doorbells;
use crate::link::{Link, Transport};
use crate::mpi::{Received, Request};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

const SENT: u64 = 0;

/// Counts the bytes of output that are sent to the host. A region prints as fast as that.
struct Region {
    sent: Arc<AtomicUsize>,
    /// Where it prints, and how many bytes for each message that is sent.
    prints: Option<(File, usize)>,
}

impl Transport for Region {
    unsafe fn send(&mut self, _: usize, _: u32, _: *const u8, len: usize) -> Result<Request> {
        let sent = self.sent.fetch_add(len - reply::OUTPUT_LEN, Ordering::Relaxed);
        assert!(sent < 10 * OUTPUT_BEFORE_REPLY, "there is no end");
        if let Some((file, len)) = &mut self.prints {
            file.write_all(&vec![b'x'; *len])?;
        }
        Ok(Request(SENT))
    }
    unsafe fn receive(&mut self, _: Option<usize>, _: u32, _: *mut u8, _: usize) -> Result<Request> {
        Ok(Request(SENT + 1))
    }
    unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        Ok((request.0 == SENT).then_some(Received { from: 0, len: 0 }))
    }
    unsafe fn cancel(&mut self, _: Request) {}
    fn finish(&mut self) {}
    fn abort(&mut self, code: i32) -> ! {
        panic!("aborted with {code}")
    }
}

/// A device whose output goes to a host that acknowledges nothing by itself, and the file of its standard output.
struct Device {
    output: Output,
    file: File,
    host: Host,
    sent: Arc<AtomicUsize>,
}

impl Device {
    /// A region prints `prints` bytes whenever a message is sent.
    fn new(prints: usize) -> Device {
        let (output, sent) = (Output::empty().unwrap(), Arc::<AtomicUsize>::default());
        let file = output.sinks.lock()[0].file.try_clone().unwrap();
        let prints = (prints > 0).then(|| (file.try_clone().unwrap(), prints));
        let region = Box::new(Region { sent: sent.clone(), prints });
        let link = Link::new(region, usize::MAX, Doorbells::default(), Vec::new()).unwrap();
        let quit: fn(i32) -> ! = |code| panic!("quit with {code}");
        let null = File::options().write(true).open("/dev/null").unwrap();
        let host = Host::new(link, (0, None), BackoffPolicy::ALONE, (CrashBoard::new().unwrap(), null), quit);
        Device { output, file, host, sent }
    }

    fn print(&self, bytes: usize) {
        (&self.file).write_all(&vec![b'x'; bytes]).unwrap();
    }

    /// How many bytes one call of [`Output::poll`] sends.
    fn poll(&self) -> usize {
        self.sent.store(0, Ordering::Relaxed);
        self.output.poll(&self.host, true, || panic!("it waits for the host"));
        self.sent.load(Ordering::Relaxed)
    }

    /// How many bytes [`Output::send`] sends to a host that acknowledges a part of them when the device drives, and how
    /// often the device drives.
    fn send(&self) -> (usize, usize) {
        let drives = AtomicUsize::new(0);
        self.sent.store(0, Ordering::Relaxed);
        self.output.send(&self.host, OUTPUT_BEFORE_REPLY, || {
            drives.fetch_add(1, Ordering::Relaxed);
            self.output.acknowledge(OUTPUT_AHEAD as u64);
        });
        (self.sent.load(Ordering::Relaxed), drives.into_inner())
    }
}

/// [`Output::poll`] stops at the end of a message.
fn is_one_step(sent: usize) -> bool {
    (OUTPUT_AHEAD..OUTPUT_AHEAD + MESSAGE_MAX).contains(&sent)
}

#[test]
fn only_a_process_that_repeats_work_prints_without_acknowledgements() {
    const MUCH: usize = 4 * OUTPUT_BEFORE_REPLY;
    let device = Device::new(0);
    device.print(MUCH);
    assert!(is_one_step(device.poll()));
    assert_eq!(device.poll(), 0);

    // What was printed and not sent is the other process's.
    device.output.start_anew().unwrap();
    assert_eq!(device.poll(), 0);
    device.print(MUCH);
    assert!(is_one_step(device.poll()));
    let second = device.poll();
    assert!(is_one_step(second));
    let (rest, drives) = device.send();
    assert!(rest > OUTPUT_BEFORE_REPLY && drives == 0, "{rest} bytes, {drives} waits");

    device.output.limit();
    device.print(MUCH);
    assert_eq!(device.poll(), 0);
    let (sent, drives) = device.send();
    assert!(sent == MUCH && drives > 0, "{sent} bytes, {drives} waits");
}

#[test]
fn a_poll_ends_while_a_region_prints_without_end() {
    let device = Device::new(MESSAGE_MAX);
    device.output.start_anew().unwrap();
    device.print(1);
    for _ in 0..3 {
        assert!(is_one_step(device.poll()));
    }
    device.output.limit();
    assert_eq!(device.poll(), 0);
}

#[test]
fn all_that_is_written_is_taken_in_order() {
    let mut sink = Sink::new(Stream::Out).unwrap();
    let mut written = Vec::new();
    let mut taken = Vec::new();
    for i in 0..3000usize {
        assert!(!sink.is_pending());
        let text = format!("{i}").repeat(i % 700 + 1);
        (&sink.file).write_all(text.as_bytes()).unwrap();
        written.extend_from_slice(text.as_bytes());
        assert!(sink.is_pending(), "{i}");
        loop {
            let mut out = Vec::with_capacity(1000);
            if !sink.take(&mut out).unwrap() {
                break;
            }
            taken.extend(out);
        }
    }
    assert!(taken == written && written.len() > 3 << 20);
}

/// What a sink beside a libomptarget sends of these writes, after each of them.
fn sent(sink: &mut Sink, writes: &[&str]) -> Vec<String> {
    let mut all = Vec::new();
    for text in writes {
        (&sink.file).write_all(text.as_bytes()).unwrap();
        let (mut text, mut message) = (Vec::new(), Vec::new());
        while sink.take(&mut message).unwrap() {
            text.append(&mut message);
        }
        all.push(String::from_utf8(text).unwrap());
    }
    all
}

#[test]
fn errors_of_libomptarget_are_held_back() {
    let mut sink = Sink { filter: Some(Filter::default()), ..Sink::new(Stream::Err).unwrap() };
    let writes =
        ["a\nLibomptarget error: b\nc", " CUDA error: d\n", "\"PluginInterface\" error: ", "e\nf\n", "CUDA error: g"];
    assert_eq!(sent(&mut sink, &writes), ["a\nc", " CUDA error: d\n", "", "f\n", ""]);
    let filter = sink.filter.as_mut().unwrap();
    let held = std::mem::take(&mut filter.held);
    assert_eq!(held, b"Libomptarget error: b\n\"PluginInterface\" error: e\n");
    (filter.released, filter.passes) = (held, true);
    let (first, rest) = ("Libomptarget error: b\n\"PluginInterface\" error: e\n", "CUDA error: g");
    assert_eq!(sent(&mut sink, &["", "h\nAMDGPU fatal error 1:i\n"]), [[first, rest].concat(), "h\n".into()]);
}

#[test]
fn no_more_is_held_back_than_fits() {
    let mut sink = Sink { filter: Some(Filter::default()), ..Sink::new(Stream::Err).unwrap() };
    let line = format!("CUDA error: {}\n", "x".repeat(1000));
    let passed_on = sent(&mut sink, &vec![line.as_str(); 100]).concat();
    assert_eq!(passed_on.len() + sink.filter.unwrap().held.len(), 100 * line.len());
    assert!(passed_on.len() > 30 * line.len());
    // A line without an end that fills messages.
    let mut sink = Sink { filter: Some(Filter::default()), ..Sink::new(Stream::Err).unwrap() };
    let long = format!("CUDA error: {}", "x".repeat(3 * MESSAGE_MAX));
    let passed_on = sent(&mut sink, &[&long]).concat();
    assert!(passed_on.len() >= 2 * MESSAGE_MAX && long.starts_with(&passed_on));
}
