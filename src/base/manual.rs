// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Manual pages, made from the tables of options that the executables have.

use super::Result;

/// Prints a program's manual page in roff.
///
/// # Errors
/// Standard output's.
pub fn print(command: clap::Command) -> Result<()> {
    Ok(clap_mangen::Man::new(command).render(&mut std::io::stdout())?)
}
