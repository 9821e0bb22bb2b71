// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Utilities for every layer: a clock, bitcode and ELF reading, errors, sizes of tables, locks, log lines, manual
//! pages, names of kernels, ranges of addresses, settings, targets of images.

pub(crate) mod bitcode;
pub(crate) mod clock;
pub mod elf;
pub(crate) mod error;
pub(crate) mod limits;
pub(crate) mod lock;
pub(crate) mod log;
pub(crate) mod manual;
pub mod name;
pub(crate) mod ranges;
pub mod settings;
pub(crate) mod sync;
pub(crate) mod target;

pub use error::{Error, Result};
