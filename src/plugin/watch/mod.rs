// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Seeing what happens: statistics and traces of what host and devices did.
//!
//! Queues take notes of what is asked of them (in memory of their own, so that threads do not
//! wait for each other), devices of what they do. Notes name kernels by address: they are
//! collected before an image goes, and at the end, when the devices' clocks are compared for
//! the second time.

mod stats;
mod trace;

use super::device::Device;
use crate::base::clock::{self, Line};
use crate::base::lock::{Mutex, order};
use crate::base::settings::Settings;
use crate::base::{Error, Result, log, name};
use crate::wire::command::Command;
use crate::wire::record::{Event, Kind, Record, Sum, Way};
use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::fs::{File, OpenOptions, Permissions};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Round trips of which the one with the least delay compares two clocks: so many if they
/// take no longer than this, or else not less than so few.
const ROUND_TRIPS: (u32, Duration, u32) = (10, Duration::from_millis(20), 100);
/// How long a device may take to tell what it has seen.
const PATIENCE: Duration = Duration::from_secs(10);
/// Notes that a queue keeps before it passes them on.
const PAGE: usize = 1024;

/// What is to be written down.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watching {
    /// Anything at all.
    pub on: bool,
    /// Every event, for a trace.
    pub trace: bool,
    /// How many events of one process are kept.
    pub events: u64,
}

impl Watching {
    /// What the user asks for.
    pub fn of(settings: &Settings) -> Watching {
        let trace = settings.trace.is_some();
        Watching { on: settings.stats || trace, trace, events: if trace { settings.trace_events } else { 0 } }
    }
}

/// Something that the program asked of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Note {
    /// When, in ticks.
    pub at: u64,
    /// What.
    pub what: What,
}

/// See [`Note`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// To copy so many bytes to the device.
    Submit(u64),
    /// To run the kernel at this address; once collected, that with this number.
    Launch(u64),
    /// To copy so many bytes from the device.
    Retrieve(u64),
    /// To copy so many bytes from device to device.
    Exchange(u64),
    /// To load an image.
    Load,
    /// No more: what was asked since the last such note went in this message.
    Sent(u64),
    /// To wait, until `end`, for all that was sent up to message `seq`.
    Wait {
        /// In ticks.
        end: u64,
        /// The message sent last.
        seq: u64,
    },
}

/// The notes of one queue.
#[derive(Debug, Default)]
pub struct Notes {
    list: Vec<Note>,
    waited: Sum,
    /// The last message that was waited for.
    pub waited_for: u64,
}

impl Notes {
    /// Something was asked of the queue at a time.
    #[cold]
    #[inline(never)]
    pub fn asked(&mut self, at: u64, what: What) {
        self.list.push(Note { at, what });
    }

    /// All that was asked is on its way in message `seq`.
    #[cold]
    #[inline(never)]
    pub fn sent(&mut self, seq: u64) {
        if !matches!(self.list.last(), None | Some(Note { what: What::Sent(_) | What::Wait { .. }, .. })) {
            self.list.push(Note { at: 0, what: What::Sent(seq) });
        }
    }

    /// A thread waited for message `seq`.
    #[inline]
    pub fn waited(&mut self, (at, end): (u64, u64), seq: u64) {
        self.list.push(Note { at, what: What::Wait { end, seq } });
    }

    /// Counts a wait in `synchronize`.
    #[inline]
    pub fn count(&mut self, (at, end): (u64, u64)) {
        self.waited.add(Sum { count: 1, bytes: 0, time: end.saturating_sub(at) });
    }

    /// True if there are so many that they should be passed on.
    #[inline]
    pub fn are_many(&self) -> bool {
        self.list.len() >= PAGE
    }
}

/// The notes of all queues of a device.
#[derive(Debug, Default)]
pub struct Journal {
    notes: BTreeMap<u32, Vec<Note>>,
    kept: u64,
    dropped: u64,
    waited: Sum,
}

impl Journal {
    /// Takes the notes of a queue over, if there are less than `limit`.
    pub fn take(&mut self, queue: u32, notes: &mut Notes, limit: u64) {
        self.waited.add(std::mem::take(&mut notes.waited));
        let room = limit.saturating_sub(self.kept).min(notes.list.len() as u64);
        self.kept += room;
        self.dropped += notes.list.len() as u64 - room;
        self.notes.entry(queue).or_default().extend(notes.list.drain(..).take(room as usize));
    }

    /// All of it; how many notes were kept so far is not forgotten.
    pub fn take_all(&mut self) -> Journal {
        let kept = self.kept;
        std::mem::replace(self, Journal { kept, ..Journal::default() })
    }
}

/// The same moment on the clock of a device and here.
#[derive(Clone, Copy, Debug)]
struct Moment {
    there: u64,
    here: u64,
    /// Ticks of here by which that can be wrong.
    error: u64,
}

impl Moment {
    /// Asks a device what time it is: of several times that with the least delay, of which
    /// the answer is the middle.
    fn now(device: &Device) -> Result<Moment> {
        let (few, time, many) = ROUND_TRIPS;
        let (since, mut best) = (Instant::now(), None::<Moment>);
        for n in 0..many {
            if n >= few && since.elapsed() > time {
                break;
            }
            let asked = clock::now();
            let there = device.tell(Command::Clock, PATIENCE)?;
            let delay = clock::now().saturating_sub(asked);
            if best.is_none_or(|b| delay.div_ceil(2) < b.error) {
                best = Some(Moment { there, here: asked + delay / 2, error: delay.div_ceil(2) });
            }
        }
        best.ok_or_else(|| Error::new("no round trip was made"))
    }
}

/// What is known of a device; times are ticks of its clock, but those of notes.
#[derive(Default)]
struct Seen {
    /// Symbols of kernels, at the end their names; what else speaks of one has its place here.
    names: Vec<String>,
    places: HashMap<String, usize>,
    kernels: Vec<Sum>,
    moved: [Sum; Way::ALL.len()],
    events: Vec<Event>,
    dropped: u64,
    journal: Journal,
    /// Messages that were sent to learn all this.
    asked: u64,
}

impl Seen {
    /// Events that were not kept, of the device's and the program's.
    fn dropped(&self) -> u64 {
        self.dropped.saturating_add(self.journal.dropped)
    }

    fn place(&mut self, name: String) -> usize {
        *self.places.entry(name).or_insert_with_key(|name| {
            self.names.push(name.clone());
            self.kernels.push(Sum::default());
            self.names.len() - 1
        })
    }

    /// Adds what a device told; `name` knows its kernels by address. No more than `limit`
    /// events are kept in the whole run, however often the device tells.
    fn add(&mut self, records: Vec<Record>, mut journal: Journal, limit: u64, name: impl Fn(u64) -> String) {
        let mut known = HashMap::new();
        let mut place = |seen: &mut Seen, kernel| *known.entry(kernel).or_insert_with(|| seen.place(name(kernel)));
        // Devices tell the last events first.
        for record in records.into_iter().rev() {
            match record {
                Record::Event(_) if self.events.len() as u64 >= limit => {
                    self.dropped = self.dropped.saturating_add(1);
                }
                Record::Event(mut event) => {
                    if event.kind == Kind::Kernel {
                        event.what = place(self, event.what) as u64;
                    }
                    self.events.push(event);
                }
                Record::Kernel(kernel, sum) => {
                    let place = place(self, kernel);
                    self.kernels[place].add(sum);
                }
                Record::Moved(way, sum) => self.moved[way as usize - 1].add(sum),
                Record::Dropped(events) => self.dropped = self.dropped.saturating_add(events),
            }
        }
        for (queue, mut notes) in std::mem::take(&mut journal.notes) {
            for note in &mut notes {
                if let What::Launch(kernel) = &mut note.what {
                    *kernel = place(self, *kernel) as u64;
                }
            }
            self.journal.notes.entry(queue).or_default().append(&mut notes);
        }
        self.journal.dropped += journal.dropped;
        self.journal.waited.add(journal.waited);
    }
}

/// What is watched of one device.
struct Watched {
    first: Moment,
    /// Messages (sent, received) when this began.
    messages: (u64, u64),
    seen: Mutex<Seen, { order::SEEN }>,
}

/// Leads from the ticks of a device to nanoseconds since the start.
#[derive(Clone, Copy, Debug)]
struct Times {
    device: Line,
    host: Line,
}

impl Times {
    /// When it was what the device's clock showed.
    fn there(&self, time: u64) -> i64 {
        self.host.at(self.device.at(time) as u64)
    }

    /// How long a time of the device was.
    fn length(&self, time: u64) -> u64 {
        self.host.length(self.device.length(time))
    }
}

/// See the module.
pub struct Watch {
    /// The program, for people.
    program: String,
    stats: bool,
    trace: Option<File>,
    watching: Watching,
    start: (u64, Instant),
    watched: Vec<Watched>,
}

impl Watch {
    /// Begins to watch the devices, if the user asks for it.
    ///
    /// # Errors
    /// A file that can't be written, or a device that does not answer.
    pub fn begin(settings: &Settings, program: String, devices: &[Device]) -> Result<Option<Watch>> {
        let watching = Watching::of(settings);
        if !watching.on {
            return Ok(None);
        }
        let trace = settings.trace.as_deref().map(|path| create(&own(path))).transpose()?;
        let start = (clock::now(), Instant::now());
        let watched = devices.iter().map(|device| {
            device.tell(Command::Watch { events: watching.events }, PATIENCE)?;
            let first = Moment::now(device)?;
            Ok(Watched { first, messages: device.port().messages(), seen: Mutex::default() })
        });
        let watched = watched.collect::<Result<_>>()?;
        Ok(Some(Watch { program, stats: settings.stats, trace, watching, start, watched }))
    }

    /// Collects what was seen of a device so far, while its kernels' names are known.
    ///
    /// # Errors
    /// The device does not answer.
    pub fn collect(&self, device: &Device) -> Result<()> {
        let mut seen = self.watched[device.number].seen.lock();
        let journal = device.take_journal(self.watching.events);
        let mut records = Vec::new();
        let told = loop {
            let left = device.tell(Command::Recall, PATIENCE);
            seen.asked += 1;
            let some = device.port().take_records();
            match left {
                // It would never end.
                Ok(1..) if some.is_empty() => break Err(Error::new("it does not tell all that it has seen")),
                Ok(1..) => records.extend(some),
                _ => {
                    records.extend(some);
                    break left.map(drop);
                }
            }
        };
        seen.add(records, journal, self.watching.events, |kernel| device.kernel_name(kernel));
        told
    }

    /// Ends the watch: writes what the user wants to see.
    pub fn end(mut self, devices: &[Device]) {
        let mut views = Vec::new();
        for (device, watched) in devices.iter().zip(&self.watched) {
            let (sent, received) = device.port().messages();
            let asked = watched.seen.lock().asked;
            let messages = (sent - watched.messages.0 - asked, received - watched.messages.1 - asked);
            let last = self.collect(device).and_then(|()| Moment::now(device));
            match last {
                Ok(last) => views.push(self.view(device, watched, messages, last)),
                Err(e) => log::warning(format_args!("not known what {} did: {e}", device.name())),
            }
        }
        if self.stats {
            let tables: String = views.iter().map(|v| stats::table(v)).collect();
            log::text(&tables);
        }
        if let Some(file) = self.trace.take() {
            if let Err(e) = trace::write(file, &self.program, &views) {
                log::error(format_args!("the trace can't be written: {e}"));
            }
            for view in &views {
                let dropped = view.seen.dropped();
                if dropped > 0 {
                    log::warning(format_args!(
                        "the trace lacks {dropped} events of {}: the device and the program keep {} each \
                         (OMPTARGET_MPI_TRACE_EVENTS sets how many)",
                        view.device.name(),
                        self.watching.events
                    ));
                }
            }
        }
    }

    fn view<'a>(&self, device: &'a Device, watched: &Watched, messages: (u64, u64), last: Moment) -> View<'a> {
        let first = watched.first;
        let now = (clock::now(), self.start.1.elapsed().as_nanos() as i64);
        let times = Times {
            device: Line::through((first.there, first.here as i64), (last.there, last.here as i64)),
            host: Line::through((self.start.0, 0), now),
        };
        let mut seen = std::mem::take(&mut *watched.seen.lock());
        seen.names = name::of_kernels(&seen.names);
        seen.events.sort_by_key(|e| (e.begin, e.kind as u8));
        View { device, times, error: times.host.length(first.error.max(last.error)), messages, seen }
    }
}

/// All that is known of a device at the end.
struct View<'a> {
    device: &'a Device,
    times: Times,
    /// Nanoseconds by which times of the device can be wrong against those of the host.
    error: u64,
    /// Sent, received.
    messages: (u64, u64),
    seen: Seen,
}

/// The path with this process's number for each `%p`: several programs can have traces.
fn own(path: &Path) -> PathBuf {
    let number = std::process::id().to_string();
    let path = path.as_os_str().as_bytes();
    let mut name = Vec::new();
    let mut rest = path;
    while let Some(at) = rest.windows(2).position(|w| w == b"%p") {
        name.extend_from_slice(&rest[..at]);
        name.extend_from_slice(number.as_bytes());
        rest = &rest[at + 2..];
    }
    name.extend_from_slice(rest);
    PathBuf::from(OsString::from_vec(name))
}

/// Creates a file for the user alone.
fn create(path: &Path) -> Result<File> {
    let open = || {
        let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
        // It may have been there before, and be no file (a pipe).
        if file.metadata()?.is_file() {
            file.set_permissions(Permissions::from_mode(0o600))?;
        }
        Ok(file)
    };
    open().map_err(|e: std::io::Error| {
        Error::new(format!("the trace can't be written to OMPTARGET_MPI_TRACE={}: {e}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notes(what: &[What]) -> Notes {
        let mut notes = Notes::default();
        what.iter().enumerate().for_each(|(i, &w)| notes.asked(i as u64, w));
        notes
    }

    #[test]
    fn a_path_can_have_the_number_of_the_process() {
        let n = std::process::id();
        assert_eq!(own("a%p/%pb%".as_ref()), PathBuf::from(format!("a{n}/{n}b%")));
        assert_eq!(own("a.json".as_ref()), PathBuf::from("a.json"));
    }

    #[test]
    fn only_messages_with_something_in_them_are_noted() {
        let mut n = notes(&[]);
        n.sent(1);
        assert!(n.list.is_empty());
        n.asked(5, What::Submit(4));
        n.sent(2);
        n.sent(3);
        n.waited((6, 9), 3);
        n.sent(4);
        let all: Vec<What> = n.list.iter().map(|n| n.what).collect();
        assert_eq!(all, [What::Submit(4), What::Sent(2), What::Wait { end: 9, seq: 3 }]);
    }

    #[test]
    fn a_journal_keeps_so_many_and_counts_the_rest() {
        let mut journal = Journal::default();
        let mut n = notes(&[What::Submit(1); 6]);
        n.count((10, 30));
        journal.take(3, &mut n, 8);
        assert!(n.list.is_empty());
        journal.take(4, &mut notes(&[What::Submit(2); 6]), 8);
        let all = journal.take_all();
        assert_eq!((all.notes[&3].len(), all.notes[&4].len(), all.dropped), (6, 2, 4));
        assert_eq!(all.waited, Sum { count: 1, bytes: 0, time: 20 });
        journal.take(3, &mut notes(&[What::Load]), 8);
        assert_eq!((journal.notes[&3].len(), journal.dropped), (0, 1));
    }

    #[test]
    fn events_are_bounded_over_the_whole_run() {
        let event = |begin| Event { kind: Kind::Copy, queue: 1, seq: 1, what: 0, begin, end: begin, peer: 0, tag: 0 };
        let told = |begins: [u64; 2]| begins.map(|b| Record::Event(event(b))).to_vec();
        let mut seen = Seen::default();
        seen.add(told([2, 1]), Journal::default(), 3, |_| String::new());
        seen.add(told([4, 3]), Journal::default(), 3, |_| String::new());
        assert_eq!((seen.events, seen.dropped), ([1, 2, 3].map(event).to_vec(), 1));
    }

    #[test]
    fn kernels_are_told_by_name_not_by_address() {
        let sum = |count| Sum { count, bytes: 0, time: 10 * count };
        let told = |count| vec![Record::Kernel(0xa0, sum(count)), Record::Dropped(1)];
        let journal = || {
            let mut journal = Journal::default();
            journal.take(1, &mut notes(&[What::Launch(0xa0)]), 9);
            journal
        };
        let mut seen = Seen::default();
        seen.add(told(2), journal(), 9, |_| "red".to_string());
        seen.add(told(3), journal(), 9, |_| "blue".to_string());
        seen.add(told(4), Journal::default(), 9, |_| "red".to_string());
        assert_eq!((seen.names, seen.kernels), (vec!["red".to_string(), "blue".to_string()], vec![sum(6), sum(3)]));
        assert_eq!(seen.dropped, 3);
        let launches: Vec<What> = seen.journal.notes[&1].iter().map(|n| n.what).collect();
        assert_eq!(launches, [What::Launch(0), What::Launch(1)]);
    }
}
