// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The trace: Chrome's trace event format, which chrome://tracing and Perfetto open.
//!
//! The program and each device are a process there, each queue is a row of both. What takes
//! time is a slice (`X`), and what goes from one process to another is an arrow (`s` to `f`)
//! between two slices. Times are microseconds since the start by the program's clock.
//!
//! Perfetto takes an arrow's end to be in the slice of the row that began last, also if that
//! is over: so ends stand right behind the slices that they belong to, and at their begin.

use super::{Note, View, What};
use crate::wire::record::Kind;
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufWriter, Write};

/// The program's process; device n is n + 1 behind it.
const PROGRAM: usize = 1;
/// The first row of transfers with queues of their own, which stand for one message only.
const OWN_ROWS: u64 = 1 << 32;

/// One line of the file.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    ph: char,
    pid: usize,
    tid: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bp: Option<char>,
    #[serde(skip_serializing_if = "Args::is_empty")]
    args: Args<'a>,
}

/// What a line tells besides.
#[derive(Default, Serialize)]
struct Args<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    sort_index: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bytes: Option<u64>,
    /// Of a process: microseconds by which its times can be wrong against the program's.
    #[serde(skip_serializing_if = "Option::is_none")]
    clock_error: Option<f64>,
    /// Of a process: events that were not kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<u64>,
}

impl Args<'_> {
    fn is_empty(&self) -> bool {
        let Args { name, sort_index, message, bytes, clock_error, dropped } = self;
        name.is_none() && sort_index.or(*message).or(*bytes).or(*dropped).is_none() && clock_error.is_none()
    }
}

/// A row: process and what tells it from others there, which sorts them.
type Row = (usize, u64);

/// Something that took time; nanoseconds.
#[derive(Clone, Debug)]
struct Slice<'a> {
    row: Row,
    name: &'a str,
    cat: &'static str,
    begin: i64,
    end: i64,
    message: Option<u64>,
    bytes: Option<u64>,
}

/// From slice to slice, by their places in [`Picture::slices`].
struct Arrow {
    name: &'static str,
    from: usize,
    to: usize,
}

/// All that goes into the file but for names.
#[derive(Default)]
struct Picture<'a> {
    rows: BTreeMap<Row, String>,
    slices: Vec<Slice<'a>>,
    arrows: Vec<Arrow>,
    /// Where transfers between devices were sent and received, by the ranks of both and tag.
    exchanges: BTreeMap<(u32, u32, u32), [Vec<usize>; 2]>,
}

/// What the notes of the host tell to find the host's end of an arrow.
#[derive(Default)]
struct HostEnds {
    /// By message, the slice where it was made.
    sent: HashMap<u64, usize>,
    /// By message, the wait for which it was the last one.
    waited: HashMap<u64, usize>,
    /// By queue, of its waits in their order the last message and the slice.
    waits: HashMap<u32, Vec<(u64, usize)>>,
}

/// Writes the trace.
///
/// # Errors
/// Those of the file.
pub fn write(file: File, program: &str, views: &[View<'_>]) -> io::Result<()> {
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
    /// What the program asked of a device. What is asked takes until the next is asked;
    /// `labels` are names of launches by the kernel's place.
    fn add_host(&mut self, view: &'a View<'_>, labels: &'a [String]) -> HostEnds {
        let mut ends = HostEnds::default();
        for (&queue, notes) in &view.seen.journal.notes {
            let row = (PROGRAM, (view.device.number as u64) << 32 | u64::from(queue));
            self.rows.insert(row, format!("device {}, queue {queue}", view.device.number));
            let time = |ticks| view.times.host.at(ticks);
            for (i, &Note { at, what }) in notes.iter().enumerate() {
                let next = notes[i + 1..].iter().find(|n| !matches!(n.what, What::Sent(_)));
                let mut slice = Slice {
                    row,
                    name: "wait",
                    cat: "host",
                    begin: time(at),
                    end: time(next.map_or(at, |n| n.at)),
                    message: None,
                    bytes: None,
                };
                match what {
                    What::Submit(bytes) => (slice.name, slice.bytes) = ("submit", Some(bytes)),
                    What::Retrieve(bytes) => (slice.name, slice.bytes) = ("retrieve", Some(bytes)),
                    What::Exchange(bytes) => (slice.name, slice.bytes) = ("exchange", Some(bytes)),
                    What::Load => slice.name = "load image",
                    What::Launch(place) => slice.name = &labels[place as usize],
                    What::Sent(seq) => {
                        // Something was asked before: see `Notes::sent`.
                        ends.sent.insert(seq, self.slices.len() - 1);
                        continue;
                    }
                    What::Wait { end, seq } => {
                        (slice.end, slice.cat) = (time(end), "wait");
                        ends.waited.insert(seq, self.slices.len());
                        ends.waits.entry(queue).or_default().push((seq, self.slices.len()));
                    }
                }
                self.slices.push(slice);
            }
        }
        ends
    }

    /// What a device did, and the arrows between it and the program.
    fn add_device(&mut self, view: &'a View<'_>, ends: &HostEnds) {
        let (rows, me) = (rows_of(view), view.device.port().rank as u32);
        let (pid, time) = (process(view), |ticks| view.times.there(ticks));
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
            };
            let slice = self.slices.len();
            self.slices.push(Slice { row, name, cat, begin, end, message: Some(event.seq), bytes });
            let name = row_name(row.1, event.queue);
            self.rows.entry(row).or_insert(name);
            let with_host = event.peer as usize == view.device.host_rank();
            let arrow = match event.kind {
                Kind::Message => {
                    let reply = ends.waited.get(&event.seq).map(|&to| Arrow { name: "reply", from: slice, to });
                    self.arrows.extend(reply);
                    ends.sent.get(&event.seq).map(|&from| ("message", from, slice))
                }
                Kind::Receive if with_host => ends.sent.get(&event.seq).map(|&from| ("data", from, slice)),
                Kind::Send if with_host => {
                    let waits = ends.waits.get(&event.queue);
                    let wait = waits.and_then(|w| w.get(w.partition_point(|(seq, _)| *seq < event.seq)));
                    wait.map(|&(_, to)| ("data", slice, to))
                }
                Kind::Send => {
                    self.exchanges.entry((me, event.peer, event.tag)).or_default()[0].push(slice);
                    None
                }
                Kind::Receive => {
                    self.exchanges.entry((event.peer, me, event.tag)).or_default()[1].push(slice);
                    None
                }
                _ => None,
            };
            self.arrows.extend(arrow.map(|(name, from, to)| Arrow { name, from, to }));
        }
    }

    /// The arrows between devices: both ends know the other's rank and the tag, and transfers
    /// with equal ones go one after the other.
    fn add_exchanges(&mut self) {
        for [starts, ends] in std::mem::take(&mut self.exchanges).into_values() {
            let arrows = starts.into_iter().zip(ends).map(|(from, to)| Arrow { name: "data", from, to });
            self.arrows.extend(arrows);
        }
    }

    fn write(self, out: &mut impl Write, program: &str, views: &[View<'_>]) -> io::Result<()> {
        out.write_all(b"{\"traceEvents\":[")?;
        let mut lines = Lines { out, any: false };
        lines.process(PROGRAM, &format!("program {program}"), Args::default())?;
        for view in views {
            let dropped = view.seen.dropped();
            let args = Args { clock_error: Some(micro(view.error as i64)), dropped: Some(dropped), ..Args::default() };
            lines.process(process(view), view.device.name(), args)?;
        }
        // Perfetto wants numbers of 32 bits, and takes a row with its process's for special.
        let numbers = self.rows.keys().zip(PROGRAM as u64 + 1 + views.len() as u64..);
        let numbers: HashMap<Row, u64> = numbers.map(|(&row, n)| (row, n)).collect();
        let place = |row: Row| (row.0, numbers[&row]);
        for (&row, name) in &self.rows {
            lines.meta("thread_name", place(row), Args { name: Some(name), ..Args::default() })?;
            lines.meta("thread_sort_index", place(row), Args { sort_index: Some(place(row).1), ..Args::default() })?;
        }
        // Ends of arrows by slice: the arrow's number, its name, which end, when.
        let mut ends: HashMap<usize, Vec<(usize, &str, char, i64)>> = HashMap::new();
        for (id, &Arrow { name, from, to }) in self.arrows.iter().enumerate() {
            let begin = self.slices[from].begin;
            ends.entry(from).or_default().push((id, name, 's', begin));
            // Not before its start: neither because what it ends in began before, as waits do,
            // nor because clocks differ.
            ends.entry(to).or_default().push((id, name, 'f', begin.max(self.slices[to].begin)));
        }
        // Outer slices come before inner ones.
        let mut order: Vec<(usize, &Slice<'_>)> = self.slices.iter().enumerate().collect();
        order.sort_by_key(|(_, s)| (s.begin, -s.end, s.cat != "message"));
        for (i, s) in order {
            let line = |name, cat, ph, at| Line {
                name,
                cat: Some(cat),
                ph,
                pid: s.row.0,
                tid: place(s.row).1,
                ts: Some(micro(at)),
                dur: None,
                id: None,
                bp: None,
                args: Args::default(),
            };
            lines.put(&Line {
                dur: Some(micro((s.end - s.begin).max(1))),
                args: Args { message: s.message, bytes: s.bytes, ..Args::default() },
                ..line(s.name, s.cat, 'X', s.begin)
            })?;
            for &(id, name, ph, at) in ends.get(&i).into_iter().flatten() {
                lines.put(&Line { id: Some(id), bp: (ph == 'f').then_some('e'), ..line(name, "arrow", ph, at) })?;
            }
        }
        lines.out.write_all(b"\n]}\n")
    }
}

/// Microseconds.
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

    fn meta(&mut self, name: &str, (pid, tid): Row, args: Args<'_>) -> io::Result<()> {
        self.put(&Line { name, cat: None, ph: 'M', pid, tid, ts: None, dur: None, id: None, bp: None, args })
    }

    fn process(&mut self, pid: usize, name: &str, args: Args<'_>) -> io::Result<()> {
        self.meta("process_name", (pid, 0), Args { name: Some(name), ..args })?;
        self.meta("process_sort_index", (pid, 0), Args { sort_index: Some(pid as u64), ..Args::default() })
    }
}

fn row_name(row: u64, queue: u32) -> String {
    match row.checked_sub(OWN_ROWS) {
        Some(n) => format!("transfers {n}"),
        None => format!("queue {queue}"),
    }
}

/// The rows of a device: one of each queue of the program. Queues that stand for one transfer
/// only share as few as they can without lying over each other.
fn rows_of(view: &View<'_>) -> HashMap<u32, u64> {
    let notes = &view.seen.journal.notes;
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
    // Of each row the time from which on it is free.
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
