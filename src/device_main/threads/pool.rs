// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The threads of a device: one receives, one watches the receiver, others execute or are idle.
//!
//! The receiver executes each message as soon as it receives it. Before it calls a kernel, it records that in the
//! [`ReceiverToken`]. If the kernel has not returned after some tens of microseconds, the watching
//! thread takes the token and receives instead. Thus a short kernel costs no hand-over, and a long one
//! delays no message.
//!
//! Each thread that runs kernels, and the thread that loads libomp, is a root of libomp, with a team whose threads spin
//! after a kernel. Unnecessary roots are a lasting cost: once libomp knows more threads than there are cores, all of
//! them yield at barriers. So the thread that ran the last kernel takes the token back if it lost the token in a long
//! action. If the receiver does not offer the token in time, the thread claims it before it replies, and the receiver
//! passes it on, at the latest with the next kernel. Idle threads take messages only if neither that thread nor a
//! receiver that will pass the token on to it can take them. Idle roots take messages first, and a receiver that is no
//! root leaves kernels to idle roots.

use super::idle_threads::IdleThreads;
use super::placement::Placement;
use super::receiver_token::ReceiverToken;
use super::work_queue::WorkQueue;
use crate::base::Error;
use crate::base::limits::THREADS;
use crate::base::lock::{Mutex, order};
use crate::device_main::crash::monitor;
use crate::device_main::messages::work::Work;
use rustix::process::{Resource, getrlimit};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Period of the watching thread. A receiver that it sees twice in the same kernel is late.
const PERIOD: Duration = Duration::from_micros(50);
/// The watching thread sleeps when nothing has run for this long.
const REST: Duration = Duration::from_millis(5);
/// How often a thread looks for an offer of the token. This takes longer than one poll by the receiver.
const LOOKS: u32 = 200;
/// How often a thread that claims the token looks for it: for about a second, which covers the loading of an image, or,
/// if a message is ready, for some milliseconds.
const CLAIM_LOOKS: (u32, u32) = (5000, 10);

/// No thread's slot.
const NONE: usize = usize::MAX;

/// The threads of a device, and the messages that are ready for any of them.
#[derive(Default)]
pub(crate) struct Pool {
    token: ReceiverToken,
    ready: WorkQueue,
    /// Messages that the receiver has left to idle threads.
    handed_over: WorkQueue,
    /// Something has become ready since the last [`Pool::hand_out`].
    has_news: AtomicBool,
    threads: AtomicUsize,
    /// Threads that have started to run.
    begun: AtomicUsize,
    idle: IdleThreads,
    /// The slot of the thread that ran the last kernel or, before any kernel, of the thread that preloads libomp.
    home: AtomicUsize,
    /// The slot of the receiver; [`NONE`] while a thread that has taken the token has not begun to receive.
    receiver: AtomicUsize,
    /// A bit is set for the slot of each root of libomp.
    roots: AtomicU64,
    /// The receiver can be woken.
    has_doorbell: AtomicBool,
    /// The number of threads that are in a long action in which they lost the token, or that want the token.
    away: AtomicUsize,
    /// A message that goes to another thread with the token.
    passed_on: Mutex<Option<Box<Work>>, { order::LEAF }>,
}

/// The calling thread as one of the pool.
pub(crate) struct Me {
    /// Its index in all tables of threads.
    pub slot: usize,
    pub receiving: bool,
    /// It lost the token in a long action, and got it back.
    pub was_long: bool,
    /// It ran the last kernel but does not own the token, and should get it.
    wants: bool,
    /// It claims the token.
    claims: bool,
    /// It has used libomp, and remains a root of libomp.
    is_root: bool,
    pub place: Placement,
}

impl Me {
    fn new(slot: usize, receiving: bool) -> Me {
        Me { slot, receiving, was_long: false, wants: false, claims: false, is_root: false, place: Placement::new() }
    }

    /// True if the thread neither receives nor is to receive again: it may go on with another message.
    pub fn is_free(&self) -> bool {
        !self.receiving && !self.wants
    }
}

pub(crate) trait Serve: Send + Sync + 'static {
    /// Kernels run on an idle root of libomp if there is one.
    const KEEPS_ROOTS: bool;

    fn pool(&self) -> &Pool;
    /// Receives and executes until another thread takes the token.
    fn receive(self: &Arc<Self>, me: &mut Me);
    fn execute(&self, me: &mut Me, work: Box<Work>);
    fn die(&self, why: &Error) -> !;
}

/// Makes the calling thread the first one of the pool and the receiver.
pub(crate) fn serve<S: Serve>(server: &Arc<S>) -> ! {
    let mut me = server.pool().first();
    monitor::use_slot(me.slot);
    add_thread(server);
    // A starting thread takes the dynamic loader's lock (glibc registers destructors of thread-local variables). Wait
    // for that: if this thread later holds the lock in an image's constructor that never returns, the other thread has
    // to report it.
    while server.pool().begun.load(Ordering::Acquire) < 2 {
        std::thread::yield_now();
    }
    loop {
        server.receive(&mut me);
        stand_by(server, &mut me);
    }
}

/// Starts an idle thread; false if the table of threads is full.
pub(crate) fn add_thread<S: Serve>(server: &Arc<S>) -> bool {
    let pool = server.pool();
    let slot = pool.threads.fetch_add(1, Ordering::Relaxed);
    if slot >= THREADS {
        pool.threads.fetch_sub(1, Ordering::Relaxed);
        return false;
    }
    pool.idle.begin_start();
    let server_of_thread = server.clone();
    let spawned = std::thread::Builder::new().stack_size(stack_limit()).spawn(move || {
        let (server, mut me) = (server_of_thread, Me::new(slot, false));
        monitor::use_slot(slot);
        server.pool().begun.fetch_add(1, Ordering::Release);
        server.pool().idle.end_start();
        loop {
            stand_by(&server, &mut me);
            server.receive(&mut me);
        }
    });
    if let Err(e) = spawned {
        server.die(&Error::from(e).context("can't start a thread"));
    }
    true
}

/// Waits for work and does it, until the calling thread has become the receiver.
fn stand_by<S: Serve>(server: &Arc<S>, me: &mut Me) {
    let pool = server.pool();
    if !pool.become_idle(me) {
        return;
    }
    while !me.receiving {
        if let Some(work) = ready_for_idle_thread(server, me) {
            pool.idle.has_left(me.is_root, || pool.has_work_for_idle());
            if S::KEEPS_ROOTS {
                pool.want_back(me);
            }
            server.execute(me, work);
            if !pool.become_idle(me) {
                return;
            }
        } else if pool.idle.begin_watch(me.is_root) {
            me.receiving = pool.watch(me);
            pool.idle.end_watch();
            if !me.receiving {
                let _ = pool.idle.wake_one();
            }
        } else {
            pool.idle.rest(me.is_root, &pool.token, || pool.has_work_for_idle());
        }
    }
    let was_last = pool.idle.leave();
    pool.idle.has_left(me.is_root, || pool.has_work_for_idle());
    if was_last && !add_thread(server) {
        // No thread is idle, and this one is the receiver now.
        while let Some(work) = pool.handed_over.pop() {
            pool.push(work);
        }
    }
}

/// A ready message, but not for the last idle thread, which must be free to replace the receiver.
fn ready_for_idle_thread<S: Serve>(server: &Arc<S>, me: &Me) -> Option<Box<Work>> {
    let pool = server.pool();
    if pool.leaves_to_root(me) {
        return None;
    }
    let ready = || if pool.has_work_for_idle() { pool.next(None) } else { None };
    let work = pool.handed_over.pop().or_else(ready)?;
    if pool.idle.leave_unless_last() || (add_thread(server) && pool.idle.leave_unless_last()) {
        return Some(work);
    }
    pool.ready.change(|ready| ready.push_front(work));
    pool.has_news.store(true, Ordering::Relaxed);
    None
}

impl Pool {
    pub fn new() -> Pool {
        Pool::default()
    }

    fn first(&self) -> Me {
        self.threads.store(1, Ordering::Relaxed);
        self.begun.store(1, Ordering::Relaxed);
        self.home.store(0, Ordering::Relaxed);
        self.receiver.store(0, Ordering::Relaxed);
        self.roots.store(0, Ordering::Relaxed);
        Me::new(0, true)
    }

    /// Runs an action that may take long. If another thread becomes the receiver meanwhile, `me.receiving` is false
    /// afterwards.
    #[inline]
    pub fn long<R>(&self, me: &mut Me, action: impl FnOnce() -> R) -> R {
        let token = if me.receiving { self.token.begin_long() } else { 0 };
        let result = action();
        if me.receiving && !self.token.end_long(token) {
            self.take_back(me);
        }
        result
    }

    /// The calling thread is about to use libomp.
    #[inline]
    pub fn settle(&self, me: &mut Me) {
        if !me.is_root {
            me.is_root = true;
            self.roots.fetch_or(1 << me.slot, Ordering::Relaxed);
        }
        if self.home.load(Ordering::Relaxed) != me.slot {
            self.home.store(me.slot, Ordering::Relaxed);
        }
    }

    /// The calling thread has become the receiver. `has_doorbell`: a doorbell can wake it; otherwise only a timeout
    /// can.
    pub fn begin_receiving(&self, me: &Me, has_doorbell: bool) {
        self.receiver.store(me.slot, Ordering::Relaxed);
        self.has_doorbell.store(has_doorbell, Ordering::Relaxed);
    }

    #[cold]
    fn take_back(&self, me: &mut Me) {
        let is_home = self.home.load(Ordering::Relaxed) == me.slot;
        let looks = if is_home { LOOKS } else { 0 };
        me.receiving = (0..looks).any(|_| {
            std::hint::spin_loop();
            self.token.take_offered()
        });
        (me.was_long, me.wants) = (me.receiving, is_home && !me.receiving);
        if me.receiving {
            self.receiver.store(me.slot, Ordering::Relaxed);
        } else {
            let _ = self.receiver.compare_exchange(me.slot, NONE, Ordering::Relaxed, Ordering::Relaxed);
        }
        if !me.wants {
            self.away.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// A thread that wants the token claims it: kernels that the host launches after this run on no other thread.
    /// The thread must not block until it stands by.
    #[inline]
    pub fn claim(&self, me: &mut Me) {
        if me.wants {
            me.claims = self.token.claim();
        }
    }

    /// The calling thread becomes idle; false if it wanted the token and is the receiver now.
    fn become_idle(&self, me: &mut Me) -> bool {
        if me.wants {
            return self.reclaim(me);
        }
        self.idle.enter(me.is_root);
        true
    }

    /// Waits for the token that the calling thread wants. If the thread does not get the token, the result is true, and
    /// the thread is idle before its claim ends, so that no other thread takes the messages that were left to it.
    #[cold]
    fn reclaim(&self, me: &mut Me) -> bool {
        let most = || if self.ready.is_empty() { CLAIM_LOOKS.0 } else { CLAIM_LOOKS.1 };
        let mut is_idle = false;
        let mut become_idle = || {
            self.idle.enter(me.is_root);
            is_idle = true;
        };
        if me.claims || self.token.claim() {
            me.receiving = self.token.end_claim(|looks| looks < most(), become_idle);
        } else {
            become_idle();
        }
        (me.was_long, me.wants, me.claims) = (me.receiving, false, false);
        self.away.fetch_sub(1, Ordering::Relaxed);
        is_idle
    }

    /// The calling thread, which was idle, is about to execute a message. If it ran the last kernel, it wants the
    /// token, unless the receiver is a root, which can run the next kernel.
    fn want_back(&self, me: &mut Me) {
        let receiver = self.receiver.load(Ordering::Relaxed);
        let root_receives = receiver != NONE && self.roots.load(Ordering::Relaxed) >> receiver & 1 == 1;
        if me.is_root && self.home.load(Ordering::Relaxed) == me.slot && !root_receives {
            me.wants = true;
            self.away.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// True if another thread claims the token.
    #[inline]
    pub fn is_claimed(&self) -> bool {
        self.token.is_claimed()
    }

    /// The receiver passes the token, with a message, to the thread that claims it. If no thread claims the token any
    /// more, `me` stays the receiver, and gets the message back.
    #[cold]
    pub fn pass_on(&self, me: &mut Me, work: Option<Box<Work>>) -> Option<Box<Work>> {
        *self.passed_on.lock() = work;
        self.receiver.store(self.home.load(Ordering::Relaxed), Ordering::Relaxed);
        me.receiving = !self.token.pass_on();
        if !me.receiving {
            return None;
        }
        self.receiver.store(me.slot, Ordering::Relaxed);
        self.passed_on()
    }

    /// Takes the message that the receiver got with the token.
    pub fn passed_on(&self) -> Option<Box<Work>> {
        self.passed_on.lock().take()
    }

    /// True if another thread is in a long action in which it lost the token, or wants the token.
    #[inline]
    pub fn stands_in(&self) -> bool {
        self.away.load(Ordering::Relaxed) > 0
    }

    /// Pauses the receiver. If it stands in for another thread, that thread may take the token; then `me.receiving` is
    /// false afterwards.
    #[inline]
    pub fn pause(&self, me: &mut Me, pause: impl FnOnce()) {
        if !self.stands_in() {
            return pause();
        }
        let offer = self.token.offer();
        pause();
        me.receiving = self.token.retract(offer);
    }

    /// True if the calling thread leaves a kernel to an idle root.
    #[inline]
    pub fn leaves_to_root(&self, me: &Me) -> bool {
        self.idle.leaves_to_root(me.is_root)
    }

    /// True if a thread could replace the receiver.
    #[inline]
    pub fn has_idle_thread(&self) -> bool {
        self.idle.count() > 0
    }

    /// Watches the receiver. True if this thread took the token, false if there is work, or a root that can watch.
    fn watch(&self, me: &Me) -> bool {
        self.token.begin_watch();
        // Sleeps until a long action begins: a thread that has just taken the token seldom runs a kernel.
        let (mut last, mut since) = (Some(self.token.look()).filter(|&state| !ReceiverToken::is_long(state)), None);
        // For a message that was handed over, even the last idle thread stops watching: it starts another thread.
        let has_other_work = || {
            self.leaves_to_root(me)
                || !self.handed_over.is_empty()
                || (self.has_work_for_idle() && self.idle.count() > 1)
        };
        loop {
            if has_other_work() {
                return false;
            }
            let state = self.token.look();
            if last != Some(state) {
                (last, since) = (Some(state), Some(Instant::now()));
            } else if self.take_over(state) {
                return true;
            } else if since.is_none_or(|since| since.elapsed() > REST) {
                self.token.rest(state, || !has_other_work());
                continue;
            }
            std::thread::sleep(PERIOD);
        }
    }

    fn take_over(&self, state: u64) -> bool {
        if !ReceiverToken::is_long(state) {
            return false;
        }
        // Count this before the receiver can notice that it lost the token.
        self.away.fetch_add(1, Ordering::Relaxed);
        let taken = self.token.take_over(state);
        if !taken {
            self.away.fetch_sub(1, Ordering::Relaxed);
        }
        taken
    }

    /// Wakes idle threads if messages are ready for them. True if messages have become ready since the last call: the
    /// receiver, which may sleep, must check.
    #[must_use]
    pub fn hand_out(&self) -> bool {
        if self.has_work_for_idle() {
            let _ = self.idle.wake_one();
            self.token.wake_watcher();
        }
        self.has_news.load(Ordering::Relaxed) && self.has_news.swap(false, Ordering::Relaxed)
    }

    /// Takes a message: one that is ready, before one that has arrived just now.
    #[inline]
    pub fn next(&self, arrived: Option<Box<Work>>) -> Option<Box<Work>> {
        if self.ready.is_empty() {
            return arrived;
        }
        self.ready.change(|ready| {
            ready.extend(arrived);
            ready.pop_front()
        })
    }

    /// The receiver leaves a message to an idle thread; returns the message if there may be no such thread.
    pub fn hand_over(&self, work: Box<Work>) -> Option<Box<Work>> {
        let may_start = self.threads.load(Ordering::Relaxed) < THREADS;
        // The last idle thread must be free to replace the receiver.
        if self.idle.count() <= usize::from(!may_start) {
            return Some(work);
        }
        self.handed_over.push(work);
        // The woken thread may leave the message to the watching thread.
        if !self.idle.wake_one() || self.idle.root_watches() {
            self.token.wake_watcher();
        }
        None
    }

    /// True if a message is ready that an idle thread may take.
    fn has_work_for_idle(&self) -> bool {
        !self.handed_over.is_empty() || (!self.ready.is_empty() && !self.is_left_to_receiver())
    }

    /// True if idle threads leave ready messages to the receiver, so that the next kernel runs where the last one ran:
    /// the receiver ran it and is not busy, or the receiver will pass the token on to the thread that ran it.
    fn is_left_to_receiver(&self) -> bool {
        let is_home = self.receiver.load(Ordering::Relaxed) == self.home.load(Ordering::Relaxed)
            && self.has_doorbell.load(Ordering::Relaxed);
        self.is_claimed() || (is_home && !ReceiverToken::is_long(self.token.look()))
    }

    pub fn push(&self, work: Box<Work>) {
        self.ready.push(work);
        self.has_news.store(true, Ordering::Relaxed);
    }

    pub fn append(&self, works: &mut VecDeque<Box<Work>>) {
        if !works.is_empty() {
            self.ready.change(|ready| ready.append(works));
            self.has_news.store(true, Ordering::Relaxed);
        }
    }

    /// Keeps all threads but the calling one idle while the value lives; `None` if there is work.
    pub fn hold_idle(&self) -> Option<impl Sized> {
        let threads = self.threads.load(Ordering::Relaxed);
        // A thread that holds one of these locks is not idle.
        let held = (self.idle.hold()?, self.ready.hold_empty()?, self.token.lock());
        (self.idle.are(threads - 1) && self.begun.load(Ordering::Acquire) == threads).then_some(held)
    }

    /// For a process forked under [`Pool::hold_idle`]: the calling thread is the only one, and the receiver.
    pub fn start_anew(&self) -> Me {
        self.token.reset();
        self.away.store(0, Ordering::Relaxed);
        self.idle.start_anew();
        self.first()
    }
}

/// Stack size of threads that run kernels: that of a main thread, within limits.
pub(crate) fn stack_limit() -> usize {
    getrlimit(Resource::Stack).current.map_or(64 << 20, |bytes| (bytes as usize).max(8 << 20))
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/threads/pool.rs"]
mod tests;
