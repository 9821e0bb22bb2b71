// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! A worker: a process that is one device and has no MPI. The rank that it belongs to, its
//! parent, speaks MPI for it (see [`super::relay`]).
//!
//! A worker can leave a copy of itself behind, made by `fork`, with the images at their
//! addresses, the arena, the kernels' own heap, all as it was. It sleeps; each time that the
//! rank wakes it, it makes a worker of a further copy. What they change afterwards they do
//! not share.

use super::serve::{die_with_parent, quit};
use crate::base::lock::{Mutex, order};
use crate::base::{Error, Result};
use crate::link::Transport;
use crate::link::bell::Bell;
use crate::mpi::{Received, Request, TAG_MESSAGE};
use crate::wire::ROOM;
use crate::wire::packet::{PACKET_MAX, Packet};
use crate::wire::reply::{Failure, Reply};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::ffi::CStr;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

/// A worker's end of what connects it with its rank; its copies have it too.
pub struct Worker {
    socket: OwnedFd,
    /// Where a copy reads that it shall make a worker, see [`order()`]; its end is the rank's
    /// end.
    wake: File,
    /// The rank's bell, if it has one.
    rank: Option<Bell>,
    generation: AtomicU32,
    /// The rank wants a copy.
    wanted: AtomicBool,
    /// Copies that were not waited for; the rank ends all but the last.
    copies: Mutex<Vec<i32>, { order::LEAF }>,
    failure: OnceLock<Failure>,
}

impl Worker {
    /// A worker of the first generation.
    pub fn new(socket: OwnedFd, wake: File, rank: Option<Bell>) -> Arc<Worker> {
        let (generation, wanted) = (AtomicU32::new(0), AtomicBool::new(false));
        set_name(c"omp-worker");
        Arc::new(Worker { socket, wake, rank, generation, wanted, copies: Mutex::default(), failure: OnceLock::new() })
    }

    fn send(&self, packet: &Packet<'_>) -> Result<()> {
        let mut bytes = Vec::with_capacity(PACKET_MAX);
        packet.write(self.generation.load(Ordering::Relaxed), &mut bytes);
        send(&self.socket, &bytes, true).or_else(gone)?;
        if let Some(rank) = &self.rank {
            rank.ring();
        }
        Ok(())
    }

    /// Why everything that this worker is told fails, if so.
    pub fn failure(&self) -> Option<&Failure> {
        self.failure.get()
    }

    /// True if the rank wants a copy.
    pub fn copy_is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    /// Tells that there is a copy, or by 0 that none can be made.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn copied(&self, pid: u32) -> Result<()> {
        self.wanted.store(false, Ordering::Relaxed);
        let mut copies = self.copies.lock();
        // Not the last one, which the rank has still to end: its number must stay its own.
        if let Some(last) = copies.pop() {
            // SAFETY: no status is asked for.
            copies.retain(|&copy| unsafe { libc::waitpid(copy, std::ptr::null_mut(), libc::WNOHANG) } == 0);
            copies.push(last);
        }
        if pid != 0 {
            copies.push(pid as i32);
        }
        drop(copies);
        self.send(&Packet::Copied { pid })
    }

    /// In a copy: sleeps. Returns in each process that it makes of itself when the rank wakes
    /// it; a child of the rank, as is a copy whose worker has ended.
    ///
    /// # Errors
    /// The rank is gone.
    pub fn sleep(&self) -> Result<()> {
        self.wanted.store(false, Ordering::Relaxed);
        self.copies.lock().clear();
        set_name(c"omp-spare");
        loop {
            let mut order = [0; ORDER_LEN];
            (&self.wake).read_exact(&mut order).map_err(|_| Error::Told)?;
            let (copy, generation) = order.split_at(4);
            self.generation.store(u32::from_le_bytes(generation.try_into().unwrap_or_default()), Ordering::Relaxed);
            // A worker that was lost before it told of its copy has left one more here, which is
            // not as the rank thinks.
            if copy != std::process::id().to_le_bytes() {
                self.send(&Packet::Misled)?;
                // SAFETY: there is nothing to put in order, and the board is the others'.
                unsafe { libc::_exit(1) }
            }
            match self.fork_orphan() {
                Some(true) => {
                    set_name(c"omp-worker");
                    return Ok(());
                }
                Some(false) => {}
                None => self.send(&Packet::Awake { pid: 0 })?,
            }
        }
    }

    /// Makes a process that is a child of this one's subreaper, the rank, and tells that of it;
    /// true in the process. None if there is no memory for it.
    fn fork_orphan(&self) -> Option<bool> {
        // SAFETY: the only thread of this process. The children have nothing to put in order
        // when they end; the status outlives the call.
        unsafe {
            let maker = libc::fork();
            if maker < 0 {
                return None;
            }
            if maker > 0 {
                let mut status = 0;
                return (libc::waitpid(maker, &mut status, 0) == maker && status == 0).then_some(false);
            }
            let maker = libc::getpid();
            let worker = libc::fork();
            if worker != 0 {
                // Here, and not in the worker: the rank knows of it before it can be told of its
                // end, or of another one.
                let told = worker > 0 && self.send(&Packet::Awake { pid: worker as u32 }).is_ok();
                libc::_exit(i32::from(!told))
            }
            // The maker's end, which comes now, must not be this one's; the rank's, whose child
            // it is then, must.
            while libc::getppid() == maker {
                libc::sched_yield();
            }
            die_with_parent();
            Some(true)
        }
    }
}

/// Ends this process if its rank is gone.
fn gone<T>(e: Error) -> Result<T> {
    if e == Error::Told { quit(1) } else { Err(e) }
}

const ORDER_LEN: usize = 8;

/// What a rank writes to have the copy with that process id make a worker of that generation.
pub fn order(copy: i32, generation: u32) -> [u8; ORDER_LEN] {
    (u64::from(generation) << 32 | u64::from(copy as u32)).to_le_bytes()
}

/// What `ps` and `top` call this process.
fn set_name(name: &CStr) {
    // SAFETY: a C string, of which the system copies 15 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, name.as_ptr()) };
}

/// The [`Transport`] of a worker.
pub struct Channel {
    worker: Arc<Worker>,
    host: usize,
    /// Receives for messages: their numbers and places.
    posted: VecDeque<(u64, *mut u8)>,
    inbox: VecDeque<Vec<u8>>,
    /// What is done of that which the rank was asked for, with its bytes.
    done: FxHashMap<u64, usize>,
    next: u64,
    packet: Vec<u8>,
}

/// A request that was done when it was made.
const DONE: Request = Request(u64::MAX);

// SAFETY: the pointers are used under the lock of the link that has the channel;
// `Transport::receive` says how long they are good.
unsafe impl Send for Channel {}

impl Channel {
    /// A channel for a worker whose host is that rank.
    pub fn new(worker: Arc<Worker>, host: usize) -> Channel {
        let (posted, inbox, done) = (VecDeque::new(), VecDeque::new(), FxHashMap::default());
        Channel { worker, host, posted, inbox, done, next: 0, packet: vec![0; PACKET_MAX] }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Reads what the rank has sent. Where that is gone, so is this process.
    fn read(&mut self) -> Result<()> {
        while let Some(len) = receive(&self.worker.socket, &mut self.packet, false).or_else(gone)? {
            let (generation, packet) = Packet::parse(&self.packet[..len])?;
            if generation != self.worker.generation.load(Ordering::Relaxed) {
                continue;
            }
            match packet {
                Packet::Message(bytes) => self.inbox.push_back(bytes.to_vec()),
                Packet::Done { id, len } => {
                    self.done.insert(id, len as usize);
                }
                Packet::Copy => self.worker.wanted.store(true, Ordering::Relaxed),
                Packet::Fail(reply) => {
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
            let (id, rank, at, len) = (self.number(), to as u32, data as u64, len as u64);
            self.worker.send(&Packet::Send { id, rank, tag, at, len })?;
            return Ok(Request(id));
        }
        // SAFETY: the caller's promise.
        let bytes = unsafe { std::slice::from_raw_parts(data, len) };
        self.worker.send(&Packet::Message(bytes))?;
        Ok(DONE)
    }

    unsafe fn receive(&mut self, from: Option<usize>, tag: u32, data: *mut u8, len: usize) -> Result<Request> {
        let id = self.number();
        match from {
            Some(rank) => {
                let (rank, at, len) = (rank as u32, data as u64, len as u64);
                self.worker.send(&Packet::Receive { id, rank, tag, at, len })?;
            }
            None => self.posted.push_back((id, data)),
        }
        Ok(Request(id))
    }

    fn test(&mut self, request: &mut Request) -> Result<Option<Received>> {
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
        // SAFETY: the place was posted with room for a message and is not touched since.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len) };
        Ok(Some(Received { from, len }))
    }

    fn cancel(&mut self, request: Request) {
        self.posted.retain(|(id, _)| *id != request.0);
    }

    fn finish(&mut self) {}

    fn abort(&mut self, code: i32) -> ! {
        std::process::exit(code)
    }
}

/// Receives a packet; none if there is none and `waits` is false.
///
/// # Errors
/// The other end is closed.
pub fn receive(socket: &OwnedFd, packet: &mut [u8], waits: bool) -> Result<Option<usize>> {
    let flags = if waits { 0 } else { libc::MSG_DONTWAIT };
    loop {
        // SAFETY: the buffer has the size that is passed.
        let n = unsafe { libc::recv(socket.as_raw_fd(), packet.as_mut_ptr().cast(), packet.len(), flags) };
        if n > 0 {
            return Ok(Some(n as usize));
        }
        let e = std::io::Error::last_os_error();
        match e.kind() {
            // A packet is never empty.
            _ if n == 0 => return Err(Error::Told),
            ErrorKind::WouldBlock => return Ok(None),
            ErrorKind::Interrupted => {}
            ErrorKind::ConnectionReset => return Err(Error::Told),
            _ => return Err(Error::from(e).context("the socket between a rank and its worker")),
        }
    }
}

/// Sends a packet; false if there is no room for it now and `waits` is false.
///
/// # Errors
/// The other end is closed.
pub fn send(socket: &OwnedFd, packet: &[u8], waits: bool) -> Result<bool> {
    let flags = libc::MSG_NOSIGNAL | if waits { 0 } else { libc::MSG_DONTWAIT };
    loop {
        // SAFETY: the buffer has the size that is passed.
        let n = unsafe { libc::send(socket.as_raw_fd(), packet.as_ptr().cast(), packet.len(), flags) };
        if n >= 0 {
            return Ok(true);
        }
        let e = std::io::Error::last_os_error();
        match e.kind() {
            ErrorKind::WouldBlock => return Ok(false),
            ErrorKind::Interrupted => {}
            ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => return Err(Error::Told),
            _ => return Err(Error::from(e).context("the socket between a rank and its worker")),
        }
    }
}
