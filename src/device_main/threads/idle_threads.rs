// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The idle threads of a device. One of them watches the receiver; the others sleep.
//!
//! Threads that have run kernels are roots of libomp. Idle roots watch and work before other threads, so that no more
//! threads become roots than kernels run at once. `is_root` says whether the calling thread is a root.

use super::receiver_token::ReceiverToken;
use crate::base::lock::{Mutex, order};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// How long a root sleeps before it checks again whether the watching thread has left the watch to it.
const LOOK: Duration = Duration::from_micros(50);

#[derive(Default)]
pub(super) struct IdleThreads {
    /// The number of idle threads, including the watching one.
    count: AtomicUsize,
    roots: AtomicUsize,
    /// The sleeping threads, and whether each is a root.
    resting: Mutex<Vec<(Thread, bool)>, { order::LEAF }>,
    is_watched: AtomicBool,
    /// The watching thread is a root.
    root_watches: AtomicBool,
}

impl IdleThreads {
    /// The number of idle threads.
    #[inline]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// A thread that is being started counts as idle until it calls [`IdleThreads::end_start`].
    pub fn begin_start(&self) {
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    pub fn end_start(&self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }

    /// The calling thread becomes idle.
    pub fn enter(&self, is_root: bool) {
        // Release pairs with `are`: a thread that forks sees the locks that this thread released.
        self.count.fetch_add(1, Ordering::Release);
        self.roots.fetch_add(usize::from(is_root), Ordering::SeqCst);
    }

    /// The calling thread leaves for work, unless it is the last one; true on success.
    pub fn leave_unless_last(&self) -> bool {
        let others_stay = |n: usize| (n > 1).then(|| n - 1);
        self.count.fetch_update(Ordering::AcqRel, Ordering::Relaxed, others_stay).is_ok()
    }

    /// The calling thread leaves; true if it was the last one.
    pub fn leave(&self) -> bool {
        self.count.fetch_sub(1, Ordering::Relaxed) == 1
    }

    /// The calling thread has left: wakes another thread for work, or a watch, that others may have left to the caller.
    pub fn has_left(&self, is_root: bool, has_work: impl FnOnce() -> bool) {
        self.roots.fetch_sub(usize::from(is_root), Ordering::SeqCst);
        if !self.is_watched.load(Ordering::Acquire) || has_work() {
            let _ = self.wake_one();
        }
    }

    /// True if the calling thread leaves work, and the watch, to an idle root.
    pub fn leaves_to_root(&self, is_root: bool) -> bool {
        !is_root && self.roots.load(Ordering::SeqCst) > 0
    }

    /// True if the calling thread watches now; it must call [`IdleThreads::end_watch`] afterwards.
    pub fn begin_watch(&self, is_root: bool) -> bool {
        let begins = !self.leaves_to_root(is_root) && !self.is_watched.swap(true, Ordering::AcqRel);
        if begins {
            self.root_watches.store(is_root, Ordering::SeqCst);
        }
        begins
    }

    pub fn end_watch(&self) {
        self.is_watched.store(false, Ordering::Release);
    }

    /// True if the watching thread, if there is one, is a root.
    pub fn root_watches(&self) -> bool {
        self.root_watches.load(Ordering::SeqCst)
    }

    /// The calling thread sleeps while another thread watches and there is no work for the caller.
    pub fn rest(&self, is_root: bool, token: &ReceiverToken, has_work: impl FnOnce() -> bool) {
        let this = std::thread::current();
        let id = this.id();
        self.resting.lock().push((this, is_root));
        let is_watched = self.is_watched.load(Ordering::Acquire);
        if is_root && is_watched && !self.root_watches() {
            // The watching thread is no root, and leaves the watch to this one.
            token.wake_watcher();
            std::thread::sleep(LOOK);
        } else if self.leaves_to_root(is_root) || (is_watched && !has_work()) {
            if is_watched && self.root_watches() {
                // The watching root may sleep, although there is work that this thread leaves to it.
                token.wake_watcher();
            }
            std::thread::park_timeout(Duration::from_millis(100));
        }
        self.resting.lock().retain(|(thread, _)| thread.id() != id);
    }

    /// Wakes a sleeping thread, preferably a root; false if no thread sleeps.
    pub fn wake_one(&self) -> bool {
        let mut resting = self.resting.lock();
        let last = resting.iter().rposition(|&(_, is_root)| is_root).or(resting.len().checked_sub(1));
        let Some(at) = last else { return false };
        let (thread, _) = resting.remove(at);
        drop(resting);
        thread.unpark();
        true
    }

    /// Keeps threads from being woken while the value lives; `None` if a thread is being woken or is falling asleep.
    pub fn hold(&self) -> Option<impl Sized> {
        self.resting.try_hold()
    }

    /// True if this many threads are idle. The caller then sees the locks that each released before it became idle.
    pub fn are(&self, count: usize) -> bool {
        self.count.load(Ordering::Acquire) == count
    }

    /// For a process that was forked under [`IdleThreads::hold`] and has only the calling thread.
    pub fn start_anew(&self) {
        self.resting.lock().clear();
        self.is_watched.store(false, Ordering::Relaxed);
        self.count.store(0, Ordering::Relaxed);
        self.roots.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
#[path = "../../../test/rust/unit/device_main/threads/idle_threads.rs"]
mod tests;
