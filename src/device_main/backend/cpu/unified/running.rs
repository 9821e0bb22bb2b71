// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Memory that kernels use without a lock, while other kernels begin and end.
//!
//! Most kernels do not use the program's memory, so a kernel takes the lock only if some is mapped. One atomic word has
//! a bit for that and the number of running kernels. A kernel that begins before the memory is filled finds contents fetched after its
//! beginning; one that begins later takes the lock.

use crate::base::lock::{Guard, Mutex, order};
use crate::base::sync::{AtomicUsize, Ordering};

/// Added to the word for each kernel that runs.
const KERNEL: usize = 2;
/// A bit of the word: there may be memory that kernels use.
const USED: usize = 1;

#[derive(Default)]
pub struct Running<M> {
    state: AtomicUsize,
    memory: Mutex<M, { order::UNIFIED }>,
}

impl<M> Running<M> {
    /// Begins a kernel. If there is memory that kernels use, returns it: the caller must renew it.
    #[inline]
    pub fn begin(&self) -> Option<Held<'_, M>> {
        let before = self.state.fetch_add(KERNEL, Ordering::AcqRel);
        (before & USED != 0).then(|| self.hold())
    }

    /// Ends a kernel; calls `settle` if there is memory that kernels use.
    #[inline]
    pub fn end<R>(&self, settle: impl FnOnce(&mut Held<'_, M>) -> R) -> Option<R> {
        // The memory that this kernel has used stays until the kernel has ended.
        let mut held = (self.state.load(Ordering::Acquire) & USED != 0).then(|| self.hold());
        let result = held.as_mut().map(settle);
        // Under the lock, so that of several kernels that end at once, one finds that it is the only one.
        self.state.fetch_sub(KERNEL, Ordering::AcqRel);
        result
    }

    /// How many kernels run.
    pub fn running(&self) -> usize {
        self.state.load(Ordering::Acquire) / KERNEL
    }

    pub fn hold(&self) -> Held<'_, M> {
        Held { state: &self.state, memory: self.memory.lock() }
    }
}

/// The memory, locked.
pub struct Held<'a, M> {
    state: &'a AtomicUsize,
    pub memory: Guard<'a, M, { order::UNIFIED }>,
}

impl<M> Held<'_, M> {
    /// True if only one kernel runs. Others may begin, but they wait for the lock until the memory is empty.
    pub fn is_only_one(&self) -> bool {
        self.state.load(Ordering::Acquire) / KERNEL == 1
    }

    /// Makes memory accessible to kernels. Kernels that begin from here on must renew it.
    pub fn fill<R>(&mut self, fill: impl FnOnce(&mut M) -> R) -> R {
        self.state.fetch_or(USED, Ordering::AcqRel);
        fill(&mut self.memory)
    }

    /// Takes all memory from kernels. Kernels that begin meanwhile wait for that.
    pub fn empty<R>(&mut self, empty: impl FnOnce(&mut M) -> R) -> R {
        let result = empty(&mut self.memory);
        self.state.fetch_and(!USED, Ordering::AcqRel);
        result
    }
}
