// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The device side: a process that executes what its host sends, until the host exits.
//!
//! - `backend/`: who owns the device's memory and runs its kernels: this process's cores or an accelerator.
//! - `check`: what `--check` and `--accelerators` report.
//! - `checkpoint`: makes a sleeping copy of this process, from which a rank replaces it.
//! - `crash/`: crashes and exits of the process, and who reports them.
//! - `executors/`: what the commands of a message do, for each kind of backend.
//! - `host`: the link to the host, and whether the host lives.
//! - `images/`: device images and the libraries that they need.
//! - `messages/`: messages of queues, from their arrival to their reply.
//! - `output/`: what regions and libraries print.
//! - `server`: the main loop.
//! - `shared_state`: what all threads of a device share.
//! - `start`: starts a device.
//! - `threads/`: the threads of a device, and which of them receives.
//! - `transfers/`: bulk data.
//! - `upcalls/`: what a device asks the program for while a region runs.

pub mod backend;
mod check;
mod checkpoint;
pub(crate) mod crash;
mod executors;
mod host;
mod images;
mod messages;
mod output;
mod server;
mod shared_state;
mod start;
mod threads;
mod transfers;
mod upcalls;

use crate::base::{Error, log, manual, settings};
use crate::sys::launchers::{launcher, note_of_programs, rank};
use crate::sys::{layout, node};
pub(crate) use checkpoint::Checkpoint;
use clap::{CommandFactory, FromArgMatches, Parser};
use rustix::fs::{Mode, OFlags};
pub use start::Workers;
pub(crate) use start::{Place, Rank, execute, set_up};
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
#[cfg(test)]
pub(crate) use {
    host::Host, messages::interpreter::Execute, output::capture::Output, server::Server,
    transfers::completion::Completion,
};

/// The command line. The manual page is made from this.
#[derive(Debug, Parser)]
#[command(
    name = "llvm-offload-mpi-device",
    about = "OpenMP target devices of a program, reached over MPI",
    long_about = "OpenMP target devices of a program, reached over MPI.\n\n\
        Each rank is one device, or as many as OMPTARGET_MPI_DEVICES_PER_RANK says. \
        llvm-offload-mpirun starts program and devices with all that they need; \
        by hand it is, for N devices,\n\n    mpirun -np N+1 llvm-offload-mpi-device PROGRAM [ARGUMENT]...\n\n\
        where the first rank becomes PROGRAM, which needs lib/omptarget-mpi of this build on its LD_LIBRARY_PATH \
        (from LLVM 18 on the folder llvm18 and so on there).",
    max_term_width = 100
)]
struct Options {
    /// Report what this host has, and which of these libraries cannot be loaded here
    #[arg(long, num_args = 0.., value_name = "NAME=PATH")]
    check: Option<Vec<String>>,

    /// Print the number of accelerators that this host has, and which of these hosts it is, for llvm-offload-mpirun.
    #[arg(long, hide = true, num_args = 0.., value_name = "HOST")]
    accelerators: Option<Vec<String>>,

    /// Ranks that become PROGRAM: the first ones of the job
    #[arg(long, value_name = "N", default_value_t = 1, requires = "program")]
    ranks: u32,

    /// This process is a device below a supervisor; the descriptor of what they share
    #[arg(long, hide = true, value_name = "DESCRIPTOR")]
    supervised: Option<i32>,

    /// The soft stack limit to restore: see [`settle`]
    #[arg(long, hide = true, value_name = "BYTES", requires = "supervised")]
    stack_limit: Option<u64>,

    /// The number of ranks at the start of the job that are programs
    #[arg(long, hide = true, value_name = "N", requires = "supervised", default_value_t = 0)]
    programs: u32,

    /// Print this manual page in roff.
    #[arg(long, hide = true, exclusive = true)]
    man: bool,

    /// The program whose devices the other ranks are, and its arguments. Without it all ranks are
    /// devices, of a program that is another part of the job: mpirun -np 1 PROGRAM : -np N
    /// llvm-offload-mpi-device
    #[arg(value_names = ["PROGRAM", "ARGUMENT"], trailing_var_arg = true)]
    program: Vec<OsString>,
}

/// Restores what the device changed in order to be executed in its window. Must be called before any library's
/// constructor runs, because it may start a thread (UCX's does).
pub fn settle() {
    // `std::env::args` is still empty. In this command line the dynamic loader comes first if it executed this program.
    // Do not allocate memory: the heap has to begin where `layout` lets it.
    let mut command = [0; 16 << 10];
    let file = rustix::fs::open(c"/proc/self/cmdline", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let len = file.and_then(|file| rustix::io::read(file, &mut command)).unwrap_or(0);
    let mut arguments =
        command[..len].split(|byte| *byte == 0).skip_while(|first| !first.starts_with(b"--supervised="));
    let limit = arguments.nth(1).and_then(|second| second.strip_prefix(b"--stack-limit="));
    if let Some(limit) = limit.and_then(|limit| std::str::from_utf8(limit).ok()?.parse().ok()) {
        layout::settle(limit);
    }
}

/// The main function of the executable. `workers` serves ranks with several devices.
pub fn main(workers: &Workers) -> ExitCode {
    let version = format!("{} ({})", env!("CARGO_PKG_VERSION"), crate::mpi::library());
    let command = Options::command().version(version.clone());
    let matches = command.clone().get_matches();
    let result = match Options::from_arg_matches(&matches) {
        Ok(Options { man: true, .. }) => manual::print(command, settings::Reader::Device),
        Ok(Options { check: Some(libraries), .. }) => {
            start::set_environment();
            node::undo_binding();
            check::run(&format!("llvm-offload-mpi-device {version}"), &libraries);
            Ok(())
        }
        Ok(Options { accelerators: Some(hosts), .. }) => {
            check::count_accelerators(&hosts);
            Ok(())
        }
        Ok(options) if becomes_program(&options) => {
            let e = Command::new(&options.program[0])
                .args(&options.program[1..])
                .env(settings::WITH_DEVICES, note_of_programs(options.ranks))
                .exec();
            Err(Error::from(e).context(format_args!("can't run {}", options.program[0].to_string_lossy())))
        }
        // The program does not start MPI without offloading, so no device would learn that it exits.
        Ok(Options { supervised: None, .. }) if settings::offloading_is_disabled() && launcher().is_some() => Ok(()),
        Ok(options) => {
            let programs = if options.program.is_empty() { options.programs } else { options.ranks };
            start::serve(options.supervised, programs, workers).map(|never| match never {})
        }
        Err(e) => e.exit(),
    };
    let Err(e) = result else { return ExitCode::SUCCESS };
    if let Error::Text(text) = e {
        log::error(text);
    }
    ExitCode::FAILURE
}

fn becomes_program(options: &Options) -> bool {
    !options.program.is_empty() && rank().is_some_and(|rank| rank < options.ranks)
}
