// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The program's process, which has loaded the plugin: its calls, its output, and its exit.
//!
//! | file | contents |
//! | --- | --- |
//! | `boundary` | the boundary between C and Rust: no panic and no error reaches C |
//! | `late_aborts` | threads that abort or crash because the process exits |
//! | `ending` | process exit: its status, and the hold on other threads |
//! | `console` | the output of regions, until it is written to the program's own streams |
//! | `libraries` | the shared libraries of this process |

pub(crate) mod boundary;
pub(crate) mod console;
pub(crate) mod ending;
pub(crate) mod late_aborts;
pub(crate) mod libraries;
