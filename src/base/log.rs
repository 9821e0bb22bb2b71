// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Lines on stderr: errors and warnings always, others on request.
//!
//! `LIBOMPTARGET_DEBUG` and `LIBOMPTARGET_INFO` are libomptarget's own variables, and the lines follow
//! its style. Each line is one `write`, so lines of several processes do not mix.

use std::fmt::{self, Write as _};
use std::io::Write;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// `OMP_INFOTYPE_PLUGIN_KERNEL` of LLVM's `Debug.h`, a bit of `LIBOMPTARGET_INFO`.
pub const INFO_PLUGIN_KERNEL: u32 = 0x10;

/// A variable's value as LLVM reads it: any integer, -1 for all bits.
fn number(variable: &str) -> u32 {
    std::env::var(variable).ok().and_then(|v| v.trim().parse::<i64>().ok()).unwrap_or(0) as u32
}

static INFO_LEVEL: LazyLock<AtomicU32> = LazyLock::new(|| AtomicU32::new(number("LIBOMPTARGET_INFO")));

/// True if `LIBOMPTARGET_INFO` has this bit.
pub fn wants_info(bit: u32) -> bool {
    INFO_LEVEL.load(Relaxed) & bit != 0
}

/// Replaces the value of `LIBOMPTARGET_INFO`, for the program's `__tgt_set_info_flag`.
pub fn set_info_level(level: u32) {
    INFO_LEVEL.store(level, Relaxed);
}

pub fn wants_debug() -> bool {
    static DEBUG: LazyLock<bool> = LazyLock::new(|| number("LIBOMPTARGET_DEBUG") != 0);
    *DEBUG
}

fn line(prefix: &str, rest: fmt::Arguments<'_>) {
    text(&format!("{prefix}{rest}\n"));
}

/// Prints whole lines in one piece.
pub fn text(lines: &str) {
    // Nothing can be done about a closed stderr.
    let _ = std::io::stderr().write_all(lines.as_bytes());
}

/// Prints an error.
pub fn error(text: impl fmt::Display) {
    line("", format_args!("{}", error_text(text)));
}

/// The line that [`error`] prints.
pub fn error_text(text: impl fmt::Display) -> String {
    format!("omptarget-mpi: error: {}", Plain(text))
}

/// Prints what the user should know although nothing failed.
pub fn warning(text: impl fmt::Display) {
    line("", format_args!("omptarget-mpi: warning: {}", Plain(text)));
}

/// Escapes control characters, so that the text stays one line and does not control the terminal.
struct Plain<T>(T);

impl<T: fmt::Display> fmt::Display for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .to_string()
            .chars()
            .try_for_each(|c| if c.is_control() { write!(f, "{}", c.escape_default()) } else { f.write_char(c) })
    }
}

/// Prints a line in the style of libomptarget's debug output; use [`crate::debug!`].
pub fn debug(text: fmt::Arguments<'_>) {
    line("TARGET MPI RTL --> ", text);
}

/// Prints a line in the style of the plugins' info output.
pub fn info(device: usize, text: fmt::Arguments<'_>) {
    line("", format_args!("MPI device {device} info: {text}"));
}

/// Prints a debug line if `LIBOMPTARGET_DEBUG` requests it; otherwise costs one load.
#[macro_export]
macro_rules! debug {
    ($($arg:tt)*) => {
        if $crate::base::log::wants_debug() {
            $crate::base::log::debug(format_args!($($arg)*));
        }
    };
}

#[cfg(test)]
#[path = "../../test/rust/unit/base/log.rs"]
mod tests;
