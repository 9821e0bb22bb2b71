// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Checks some protocols between threads in every order of steps with few preemptions: files that take their
//! primitives from `src/base/sync.rs` are included here over loom's.
//!
//! Time is not modelled. A timed sleep never ends here, so a model that depends on the timeout deadlocks, and loom
//! finds that. The patient thread of a progress lock that has the watch does depend on it: it yields instead.

use base::sync::{AtomicUsize, Mutex, Ordering, Thread, current, park};
use device_main::backend::cpu::unified::running::{Held, Running};
use device_main::threads::receiver_token::ReceiverToken;
use link::sleepers::Sleepers;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use plugin::messages::pending::Pending;
use plugin::progress::progress_lock::ProgressLock;

/// `crate::base::sync` and `crate::base::lock` for the files included here.
mod base {
    /// Without the check of their order.
    pub mod lock {
        pub mod order {
            pub const UNIFIED: u8 = 0;
        }

        pub type Guard<'a, T, const ORDER: u8> = loom::sync::MutexGuard<'a, T>;

        #[derive(Debug, Default)]
        pub struct Mutex<T, const ORDER: u8>(super::sync::Mutex<T>);

        impl<T, const ORDER: u8> Mutex<T, ORDER> {
            pub fn lock(&self) -> Guard<'_, T, ORDER> {
                self.0.lock()
            }
        }
    }

    pub mod sync {
        pub use loom::hint::spin_loop;
        pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
        use std::sync::Arc;

        /// A thread that can be parked. loom's own loses an `unpark` of a thread that waits for a lock.
        #[derive(Clone, Debug, Default)]
        pub struct Thread(Arc<(Mutex<bool>, loom::sync::Condvar)>);

        loom::thread_local! {
            static CURRENT: Thread = Thread::default();
        }

        pub fn current() -> Thread {
            CURRENT.with(Thread::clone)
        }

        pub fn park() {
            let (unparked, changed) = &*current().0;
            let mut unparked = unparked.lock();
            while !*unparked {
                unparked = changed.wait(unparked).unwrap();
            }
            *unparked = false;
        }

        pub fn park_timeout(_: std::time::Duration) {
            park();
        }

        impl Thread {
            pub fn unpark(&self) {
                let (unparked, changed) = &*self.0;
                *unparked.lock() = true;
                changed.notify_one();
            }

            pub fn id(&self) -> *const () {
                Arc::as_ptr(&self.0).cast()
            }
        }

        #[derive(Debug, Default)]
        pub struct Mutex<T>(loom::sync::Mutex<T>);

        impl<T> Mutex<T> {
            pub fn lock(&self) -> loom::sync::MutexGuard<'_, T> {
                self.0.lock().unwrap()
            }
        }

        /// loom treats SeqCst as AcqRel, but models fences. A store followed by a fence, and a load after a fence,
        /// are what compilers make of SeqCst.
        macro_rules! atomic {
            ($name:ident, $value:ty) => {
                #[derive(Debug, Default)]
                pub struct $name(loom::sync::atomic::$name);

                #[allow(dead_code, reason = "not every type needs every operation")]
                impl $name {
                    pub fn new(value: $value) -> $name {
                        $name(loom::sync::atomic::$name::new(value))
                    }

                    pub fn load(&self, order: Ordering) -> $value {
                        if order == Ordering::SeqCst {
                            fence(order);
                        }
                        self.0.load(if order == Ordering::SeqCst { Ordering::Acquire } else { order })
                    }

                    pub fn store(&self, value: $value, order: Ordering) {
                        self.0.store(value, if order == Ordering::SeqCst { Ordering::Release } else { order });
                        if order == Ordering::SeqCst {
                            fence(order);
                        }
                    }

                    pub fn compare_exchange(
                        &self,
                        old: $value,
                        new: $value,
                        order: Ordering,
                        failure: Ordering,
                    ) -> Result<$value, $value> {
                        self.0.compare_exchange(old, new, order, failure)
                    }
                }
            };
        }
        atomic!(AtomicBool, bool);
        atomic!(AtomicU64, u64);
        atomic!(AtomicUsize, usize);

        impl AtomicBool {
            /// Writes nothing if the value stays the same: loom does not see that other writes come after such a
            /// write.
            pub fn swap(&self, value: bool, order: Ordering) -> bool {
                let old = self.0.compare_exchange(!value, value, order, Ordering::Acquire);
                old.unwrap_or_else(|old| old)
            }
        }

        impl AtomicUsize {
            pub fn fetch_add(&self, n: usize, order: Ordering) -> usize {
                self.0.fetch_add(n, order)
            }

            pub fn fetch_sub(&self, n: usize, order: Ordering) -> usize {
                self.0.fetch_sub(n, order)
            }

            pub fn fetch_or(&self, bits: usize, order: Ordering) -> usize {
                self.0.fetch_or(bits, order)
            }

            pub fn fetch_and(&self, bits: usize, order: Ordering) -> usize {
                self.0.fetch_and(bits, order)
            }
        }

        impl AtomicU64 {
            pub fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
                self.0.fetch_add(n, order)
            }
        }
    }
}

#[path = "../../src/link"]
mod link {
    #[allow(dead_code, reason = "a test of the product uses more")]
    pub mod sleepers;
}

#[path = "../../src/plugin"]
#[allow(dead_code, reason = "what the product asks besides")]
mod plugin {
    pub mod messages {
        pub mod pending;
    }

    pub mod progress {
        pub mod progress_lock;
    }
}

#[allow(dead_code, reason = "what a copy of the process needs")]
#[path = "../../src/device_main"]
mod device_main {
    pub mod backend {
        pub mod cpu {
            pub mod unified {
                pub mod running;
            }
        }
    }
    pub mod threads {
        pub mod receiver_token;
    }
}

/// Runs `model` in every order with at most `interruptions` preemptions.
fn check(interruptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

// ---- doorbells -----------------------------------------------------------------------

/// The kernel's side of a futex.
#[derive(Default)]
struct Futex {
    lock: loom::sync::Mutex<()>,
    changed: loom::sync::Condvar,
}

impl Futex {
    fn wait(&self, word: &AtomicU32, value: u32) {
        let lock = self.lock.lock().unwrap();
        if word.load(Ordering::SeqCst) == value {
            drop(self.changed.wait(lock).unwrap());
        }
    }

    fn wake(&self) {
        let _lock = self.lock.lock().unwrap();
        self.changed.notify_all();
    }
}

/// No sleeper misses a send.
#[test]
fn no_ring_is_lost() {
    check(3, || {
        let shared = Arc::new((Sleepers::default(), Futex::default(), AtomicU32::new(0)));
        let senders: Vec<_> = (0..2)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || {
                    let (sleepers, futex, sent) = &*shared;
                    sent.fetch_add(1, Ordering::Release);
                    sleepers.ring(|_| futex.wake());
                })
            })
            .collect();
        let (sleepers, futex, sent) = &*shared;
        loop {
            let announced = sleepers.announce();
            if sent.load(Ordering::Acquire) == 2 {
                sleepers.retract();
                break;
            }
            sleepers.sleep(announced, |word, value| futex.wait(word, value));
        }
        senders.into_iter().for_each(|s| s.join().unwrap());
        assert!(sleepers.is_empty());
    });
}

// ---- waiting threads ---------------------------------------------------------------

/// A device that answers requests when a thread polls. The answer is a word in the requester's memory.
struct Device {
    pending: Vec<Pending>,
    words: Vec<UnsafeCell<usize>>,
    /// Threads without an answer.
    asked: Mutex<Vec<usize>>,
    progress: ProgressLock,
}

// SAFETY: loom checks all accesses to the words.
unsafe impl Sync for Device {}

impl Device {
    fn new(threads: usize, spins: u32) -> Arc<Device> {
        Arc::new(Device {
            pending: (0..threads).map(|_| Pending::default()).collect(),
            words: (0..threads).map(UnsafeCell::new).collect(),
            asked: Mutex::default(),
            progress: ProgressLock::new(spins),
        })
    }

    fn ask(&self, me: usize) {
        self.pending[me].begin();
        self.asked.lock().push(me);
    }

    fn answer_one(&self) {
        let asked = self.asked.lock().pop();
        if let Some(who) = asked {
            self.words[who].with_mut(|word| {
                // SAFETY: the requester reads the word only after `end`.
                unsafe { *word += 100 }
            });
            self.pending[who].end();
        }
    }

    /// A short form of `Waiting::wait_until`.
    fn wait(&self, me: usize) {
        let pending = &self.pending[me];
        let done = || pending.is_idle();
        while !done() {
            if self.progress.try_lock().is_none() {
                self.progress.sleep(Some(pending), &done);
                continue;
            }
            while !done() {
                self.answer_one();
            }
            self.progress.unlock();
        }
    }

    /// The same of threads that have waited for long.
    fn wait_patiently(&self, me: usize) {
        let pending = &self.pending[me];
        let done = || pending.is_idle();
        let mut watch = None;
        while !done() {
            if self.progress.try_lock().is_some() {
                self.answer_one();
                self.progress.unlock();
            }
            watch = watch.or_else(|| self.progress.watch());
            // The thread with the watch checks by itself.
            match watch {
                Some(_) => thread::yield_now(),
                None => self.progress.rest(&mut watch, Some(pending), &done),
            }
        }
    }

    /// The thread with the watch, whose own wait ends last.
    fn keep_watch(&self) {
        let _watch = self.progress.watch();
        while !self.pending.iter().all(Pending::is_idle) {
            self.answer_one();
            thread::yield_now();
        }
    }

    fn serve(&self, me: usize, wait: fn(&Device, usize)) {
        self.ask(me);
        wait(self, me);
        let word = self.words[me].with(|word| {
            // SAFETY: the wait is over, so the word is written.
            unsafe { *word }
        });
        assert_eq!(word, me + 100);
    }
}

/// Threads ask, and wait for their answers.
fn check_waits((threads, spins, interruptions): (usize, u32, usize), wait: fn(&Device, usize)) {
    check(interruptions, move || {
        let device = Device::new(threads, spins);
        let others: Vec<_> = (1..threads)
            .map(|n| {
                let device = device.clone();
                thread::spawn(move || device.serve(n, wait))
            })
            .collect();
        device.serve(0, wait);
        others.into_iter().for_each(|t| t.join().unwrap());
    });
}

/// Every waiting thread gets its answer, and is woken when it must drive.
#[test]
fn waiting_threads_drive_one_after_the_other() {
    for size in [(2, 0, 3), (2, 1, 3), (3, 0, 2)] {
        check_waits(size, Device::wait);
    }
}

/// Patient threads get their answers, and one of them always has the watch.
#[test]
fn patient_threads_keep_watch_one_after_the_other() {
    for size in [(2, 0, 3), (3, 0, 2)] {
        check_waits(size, Device::wait_patiently);
    }
}

/// The end of its own wait wakes a thread that rests.
#[test]
fn a_thread_that_rests_is_woken_although_the_watch_is_not_passed_on() {
    check(3, || {
        let device = Device::new(1, 0);
        let watch = device.progress.watch();
        device.ask(0);
        let other = device.clone();
        let thread = thread::spawn(move || other.keep_watch());
        device.wait_patiently(0);
        thread.join().unwrap();
        drop(watch);
    });
}

// ---- who receives ------------------------------------------------------------------

/// A device with two threads, one of which receives.
#[derive(Default)]
struct Threads {
    token: ReceiverToken,
    /// Only the receiver accesses this.
    received: UnsafeCell<usize>,
    ready: AtomicUsize,
    /// Messages that the receiver has left to idle threads.
    handed_over: AtomicUsize,
    /// Idle threads that sleep.
    resting: Mutex<Vec<Thread>>,
    /// True once the second message has arrived; a kernel waits with this lock.
    served: loom::sync::Mutex<bool>,
    changed: loom::sync::Condvar,
}

// SAFETY: loom checks all accesses.
unsafe impl Sync for Threads {}

impl Threads {
    fn receive(&self) {
        self.received.with_mut(|n| {
            // SAFETY: only the receiver calls this.
            unsafe { *n += 1 }
        });
    }

    /// True if something is ready for a thread that does not claim the token.
    fn has_work(&self) -> bool {
        let is_handed_over = self.handed_over.load(Ordering::SeqCst) != 0;
        is_handed_over || (self.ready.load(Ordering::SeqCst) != 0 && !self.token.is_claimed())
    }

    /// What `Pool::hand_over` does if no idle thread is a root of libomp.
    fn hand_over(&self) {
        self.handed_over.store(1, Ordering::SeqCst);
        match self.resting.lock().pop() {
            Some(thread) => thread.unpark(),
            None => self.token.wake_watcher(),
        }
    }

    /// What `Pool::rest` does while another thread watches.
    fn rest(&self) {
        self.resting.lock().push(current());
        if !self.has_work() {
            park();
        }
    }

    /// Runs the watching thread until it receives (true) or finds work.
    fn watch(&self) -> bool {
        self.token.begin_watch();
        let mut last = 0;
        loop {
            if self.has_work() {
                return false;
            }
            let role = self.token.look();
            if role != last {
                last = role;
            } else if self.token.take_over(role) {
                return true;
            } else {
                self.token.rest(role, || !self.has_work());
            }
            thread::yield_now();
        }
    }
}

/// While a long kernel runs, another thread receives; never do two threads receive.
#[test]
fn a_long_kernel_does_not_stop_the_receiving() {
    for short in [0, 1] {
        check(3, move || {
            let threads = Arc::new(Threads::default());
            let watching = threads.clone();
            let watcher = thread::spawn(move || {
                assert!(watching.watch());
                watching.receive();
                *watching.served.lock().unwrap() = true;
                watching.changed.notify_all();
            });
            let mut receives = true;
            for _ in 0..short {
                let role = threads.token.begin_long();
                thread::yield_now();
                receives = threads.token.end_long(role);
            }
            if receives {
                threads.receive();
                // This kernel waits for what the next message brings.
                let role = threads.token.begin_long();
                let mut served = threads.served.lock().unwrap();
                while !*served {
                    served = threads.changed.wait(served).unwrap();
                }
                drop(served);
                assert!(!threads.token.end_long(role), "two threads receive");
            }
            watcher.join().unwrap();
        });
    }
}

/// A thread that has lost the token in a long kernel takes it back while the other one waits; never do two receive.
#[test]
fn the_token_goes_back_while_its_owner_waits() {
    check(3, || {
        let threads = Arc::new(Threads::default());
        let watching = threads.clone();
        let watcher = thread::spawn(move || {
            assert!(watching.watch());
            watching.receive();
            let offer = watching.token.offer();
            thread::yield_now();
            if watching.token.retract(offer) {
                watching.receive();
                // It sleeps for ever.
                watching.token.offer();
            }
        });
        threads.receive();
        let kernel = threads.token.begin_long();
        thread::yield_now();
        if !threads.token.end_long(kernel) {
            while !threads.token.take_offered() {
                thread::yield_now();
            }
            threads.receive();
        } else {
            // For the watching thread to take over.
            threads.token.begin_long();
        }
        watcher.join().unwrap();
    });
}

/// A thread that has lost the token in a long kernel gets it, whether it is offered or passed on; never do two receive.
#[test]
fn a_claimed_token_is_passed_on() {
    check(3, || {
        let (threads, is_over) = (Arc::new(Threads::default()), Arc::new(AtomicUsize::default()));
        let (watching, is_over_there) = (threads.clone(), is_over.clone());
        let watcher = thread::spawn(move || {
            assert!(watching.watch());
            watching.receive();
            let offer = watching.token.offer();
            thread::yield_now();
            if !watching.token.retract(offer) {
                return;
            }
            watching.receive();
            while is_over_there.load(Ordering::Relaxed) == 0 {
                if watching.token.is_claimed() && watching.token.pass_on() {
                    return;
                }
                thread::yield_now();
            }
        });
        threads.receive();
        let kernel = threads.token.begin_long();
        thread::yield_now();
        if !threads.token.end_long(kernel) {
            assert!(threads.token.claim() && threads.token.end_claim(|looks| looks < 3, || ()));
            threads.receive();
        } else {
            // For the watching thread to take over.
            threads.token.begin_long();
            is_over.store(1, Ordering::Relaxed);
        }
        watcher.join().unwrap();
    });
}

/// A claim that ends just now: either its thread gets the token, or the owner keeps it.
#[test]
fn a_claim_that_ends_leaves_one_owner() {
    check(4, || {
        let threads = Arc::new(Threads::default());
        assert!(threads.token.claim());
        let owning = threads.clone();
        let owner = thread::spawn(move || {
            owning.receive();
            let passed_on = owning.token.pass_on();
            if !passed_on {
                owning.receive();
            }
            passed_on
        });
        let got = threads.token.end_claim(|_| false, || ());
        if got {
            threads.receive();
        }
        assert_eq!(owner.join().unwrap(), got);
    });
}

/// Ready work wakes a watching thread that rests.
#[test]
fn what_is_ready_does_not_wait_for_a_watcher_that_rests() {
    check(4, || {
        let threads = Arc::new(Threads::default());
        let watching = threads.clone();
        let watcher = thread::spawn(move || assert!(!watching.watch()));
        threads.ready.store(1, Ordering::SeqCst);
        threads.token.wake_watcher();
        watcher.join().unwrap();
    });
}

/// Work that is left to the thread that claims the token wakes the watching one if that thread gives up.
#[test]
fn what_is_left_to_a_claim_does_not_wait_when_the_claim_ends() {
    check(4, || {
        let threads = Arc::new(Threads::default());
        assert!(threads.token.claim());
        threads.ready.store(1, Ordering::SeqCst);
        let watching = threads.clone();
        let watcher = thread::spawn(move || assert!(!watching.watch()));
        assert!(!threads.token.end_claim(|_| false, || ()));
        threads.token.wake_watcher();
        watcher.join().unwrap();
    });
}

/// What the receiver hands over wakes a watching thread that rests, or another idle one, although a third one claims the
/// token.
#[test]
fn what_is_handed_over_finds_an_idle_thread() {
    for watches in [true, false] {
        check(4, move || {
            let threads = Arc::new(Threads::default());
            assert!(threads.token.claim());
            let idling = threads.clone();
            let idle = thread::spawn(move || {
                if watches {
                    assert!(!idling.watch());
                } else {
                    idling.rest();
                    assert!(idling.has_work());
                }
            });
            threads.hand_over();
            idle.join().unwrap();
        });
    }
}

// ---- the program's memory on a device ------------------------------------------------

/// A page of a program, two threads of which run kernels that use one word each; and a device that fetches all of it.
#[derive(Default)]
struct Program {
    words: [AtomicU32; 2],
    device: Running<Fetched>,
    /// What the device has mapped; 0 is not mapped. Kernels use it without a lock: Linux orders mapping a page
    /// before its use.
    mapped: [AtomicU32; 2],
}

#[derive(Default)]
struct Fetched {
    is_mapped: bool,
    /// As it was fetched.
    words: [u32; 2],
}

impl Program {
    /// Adds 1 to the word of a thread, which the thread has just written.
    fn run_kernel(&self, me: usize, written: u32) {
        if let Some(held) = self.device.begin() {
            self.renew(held);
        }
        let mut word = self.mapped[me].load(Ordering::Acquire);
        loop {
            if word == 0 {
                self.device.hold().fill(|fetched| self.fetch(fetched));
                word = self.mapped[me].load(Ordering::Acquire);
                continue;
            }
            assert_eq!(word, written, "a kernel finds other data than its thread has written");
            // Fails if the page is gone by now: then the kernel faults again.
            match self.mapped[me].compare_exchange(word, word + 1, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => break,
                Err(now) => word = now,
            }
        }
        self.device.end(|held| {
            self.send_changes(&mut held.memory);
            if held.is_only_one() {
                held.empty(|fetched| self.forget(fetched));
            }
        });
        assert_eq!(self.words[me].load(Ordering::Relaxed), written + 1, "a kernel's change is lost");
    }

    fn renew(&self, mut held: Held<'_, Fetched>) {
        if held.is_only_one() {
            return held.empty(|fetched| self.forget(fetched));
        }
        let Fetched { is_mapped, words } = &mut *held.memory;
        for (i, old) in words.iter_mut().enumerate().filter(|_| *is_mapped) {
            let now = self.words[i].load(Ordering::Relaxed);
            if self.mapped[i].compare_exchange(*old, now, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                *old = now;
            }
        }
    }

    fn fetch(&self, fetched: &mut Fetched) {
        if !fetched.is_mapped {
            fetched.is_mapped = true;
            for i in 0..2 {
                fetched.words[i] = self.words[i].load(Ordering::Relaxed);
                self.mapped[i].store(fetched.words[i], Ordering::Release);
            }
        }
    }

    fn send_changes(&self, fetched: &mut Fetched) {
        for (i, old) in fetched.words.iter_mut().enumerate().filter(|_| fetched.is_mapped) {
            let now = self.mapped[i].load(Ordering::Relaxed);
            if now != *old {
                let merged = self.words[i].compare_exchange(*old, now, Ordering::Relaxed, Ordering::Relaxed);
                merged.expect("only this kernel changes the word");
                *old = now;
            }
        }
    }

    fn forget(&self, fetched: &mut Fetched) {
        fetched.is_mapped = false;
        self.mapped.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

/// Kernels that overlap find what their threads have written before, and nothing that they write is lost.
#[test]
fn kernels_that_overlap_share_the_programs_memory() {
    check(2, || {
        let program = Arc::new(Program::default());
        program.words.iter().for_each(|word| word.store(10, Ordering::Relaxed));
        let other = program.clone();
        let thread = thread::spawn(move || other.run_kernel(1, 10));
        program.run_kernel(0, 10);
        // Written by the program itself.
        program.words[0].store(20, Ordering::Relaxed);
        program.run_kernel(0, 20);
        thread.join().unwrap();
    });
}
