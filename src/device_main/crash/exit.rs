// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! How a device process exits: by itself, or with its parent.

use super::monitor;
use rustix::process::{Signal, set_parent_process_death_signal};

/// Makes the system kill this process when its parent exits, for whatever reason.
pub(crate) fn die_with_parent() {
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

pub(crate) fn quit(code: i32) -> ! {
    monitor::ending();
    // SAFETY: no preconditions. (Exit handlers must not run: they belong to images whose threads still run.)
    unsafe { libc::_exit(code) }
}
