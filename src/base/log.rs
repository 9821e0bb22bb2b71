// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Lines on stderr: errors and warnings always, the rest only when asked for.
//!
//! `LIBOMPTARGET_DEBUG` and `LIBOMPTARGET_INFO` are libomptarget's own variables; the
//! lines follow its style. Each line is one `write`, so lines of several processes do
//! not mix.

use std::fmt::{self, Write as _};
use std::io::Write;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The bit of `LIBOMPTARGET_INFO` that asks plugins about kernels
/// (`OMP_INFOTYPE_PLUGIN_KERNEL` in LLVM's `Debug.h`).
pub const INFO_PLUGIN_KERNEL: u32 = 0x10;

/// As LLVM reads them: any integer, -1 for all bits.
fn number(variable: &str) -> u32 {
    std::env::var(variable).ok().and_then(|v| v.trim().parse::<i64>().ok()).unwrap_or(0) as u32
}

fn info_level() -> &'static AtomicU32 {
    static LEVEL: OnceLock<AtomicU32> = OnceLock::new();
    LEVEL.get_or_init(|| AtomicU32::new(number("LIBOMPTARGET_INFO")))
}

/// True if a line of this `LIBOMPTARGET_INFO` kind is wanted.
pub fn wants_info(bit: u32) -> bool {
    info_level().load(Relaxed) & bit != 0
}

/// What `__tgt_set_info_flag` of the program sets: replaces `LIBOMPTARGET_INFO`.
pub fn set_info_level(level: u32) {
    info_level().store(level, Relaxed);
}

/// True if `LIBOMPTARGET_DEBUG` asks for debug lines.
pub fn wants_debug() -> bool {
    static DEBUG: OnceLock<bool> = OnceLock::new();
    *DEBUG.get_or_init(|| number("LIBOMPTARGET_DEBUG") != 0)
}

fn line(prefix: &str, text: fmt::Arguments<'_>) {
    // Nothing can be done about a closed stderr.
    let _ = std::io::stderr().write_all(format!("{prefix}{text}\n").as_bytes());
}

/// A line that says what failed.
pub fn error(text: impl fmt::Display) {
    line("", format_args!("{}", error_text(text)));
}

/// The text of such a line, for later.
pub fn error_text(text: impl fmt::Display) -> String {
    format!("omptarget-mpi: error: {}", Plain(text))
}

/// A line that says what the user should know although nothing failed.
pub fn warning(text: impl fmt::Display) {
    line("omptarget-mpi: warning: ", format_args!("{}", Plain(text)));
}

/// A text without control characters, which values of variables and names of files may have:
/// it stays one line, and does nothing to a terminal.
struct Plain<T>(T);

impl<T: fmt::Display> fmt::Display for Plain<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .to_string()
            .chars()
            .try_for_each(|c| if c.is_control() { write!(f, "{}", c.escape_default()) } else { f.write_char(c) })
    }
}

/// Whole lines that the user asked for, in one piece.
pub fn text(lines: &str) {
    // As above.
    let _ = std::io::stderr().write_all(lines.as_bytes());
}

/// A line in the style of libomptarget's debug output; use [`crate::debug!`].
pub fn debug(text: fmt::Arguments<'_>) {
    line("TARGET MPI RTL --> ", text);
}

/// A line in the style of the plugins' info output.
pub fn info(device: usize, text: fmt::Arguments<'_>) {
    line("", format_args!("MPI device {device} info: {text}"));
}

/// Prints a debug line if `LIBOMPTARGET_DEBUG` asks for it; costs a load otherwise.
#[macro_export]
macro_rules! debug {
    ($($arg:tt)*) => {
        if $crate::base::log::wants_debug() {
            $crate::base::log::debug(format_args!($($arg)*));
        }
    };
}

#[cfg(test)]
mod tests {
    use super::Plain;

    #[test]
    fn a_line_stays_one() {
        assert_eq!(Plain("ä='\u{1b}[31m\nb'").to_string(), "ä='\\u{1b}[31m\\nb'");
    }
}
