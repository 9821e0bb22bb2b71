// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Starts a device: the supervisor, MPI, this process's share of the node, and the server.

use super::backend::cpu::Cpu;
use super::backend::offload::visible_devices::{self, Narrowed};
use super::backend::offload::{Direct, Offload, Seat, own_plugins};
use super::checkpoint::Checkpoint;
use super::crash::board::CrashBoard;
use super::crash::exit::quit;
use super::crash::supervisor::{self, Anew};
use super::crash::{host_exit, monitor};
use super::host::Host;
use super::messages::interpreter::Execute;
use super::output::capture::Output;
use super::server::Server;
use super::threads::pool;
use super::transfers::completion::Completion;
use crate::base::settings::{self, Bind, Settings, Unified};
use crate::base::{Error, Result, log};
use crate::job::bootstrap::{Bootstrap, Origin, bootstrap};
use crate::job::spawned;
use crate::job::topology::{Team, accelerator_of, processes, rivals_of, share_of_cores, sharers};
use crate::link::backoff::BackoffPolicy;
use crate::link::doorbell::Doorbells;
use crate::link::{Endpoint, Link};
use crate::mpi::Mpi;
use crate::sys::launchers::{launcher, place_on_node};
use crate::sys::{layout, node, process, tcp_liveness};
use crate::wire::hello::{Hello, Role};
use std::convert::Infallible;
use std::sync::Arc;

/// Starts the server of a rank whose devices are processes, if the settings request it. Called before MPI and any
/// thread start.
pub struct Workers(pub(crate) StartWorkers);

type StartWorkers = fn(&Settings) -> Result<Option<Box<dyn Rank>>>;

/// A rank whose devices are separate processes.
pub(crate) trait Rank {
    /// Serves the devices until the host has ended all of them.
    fn serve(self: Box<Self>, place: Place) -> Result<Infallible>;
}

/// A rank's place in the job.
pub(crate) struct Place {
    pub mpi: Mpi,
    pub doorbells: Doorbells,
    /// By rank.
    pub endpoints: Vec<Endpoint>,
    /// The host's rank, and its process if it runs on this node.
    pub host: (usize, Option<process::Handle>),
    hellos: Vec<Hello>,
    /// The ranks of the program's devices, in ascending order.
    team: Vec<usize>,
    bind: Bind,
}

impl Place {
    /// Starts MPI. `pool` is [`Hello::pool`].
    fn find(settings: &Settings, pool: u32) -> Result<Place> {
        let Bootstrap { mpi, doorbells, endpoints, hellos, topology } =
            bootstrap(Role::Device, Origin::Started, pool, settings)?;
        let Some(Team { host, devices }) = topology.team_of(mpi.rank) else {
            return Err(Error::new("the ranks do not agree on who is a device"));
        };
        let (host, team) = (*host, devices.clone());
        let is_near = hellos[host].node == hellos[mpi.rank].node;
        let host_process = if is_near { process::handle(hellos[host].pid as i32) } else { None };
        host_process.iter().for_each(host_exit::expect);
        if !is_near {
            tcp_liveness::watch(2 * settings.heartbeat);
        }
        Ok(Place { mpi, doorbells, endpoints, host: (host, host_process), hellos, team, bind: settings.bind })
    }

    pub fn me(&self) -> &Hello {
        &self.hellos[self.mpi.rank]
    }

    /// The size of a fragment of bulk data.
    pub fn fragment(&self) -> u64 {
        self.hellos[self.host.0].fragment
    }

    /// The number of threads that a device may use, from its share of the cores.
    pub fn threads(&self) -> usize {
        (self.me().cores.len() / sharers(&self.hellos, self.mpi.rank)).max(1)
    }

    /// The cores to bind a device of this rank to; empty for none.
    pub fn cores(&self, device: usize) -> &[u16] {
        let share = share_of_cores(&self.hellos, self.mpi.rank, device);
        share.filter(|_| self.bind == Bind::Share).unwrap_or_default()
    }

    /// The number of a device of this rank among the program's devices.
    pub fn number(&self, device: usize) -> usize {
        let before = self.team.iter().take_while(|&&rank| rank != self.mpi.rank);
        before.map(|&rank| self.hellos[rank].devices as usize).sum::<usize>() + device
    }

    /// True if the node has more processes than cores.
    pub fn is_crowded(&self) -> bool {
        processes(&self.hellos, self.mpi.rank) > self.me().cores.len()
    }
}

/// Images load their own libomptarget and libomp into this process, and these read the environment when they are
/// loaded. libomptarget must not look for devices here. libomp must not start tools (OMPT), because this process does
/// not finalize them, nor display its settings: the user wants to see the program's. Must be called before any thread
/// starts.
pub(super) fn set_environment() {
    // SAFETY: no other thread runs yet.
    unsafe {
        std::env::set_var("OMP_TARGET_OFFLOAD", "disabled");
        std::env::set_var("OMP_TOOL", "disabled");
        for display in ["OMP_TOOL_VERBOSE_INIT", "OMP_DISPLAY_ENV", "KMP_SETTINGS", "KMP_VERSION"] {
            std::env::remove_var(display);
        }
    }
}

/// Makes regions run on an accelerator of this node, by a plugin other than this project's; overrides
/// [`set_environment`]. Must be called before any thread starts.
fn offload_here() {
    // SAFETY: no other thread runs yet.
    unsafe {
        std::env::set_var("OMP_TARGET_OFFLOAD", "mandatory");
        std::env::set_var(settings::DEVICE_PROCESS, std::process::id().to_string());
    }
}

/// Serves as a device, or as a rank with several devices. `supervised` is the descriptor of the crash board if
/// this process has a supervisor already; the first `programs` ranks of the job are programs.
pub(super) fn serve(supervised: Option<i32>, programs: u32, workers: &Workers) -> Result<Infallible> {
    if launcher().is_none() {
        return Err(Error::new(
            "a device is started by an MPI launcher together with a program: llvm-offload-mpirun -n N PROGRAM, \
             or mpirun -np N+1 llvm-offload-mpi-device PROGRAM",
        ));
    }
    set_environment();
    // Launchers pass these on to all processes of a job; only the program should get them.
    for signal in [libc::SIGUSR1, libc::SIGUSR2] {
        // SAFETY: ignoring a signal needs no handler.
        unsafe { libc::signal(signal, libc::SIG_IGN) };
    }
    // If the parent ignored this signal, this process would not learn how its children exit.
    // SAFETY: the default needs no handler.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
    node::require_proc()?;
    let settings = Settings::from_env()?;
    if let Some(rank) = workers.0(&settings)? {
        // The rank itself reports how its devices exit.
        return rank.serve(Place::find(&settings, 0)?);
    }
    let board = match supervised {
        Some(fd) => {
            // If the dynamic loader executed this process, it has the loader's name.
            let _ = rustix::thread::set_name(c"llvm-offload-mpi");
            supervisor::board(fd)?
        }
        None => {
            if settings.bind != Bind::Inherit {
                // Do this now, while the launcher is the parent.
                node::undo_binding();
            }
            let anew = match settings.backend {
                settings::Backend::Cpu => (settings.unified != Unified::Off).then_some(Anew::InWindow),
                settings::Backend::Offload => own_plugins::leave().then_some(Anew::AsIs),
            };
            supervisor::fork_device(anew, programs)?
        }
    };
    let narrowed = (settings.backend == settings::Backend::Offload).then(|| {
        offload_here();
        visible_devices::narrow(place_on_node(programs).map(|place| spawned::here().0 as usize + place))
    });
    let place = Place::find(&settings, narrowed.as_ref().map_or(0, Narrowed::pool))?;
    set_up(place.threads(), place.cores(0), &settings);
    let (rank, number) = (place.mpi.rank, place.number(0));
    let seat = narrowed.map(|narrowed| {
        let at = accelerator_of(&place.hellos, rank);
        let warn =
            |doubt| log::warning(format_args!("device {number} (rank {rank} on host {}): {doubt}", place.me().host));
        narrowed.settle(at).into_iter().for_each(warn);
        Seat { place: at, choices: narrowed.choices(), rivals: rivals_of(&place.hellos, rank, &place.team) }
    });
    board.introduce(number, rank);
    let policy = if place.is_crowded() { BackoffPolicy::CROWDED_DEVICE } else { BackoffPolicy::ALONE };
    let fragment = place.fragment() as usize;
    let Place { mpi, doorbells, endpoints, host, .. } = place;
    let link = |transport| Link::new(transport, fragment, doorbells, endpoints);
    match seat {
        None => execute(link(Box::new(mpi))?, host, policy, None, (board, Cpu::new(board)), &settings),
        Some(seat) => {
            let (direct, transport) = Direct::over(mpi, settings.gpu_direct);
            let backend = Offload::new(seat, direct, board);
            execute(link(transport)?, host, policy, None, (board, backend), &settings)
        }
    }
}

/// Gives kernels their share of the cores, unless the user wants otherwise.
pub(crate) fn set_up(threads: usize, cores: &[u16], settings: &Settings) {
    if std::env::var_os("OMP_NUM_THREADS").is_none() && settings.bind != Bind::Inherit {
        // SAFETY: MPI's own threads, if there are any, no longer read the environment.
        unsafe { std::env::set_var("OMP_NUM_THREADS", threads.to_string()) };
    }
    if !cores.is_empty() {
        node::bind(cores);
    }
}

/// Serves the host with a backend, which uses the crash board.
pub(crate) fn execute<B: Execute>(
    link: Link<Completion>,
    host: (usize, Option<process::Handle>),
    policy: BackoffPolicy,
    checkpoint: Option<Arc<dyn Checkpoint>>,
    (board, backend): (&'static CrashBoard, B),
    settings: &Settings,
) -> Result<Infallible> {
    // Regions have an empty standard input: the launcher's belongs to the program.
    if let Ok(null) = std::fs::File::open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(null);
    }
    let (output, stderr) = Output::capture(settings.backend == settings::Backend::Offload)?;
    monitor::install_handlers(board);
    let host = Host::new(link, host, policy, (board, stderr), quit);
    let server = Server::new(host, backend, output, settings.kernel_timeout, checkpoint);
    server.exit_on_panic();
    if !layout::is_in_window() {
        server.run()
    }
    // Do not run on the first thread's stack, which is outside the window.
    let thread = std::thread::Builder::new().stack_size(pool::stack_limit());
    let thread = thread.spawn(move || server.run()).map_err(|e| Error::from(e).context("can't start a thread"))?;
    // The thread never ends.
    let _ = thread.join();
    quit(1)
}
