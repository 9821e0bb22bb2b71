// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Tests of both ends together: the program's side and several devices in this process, over an in-memory network
//! that delays and reorders whatever MPI may, and that can be cut. Messages with different tags overtake each
//! other. A message that is longer than its receive, or that nobody has received at the end, is an error. Devices
//! are ranks, or workers behind a rank: threads here, whose memory their rank accesses with the system calls for
//! another process's memory.
//!
//! Random programs, whose threads have queues and buffers of their own, are compared with a model: the bytes of
//! every buffer, changed in the order of the calls. When a buffer moves to another queue, the program waits, for an
//! event on the device or on the host. `PROPTEST_CASES` sets the number of programs.
//!
//! A device's memory is this process's or, like a GPU's, out of its reach. Kernels are functions of this process.
//! Images are sent but not loaded, because their addresses would have to be free on both sides. Workers that are
//! checkpointed or lost are not covered. A device's threads end when they notice the device's end; the others rest
//! until the process exits.

use crate::base::limits::BULK_TAGS;
use crate::base::settings::{self, Settings};
use crate::base::sync::Mutex;
use crate::base::target::{Executor, Target};
use crate::base::{Error, Result};
use crate::device_main::backend::cpu::Cpu;
use crate::device_main::backend::fake_accelerator::FakeAccelerator;
use crate::device_main::crash::board::CrashBoard;
use crate::device_main::{Checkpoint, Completion, Execute, Host, Output, Server};
use crate::job::topology::hello_of_this_process;
use crate::link::backoff::BackoffPolicy;
use crate::link::doorbell::{Doorbell, Doorbells};
use crate::link::{Endpoint, Inbox, Link, Peer, Span, Transport};
use crate::mpi::{Received, Request, TAG_BULK};
use crate::plugin::Plugin;
use crate::plugin::addresses::address_map::AddressMap;
use crate::plugin::devices::device::Device;
use crate::plugin::devices::image_distribution::ComingImage;
use crate::plugin::devices::shared_memory::Offer;
use crate::plugin::messages::port::Port;
use crate::plugin::messages::queue::{Event, Queue};
use crate::plugin::messages::queue_trace::Tracing;
use crate::plugin::progress::engine::Engine;
use crate::plugin::shutdown;
use crate::plugin::unified::Unified;
use crate::wire::INLINE_MAX;
use crate::wire::command::Shape;
use crate::wire::control::Control;
use crate::wire::hello::Role;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngSeed, TestRunner};
use rustix::thread::gettid;
use std::cell::Cell;
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

// ---- the network -----------------------------------------------------------------

/// The bytes of a message: copied by the send, or lent until a receive takes them.
enum Bytes {
    Copied(Vec<u8>),
    Lent { at: *const u8, len: usize, request: u64 },
}

struct Mail {
    from: usize,
    tag: u32,
    bytes: Bytes,
    /// How often the receiver must poll before it can take the message.
    delay: u64,
}

struct Receive {
    request: u64,
    from: Option<usize>,
    tag: u32,
    at: *mut u8,
    room: usize,
    got: Option<Received>,
}

/// When the network fails, and for whom.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// After this many calls.
    after: u64,
    /// Only the program sees the failure, because devices may be idle.
    for_host: bool,
}

struct Net {
    random: u64,
    /// By receiving rank, in send order.
    mail: Vec<VecDeque<Mail>>,
    /// By rank, in posting order.
    receives: Vec<Vec<Receive>>,
    /// Sends whose bytes are lent.
    lent: HashSet<u64>,
    requests: u64,
    calls: u64,
    cut: Option<Cut>,
    /// What MPI would treat as an error: it ends the job.
    wrong: Option<String>,
    finished: Vec<bool>,
}

// SAFETY: senders and receivers keep their memory until the request is done or the network is cut, as with MPI. The
// net's lock protects all accesses.
unsafe impl Send for Net {}

impl Net {
    fn new(ranks: usize, seed: u64, cut: Option<Cut>) -> Arc<Mutex<Net>> {
        Arc::new(Mutex::new(Net {
            random: seed | 1,
            mail: (0..ranks).map(|_| VecDeque::new()).collect(),
            receives: (0..ranks).map(|_| Vec::new()).collect(),
            lent: HashSet::new(),
            requests: 0,
            calls: 0,
            cut,
            wrong: None,
            finished: vec![false; ranks],
        }))
    }

    /// A random number below `n` (xorshift).
    fn random(&mut self, n: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % n
    }

    fn call(&mut self, rank: usize) -> Result<u64> {
        self.calls += 1;
        if let Some(wrong) = &self.wrong {
            return Err(Error::new(wrong.clone()));
        }
        if let Some(cut) = &mut self.cut
            && self.calls > cut.after
        {
            if rank != HOST {
                // A failing device ends the job.
                cut.for_host &= cut.after > 0;
            }
            if rank == HOST || !cut.for_host {
                return Err(Error::new("the network was cut"));
            }
        }
        self.requests += 1;
        Ok(self.requests)
    }

    /// Delivers what can be taken: for each sender and tag in send order, to the first matching receive; between
    /// senders and tags in any order.
    fn deliver(&mut self, rank: usize) {
        let mut held = HashSet::new();
        let mut i = 0;
        while i < self.mail[rank].len() {
            let mail = &mut self.mail[rank][i];
            let name = (mail.from, mail.tag);
            let late = mail.delay > 0;
            mail.delay = mail.delay.saturating_sub(1);
            let fits = |r: &&mut Receive| r.got.is_none() && r.tag == name.1 && r.from.is_none_or(|f| f == name.0);
            let receive = self.receives[rank].iter_mut().find(fits);
            let Some(receive) = receive.filter(|_| !late && !held.contains(&name)) else {
                held.insert(name);
                i += 1;
                continue;
            };
            let mail = self.mail[rank].remove(i).expect("it was just looked at");
            let (from, len) = match &mail.bytes {
                Bytes::Copied(bytes) => (bytes.as_ptr(), bytes.len()),
                &Bytes::Lent { at, len, request } => {
                    self.lent.remove(&request);
                    (at, len)
                }
            };
            if len > receive.room {
                let (room, tag) = (receive.room, receive.tag);
                let text = format!("MPI_ERR_TRUNCATE: {len} bytes of rank {} for {room}, tag {tag}", mail.from);
                self.wrong.get_or_insert(text);
                return;
            }
            // SAFETY: senders and receivers promise valid memory.
            unsafe { std::ptr::copy_nonoverlapping(from, receive.at, len) };
            receive.got = Some(Received { from: mail.from, len });
        }
    }

    /// Checks that every message was received, and that no receive is left.
    fn assert_empty(&self) {
        assert_eq!(self.wrong, None);
        for (rank, mail) in self.mail.iter().enumerate() {
            let left: Vec<_> = mail.iter().map(|m| (m.from, m.tag)).collect();
            assert!(left.is_empty(), "sent to rank {rank} and not received (from, tag): {left:?}");
        }
        for (rank, receives) in self.receives.iter().enumerate() {
            let left: Vec<_> = receives.iter().map(|r| (r.from, r.tag, r.room)).collect();
            assert!(left.is_empty(), "rank {rank} waits for what nobody sends (from, tag, bytes): {left:?}");
        }
    }
}

/// One rank's end of the network.
struct End {
    rank: usize,
    net: Arc<Mutex<Net>>,
}

thread_local! {
    /// What the thread's next test does first.
    static STALL: Cell<Option<Box<dyn FnOnce()>>> = const { Cell::new(None) };
}

impl Transport for End {
    unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request> {
        let net = &mut *self.net.lock();
        let request = net.call(self.rank)?;
        let bytes = if net.random(2) == 0 {
            net.lent.insert(request);
            Bytes::Lent { at: data, len, request }
        } else {
            // SAFETY: the caller's promise.
            Bytes::Copied(unsafe { std::slice::from_raw_parts(data, len) }.to_vec())
        };
        let delay = if net.random(3) == 0 { net.random(8) } else { 0 };
        net.mail[to].push_back(Mail { from: self.rank, tag, bytes, delay });
        Ok(Request(request))
    }

    unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
        let net = &mut *self.net.lock();
        let request = net.call(self.rank)?;
        net.receives[self.rank].push(Receive { request, from, tag, at: data, room: len, got: None });
        Ok(Request(request))
    }

    unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        if let Some(stall) = STALL.take() {
            stall();
        }
        let net = &mut *self.net.lock();
        net.call(self.rank)?;
        net.deliver(self.rank);
        let receives = &mut net.receives[self.rank];
        let Some(i) = receives.iter().position(|r| r.request == request.0) else {
            let sent = !net.lent.contains(&request.0);
            return Ok(sent.then_some(Received { from: self.rank, len: 0 }));
        };
        Ok(receives[i].got.is_some().then(|| receives.remove(i).got).flatten())
    }

    unsafe fn cancel(&mut self, request: Request) {
        self.net.lock().receives[self.rank].retain(|r| r.request != request.0);
    }

    fn finish(&mut self) {
        self.net.lock().finished[self.rank] = true;
    }

    fn abort(&mut self, code: i32) -> ! {
        panic!("aborted with {code}")
    }
}

// ---- a job -----------------------------------------------------------------------

/// The program's rank; the devices follow.
const HOST: usize = 0;
/// Size of a device's memory.
const ARENA: u64 = 16 << 20;

/// A case that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(120);
/// Maximum number of workers of a rank.
const WORKERS: usize = 4;

/// A kernel: adds `number` to some bytes, and yields `rests` times before.
extern "C" fn add(at: *mut u8, len: u64, number: u64, rests: u64) {
    for _ in 0..rests {
        std::thread::yield_now();
    }
    // SAFETY: only this kernel uses these bytes of the device's memory now.
    let bytes = unsafe { std::slice::from_raw_parts_mut(at, len as usize) };
    bytes.iter_mut().for_each(|b| *b = b.wrapping_add(number as u8));
}

/// The same kernel, but it waits for `go` first.
extern "C" fn add_later(at: *mut u8, len: u64, number: u64, go: &AtomicBool) {
    while !go.load(Ordering::Acquire) {
        std::thread::sleep(Duration::from_micros(100));
    }
    add(at, len, number, 0);
}

fn kernels() -> [u64; 2] {
    [add as *const () as u64, add_later as *const () as u64]
}

/// Ends a device, which is only a thread here.
fn end_thread(code: i32) -> ! {
    std::panic::resume_unwind(Box::new(code))
}

/// The setup of a job, and what its program does.
#[derive(Clone, Debug)]
struct Case {
    seed: u64,
    /// Ranks of devices.
    ranks: usize,
    /// Workers of each rank; 0 if the rank itself is a device.
    workers: usize,
    /// Messages of this length or more are sent in frames.
    frame: usize,
    /// Size of a piece of bulk data.
    fragment: usize,
    crowded: bool,
    doorbells: bool,
    trace: bool,
    /// Nobody waits for kernels that return nothing.
    asynchronous: bool,
    cut: Option<Cut>,
    /// Bit mask of the devices whose memory this process cannot address.
    remote: u32,
    /// The operations of each program thread.
    threads: Vec<Vec<Op>>,
}

impl Case {
    fn is_remote(&self, device: usize) -> bool {
        self.remote >> device & 1 == 1
    }
}

/// A running job. Dropping it ends its devices.
struct JobOf {
    net: Arc<Mutex<Net>>,
    engine: Arc<Engine>,
    controls: Vec<Arc<Queue>>,
    plugin: Plugin,
    /// By device.
    servers: Vec<Arc<dyn Served>>,
    arenas: Range<u64>,
}

/// What a test accesses of a device.
trait Served: Send + Sync {
    /// The received bytes of an image that is not loaded.
    fn pending_image(&self, image: u32) -> Option<Vec<u8>>;
    /// Returns memory to the system.
    fn discard(&self, range: &Range<u64>);
}

impl<B: Execute> Served for Server<B> {
    fn pending_image(&self, image: u32) -> Option<Vec<u8>> {
        self.pending_image(image)
    }

    fn discard(&self, range: &Range<u64>) {
        self.backend().discard(range.start, range.end - range.start);
    }
}

fn link<C>(case: &Case, (end, doorbells): (End, Doorbells)) -> Result<Link<C>> {
    // Workers have cut the data into pieces already.
    let fragment = if end.rank != HOST && case.workers > 0 { usize::MAX } else { case.fragment };
    Link::new(Box::new(end), fragment, doorbells, vec![Endpoint { frame: case.frame, is_far: false }; 1 + case.ranks])
}

/// Starts a device, which is a rank or a worker. If it is `remote`, this process cannot address its memory.
fn start_device(
    link: Link<Completion>,
    pace: BackoffPolicy,
    checkpoint: Option<Arc<dyn Checkpoint>>,
    remote: bool,
) -> Result<Arc<dyn Served>> {
    let null = std::fs::File::options().write(true).open("/dev/null")?;
    let host = Host::new(link, (HOST, None), pace, (CrashBoard::new()?, null), end_thread);
    if remote {
        serve(host, FakeAccelerator::new(&kernels()), checkpoint)
    } else {
        serve(host, Cpu::with_kernels(&kernels())?, checkpoint)
    }
}

fn serve(host: Host, backend: impl Execute, checkpoint: Option<Arc<dyn Checkpoint>>) -> Result<Arc<dyn Served>> {
    let server = Server::new(host, backend, Output::empty()?, None, checkpoint);
    let running = server.clone();
    std::thread::spawn(move || -> () { running.run() });
    Ok(server)
}

mod workers {
    //! Ranks with workers.

    use super::*;
    use crate::workers::rank::{Spares, Started, WorkerRank, connect};
    use crate::workers::worker::{Channel, Worker};

    /// A worker's end of its socket.
    struct WorkerEnd {
        channel: Channel,
        /// How many workers of the rank have stopped using their sockets.
        ended: Arc<AtomicUsize>,
    }

    impl Transport for WorkerEnd {
        unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request> {
            // SAFETY: the caller's promise.
            unsafe { self.channel.send(to, tag, data, len) }
        }

        unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
            // SAFETY: the caller's promise.
            unsafe { self.channel.receive(from, tag, data, len) }
        }

        unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
            // SAFETY: the caller's promise.
            unsafe { self.channel.test(request) }
        }

        unsafe fn cancel(&mut self, request: Request) {
            // SAFETY: the caller's promise.
            unsafe { self.channel.cancel(request) };
        }

        fn finish(&mut self) {
            self.channel.finish();
            self.ended.fetch_add(1, Ordering::Release);
        }

        fn abort(&mut self, code: i32) -> ! {
            self.channel.abort(code)
        }
    }

    /// Starts a rank with workers. `doorbell` names the rank's doorbell; `first` is the number of its first device.
    pub fn start_rank(
        case: &Case,
        end: (End, Doorbells),
        pace: BackoffPolicy,
        doorbell: Option<(u32, u64)>,
        first: usize,
    ) -> Result<Vec<Arc<dyn Served>>> {
        let (mut started, mut servers, ended) = (Vec::new(), Vec::new(), Arc::new(AtomicUsize::new(0)));
        for n in 0..case.workers {
            let (ours, theirs) = connect()?;
            started.push(Started { pid: std::process::id() as i32, ..ours });
            let rank =
                doorbell.and_then(|(descriptor, nonce)| Doorbell::of(std::process::id(), descriptor, nonce).ok());
            let worker = Worker::new(theirs.socket, theirs.wake, rank);
            let doorbells = Doorbells::new(case.doorbells.then_some(theirs.doorbell), Vec::new(), 0);
            let channel = Box::new(WorkerEnd { channel: Channel::new(worker.clone(), HOST), ended: ended.clone() });
            let link = Link::new(channel, case.fragment, doorbells, Vec::new())?;
            servers.push(start_device(link, pace, Some(worker), case.is_remote(first + n))?);
        }
        let spares = Spares { count: 0, replay_log: 0 };
        let relay = WorkerRank::new(
            link(case, end)?,
            (HOST, None),
            pace,
            "a rank".into(),
            started,
            spares,
            case.fragment as u64,
        );
        // A worker whose rank ends first would end this process.
        let workers = case.workers;
        let wait = move || {
            while ended.load(Ordering::Acquire) < workers {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        std::thread::spawn(move || relay.simulate(wait));
        Ok(servers)
    }
}

/// Raises the limit on open files: a job may need more than a shell allows.
fn allow_files() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the record outlives the calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max;
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}

impl JobOf {
    fn start(case: &Case) -> Result<JobOf> {
        static JOBS: AtomicU64 = AtomicU64::new(0);
        allow_files();
        let (ranks, of_rank) = (1 + case.ranks, case.workers.max(1));
        let devices = case.ranks * of_rank;
        let net = Net::new(ranks, case.seed, case.cut);
        let doorbells: Vec<_> =
            (0..ranks).map(|_| case.doorbells.then(Doorbell::new).transpose()).collect::<Result<_>>()?;
        let names: Vec<_> = doorbells.iter().map(|b| b.as_ref().map(Doorbell::name)).collect();
        let partners = |rank| if rank == HOST { 1..ranks } else { HOST..HOST + 1 };
        let mut ends = Vec::new();
        for (rank, doorbell) in doorbells.into_iter().enumerate() {
            let of = |other: usize| {
                let (descriptor, nonce) = names[other].filter(|_| partners(rank).contains(&other))?;
                Doorbell::of(std::process::id(), descriptor, nonce).ok()
            };
            let workers = if rank == HOST { 0 } else { case.workers };
            let doorbells = Doorbells::new(doorbell, (0..ranks).map(of).collect(), partners(rank).len() + workers);
            ends.push((End { rank, net: net.clone() }, doorbells));
        }
        let pace = |crowded| if case.crowded { crowded } else { BackoffPolicy::ALONE };
        let host = link(case, ends.remove(HOST))?;
        let mut servers = Vec::new();
        for (end, doorbell) in ends.into_iter().zip(&names[1..]) {
            let first = servers.len();
            if case.workers > 0 {
                servers.extend(workers::start_rank(case, end, pace(BackoffPolicy::CROWDED_WORKER), *doorbell, first)?);
            } else {
                servers.push(start_device(
                    link(case, end)?,
                    pace(BackoffPolicy::CROWDED_DEVICE),
                    None,
                    case.is_remote(first),
                )?);
            }
        }
        let port = |n: usize| {
            let worker = (of_rank > 1).then_some((n % of_rank) as u8);
            Port::new(1 + n / of_rank, worker, case.trace, format!("device {n}"))
        };
        let ports = (0..devices).map(port).collect();
        let tracing = Tracing { on: case.trace, trace: case.trace, events: 100 };
        let settings = Settings { unified: settings::Unified::Off, ..Settings::default() };
        let engine = Arc::new(Engine::new(
            host,
            (HOST, ranks),
            ports,
            (pace(BackoffPolicy::CROWDED_HOST), Duration::ZERO),
            (tracing, Unified::new(&settings, false, &[])),
            case.asynchronous,
        ));

        // Each job has its own addresses: threads of an earlier job may still use theirs.
        let job = JOBS.fetch_add(1, Ordering::Relaxed);
        let start = 0x3000_0000_0000 + (job << 30);
        let arena = |n: usize| start + n as u64 * ARENA..start + (n as u64 + 1) * ARENA;
        // Not the arenas' addresses, which the program's own process would reserve.
        let addresses = Arc::new(AddressMap::at(0x5000_0000_0000 + (job << 16), 4096, devices)?);
        let controls: Vec<_> = (0..devices).map(Queue::control).collect();
        let hello = |n: usize| {
            let mut hello = hello_of_this_process(Role::Device, String::new());
            if case.workers == 0 && case.is_remote(n) {
                hello.backend = settings::Backend::Offload;
            }
            hello
        };
        let offer =
            |n| (case.workers == 0 && engine.can_share_memory(n, &hello(n))).then(|| Offer::new(ARENA).unwrap());
        let offers: Vec<_> = (0..devices).map(offer).collect();
        let mut beginnings = vec![[0; 8]; devices];
        for (n, queue) in controls.iter().enumerate() {
            engine.connection.control(queue, |batch| {
                let (beginning, shared) = offers[n].as_ref().map(Offer::to_send).unwrap_or_default();
                batch.control(Control::Start { at: arena(n).start, len: ARENA, beginning, shared });
                batch.read_into(beginnings[n].as_mut_ptr(), beginnings[n].len());
            })?;
        }
        for queue in &controls {
            engine.wait(queue)?;
            assert_eq!(engine.port(queue.port()).failures.take(queue.id), None);
        }
        let device = |((n, control), offer): ((usize, &Arc<Queue>), Option<Offer>)| {
            let shared = offer.map(|offer| {
                let accepted = offer.accepted(arena(n).start, u64::from_ne_bytes(beginnings[n]));
                accepted.expect("the device has mapped the file")
            });
            // The kernels are functions of this process.
            Device::new(
                n,
                (hello(n), Executor::of_machine(Target::HOST.machine)),
                engine.clone(),
                addresses.clone(),
                (arena(n), shared),
                control.clone(),
            )
        };
        let all = controls.iter().enumerate().zip(offers).map(device).collect();
        let plugin = Plugin::new(engine.clone(), addresses.clone(), all, None);
        let arenas = start..start + devices as u64 * ARENA;
        Ok(JobOf { net, engine, controls, plugin, servers, arenas })
    }

    /// Ends the devices like a program that exits.
    fn finish(&self) {
        shutdown::end_devices(&self.engine, &self.controls, LIMIT);
        while self.net.lock().finished.contains(&false) {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.net.lock().assert_empty();
    }
}

impl Drop for JobOf {
    fn drop(&mut self) {
        self.net.lock().cut = Some(Cut { after: 0, for_host: false });
        // Threads of devices that still run may read there; they find zeros.
        let arenas = self.arenas.clone().step_by(ARENA as usize);
        arenas.zip(&self.servers).for_each(|(at, server)| server.discard(&(at..at + ARENA)));
    }
}

// ---- a program -------------------------------------------------------------------

/// An operation of a program thread. The numbers select among what exists.
#[derive(Clone, Copy, Debug)]
struct Op {
    what: What,
    queue: usize,
    buffer: usize,
    other: usize,
    number: usize,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Submit,
    Retrieve,
    Fill,
    /// Copies within a device or between two.
    Copy,
    /// Makes a queue wait for another one.
    Event,
    /// Waits on the host for an event, by synchronizing or by polling.
    SyncEvent,
    QueryEvent,
    Synchronize,
    Drain,
    Query,
    /// Frees a buffer and allocates another one.
    Realloc,
    /// Reads from unmapped memory.
    Wild,
    Kernel,
    /// Sends an image to all devices.
    Image,
}

/// Sizes of buffers: within a message, across several, in one and several pieces, and so large that a copy takes
/// long.
const SIZES: [usize; 6] = [40, 5000, INLINE_MAX, 40_000, 300_000, 1_300_000];
const QUEUES: usize = 3;
const BUFFERS: usize = 4;

/// Device memory and its expected contents.
struct Buffer {
    device: usize,
    at: u64,
    bytes: Vec<u8>,
    /// The line that used it last.
    user: Option<usize>,
    /// It is the far end of a copy between devices, which is only done when that line's queue is.
    is_far: bool,
}

struct Line {
    device: usize,
    queue: Option<Arc<Queue>>,
    /// Reads in flight: memory and expected bytes.
    reads: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One thread of the program.
struct Program<'a> {
    job: &'a JobOf,
    devices: &'a [Device],
    lines: Vec<Line>,
    buffers: Vec<Buffer>,
    /// Submitted memory. It outlives the job: when the network is cut, one thread may notice while another still
    /// reads the memory.
    submitted: Vec<Vec<u8>>,
    /// Memory that was read and checked; nothing may write to it any more.
    read: Vec<Vec<u8>>,
    random: u64,
}

const UNTOUCHED: u8 = 0xdd;

fn is_untouched(room: &[u8]) -> bool {
    room.chunks(4096).all(|part| *part == [UNTOUCHED; 4096][..part.len()])
}

impl<'a> Program<'a> {
    fn new(job: &'a JobOf, seed: u64) -> Program<'a> {
        let devices = job.plugin.devices.as_slice();
        let line = |n| Line { device: n % devices.len(), queue: None, reads: Vec::new() };
        let lines = (0..QUEUES * devices.len()).map(line).collect();
        let (buffers, submitted, read) = (Vec::new(), Vec::new(), Vec::new());
        Program { job, devices, lines, buffers, submitted, read, random: seed }
    }

    fn run(&mut self, ops: &[Op]) -> Result<()> {
        for n in 0..BUFFERS * self.devices.len() {
            let buffer = self.alloc(n % self.devices.len(), SIZES[n % SIZES.len()])?;
            self.buffers.push(buffer);
            self.submit(n % self.lines.len(), n, 0..SIZES[n % SIZES.len()])?;
        }
        ops.iter().try_for_each(|op| self.step(op))?;
        for line in 0..self.lines.len() {
            self.synchronize(line)?;
        }
        for buffer in 0..self.buffers.len() {
            self.retrieve(0, buffer, 0..self.buffers[buffer].bytes.len())?;
        }
        (0..self.lines.len()).try_for_each(|line| self.synchronize(line))
    }

    fn step(&mut self, op: &Op) -> Result<()> {
        let line = op.queue % self.lines.len();
        let (one, two) = (op.buffer % self.buffers.len(), op.other % self.buffers.len());
        let all = self.buffers[one].bytes.len();
        let from = op.number % all;
        let part = from..from + 1 + (op.number / 7) % (all - from);
        match op.what {
            What::Submit => self.submit(line, one, part),
            What::Retrieve => self.retrieve(line, one, part),
            What::Fill => self.fill(line, one, part, 1 + op.number % 16),
            What::Copy => self.copy(op.queue, (one, from), (two, op.number / 3), part.len()),
            What::Event => self.wait_event(line, op.other % self.lines.len()),
            What::SyncEvent | What::QueryEvent => {
                let event = self.record(line);
                let device = &self.devices[self.lines[op.other % self.lines.len()].device];
                if matches!(op.what, What::SyncEvent) {
                    return device.queues.sync_event(&event);
                }
                while !device.queues.query_event(&event)? {
                    std::thread::yield_now();
                }
                Ok(())
            }
            What::Synchronize => self.synchronize(line),
            What::Drain => {
                let queue = self.queue(line);
                self.device(line).queues.drain(&queue)?;
                self.check(line);
                Ok(())
            }
            What::Query => {
                let Some(queue) = self.lines[line].queue.clone() else { return Ok(()) };
                for _ in 0..op.number % 50 {
                    if self.device(line).queues.query(&queue)? {
                        self.lines[line].queue = None;
                        self.check(line);
                        return Ok(());
                    }
                }
                Ok(())
            }
            What::Realloc => {
                self.settle(one)?;
                let Buffer { device, at, .. } = self.buffers[one];
                self.devices[device].memory.free(at)?;
                let size = SIZES[op.number % SIZES.len()];
                self.buffers[one] = self.alloc(device, size)?;
                self.submit(line, one, 0..size)
            }
            What::Wild => {
                let mut room = vec![UNTOUCHED; 1 + op.number % 40_000];
                let (at, len) = (room.as_mut_ptr(), room.len() as u64);
                let queue = self.queue(line);
                // SAFETY: the room is kept.
                let read = unsafe { self.device(line).memory.retrieve(&queue, at, 4096, len) };
                self.read.push(room);
                match read {
                    // The rest of the run must not be affected.
                    Err(Error::Text(text)) if text.contains("can't read from 0x1000") => Ok(()),
                    other => other.and(Err(Error::new("what is nowhere was read"))),
                }
            }
            What::Kernel => self.kernel(line, one, part, op.number % 300),
            What::Image => {
                self.image(op.other, if op.number.is_multiple_of(4) { 3 << 20 } else { 1 + op.number % 20_000 })
            }
        }
    }

    fn device(&self, line: usize) -> &'a Device {
        &self.devices[self.lines[line].device]
    }

    fn queue(&mut self, line: usize) -> Arc<Queue> {
        let device = self.device(line);
        self.lines[line].queue.get_or_insert_with(|| device.queues.queue()).clone()
    }

    fn alloc(&mut self, device: usize, size: usize) -> Result<Buffer> {
        let at = self.devices[device].memory.alloc(size as u64, 0)?;
        Ok(Buffer { device, at, bytes: vec![0; size], user: None, is_far: false })
    }

    /// New bytes for each call.
    fn bytes(&mut self, len: usize) -> Vec<u8> {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let seed = self.random >> 33;
        (0..len as u64).map(|i| (i * 31 + (i >> 8) * 17 + seed) as u8).collect()
    }

    /// The line, or the next one of the buffer's device.
    fn line_of(&self, line: usize, buffer: usize) -> usize {
        let device = self.buffers[buffer].device;
        (0..self.lines.len()).map(|i| (line + i) % self.lines.len()).find(|&l| self.lines[l].device == device).unwrap()
    }

    /// Hands a buffer to a line, after everything that other lines do with it.
    fn take(&mut self, line: usize, buffer: usize) -> Result<()> {
        match self.buffers[buffer].user {
            Some(_) if self.buffers[buffer].is_far => self.settle(buffer)?,
            Some(user) if user != line => self.wait_event(user, line)?,
            _ => {}
        }
        self.buffers[buffer].user = Some(line);
        Ok(())
    }

    /// Waits for every use of a buffer.
    fn settle(&mut self, buffer: usize) -> Result<()> {
        if let Some(user) = self.buffers[buffer].user.take() {
            self.synchronize(user)?;
        }
        self.buffers[buffer].is_far = false;
        Ok(())
    }

    fn record(&mut self, line: usize) -> Arc<Event> {
        let event = Event::create();
        let queue = self.queue(line);
        event.record(&queue);
        event
    }

    fn wait_event(&mut self, first: usize, then: usize) -> Result<()> {
        let event = self.record(first);
        let queue = self.queue(then);
        let waited = self.device(then).queues.wait_event(&event, &queue);
        event.destroy();
        waited
    }

    fn submit(&mut self, line: usize, buffer: usize, part: Range<usize>) -> Result<()> {
        let line = self.line_of(line, buffer);
        self.take(line, buffer)?;
        let bytes = self.bytes(part.len());
        let (queue, at) = (self.queue(line), bytes.as_ptr());
        self.buffers[buffer].bytes[part.clone()].copy_from_slice(&bytes);
        self.submitted.push(bytes);
        let to = self.buffers[buffer].at + part.start as u64;
        // SAFETY: what was submitted is kept.
        unsafe { self.device(line).memory.submit(&queue, to, at, part.len() as u64) }
    }

    fn retrieve(&mut self, line: usize, buffer: usize, part: Range<usize>) -> Result<()> {
        let line = self.line_of(line, buffer);
        self.take(line, buffer)?;
        let wanted = self.buffers[buffer].bytes[part.clone()].to_vec();
        let mut room = vec![UNTOUCHED; part.len()];
        let (queue, to) = (self.queue(line), room.as_mut_ptr());
        self.lines[line].reads.push((room, wanted));
        let from = self.buffers[buffer].at + part.start as u64;
        // SAFETY: what is read to is kept.
        let asked = unsafe { self.device(line).memory.retrieve(&queue, to, from, part.len() as u64) };
        if asked.is_err() {
            // The read was not accepted, so its result is not checked.
            self.submitted.extend(self.lines[line].reads.pop().map(|(room, _)| room));
        }
        asked
    }

    /// Runs a kernel that yields `rests` times.
    fn kernel(&mut self, line: usize, buffer: usize, part: Range<usize>, rests: usize) -> Result<()> {
        // Small, so that the yields dominate its time.
        let part = part.start..part.end.min(part.start + 2000);
        let line = self.line_of(line, buffer);
        self.take(line, buffer)?;
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let number = self.random >> 56;
        self.buffers[buffer].bytes[part.clone()].iter_mut().for_each(|b| *b = b.wrapping_add(number as u8));
        let at = self.buffers[buffer].at + part.start as u64;
        let arguments = [at, part.len() as u64, number, rests as u64];
        let (queue, device) = (self.queue(line), self.device(line));
        let shape = device.is_accelerator().then(Shape::default);
        device.queues.launch(&queue, kernels()[0], arguments.into_iter(), (false, shape.as_ref()))
    }

    /// Sends an image to all devices, beginning with `first`, and drops it there.
    fn image(&mut self, first: usize, len: usize) -> Result<()> {
        let file = self.bytes(len);
        let mut order: Vec<&Device> = self.devices.iter().collect();
        order.rotate_left(first % self.devices.len());
        let mut pending_images = Vec::new();
        for device in order {
            let ComingImage { id, message, parcel, .. } = self.job.plugin.send_image(device, &file)?;
            if let Some((bytes, queue)) = parcel {
                self.submitted.push(bytes);
                pending_images.push(queue);
            }
            let port = self.job.engine.port(device.number);
            self.job.engine.wait_until(None, &|| port.is_complete(message))?;
            let there = self.job.servers[device.number].pending_image(id).unwrap_or_default();
            assert!(there.starts_with(&file), "image {id} on device {} is another one", device.number);
            if let Some(queue) = device.images.forget(id, message)? {
                self.job.engine.wait(&queue)?;
            }
        }
        pending_images.iter().try_for_each(|queue| self.job.engine.wait(queue))
    }

    fn fill(&mut self, line: usize, buffer: usize, part: Range<usize>, len: usize) -> Result<()> {
        // A fill takes many messages.
        let part = part.start..part.start + part.len().min(100_000) / len * len;
        let line = self.line_of(line, buffer);
        self.take(line, buffer)?;
        let pattern = self.bytes(len);
        self.buffers[buffer].bytes[part.clone()].copy_from_slice(&pattern.repeat(part.len() / len));
        let queue = self.queue(line);
        let to = self.buffers[buffer].at + part.start as u64;
        self.device(line).memory.fill(&queue, to, &pattern, part.len() as u64)
    }

    fn copy(&mut self, line: usize, from: (usize, usize), to: (usize, usize), len: usize) -> Result<()> {
        let line = self.line_of(line % self.lines.len(), from.0);
        self.take(line, from.0)?;
        self.take(line, to.0)?;
        let to = (to.0, to.1 % self.buffers[to.0].bytes.len());
        let len = len.min(self.buffers[to.0].bytes.len() - to.1);
        let bytes = self.buffers[from.0].bytes[from.1..from.1 + len].to_vec();
        self.buffers[to.0].bytes[to.1..to.1 + len].copy_from_slice(&bytes);
        let other = &self.devices[self.buffers[to.0].device];
        self.buffers[to.0].is_far = self.device(line).number != other.number;
        let queue = self.queue(line);
        let (from, to) = (self.buffers[from.0].at + from.1 as u64, self.buffers[to.0].at + to.1 as u64);
        self.device(line).memory.exchange(&queue, from, &other.memory, to, len as u64).map(|is_begun| assert!(is_begun))
    }

    fn synchronize(&mut self, line: usize) -> Result<()> {
        let Some(queue) = self.lines[line].queue.take() else { return Ok(()) };
        self.device(line).queues.synchronize(queue)?;
        self.check(line);
        Ok(())
    }

    /// Checks everything that the line has read.
    fn check(&mut self, line: usize) {
        for (mut room, wanted) in self.lines[line].reads.drain(..) {
            // Compare as a whole first, which is faster.
            if room != wanted
                && let Some(at) = (0..wanted.len()).find(|&i| room[i] != wanted[i])
            {
                panic!("byte {at} of {} is {:#x} instead of {:#x}", wanted.len(), room[at], wanted[at]);
            }
            room.fill(UNTOUCHED);
            self.read.push(room);
        }
    }

    /// After a failed call every further call must fail at once, or give the right result.
    fn give_up(&mut self) {
        for line in 0..self.lines.len() {
            let _ = self.synchronize(line);
        }
        for device in self.devices {
            assert!(device.memory.alloc(1, 0).is_err(), "a device that nobody reaches gives memory");
        }
    }
}

// ---- the test --------------------------------------------------------------------

fn run(case: &Case) {
    let job = match JobOf::start(case) {
        Ok(job) => job,
        Err(_) if case.cut.is_some() => return,
        Err(e) => panic!("the job does not start: {e}"),
    };
    let programs: Vec<Program<'_>> = std::thread::scope(|scope| {
        let start = |(n, ops): (usize, &'_ Vec<Op>)| {
            let (job, ops) = (&job, ops.clone());
            let seed = case.seed ^ n as u64;
            scope.spawn(move || {
                let mut program = Program::new(job, seed);
                match program.run(&ops) {
                    Ok(()) => {}
                    Err(_) if case.cut.is_some() => program.give_up(),
                    Err(e) => panic!("an operation failed: {e}"),
                }
                program
            })
        };
        let threads: Vec<_> = case.threads.iter().enumerate().map(start).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    if case.cut.is_none() {
        job.finish();
    }
    for room in programs.iter().flat_map(|p| &p.read) {
        assert!(is_untouched(room), "something was read twice, or late");
    }
    drop(job);
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let what = prop_oneof![
        6 => Just(What::Submit),
        6 => Just(What::Retrieve),
        2 => Just(What::Fill),
        6 => Just(What::Copy),
        3 => Just(What::Event),
        1 => Just(What::SyncEvent),
        1 => Just(What::QueryEvent),
        3 => Just(What::Synchronize),
        1 => Just(What::Drain),
        2 => Just(What::Query),
        2 => Just(What::Realloc),
        1 => Just(What::Wild),
        3 => Just(What::Kernel),
        1 => Just(What::Image),
    ];
    let numbers = (0usize..100, 0usize..100, 0usize..100, 0usize..10_000_000);
    let op = (what, numbers);
    let op = op.prop_map(|(what, (queue, buffer, other, number))| Op { what, queue, buffer, other, number });
    prop::collection::vec(op, 0..60)
}

fn cases() -> impl Strategy<Value = Case> {
    let cut =
        (0u64..200_000, any::<bool>()).prop_map(|(after, for_host)| Cut { after: after * after / 200_000, for_host });
    let sizes = (prop_oneof![Just(usize::MAX), 500usize..6000], prop_oneof![Just(1usize << 20), 4096usize..100_000]);
    let threads = prop::collection::vec(ops(), 1..4);
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let remote = prop_oneof![2 => Just(0), 1 => any::<u32>()];
    let devices = (1usize..3, prop_oneof![2 => Just(0), 1 => 0..=WORKERS]);
    let all = (any::<u64>(), devices, sizes, flags, prop::option::weighted(0.3, cut), remote, threads);
    all.prop_map(|(seed, (ranks, workers), (frame, fragment), flags, cut, remote, threads)| {
        let (crowded, doorbells, trace, asynchronous) = flags;
        // Workers of a rank that is cut off end their process.
        let cut = cut.filter(|_| workers == 0);
        Case { seed, ranks, workers, frame, fragment, crowded, doorbells, trace, asynchronous, cut, remote, threads }
    })
}

/// A fixed job, on a network that is not cut.
fn quiet(seed: u64, ranks: usize) -> Case {
    let (frame, fragment) = (usize::MAX, 1 << 20);
    let (crowded, doorbells, trace, asynchronous, cut, remote) = (false, true, false, false, None, 0);
    let (workers, threads) = (0, Vec::new());
    Case { seed, ranks, workers, frame, fragment, crowded, doorbells, trace, asynchronous, cut, remote, threads }
}

/// Final contents match the model, each queue keeps its order, every operation completes once or fails with an
/// error, and nothing hangs.
#[test]
fn any_program_gets_what_it_would_get_from_plain_memory() {
    // The same cases each time, except for the order of threads.
    let asked = std::env::var_os("PROPTEST_CASES").map(|_| Config::default());
    let fixed = Config {
        cases: if cfg!(feature = "tiny-limits") { 30 } else { 60 },
        rng_seed: RngSeed::Fixed(1),
        ..Config::default()
    };
    let config =
        Config { failure_persistence: None, max_shrink_iters: 200, max_shrink_time: 60_000, ..asked.unwrap_or(fixed) };
    let result = TestRunner::new(config).run(&cases(), |case| {
        within_limit(&case, run);
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{e}"));
}

/// Aborts this process if a case hangs: threads that hang cannot be ended.
fn within_limit(case: &Case, run: impl FnOnce(&Case)) {
    let (done, ended) = mpsc::channel::<()>();
    let text = format!("{case:?}");
    std::thread::spawn(move || {
        if ended.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            eprintln!("this hangs: {text}");
            std::process::abort();
        }
    });
    run(case);
    drop(done);
}

/// Copies to one place on another device arrive in the order of their queue.
#[test]
fn copies_to_another_device_do_not_overtake_each_other() {
    for seed in 1..=40 {
        let job = JobOf::start(&quiet(seed, 2)).unwrap();
        let mut program = Program::new(&job, seed);
        for (device, size) in [(0, 20_000), (0, 20_000), (0, 50), (0, 20_000), (1, 20_000)] {
            let buffer = program.alloc(device, size).unwrap();
            program.buffers.push(buffer);
            program.submit(0, program.buffers.len() - 1, 0..size).unwrap();
        }
        program.settle(4).unwrap();
        for from in [0, 1, 2, 3, 1, 2] {
            program.buffers[4].user = None;
            program.copy(0, (from, 0), (4, 0), 20_000.min(program.buffers[from].bytes.len())).unwrap();
        }
        program.settle(4).unwrap();
        program.retrieve(0, 4, 0..20_000).unwrap();
        (0..program.lines.len()).for_each(|line| program.synchronize(line).unwrap());
        job.finish();
    }
}

/// Bulk transfers of any size, started and driven in any order at both ends, arrive whole, complete once, and leave
/// nothing behind. No two open transfers of the same two ranks share a tag.
#[test]
fn transfers_of_a_link_come_in_any_order() {
    const RANKS: usize = 3;
    /// From, to, bytes, whether the sender has no data, and when each end starts.
    type Transfer = ((usize, usize), usize, bool, (u8, u8));
    let size = prop_oneof![Just(1000usize), 1usize..40_000];
    let transfer = ((0..RANKS, 0..RANKS), size, prop::bool::weighted(0.1), any::<(u8, u8)>());
    let all = (any::<u64>(), 100usize..20_000, prop::collection::vec(transfer, 1..60));
    let config = Config { cases: 100, failure_persistence: None, rng_seed: RngSeed::Fixed(1), ..Config::default() };
    let result = TestRunner::new(config).run(&all, |(seed, fragment, transfers): (u64, usize, Vec<Transfer>)| {
        let net = Net::new(RANKS, seed, None);
        let link = |rank| {
            let end = Box::new(End { rank, net: net.clone() });
            Link::new(end, fragment, Doorbells::default(), Vec::new()).unwrap()
        };
        let links: Vec<Link<(usize, bool)>> = (0..RANKS).map(link).collect();
        let bytes = |i: usize, len: usize| -> Vec<u8> { (0..len).map(|b| (b * 7 + i * 31 + (b >> 8)) as u8).collect() };
        let mut out: Vec<_> = transfers.iter().enumerate().map(|(i, t)| bytes(i, t.1)).collect();
        let mut rooms: Vec<_> = transfers.iter().map(|t| vec![UNTOUCHED; t.1]).collect();
        let mut inbox = Inbox::default();
        // For each end: when, which transfer, whether it is the sender's.
        let each = transfers.iter().enumerate().flat_map(|(i, t)| [(t.3.0, i, true), (t.3.1, i, false)]);
        let mut ends: Vec<_> = each.collect();
        ends.sort_unstable();
        for (_, i, sends) in ends {
            let ((from, to), len, refused, _) = transfers[i];
            let tag = TAG_BULK + i as u32;
            // SAFETY: both outlive the links.
            let (whole, room) = unsafe { (Span::new(out[i].as_mut_ptr(), len), Span::new(rooms[i].as_mut_ptr(), len)) };
            match (sends, refused) {
                (true, false) => links[from].send_bulk(Peer { rank: to, tag }, whole, (i, sends)),
                (true, true) => links[from].refuse_bulk(Peer { rank: to, tag }, len, (i, sends)),
                (false, _) => links[to].receive_bulk(Peer { rank: from, tag }, room, (i, sends)),
            }
            .unwrap();
            let looks = net.lock().random(4);
            for _ in 0..looks {
                let rank = net.lock().random(RANKS as u64) as usize;
                links[rank].drive(&mut inbox).unwrap();
            }
        }
        while links.iter().any(Link::has_bulk) {
            for link in &links {
                link.drive(&mut inbox).unwrap();
            }
        }
        links.iter().for_each(Link::finish);
        net.lock().assert_empty();
        for (i, (_, len, refused, _)) in transfers.into_iter().enumerate() {
            for sends in [true, false] {
                let mut ends = inbox.completed.iter().filter(|(end, _)| *end == (i, sends));
                prop_assert!(ends.next().is_some_and(|(_, result)| result.is_err() == (refused && !sends)));
                prop_assert!(ends.next().is_none());
            }
            let wanted = if refused { vec![UNTOUCHED; len] } else { bytes(i, len) };
            prop_assert!(rooms[i] == wanted);
        }
        Ok(())
    });
    result.unwrap_or_else(|e| panic!("{e}"));
}

/// Releases the waiting kernels, at the latest when the test ends, however it ends.
struct Go(&'static AtomicBool);

impl Go {
    fn new() -> Go {
        // A kernel may read it after the test has ended.
        Go(Box::leak(Box::default()))
    }
}

impl Drop for Go {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

/// While a region runs, its result and a copy of that result to another device wait. Meanwhile three threads make
/// more such transfers than there are tags, of the same and of other sizes.
fn all_tags_go_round(case: &Case) {
    const LEN: usize = INLINE_MAX + 40;
    const THREADS: usize = 3;
    /// Transfers of a thread between two waits.
    const BATCH: usize = 16;
    /// If nothing has moved for this long, it waits for the region.
    const STUCK: Duration = Duration::from_secs(20);
    // Declared before the job, so dropped after it: nobody receives a kernel's results then.
    let go = Go::new();
    let job = JobOf::start(case).unwrap();
    let mut long = Program::new(&job, 1);
    for device in [0, 1] {
        let buffer = long.alloc(device, LEN).unwrap();
        long.buffers.push(buffer);
        long.submit(0, device, 0..LEN).unwrap();
        long.settle(device).unwrap();
    }
    let queue = long.queue(0);
    let arguments = [long.buffers[0].at, LEN as u64, 1, std::ptr::from_ref(go.0) as u64];
    long.devices[0].queues.launch(&queue, kernels()[1], arguments.into_iter(), (false, None)).unwrap();
    long.buffers[0].bytes.iter_mut().for_each(|b| *b = b.wrapping_add(1));
    long.retrieve(0, 0, 0..LEN).unwrap();
    long.copy(0, (0, 0), (1, 0), LEN).unwrap();

    let (moved, is_stuck) = (AtomicUsize::new(0), AtomicBool::new(false));
    for copies in [false, true] {
        std::thread::scope(|scope| {
            let other = |seed| {
                let (job, moved) = (&job, &moved);
                move || {
                    let mut program = Program::new(job, seed);
                    for device in [0; BATCH].into_iter().chain([1; BATCH]) {
                        let buffer = program.alloc(device, LEN).unwrap();
                        program.buffers.push(buffer);
                        let last = program.buffers.len() - 1;
                        program.submit(0, last, 0..LEN).unwrap();
                        program.settle(last).unwrap();
                    }
                    for _ in 0..(BULK_TAGS as usize).div_ceil(THREADS * BATCH) + 2 {
                        // On all lines of the device, so that completions are unordered.
                        for n in 0..BATCH {
                            let len = LEN - n % 3 * 7;
                            if copies {
                                program.copy(n, (n, 0), (BATCH + n, 0), len).unwrap();
                            } else {
                                program.retrieve(n, n, 0..len).unwrap();
                            }
                        }
                        (0..program.buffers.len()).for_each(|buffer| program.settle(buffer).unwrap());
                        program.read.drain(..).for_each(|room| assert!(is_untouched(&room)));
                        moved.fetch_add(1, Ordering::Relaxed);
                    }
                    for buffer in 0..program.buffers.len() {
                        program.retrieve(0, buffer, 0..LEN).unwrap();
                        program.settle(buffer).unwrap();
                    }
                }
            };
            let others: Vec<_> = (0..THREADS as u64).map(|n| scope.spawn(other(2 + n))).collect();
            let (mut last, mut since) = (0, Instant::now());
            while others.iter().any(|thread| !thread.is_finished()) {
                std::thread::sleep(Duration::from_millis(20));
                let now = moved.load(Ordering::Relaxed);
                if now != last {
                    (last, since) = (now, Instant::now());
                } else if since.elapsed() > STUCK && !is_stuck.swap(true, Ordering::Relaxed) {
                    drop(Go(go.0));
                }
            }
        });
    }
    drop(go);
    long.settle(1).unwrap();
    long.retrieve(0, 1, 0..LEN).unwrap();
    long.settle(1).unwrap();
    assert!(!is_stuck.into_inner(), "transfers of others wait for a region");
    job.finish();
}

#[test]
#[cfg_attr(not(feature = "tiny-limits"), ignore = "takes minutes with so many tags: the suite unit-tiny runs it")]
fn a_long_region_keeps_its_tags() {
    all_tags_go_round(&quiet(7, 2));
}

#[test]
#[cfg_attr(not(feature = "tiny-limits"), ignore = "takes minutes with so many tags: the suite unit-tiny runs it")]
fn a_long_region_of_a_worker_keeps_its_tags() {
    all_tags_go_round(&Case { workers: 2, ..quiet(8, 1) });
}

/// A thread waits for a device while another one is inside MPI for long.
#[test]
fn a_thread_that_can_not_poll_sleeps() {
    const LEN: usize = 40;
    let go = Go::new();
    let job = JobOf::start(&quiet(11, 1)).unwrap();
    let mut program = Program::new(&job, 1);
    let buffer = program.alloc(0, LEN).unwrap();
    program.buffers.push(buffer);
    program.submit(0, 0, 0..LEN).unwrap();
    program.settle(0).unwrap();
    let queue = program.queue(0);
    let arguments = [program.buffers[0].at, LEN as u64, 1, std::ptr::from_ref(go.0) as u64];
    program.devices[0].queues.launch(&queue, kernels()[1], arguments.into_iter(), (false, None)).unwrap();
    let this_thread = format!("/proc/self/task/{}/schedstat", gettid());
    let used = move || {
        let nanoseconds = std::fs::read_to_string(&this_thread).unwrap().split(' ').next().unwrap().parse().unwrap();
        Duration::from_nanos(nanoseconds)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (stalled, result) = mpsc::channel();
            let used = used.clone();
            STALL.set(Some(Box::new(move || {
                let (since, before) = (Instant::now(), used());
                std::thread::sleep(Duration::from_millis(500));
                stalled.send((used() - before, since.elapsed())).unwrap();
            })));
            let (used, time) = loop {
                job.engine.poll().unwrap();
                if let Ok(result) = result.try_recv() {
                    break result;
                }
            };
            assert!(used < time / 4, "{used:?} of {time:?}");
            drop(go);
        });
        program.synchronize(0).unwrap();
    });
    job.finish();
}

/// One thread may load an equal image while another one unloads it.
#[test]
fn an_image_that_comes_back_has_another_number() {
    let job = JobOf::start(&quiet(10, 2)).unwrap();
    let [one, two] = &job.plugin.devices[..] else { panic!("there are two devices") };
    let file = vec![7; 3 << 20];
    let mut submitted = Vec::new();
    let mut send = |device| {
        let ComingImage { id, parcel, .. } = job.plugin.send_image(device, &file).unwrap();
        submitted.extend(parcel);
        id
    };
    let first = send(one);
    assert_eq!(send(two), first);
    job.plugin.unload(two, first).unwrap();
    let second = send(two);
    assert_ne!(second, first);
    for (device, image) in [(one, first), (two, second)] {
        job.plugin.unload(device, image).unwrap();
    }
    submitted.iter().for_each(|(_, queue)| job.engine.wait(queue).unwrap());
    job.finish();
}

/// Workers get an image from each other, from workers of their own rank and of others.
#[test]
fn images_reach_every_worker() {
    const MIB: usize = 1 << 20;
    // The images of the second case have several parts.
    for (workers, ranks, fragment, size) in
        [(2, 2, 16_017, MIB), (3, 1, 1 << 20, 3 * MIB), (4, 2, 33_000, MIB), (8, 1, 100_000, MIB)]
    {
        let case = Case { workers, fragment, ..quiet(workers as u64, ranks) };
        within_limit(&case, |case| {
            let job = JobOf::start(case).unwrap();
            let mut program = Program::new(&job, case.seed);
            for first in 0..3 * workers {
                program.image(first, size + first).unwrap();
            }
            job.finish();
        });
    }
}

/// An event is complete when its own queue is, whatever another queue waits for.
#[test]
fn an_event_does_not_wait_for_a_long_region_of_another_queue() {
    const LEN: usize = INLINE_MAX + 40;
    let go = Go::new();
    let job = JobOf::start(&quiet(9, 1)).unwrap();
    let mut program = Program::new(&job, 1);
    for buffer in [0, 1] {
        let room = program.alloc(0, LEN).unwrap();
        program.buffers.push(room);
        program.submit(buffer, buffer, 0..LEN).unwrap();
        program.settle(buffer).unwrap();
    }
    let queue = program.queue(0);
    let arguments = [program.buffers[0].at, LEN as u64, 1, std::ptr::from_ref(go.0) as u64];
    program.devices[0].queues.launch(&queue, kernels()[1], arguments.into_iter(), (false, None)).unwrap();
    program.buffers[0].bytes.iter_mut().for_each(|b| *b = b.wrapping_add(1));
    program.retrieve(0, 0, 0..LEN).unwrap();
    program.retrieve(1, 1, 0..LEN).unwrap();
    let event = program.record(1);
    let device = &program.devices[0];
    let is_complete = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| device.queues.sync_event(&event));
        let since = Instant::now();
        while !waiter.is_finished() && since.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let is_complete = waiter.is_finished();
        drop(go);
        waiter.join().unwrap().unwrap();
        is_complete
    });
    (0..2).for_each(|line| program.synchronize(line).unwrap());
    job.finish();
    assert!(is_complete, "it waits for the region");
}
