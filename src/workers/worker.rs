// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A worker: a process that is one device and has no MPI. Its parent, the rank ([`super::rank`]),
//! does MPI for it.
//!
//! A worker can leave a snapshot: a process made by `fork`, which has the worker's images at their
//! addresses, its arena and the kernels' heap. The snapshot sleeps. Each time the rank wakes it, it
//! forks a new worker. No process sees later changes of another.

pub(crate) use super::packet::receive;
use super::packet::{PACKET_MAX, Packet, Transfer, send};
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::device_main::Checkpoint;
use crate::device_main::crash::exit::{die_with_parent, quit};
use crate::link::Transport;
use crate::link::doorbell::Doorbell;
use crate::mpi::{Received, Request, TAG_MESSAGE};
use crate::sys::process;
use crate::wire::ROOM;
use crate::wire::reply::{Failure, Reply};
use rustc_hash::FxHashMap;
use rustix::process::Pid;
use rustix::thread::set_name;
use std::collections::VecDeque;
use std::io::{PipeReader, Read};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A worker's connection to its rank, which its snapshots share.
pub(crate) struct Worker {
    socket: OwnedFd,
    /// Where a snapshot reads [`wake_order`]s. The pipe is closed when the rank exits.
    wake: PipeReader,
    /// The rank's doorbell.
    rank: Option<Doorbell>,
    generation: AtomicU32,
    snapshot_wanted: AtomicBool,
    /// The worker replays a lost worker's messages.
    replays: AtomicBool,
    /// Snapshots that this process has not reaped. The rank kills all but the last. Only the thread that
    /// forks takes this lock: a snapshot, which has no other thread, finds it free.
    snapshots: Mutex<Vec<Pid>, { order::LEAF }>,
    /// Why every message fails.
    failure: OnceLock<Failure>,
}

impl Worker {
    pub(crate) fn new(socket: OwnedFd, wake: PipeReader, rank: Option<Doorbell>) -> Arc<Worker> {
        // The name that `ps` and `top` show.
        let _ = set_name(c"omp-worker");
        Arc::new(Worker {
            socket,
            wake,
            rank,
            generation: AtomicU32::new(0),
            snapshot_wanted: AtomicBool::new(false),
            replays: AtomicBool::new(false),
            snapshots: Mutex::default(),
            failure: OnceLock::new(),
        })
    }

    fn send(&self, packet: &Packet<'_>) -> Result<()> {
        let mut bytes = Vec::with_capacity(PACKET_MAX);
        packet.write(self.generation.load(Ordering::Relaxed), &mut bytes);
        send(&self.socket, &bytes, true).or_else(exit_if_closed)?;
        if let Some(rank) = &self.rank {
            rank.ring();
        }
        Ok(())
    }

    /// Forks a worker that becomes a child of the rank, its subreaper, and reports it to the rank. Returns true in
    /// the worker, and `None` if there is no memory for it.
    fn fork_orphan(&self) -> Option<bool> {
        // SAFETY: this is the process's only thread, so a child may do anything; the status outlives the call; the
        // process in between owns nothing that exit handlers would clean up.
        unsafe {
            let maker = libc::fork();
            if maker < 0 {
                return None;
            }
            if maker > 0 {
                return (process::reap(maker, true) == Ok(Some(0))).then_some(false);
            }
            let maker = libc::getpid();
            let worker = libc::fork();
            if worker != 0 {
                // The worker does not report itself: the rank must know its process id before the
                // worker exits, or another worker starts.
                let reported = worker > 0 && self.send(&Packet::Awake { pid: worker as u32 }).is_ok();
                libc::_exit(i32::from(!reported))
            }
            // The worker must die with the rank, its next parent, not with the maker, which exits.
            while libc::getppid() == maker {
                libc::sched_yield();
            }
            die_with_parent();
            Some(true)
        }
    }
}

impl Checkpoint for Worker {
    fn is_wanted(&self) -> bool {
        self.snapshot_wanted.load(Ordering::Relaxed)
    }

    fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    fn replays(&self) -> bool {
        self.replays.load(Ordering::Relaxed)
    }

    fn taken(&self, pid: u32) -> Result<()> {
        self.snapshot_wanted.store(false, Ordering::Relaxed);
        let mut snapshots = self.snapshots.lock();
        // The rank must still kill the last one, whose process id must not be reused before.
        if let Some(last) = snapshots.pop() {
            snapshots.retain(|&pid| process::reap(pid.as_raw_pid(), false) == Ok(None));
            snapshots.push(last);
        }
        snapshots.extend(Pid::from_raw(pid as i32));
        drop(snapshots);
        self.send(&Packet::SnapshotTaken { pid })
    }

    fn sleep(&self) -> Result<()> {
        self.snapshot_wanted.store(false, Ordering::Relaxed);
        self.snapshots.lock().clear();
        let _ = set_name(c"omp-spare");
        loop {
            let mut order = [0; size_of::<u64>()];
            (&self.wake).read_exact(&mut order).map_err(|_| Error::Closed)?;
            let order = u64::from_le_bytes(order);
            self.generation.store((order >> 32) as u32, Ordering::Relaxed);
            // If a worker was lost before it could report its snapshot, the rank does not know that snapshot.
            if order as u32 != std::process::id() {
                self.send(&Packet::WrongSnapshot)?;
                // SAFETY: `_exit` runs no exit handlers; these and the crash board are the workers'.
                unsafe { libc::_exit(1) }
            }
            match self.fork_orphan() {
                Some(true) => {
                    let _ = set_name(c"omp-worker");
                    self.replays.store(true, Ordering::Relaxed);
                    return Ok(());
                }
                Some(false) => {}
                None => self.send(&Packet::Awake { pid: 0 })?,
            }
        }
    }
}

/// Exits if the rank has exited.
fn exit_if_closed<T>(e: Error) -> Result<T> {
    if e == Error::Closed { quit(1) } else { Err(e) }
}

/// The order to the snapshot with this process id to fork a worker of this generation.
pub(crate) fn wake_order(snapshot: i32, generation: u32) -> [u8; size_of::<u64>()] {
    (u64::from(generation) << 32 | u64::from(snapshot as u32)).to_le_bytes()
}

/// The [`Transport`] of a worker, through its rank.
pub(crate) struct Channel {
    worker: Arc<Worker>,
    host: usize,
    /// The numbers and addresses of receives for messages.
    posted: VecDeque<(u64, *mut u8)>,
    inbox: VecDeque<Vec<u8>>,
    /// Transfers that the rank has done, and their lengths.
    done: FxHashMap<u64, usize>,
    next: u64,
    packet: Vec<u8>,
}

/// The request of a send that is already done.
const DONE: Request = Request(u64::MAX);

// SAFETY: the link that owns the channel uses it, and the pointers in it, under a lock, from any
// thread; callers of `Transport::receive` promise that the pointers stay valid.
unsafe impl Send for Channel {}

impl Channel {
    pub(crate) fn new(worker: Arc<Worker>, host: usize) -> Channel {
        let (posted, inbox, done) = (VecDeque::new(), VecDeque::new(), FxHashMap::default());
        Channel { worker, host, posted, inbox, done, next: 0, packet: vec![0; PACKET_MAX] }
    }

    fn transfer(&mut self, rank: usize, tag: u32, data: *const u8, len: usize) -> Transfer {
        self.next += 1;
        Transfer { id: self.next, route: (rank as u32, tag), at: data as u64, len: len as u64 }
    }

    /// Reads all packets of the rank.
    fn read(&mut self) -> Result<()> {
        while let Some(len) = receive(&self.worker.socket, &mut self.packet, false).or_else(exit_if_closed)? {
            let (generation, packet) = Packet::parse(&self.packet[..len])?;
            if generation != self.worker.generation.load(Ordering::Relaxed) {
                continue;
            }
            match packet {
                Packet::Message(bytes) => self.inbox.push_back(bytes.to_vec()),
                Packet::Done { id, len } => {
                    self.done.insert(id, len as usize);
                }
                Packet::TakeSnapshot => self.worker.snapshot_wanted.store(true, Ordering::Relaxed),
                Packet::Replayed => self.worker.replays.store(false, Ordering::Relaxed),
                Packet::FailAll(reply) => {
                    if let Reply::Failed { failure, .. } = Reply::parse(reply)? {
                        let _ = self.worker.failure.set(failure);
                    }
                }
                _ => return Err(Error::new("the rank sent its worker what only a worker sends")),
            }
        }
        Ok(())
    }
}

impl Transport for Channel {
    unsafe fn send(&mut self, to: usize, tag: u32, data: *const u8, len: usize) -> Result<Request> {
        if tag != TAG_MESSAGE {
            let transfer = self.transfer(to, tag, data, len);
            self.worker.send(&Packet::Send(transfer))?;
            return Ok(Request(transfer.id));
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(data, len) };
        self.worker.send(&Packet::Message(bytes))?;
        Ok(DONE)
    }

    unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
        if let Some(rank) = from {
            let transfer = self.transfer(rank, tag, data, len);
            self.worker.send(&Packet::Receive(transfer))?;
        } else {
            self.next += 1;
            self.posted.push_back((self.next, data));
        }
        Ok(Request(self.next))
    }

    unsafe fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
        let from = self.host;
        if request.0 == DONE.0 {
            return Ok(Some(Received { from, len: 0 }));
        }
        self.read()?;
        if let Some(len) = self.done.remove(&request.0) {
            return Ok(Some(Received { from, len }));
        }
        let Some(&(_, to)) = self.posted.front().filter(|(id, _)| *id == request.0) else { return Ok(None) };
        let Some(bytes) = self.inbox.pop_front() else { return Ok(None) };
        self.posted.pop_front();
        let len = bytes.len().min(ROOM);
        // SAFETY: the memory was posted with room for a message, and nothing touches it until the
        // request is done.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len) };
        Ok(Some(Received { from, len }))
    }

    unsafe fn cancel(&mut self, request: Request) {
        self.posted.retain(|(id, _)| *id != request.0);
    }

    fn finish(&mut self) {}

    fn abort(&mut self, code: i32) -> ! {
        std::process::exit(code)
    }
}
