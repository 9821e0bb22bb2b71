// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Tries every order of steps of the protocols between threads, as far as loom can: the
//! files that take their primitives from `src/base/sync.rs` are included here over loom's.
//!
//! Time is not modelled. A sleep that is limited in time is endless here, so that a model
//! which depends on the limit is a deadlock, which loom finds.

use base::sync::{AtomicUsize, Mutex, Ordering};
use device_main::role::Role;
use link::sleepers::Sleepers;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use plugin::pending::Pending;
use plugin::turn::Turn;

/// What `crate::base::sync` is to the files included here.
mod base {
    pub mod sync {
        pub use loom::hint::spin_loop;
        pub use loom::sync::atomic::{AtomicU32, Ordering, fence};
        use std::sync::Arc;

        /// A thread that can be parked. loom's own forgets an `unpark` of a thread that
        /// waits for a lock.
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

        /// No model forks.
        pub fn disown<T>(_: &Mutex<T>) {}

        /// loom takes SeqCst for AcqRel, but knows its fences: a store with one behind it and
        /// a load with one before it are what compilers make of SeqCst.
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
            /// One that changes nothing writes nothing: loom does not see that whatever is
            /// written otherwise comes behind it.
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
        }

        impl AtomicU64 {
            pub fn fetch_add(&self, n: u64, order: Ordering) -> u64 {
                self.0.fetch_add(n, order)
            }
        }
    }
}

#[path = "../src/link"]
mod link {
    #[allow(dead_code, reason = "a test of the product uses more")]
    pub mod sleepers;
}

#[path = "../src/plugin"]
#[allow(dead_code, reason = "what the product asks besides")]
mod plugin {
    pub mod pending;
    pub mod turn;
}

#[allow(dead_code, reason = "what a copy of the process needs")]
#[path = "../src/device_main"]
mod device_main {
    pub mod role;
}

/// Every order in which threads are interrupted so often.
fn check(interruptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(interruptions);
    builder.check(model);
}

// ---- bells -----------------------------------------------------------------------

/// What the kernel does for a futex.
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

/// Whoever sleeps is woken for whatever is sent.
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

/// A device that answers what it was asked when somebody looks: with a word in the memory of
/// who asked.
struct Device {
    pending: Vec<Pending>,
    words: Vec<UnsafeCell<usize>>,
    /// Who is not answered yet.
    asked: Mutex<Vec<usize>>,
    turn: Turn,
}

// SAFETY: loom checks what is done with the words.
unsafe impl Sync for Device {}

impl Device {
    fn new(threads: usize, glances: u32) -> Arc<Device> {
        Arc::new(Device {
            pending: (0..threads).map(|_| Pending::default()).collect(),
            words: (0..threads).map(UnsafeCell::new).collect(),
            asked: Mutex::default(),
            turn: Turn::new(glances),
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
                // SAFETY: the one who asked looks at it when he is told.
                unsafe { *word += 100 }
            });
            self.pending[who].end();
        }
    }

    /// `Engine::wait_until` in short.
    fn wait(&self, me: usize) {
        let pending = &self.pending[me];
        let done = || pending.is_idle();
        while !done() {
            if self.turn.take().is_none() {
                self.turn.nap(Some(pending), &done, false);
                continue;
            }
            while !done() {
                self.answer_one();
            }
            self.turn.pass();
        }
    }

    fn serve(&self, me: usize) {
        self.ask(me);
        self.wait(me);
        let word = self.words[me].with(|word| {
            // SAFETY: it was told that the word is there.
            unsafe { *word }
        });
        assert_eq!(word, me + 100);
    }
}

/// Whoever waits gets what it waits for, and is woken for its turn.
#[test]
fn waiting_threads_drive_one_after_the_other() {
    for (threads, glances, interruptions) in [(2, 0, 3), (2, 1, 3), (3, 0, 2)] {
        check(interruptions, move || {
            let device = Device::new(threads, glances);
            let others: Vec<_> = (1..threads)
                .map(|n| {
                    let device = device.clone();
                    thread::spawn(move || device.serve(n))
                })
                .collect();
            device.serve(0);
            others.into_iter().for_each(|t| t.join().unwrap());
        });
    }
}

// ---- who receives ------------------------------------------------------------------

/// A device of two threads, of which one receives.
#[derive(Default)]
struct Threads {
    role: Role,
    /// What only the receiver touches.
    received: UnsafeCell<usize>,
    ready: AtomicUsize,
    /// The second message is there; its lock is what a kernel waits with.
    served: loom::sync::Mutex<bool>,
    changed: loom::sync::Condvar,
}

// SAFETY: loom checks who touches what.
unsafe impl Sync for Threads {}

impl Threads {
    fn receive(&self) {
        self.received.with_mut(|n| {
            // SAFETY: only the receiver does so.
            unsafe { *n += 1 }
        });
    }

    /// The watching thread until it receives, or finds work.
    fn watch(&self) -> bool {
        self.role.begin_watch();
        let mut last = 0;
        loop {
            if self.ready.load(Ordering::SeqCst) != 0 {
                return false;
            }
            let role = self.role.look();
            if role != last {
                last = role;
            } else if self.role.take_over(role) {
                return true;
            } else {
                self.role.rest(role, || self.ready.load(Ordering::SeqCst) == 0);
            }
            thread::yield_now();
        }
    }
}

/// While a long kernel runs another thread receives, and never two do.
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
                let role = threads.role.begin_long();
                thread::yield_now();
                receives = threads.role.end_long(role);
            }
            if receives {
                threads.receive();
                // A kernel that waits for what the next message brings.
                let role = threads.role.begin_long();
                let mut served = threads.served.lock().unwrap();
                while !*served {
                    served = threads.changed.wait(served).unwrap();
                }
                drop(served);
                assert!(!threads.role.end_long(role), "two threads receive");
            }
            watcher.join().unwrap();
        });
    }
}

/// A watching thread that rests is woken when there is something to execute.
#[test]
fn what_is_ready_does_not_wait_for_a_watcher_that_rests() {
    check(4, || {
        let threads = Arc::new(Threads::default());
        let watching = threads.clone();
        let watcher = thread::spawn(move || assert!(!watching.watch()));
        threads.ready.store(1, Ordering::SeqCst);
        threads.role.wake_watcher();
        watcher.join().unwrap();
    });
}
