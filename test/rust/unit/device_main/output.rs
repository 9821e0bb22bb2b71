// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/device_main/output.rs`.

use super::*;

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
