// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The device side: a process that executes what its host sends, until the host ends.

mod check;
mod executor;
mod fault;
mod image;
mod memory;
mod output;
mod schedule;
mod serve;
mod stubs;
mod watch;
mod work;

use crate::base::settings::{Bind, Settings};
use crate::base::{Error, Result, log, manual, node};
use crate::link::Link;
use crate::link::idle::Pace;
use crate::link::meet::{Meeting, Origin, launcher, meet};
use crate::wire::hello::{Hello, Role, Team, share_of_cores, sharers};
use clap::{CommandFactory, FromArgMatches, Parser};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;

/// The command line. The manual page is made from this.
#[derive(Debug, Parser)]
#[command(
    name = "llvm-offload-mpi-device",
    about = "One OpenMP target device of a program, reached over MPI",
    long_about = "One OpenMP target device of a program, reached over MPI.\n\n\
        Each process of it is one device. llvm-offload-mpirun starts program and devices with all that they need; \
        by hand it is\n\n    mpirun -np N llvm-offload-mpi-device : -np 1 PROGRAM\n\n\
        where PROGRAM needs the folder with libomptarget.rtl.ppc64.so of this build on its LD_LIBRARY_PATH.",
    max_term_width = 100
)]
struct Options {
    /// Tell what this host has, and which of these libraries can't be loaded here
    #[arg(long, num_args = 0.., value_name = "NAME=PATH")]
    check: Option<Vec<String>>,

    /// Print this manual page in roff.
    #[arg(long, hide = true, exclusive = true)]
    man: bool,
}

/// The executable.
pub fn main() -> ExitCode {
    let version = format!("{} ({})", env!("CARGO_PKG_VERSION"), crate::mpi::library());
    let command = Options::command().version(version.clone());
    let matches = command.clone().get_matches();
    let result = match Options::from_arg_matches(&matches) {
        Ok(Options { man: true, .. }) => manual::print(command),
        Ok(Options { check: Some(libraries), .. }) => {
            do_not_offload();
            node::undo_binding();
            check::run(&format!("llvm-offload-mpi-device {version}"), &libraries);
            Ok(())
        }
        Ok(_) => serve().map(|never| match never {}),
        Err(e) => e.exit(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            if let Error::Text(text) = e {
                log::error(text);
            }
            ExitCode::FAILURE
        }
    }
}

/// Images bring their own libomptarget into this process; it must not look for devices
/// here, whatever was inherited. To be called before any thread starts.
fn do_not_offload() {
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("OMP_TARGET_OFFLOAD", "disabled") };
}

fn serve() -> Result<std::convert::Infallible> {
    if launcher().is_none() {
        return Err(Error::new(
            "a device is started by an MPI launcher together with a program: llvm-offload-mpirun -n N PROGRAM, \
             or mpirun -np N llvm-offload-mpi-device : -np 1 PROGRAM",
        ));
    }
    do_not_offload();
    // Launchers pass these on to all processes of a job; they are meant for the program.
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: ignoring a signal needs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // SAFETY: plain numbers. The launcher's end, however it comes, is this process's.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let settings = Settings::from_env()?;
    let Meeting { mpi, bells, frames, hellos, job } = meet(Role::Device, Origin::Started, &settings)?;
    let Some(&Team { host, .. }) = job.team_of(mpi.rank) else {
        return Err(Error::new("the ranks do not agree on who is a device"));
    };
    let (me, host_hello) = (&hellos[mpi.rank], &hellos[host]);
    let here = || hellos.iter().filter(|h| h.node == me.node);
    if std::env::var_os("OMP_NUM_THREADS").is_none() && settings.bind != Bind::Inherit {
        let share = (me.cores.len() / sharers(&hellos, mpi.rank)).max(1);
        // SAFETY: MPI's own threads do not read the environment any more.
        unsafe { std::env::set_var("OMP_NUM_THREADS", share.to_string()) };
    }
    if settings.bind == Bind::Share
        && let Some(cores) = share_of_cores(&hellos, mpi.rank)
    {
        node::bind(cores);
    }
    let pace = if here().count() > me.cores.len() { Pace::CROWDED_DEVICE } else { Pace::ALONE };
    let host_process = if host_hello.node == me.node { process(host_hello) } else { None };
    close_stdin();
    let link = Link::new(Box::new(mpi), settings.fragment as usize, bells, frames)?;
    let (output, stderr) = output::Output::capture()?;
    fault::watch(stderr.as_raw_fd());
    let executor = Box::new(executor::InProcess);
    serve::Server::new(link, host, host_process, pace, executor, (output, stderr)).run()
}

/// A handle of the host's process that tells when it has ended.
fn process(host: &Hello) -> Option<OwnedFd> {
    // SAFETY: plain numbers; a descriptor that comes back is ours alone.
    unsafe {
        let fd = libc::syscall(libc::SYS_pidfd_open, host.pid, 0);
        (fd >= 0).then(|| OwnedFd::from_raw_fd(fd as i32))
    }
}

/// Regions find an empty standard input: the launcher's is the program's.
fn close_stdin() {
    if let Ok(null) = std::fs::File::open("/dev/null") {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(null.as_raw_fd(), 0) };
    }
}
