// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The device side: a process that executes what its host sends, until the host ends.

pub(crate) mod board;
mod check;
pub(crate) mod executor;
mod fault;
mod image;
mod memory;
pub(crate) mod output;
pub mod registration;
pub(crate) mod relay;
mod role;
mod schedule;
pub(crate) mod serve;
mod stubs;
mod supervise;
pub mod threads;
mod watch;
mod work;
pub(crate) mod worker;

use crate::base::settings::{self, Bind, Settings};
use crate::base::{Error, Result, log, manual, network, node};
use crate::link::Link;
use crate::link::bell::{Bell, Bells};
use crate::link::idle::Pace;
use crate::link::meet::{Meeting, Origin, launcher, meet, rank};
use crate::wire::hello::{Role, Team, processes, share_of_cores, sharers};
use crate::wire::packet::{PACKET_MAX, Packet};
use board::Board;
use clap::{CommandFactory, FromArgMatches, Parser};
use std::ffi::OsString;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::sync::Arc;

/// The command line. The manual page is made from this.
#[derive(Debug, Parser)]
#[command(
    name = "llvm-offload-mpi-device",
    about = "OpenMP target devices of a program, reached over MPI",
    long_about = "OpenMP target devices of a program, reached over MPI.\n\n\
        Each rank of it is one device, or as many as OMPTARGET_MPI_DEVICES_PER_RANK says. \
        llvm-offload-mpirun starts program and devices with all that they need; \
        by hand it is, for N devices,\n\n    mpirun -np N+1 llvm-offload-mpi-device PROGRAM [ARGUMENT]...\n\n\
        where the first rank becomes PROGRAM, which needs lib/omptarget-mpi of this build on its LD_LIBRARY_PATH (LLVM 18: its folder llvm18; \
        LLVM 19 and later: nothing, the plugin is part of it).",
    max_term_width = 100
)]
struct Options {
    /// Tell what this host has, and which of these libraries can't be loaded here
    #[arg(long, num_args = 0.., value_name = "NAME=PATH")]
    check: Option<Vec<String>>,

    /// Ranks that become PROGRAM: the first ones of the job
    #[arg(long, value_name = "N", default_value_t = 1, requires = "program")]
    ranks: u32,

    /// This process is a device below a supervisor; the descriptor of what they share
    #[arg(long, hide = true, exclusive = true, value_name = "DESCRIPTOR")]
    supervised: Option<i32>,

    /// Print this manual page in roff.
    #[arg(long, hide = true, exclusive = true)]
    man: bool,

    /// The program whose devices the other ranks are, and its arguments. Without it all ranks are
    /// devices, of a program that is another part of the job: mpirun -np 1 PROGRAM : -np N
    /// llvm-offload-mpi-device
    #[arg(value_names = ["PROGRAM", "ARGUMENT"], trailing_var_arg = true)]
    program: Vec<OsString>,
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
        Ok(options) if becomes_program(&options) => {
            let e =
                Command::new(&options.program[0]).args(&options.program[1..]).env(settings::WITH_DEVICES, "1").exec();
            Err(Error::from(e).context(format_args!("can't run {}", options.program[0].to_string_lossy())))
        }
        Ok(options) => serve(options.supervised).map(|never| match never {}),
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

/// True if this rank is to run the program.
fn becomes_program(options: &Options) -> bool {
    !options.program.is_empty() && rank().is_some_and(|rank| rank < options.ranks)
}

/// Images bring their own libomptarget into this process; it must not look for devices
/// here, whatever was inherited. To be called before any thread starts.
fn do_not_offload() {
    // SAFETY: no other thread runs yet.
    unsafe { std::env::set_var("OMP_TARGET_OFFLOAD", "disabled") };
}

/// A device, or the rank of several; `supervised` as in [`Options`].
fn serve(supervised: Option<i32>) -> Result<std::convert::Infallible> {
    if launcher().is_none() {
        return Err(Error::new(
            "a device is started by an MPI launcher together with a program: llvm-offload-mpirun -n N PROGRAM, \
             or mpirun -np N+1 llvm-offload-mpi-device PROGRAM",
        ));
    }
    do_not_offload();
    // Launchers pass these on to all processes of a job; they are meant for the program.
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: ignoring a signal needs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // Who ignores it, as a parent may have told this process to, is not told how its children end.
    // SAFETY: the default needs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    node::require_proc()?;
    let settings = Settings::from_env()?;
    let workers = if settings.has_workers() {
        serve::die_with_parent();
        relay::start(settings.devices_per_rank, |birth| {
            if let Err(Error::Text(text)) = work(birth, &settings) {
                log::error(format_args!("a worker process: {text}"));
            }
        })?
    } else {
        Vec::new()
    };
    // A rank with workers tells how they end.
    let board = if let Some(fd) = supervised {
        Some(supervise::board(fd)?)
    } else if workers.is_empty() {
        if settings.bind != Bind::Inherit {
            // Before the launcher is the grandparent.
            node::undo_binding();
        }
        Some(supervise::fork_device()?)
    } else {
        None
    };
    let Meeting { mpi, mut bells, frames, hellos, job } = meet(Role::Device, Origin::Started, &settings)?;
    let Some(Team { host, devices }) = job.team_of(mpi.rank) else {
        return Err(Error::new("the ranks do not agree on who is a device"));
    };
    let (host, number) = (*host, devices.iter().position(|&r| r == mpi.rank).unwrap_or_default());
    let (me, host_hello) = (&hellos[mpi.rank], &hellos[host]);
    let rank = mpi.rank;
    let threads = (me.cores.len() / sharers(&hellos, rank)).max(1);
    let cores = |worker| share_of_cores(&hellos, rank, worker).filter(|_| settings.bind == Bind::Share);
    let crowded = processes(&hellos, rank) > me.cores.len();
    let host_process = if host_hello.node == me.node { serve::process_handle(host_hello.pid as i32) } else { None };
    if host_hello.node != me.node {
        network::watch(2 * settings.heartbeat);
    }
    if let Some(board) = board {
        let link = Link::new(Box::new(mpi), host_hello.fragment as usize, bells, frames)?;
        set_up(threads, cores(0).unwrap_or_default(), &settings);
        board.introduce(number, rank);
        return execute(link, (host, host_process), None, pace(crowded, false), (board, &settings));
    }
    bells.expect(workers.len());
    // Pieces come as the workers cut them.
    let link = Link::new(Box::new(mpi), usize::MAX, bells, frames)?;
    let name = format!("rank {rank} on host {}", me.host);
    let spares = relay::Spares { count: settings.spares, journal: settings.journal };
    let mut relay =
        relay::Relay::new(link, (host, host_process), pace(crowded, true), name, workers, spares, host_hello.fragment);
    for worker in 0..settings.devices_per_rank as usize {
        let cores: Vec<u8> = cores(worker).unwrap_or_default().iter().flat_map(|core| core.to_le_bytes()).collect();
        let (host, threads, bell, fragment) = (host as u32, threads as u32, me.bell, host_hello.fragment);
        relay.begin(worker, &Packet::Begin { host, threads, crowded, fragment, bell, cores: &cores })?;
    }
    relay.run()
}

/// A worker process: one of the devices of a rank, which it is told of first.
fn work(birth: relay::Birth, settings: &Settings) -> Result<std::convert::Infallible> {
    let relay::Birth { socket, wake, bell, board } = birth;
    serve::die_with_parent();
    let mut packet = vec![0; PACKET_MAX];
    let len = worker::receive(&socket, &mut packet, true)?.unwrap_or(0);
    let (_, Packet::Begin { host, threads, crowded, fragment, bell: (descriptor, nonce), cores }) =
        Packet::parse(&packet[..len])?
    else {
        return Err(Error::new("its rank does not say what it is for"));
    };
    if settings.bind != Bind::Inherit {
        node::undo_binding();
    }
    let cores: Vec<u16> = cores.chunks_exact(2).map(|core| u16::from_le_bytes([core[0], core[1]])).collect();
    let rank = Bell::of(std::os::unix::process::parent_id(), descriptor, nonce).ok();
    let worker = worker::Worker::new(socket, wake, rank);
    let channel = Box::new(worker::Channel::new(worker.clone(), host as usize));
    let link = Link::new(channel, fragment as usize, Bells::new(Some(bell), Vec::new(), 0), Vec::new())?;
    set_up(threads as usize, &cores, settings);
    execute(link, (host as usize, None), Some(worker), pace(crowded, true), (board, settings))
}

/// How to wait on a node, for a device with workers or without.
fn pace(crowded: bool, workers: bool) -> Pace {
    match (crowded, workers) {
        (false, _) => Pace::ALONE,
        (true, false) => Pace::CROWDED_DEVICE,
        (true, true) => Pace::CROWDED_WORKER,
    }
}

/// Gives kernels their share of the cores, unless the user has another wish.
fn set_up(threads: usize, cores: &[u16], settings: &Settings) {
    if std::env::var_os("OMP_NUM_THREADS").is_none() && settings.bind != Bind::Inherit {
        // SAFETY: MPI's own threads, if there are any, do not read the environment any more.
        unsafe { std::env::set_var("OMP_NUM_THREADS", threads.to_string()) };
    }
    if !cores.is_empty() {
        node::bind(cores);
    }
}

fn execute(
    link: Link,
    host: (usize, Option<OwnedFd>),
    worker: Option<Arc<worker::Worker>>,
    pace: Pace,
    (board, settings): (&'static Board, &Settings),
) -> Result<std::convert::Infallible> {
    close_stdin();
    let (output, stderr) = output::Output::capture()?;
    fault::watch(board);
    let executor = Box::new(executor::InProcess);
    let limits = serve::Limits { pace, kernel_time: settings.kernel_timeout };
    serve::Server::new(link, host, worker, limits, (executor, serve::quit), (output, stderr), board).run()
}

/// Regions find an empty standard input: the launcher's is the program's.
fn close_stdin() {
    if let Ok(null) = std::fs::File::open("/dev/null") {
        // SAFETY: both descriptors are open.
        unsafe { libc::dup2(null.as_raw_fd(), 0) };
    }
}
