// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The device side: a process that executes what its host sends, until the host ends.

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

use crate::base::settings::Settings;
use crate::base::{Error, Result, log};
use crate::link::Link;
use crate::link::idle::Pace;
use crate::link::meet::{Meeting, launcher, meet};
use crate::wire::hello::{Hello, Job, Role};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::process::ExitCode;

const USAGE: &str = "\
usage: mpirun -np N llvm-offload-mpi-device : -np 1 PROGRAM [ARGUMENTS]

Each of the N processes is one OpenMP target device of PROGRAM, which needs the folder
with libomptarget.rtl.ppc64.so of this build on its LD_LIBRARY_PATH.

  -h, --help     this text
  -V, --version  the version
";

/// The executable.
pub fn main() -> ExitCode {
    match std::env::args_os().nth(1) {
        Some(a) if a == "--help" || a == "-h" => print!("{USAGE}"),
        Some(a) if a == "--version" || a == "-V" => {
            println!("llvm-offload-mpi-device {} ({})", env!("CARGO_PKG_VERSION"), crate::mpi::library());
        }
        Some(a) => {
            log::error(format_args!("unknown argument {}\n{USAGE}", a.to_string_lossy()));
            return ExitCode::from(2);
        }
        None => {
            let Err(e) = serve();
            if let Error::Text(text) = e {
                log::error(text);
            }
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn serve() -> Result<std::convert::Infallible> {
    if launcher().is_none() {
        return Err(Error::new(format!("a device is started by an MPI launcher together with a program\n{USAGE}")));
    }
    // SAFETY: no other thread runs yet. Images bring their own libomptarget into this
    // process; it must not look for devices here, whatever was inherited.
    unsafe { std::env::set_var("OMP_TARGET_OFFLOAD", "disabled") };
    // SAFETY: plain numbers. The launcher's end, however it comes, is this process's.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let settings = Settings::from_env()?;
    let Meeting { mpi, bells, frames, hellos, job } = meet(Role::Device, &settings)?;
    let Job::Ready { host, devices } = job else {
        return Err(Error::new("the ranks do not agree on who is a device"));
    };
    let (me, host_hello) = (&hellos[mpi.rank], &hellos[host]);
    let on_this_node = |rank: &&usize| hellos[**rank].node == me.node;
    let share = me.cores as usize / devices.iter().filter(on_this_node).count().max(1);
    if std::env::var_os("OMP_NUM_THREADS").is_none() && !settings.inherit_binding {
        // SAFETY: MPI's own threads do not read the environment any more.
        unsafe { std::env::set_var("OMP_NUM_THREADS", share.max(1).to_string()) };
    }
    let here = hellos.iter().filter(|h| h.node == me.node).count();
    let pace = if here > me.cores as usize { Pace::CROWDED_DEVICE } else { Pace::ALONE };
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
