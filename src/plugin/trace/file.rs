// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The trace: Chrome's trace event format, which chrome://tracing and Perfetto open.
//!
//! The program and each device are processes, and each queue is a row (a thread) of both. An
//! operation is a slice (`X`); data and messages between processes are arrows (`s` to `f`) between
//! two slices. Times are microseconds since the start by the program's clock.
//!
//! Perfetto binds an arrow's end to the last slice that began in its row, even if that slice is
//! over. So an arrow's end follows its slice in the file, and has the slice's begin as its time.

use super::view::View;
use crate::plugin::messages::queue_trace::{Note, What};
use crate::wire::record::Kind;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// The program's process id in the trace; device n has `PROGRAM + 1 + n`.
const PROGRAM: usize = 1;
/// The first row of transfers with queues of their own, each of which has one message only.
const OWN_ROWS: u64 = 1 << 32;

#[derive(Serialize)]
#[serde(tag = "ph")]
enum Line<'a> {
    #[serde(rename = "M")]
    Meta { name: &'a str, pid: usize, tid: u64, args: MetaArgs<'a> },
    #[serde(rename = "X")]
    Slice {
        name: &'a str,
        cat: &'a str,
        pid: usize,
        tid: u64,
        ts: f64,
        dur: f64,
        #[serde(skip_serializing_if = "SliceArgs::is_empty")]
        args: SliceArgs,
    },
    #[serde(rename = "s")]
    ArrowStart { name: &'a str, cat: &'a str, pid: usize, tid: u64, ts: f64, id: usize },
    #[serde(rename = "f")]
    ArrowEnd { name: &'a str, cat: &'a str, pid: usize, tid: u64, ts: f64, id: usize, bp: char },
}

/// `clock_error` is the possible error of a device's times against the program's, in microseconds.
#[derive(Serialize)]
#[serde(untagged)]
enum MetaArgs<'a> {
    Name { name: &'a str },
    SortIndex { sort_index: u64 },
    Device { name: &'a str, clock_error: f64, dropped: u64 },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
struct SliceArgs {
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
}

impl SliceArgs {
    fn is_empty(&self) -> bool {
        *self == SliceArgs::default()
    }
}

/// A row: its process, and a number that is unique there and sorts the rows.
type Row = (usize, u64);

/// An operation; times in nanoseconds.
#[derive(Clone, Debug)]
struct Slice<'a> {
    row: Row,
    name: &'a str,
    cat: &'static str,
    begin: i64,
    end: i64,
    args: SliceArgs,
}

/// The name of an arrow, and its first and last slice, by their indices in [`Picture::slices`].
type Arrow = (&'static str, usize, usize);

/// The contents of the file, without the names of processes.
#[derive(Default)]
struct Picture<'a> {
    rows: BTreeMap<Row, String>,
    slices: Vec<Slice<'a>>,
    arrows: Vec<Arrow>,
    /// Slices that send and receive data between devices, by the ranks of both and the tag.
    exchanges: BTreeMap<(u32, u32, u32), [Vec<usize>; 2]>,
}

/// The host's slices at which arrows begin and end.
#[derive(Default)]
struct HostEnds {
    /// By message, the slice of its last request.
    sent: HashMap<u64, usize>,
    /// By message, the slice of the wait that it ended.
    waited: HashMap<u64, usize>,
    /// By queue, the last message and the slice of each wait, in order.
    waits: HashMap<u32, Vec<(u64, usize)>>,
}

pub(crate) fn write(file: File, program: &str, views: &[View<'_>]) -> io::Result<()> {
    let labels: Vec<Vec<String>> =
        views.iter().map(|v| v.seen.names.iter().map(|n| format!("launch {n}")).collect()).collect();
    let mut picture = Picture::default();
    for (view, labels) in views.iter().zip(&labels) {
        let ends = picture.add_host(view, labels);
        picture.add_device(view, &ends);
    }
    picture.add_exchanges();
    let mut out = BufWriter::with_capacity(1 << 20, file);
    picture.write(&mut out, program, views)?;
    out.flush()
}

fn process(view: &View<'_>) -> usize {
    PROGRAM + 1 + view.device.number
}

impl<'a> Picture<'a> {
    /// Adds the program's requests to a device. A request lasts until the next one. `labels` are the
    /// names of launches by the kernel's index.
    fn add_host(&mut self, view: &'a View<'_>, labels: &'a [String]) -> HostEnds {
        let mut ends = HostEnds::default();
        for (&queue, notes) in &view.seen.host.notes {
            let row = (PROGRAM, (view.device.number as u64) << 32 | u64::from(queue));
            self.rows.insert(row, format!("device {}, queue {queue}", view.device.number));
            let time = |ticks| view.host.at(ticks);
            for (i, &Note { at, what }) in notes.iter().enumerate() {
                let next = notes[i + 1..].iter().find(|n| !matches!(n.what, What::Sent(_)));
                let mut slice = Slice {
                    row,
                    name: "wait",
                    cat: "host",
                    begin: time(at),
                    end: time(next.map_or(at, |n| n.at)),
                    args: SliceArgs::default(),
                };
                match what {
                    What::Submit(bytes) => (slice.name, slice.args.bytes) = ("submit", Some(bytes)),
                    What::Retrieve(bytes) => (slice.name, slice.args.bytes) = ("retrieve", Some(bytes)),
                    What::Exchange(bytes) => (slice.name, slice.args.bytes) = ("exchange", Some(bytes)),
                    What::Load => slice.name = "load image",
                    What::Launch(place) => slice.name = &labels[place as usize],
                    What::Sent(seq) => {
                        // There is an earlier request, see `QueueTrace::sent`.
                        ends.sent.insert(seq, self.slices.len() - 1);
                        continue;
                    }
                    What::Wait { end, seq, by_reply } => {
                        (slice.end, slice.cat) = (time(end), "wait");
                        if by_reply {
                            ends.waited.insert(seq, self.slices.len());
                        }
                        ends.waits.entry(queue).or_default().push((seq, self.slices.len()));
                    }
                }
                self.slices.push(slice);
            }
        }
        ends
    }

    /// Adds a device's operations, and the arrows between the device and the program.
    fn add_device(&mut self, view: &'a View<'_>, ends: &HostEnds) {
        let (rows, me) = (rows_of(view), view.device.port().rank as u32);
        let (pid, time) = (process(view), |ticks| view.at(ticks));
        for event in &view.seen.events {
            let row = (pid, rows[&event.queue]);
            let (begin, end) = (time(event.begin), time(event.end));
            let (name, cat, bytes) = match event.kind {
                Kind::Message => ("message", "message", None),
                Kind::Kernel => (view.seen.names[event.what as usize].as_str(), "kernel", None),
                Kind::Receive => ("receive", "transfer", Some(event.what)),
                Kind::Send => ("send", "transfer", Some(event.what)),
                Kind::Copy => ("copy", "transfer", Some(event.what)),
                Kind::Image => ("receive image", "image", Some(event.what)),
                Kind::Load => ("load image", "image", None),
                Kind::Fetch => ("fetch memory", "memory", Some(event.what)),
                Kind::Confirm => ("confirm memory", "memory", Some(event.what)),
                Kind::Change => ("send changes", "memory", Some(event.what)),
                Kind::Write => ("to the accelerator", "transfer", Some(event.what)),
                Kind::Read => ("from the accelerator", "transfer", Some(event.what)),
            };
            let slice = self.slices.len();
            self.slices.push(Slice { row, name, cat, begin, end, args: SliceArgs { message: Some(event.seq), bytes } });
            self.rows.entry(row).or_insert_with(|| match row.1.checked_sub(OWN_ROWS) {
                Some(n) => format!("transfers {n}"),
                None => format!("queue {}", event.queue),
            });
            let mut add = |name, from: Option<usize>, to: Option<usize>| {
                self.arrows.extend(from.zip(to).map(|(from, to)| (name, from, to)));
            };
            let with_host = event.peer as usize == view.device.queues.engine.connection.rank;
            let sent = ends.sent.get(&event.seq).copied();
            match event.kind {
                Kind::Message => {
                    add("reply", Some(slice), ends.waited.get(&event.seq).copied());
                    add("message", sent, Some(slice));
                }
                Kind::Receive if with_host => add("data", sent, Some(slice)),
                Kind::Send if with_host => {
                    let waits = ends.waits.get(&event.queue);
                    let wait = waits.and_then(|w| w.get(w.partition_point(|(seq, _)| *seq < event.seq)));
                    add("data", Some(slice), wait.map(|&(_, to)| to));
                }
                Kind::Send => self.exchanges.entry((me, event.peer, event.tag)).or_default()[0].push(slice),
                Kind::Receive => self.exchanges.entry((event.peer, me, event.tag)).or_default()[1].push(slice),
                _ => {}
            }
        }
    }

    /// Adds the arrows between devices: both ends know the other's rank and the tag, and transfers
    /// with the same ranks and tag do not overlap.
    fn add_exchanges(&mut self) {
        for [starts, ends] in std::mem::take(&mut self.exchanges).into_values() {
            self.arrows.extend(starts.into_iter().zip(ends).map(|(from, to)| ("data", from, to)));
        }
    }

    fn write(self, out: &mut impl Write, program: &str, views: &[View<'_>]) -> io::Result<()> {
        out.write_all(b"{\"traceEvents\":[")?;
        let mut lines = Lines { out, any: false };
        lines.process(PROGRAM, MetaArgs::Name { name: &format!("program {program}") })?;
        for view in views {
            let (name, clock_error, dropped) = (view.device.name(), micro(view.error as i64), view.seen.dropped());
            lines.process(process(view), MetaArgs::Device { name, clock_error, dropped })?;
        }
        // Perfetto wants 32-bit numbers, and treats a row with the number of its process specially.
        let numbers = self.rows.keys().zip(PROGRAM as u64 + 1 + views.len() as u64..);
        let numbers: HashMap<Row, u64> = numbers.map(|(&row, n)| (row, n)).collect();
        let place = |row: Row| (row.0, numbers[&row]);
        for (&row, name) in &self.rows {
            lines.meta("thread_name", place(row), MetaArgs::Name { name })?;
            lines.meta("thread_sort_index", place(row), MetaArgs::SortIndex { sort_index: place(row).1 })?;
        }
        // By slice, the ends of arrows: the arrow's number, its name, whether this is its start, and the time.
        let mut ends: HashMap<usize, Vec<(usize, &str, bool, i64)>> = HashMap::new();
        for (id, &(name, from, to)) in self.arrows.iter().enumerate() {
            let begin = self.slices[from].begin;
            ends.entry(from).or_default().push((id, name, true, begin));
            // An arrow must not end before its start. Its last slice may have begun earlier, as waits do,
            // and clocks may differ.
            ends.entry(to).or_default().push((id, name, false, begin.max(self.slices[to].begin)));
        }
        // Outer slices come before inner ones.
        let mut order: Vec<(usize, &Slice<'_>)> = self.slices.iter().enumerate().collect();
        order.sort_by_key(|(_, s)| (s.begin, -s.end, s.cat != "message"));
        for (i, s) in order {
            let (pid, tid) = place(s.row);
            let (name, cat, dur) = (s.name, s.cat, micro((s.end - s.begin).max(1)));
            lines.put(&Line::Slice { name, cat, pid, tid, ts: micro(s.begin), dur, args: s.args })?;
            for &(id, name, is_start, at) in ends.get(&i).into_iter().flatten() {
                let (cat, ts) = ("arrow", micro(at));
                lines.put(&match is_start {
                    true => Line::ArrowStart { name, cat, pid, tid, ts, id },
                    false => Line::ArrowEnd { name, cat, pid, tid, ts, id, bp: 'e' },
                })?;
            }
        }
        lines.out.write_all(b"\n]}\n")
    }
}

fn micro(ns: i64) -> f64 {
    ns as f64 / 1000.0
}

/// Writes lines with commas between them.
struct Lines<'w, W> {
    out: &'w mut W,
    any: bool,
}

impl<W: Write> Lines<'_, W> {
    fn put(&mut self, line: &Line<'_>) -> io::Result<()> {
        self.out.write_all(if self.any { b",\n" } else { b"\n" })?;
        self.any = true;
        serde_json::to_writer(&mut *self.out, line).map_err(io::Error::from)
    }

    fn meta(&mut self, name: &str, (pid, tid): Row, args: MetaArgs<'_>) -> io::Result<()> {
        self.put(&Line::Meta { name, pid, tid, args })
    }

    fn process(&mut self, pid: usize, args: MetaArgs<'_>) -> io::Result<()> {
        self.meta("process_name", (pid, 0), args)?;
        self.meta("process_sort_index", (pid, 0), MetaArgs::SortIndex { sort_index: pid as u64 })
    }
}

/// The rows of a device by queue. Each queue of the program has its own row. Queues of a single
/// transfer share rows, as few as possible without overlaps.
fn rows_of(view: &View<'_>) -> HashMap<u32, u64> {
    let notes = &view.seen.host.notes;
    let mut own: BTreeMap<u32, (u64, u64)> = BTreeMap::new();
    let mut rows = HashMap::new();
    for e in &view.seen.events {
        if notes.contains_key(&e.queue) {
            rows.insert(e.queue, u64::from(e.queue));
        } else {
            let span = own.entry(e.queue).or_insert((e.begin, e.end));
            *span = (span.0.min(e.begin), span.1.max(e.end));
        }
    }
    let mut own: Vec<_> = own.into_iter().collect();
    own.sort_by_key(|&(_, (begin, _))| begin);
    // By row, the time when it becomes free.
    let mut free: Vec<u64> = Vec::new();
    for (queue, (begin, end)) in own {
        let lane = free.iter().position(|&f| f <= begin).unwrap_or_else(|| {
            free.push(0);
            free.len() - 1
        });
        free[lane] = end;
        rows.insert(queue, OWN_ROWS + lane as u64);
    }
    rows
}
