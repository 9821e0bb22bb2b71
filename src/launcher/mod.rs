// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The launcher `llvm-offload-mpirun`: finds out what a program needs, and executes the MPI's own
//! launcher. It never calls MPI itself.

mod accelerators;
mod check;
mod command;
mod devices;
mod install;
mod options;
mod program;
mod query;

use crate::base::{Error, Result, log, manual, settings};
use crate::job::hosts;
use crate::sys::{launchers, node, programs};
use accelerators::Regions;
use clap::{CommandFactory, Parser};
use command::{Job, quoted, with_environment};
use install::{Build, Family};
use options::{LauncherKind, Options, Placement};
use program::Program;
use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// The main function of the executable.
pub fn main() -> ExitCode {
    let options = Options::parse();
    if let (None, Some(home)) = (std::env::var_os("HOME"), std::env::home_dir()) {
        // Open MPI 5 does not start without HOME, which containers and system services may lack.
        // SAFETY: no other thread runs.
        unsafe { std::env::set_var("HOME", home) };
    }
    match run(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            log::error(e);
            ExitCode::FAILURE
        }
    }
}

/// False if the check fails.
fn run(options: &Options) -> Result<bool> {
    if options.man {
        return manual::print(Options::command(), settings::Reader::Launcher).map(|()| true);
    }
    if let Some(plugin) = &options.print_devices {
        return devices::print(plugin).map(|()| true);
    }
    let plan = Plan::of(options)?;
    if options.check {
        return check::run(&plan);
    }
    let words = if plan.is_job {
        plan.job.command()?
    } else {
        with_environment(&plan.job.environment, plan.job.command.clone())
    };
    if options.dry_run {
        let line = quoted(&words);
        std::io::stdout().write_all(&[line.as_encoded_bytes(), b"\n"].concat())?;
        return Ok(true);
    }
    // The MPI's launcher becomes this process, so that signals and the exit status are its own.
    let e = Command::new(&words[0]).args(&words[1..]).exec();
    Err(Error::from(e).context(format_args!("can't run {}", words[0].to_string_lossy())))
}

/// The job, and what `--check` reports about it.
struct Plan {
    program: Option<Program>,
    build: Build,
    job: Job,
    /// The launcher starts the job; otherwise the programs are started directly, and spawn their devices.
    is_job: bool,
    hosts: Hosts,
    regions: Regions,
}

/// Hosts, each with a number of devices or ranks. An empty list means this host.
type Hosts = Vec<(String, u32)>;

impl Plan {
    fn of(options: &Options) -> Result<Plan> {
        let settings = settings::Settings::from_env()?;
        let myself = std::env::current_exe().map_err(|e| Error::from(e).context("where is this program?"))?;
        std::env::current_dir().map_err(|e| {
            Error::from(e)
                .context("MPI's launchers can't start from the current directory, which is gone; go to another")
        })?;
        let force = options.force || options.check;
        let program = (!options.command.is_empty())
            .then(|| Program::of(&options.command, options.program.as_deref(), force))
            .transpose()?;
        let own_mpi = program.as_ref().and_then(|p| p.mpi);
        let prefix = myself.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let builds = install::builds(prefix);
        let srun = options.launcher == Some(LauncherKind::Srun);
        let build = install::choose(&builds, options.mpi.as_deref(), own_mpi, srun)?;
        let (kind, launcher) = launcher(options.launcher, &build)?;
        if options.spawn && launchers::launcher().is_some() {
            return Err(Error::new("--spawn: this is a slot of a job already, in which MPI can start once only"));
        }
        let said = options.program_mpi.or(settings.program_mpi);
        let calls_mpi = said.unwrap_or(own_mpi.is_some());
        let allocation = hosts::of_allocation();
        let regions = Regions::of(options, program.as_ref(), settings.backend, calls_mpi);
        let is_script = || match is_script_of_this_host(options, program.as_ref(), &regions, &allocation) {
            // An MPI application needs no place for devices on other hosts.
            Err(_) if calls_mpi => Ok(false),
            known => known,
        };
        let is_job = !options.spawn && (said == Some(true) || build.family != Family::OpenMpi || !is_script()?);
        // Devices must not be ranks of an MPI application's MPI_COMM_WORLD: its ranks spawn them.
        let spawns = (calls_mpi || !is_job) && !options.info;
        let job = Job::empty(kind, launcher, options, settings.heartbeat);
        let (program_hosts, devices, hosts) = place(options, spawns, &allocation, |hosts| match regions.uses_all {
            true => accelerators::count(&job, &build.device, &regions, hosts),
            false => Ok(None),
        })?;
        hosts::check_names(program_hosts.iter().chain(&hosts).map(|(name, _)| name.as_str()))?;

        let mut command = options.command.clone();
        let mut own = None;
        if let (Some(program), false) = (&program, options.info) {
            own = slot(program, &build, force)?;
            command[0] = program.starter.as_ref().unwrap_or(&program.path).clone().into_os_string();
        } else {
            command = vec![myself.into(), "--print-devices".into(), build.plugin.clone().into()];
        }
        let mut environment: Vec<(String, OsString)> = Vec::new();
        // Open MPI passes no environment variables to other hosts.
        if is_job && kind == LauncherKind::Mpirun && (spawns || !hosts.is_empty()) {
            environment.extend(settings::for_devices().into_iter().map(|(name, value)| (name, value.into())));
        }
        environment.extend(regions.variables.clone());
        environment.extend(options.placement.bind.map(|_| ("OMPTARGET_MPI_BIND".into(), "inherit".into())));
        let word = |calls_mpi| if calls_mpi { "yes" } else { "no" };
        environment.extend(options.program_mpi.map(|calls| ("OMPTARGET_MPI_PROGRAM_MPI".into(), word(calls).into())));
        let mut ranks = options.placement.ranks;
        let mut places = Vec::new();
        if spawns {
            environment.extend(own);
            // By default as many devices as one rank has.
            let is_open = options.placement.devices.or(options.placement.devices_per_node).is_none();
            let each = if is_open { settings.devices_per_rank } else { devices.div_ceil(options.placement.ranks) };
            environment.push(("OMPTARGET_MPI_DEVICES".into(), each.to_string().into()));
            if !hosts.is_empty() {
                environment.push(("OMPTARGET_MPI_HOSTS".into(), command::list(&hosts).into()));
                // mpirun must know all hosts: Open MPI 4.1 crashes if two ranks add hosts at once.
                places = merged([program_hosts, hosts.clone()].concat());
            }
        } else {
            // By default as many devices as one rank has.
            let ranks_of = |n| if n == 1 && options.placement.devices.is_none() { Ok(1) } else { settings.ranks_of(n) };
            let on_hosts =
                hosts.iter().map(|(host, n)| Ok((host.clone(), ranks_of(*n)?))).collect::<Result<Vec<_>>>()?;
            ranks += if hosts.is_empty() { ranks_of(devices)? } else { on_hosts.iter().map(|(_, n)| n).sum() };
            if !hosts.is_empty() {
                places = merged([program_hosts, on_hosts].concat());
            }
            // The first ranks become the program, because launchers pass the input to these.
            let mut words = vec![build.device.clone().into_os_string()];
            if options.placement.ranks > 1 {
                words.extend(["--ranks".into(), options.placement.ranks.to_string().into()]);
            }
            words.extend(with_environment(&own.into_iter().collect::<Vec<_>>(), command));
            command = words;
        }
        let job = Job { ranks, hosts: places, environment, command, ..job };
        Ok(Plan { program, build, job, is_job, hosts, regions })
    }
}

/// True for a script that runs on this host without further options about the job: it may start several programs, and
/// MPI starts only once in a slot of a job. (As a rank of a job, the first program would have faster regions, because
/// Open MPI 4 shares no memory with processes that it has spawned.)
fn is_script_of_this_host(
    options: &Options,
    program: Option<&Program>,
    regions: &Regions,
    allocation: &Result<Vec<hosts::Host>>,
) -> Result<bool> {
    let Options { placement, .. } = options;
    let says_more = options.info
        || options.program.is_some()
        || options.launcher.is_some()
        || !options.launcher_arg.is_empty()
        || placement.bind.is_some()
        || placement.ranks > 1
        || launchers::launcher().is_some();
    let is_candidate = program.is_some_and(|p| p.is_script) && !regions.uses_all && !says_more;
    Ok(is_candidate && named_hosts(placement, false, allocation)?.is_empty())
}

/// Merges the entries of each host, with all of its ranks: launchers fill one host after the other.
fn merged(hosts: Hosts) -> Hosts {
    let mut merged = Hosts::new();
    for (name, n) in hosts {
        match merged.iter_mut().find(|(known, _)| hosts::is_same(known, &name)) {
            Some((_, all)) => *all += n,
            None => merged.push((name, n)),
        }
    }
    merged
}

/// The hosts for devices that the user or the batch system names.
fn named_hosts(placement: &Placement, spawns: bool, allocation: &Result<Vec<hosts::Host>>) -> Result<Vec<hosts::Host>> {
    match (&placement.hosts, &placement.hostfile) {
        (Some(list), _) => hosts::parse_list(list).map_err(|e| e.context("--hosts")),
        (_, Some(file)) => hosts::read_file(file).map_err(|e| e.context("--hostfile")),
        // The launcher places the ranks of an MPI application, whose devices run beside them.
        _ if spawns => Ok(Vec::new()),
        _ => allocation.clone(),
    }
}

/// The hosts of the program's ranks, the number of devices, and their hosts. If the user gives no number of devices,
/// `count` assigns numbers to hosts, or returns the number for this host.
fn place(
    options: &Options,
    spawns: bool,
    allocation: &Result<Vec<hosts::Host>>,
    count: impl FnOnce(&mut [hosts::Host]) -> Result<Option<u32>>,
) -> Result<(Hosts, u32, Hosts)> {
    let (placement, this_host) = (&options.placement, node::host_name());
    let mut named = named_hosts(placement, spawns, allocation)?;
    let is_open = placement.devices.or(placement.devices_per_node).is_none();
    // An MPI application's ranks are not placed yet; and --check must also report hosts that can't be counted.
    let counted = if is_open && !spawns && !options.check { count(&mut named)? } else { None };
    let is_allocation = placement.hosts.is_none() && placement.hostfile.is_none();
    // A batch system and the host itself may use names of different networks (n1.ib, n1.mgmt).
    let label = |name: &str| name.split('.').next().map(str::to_owned);
    let is_this = |h: &&hosts::Host| label(&h.name) == label(&this_host);
    let here = || named.iter().find(is_this);
    // This host's own name may abbreviate two names in a list.
    let full = || named.iter().find(|h| hosts::is_same(&h.name, &this_host) && hosts::has_own_address(&h.name));
    // From a login node the program also goes into the allocation, which may lack some of the named hosts. With hosts
    // that the user names, an allocation that can't be read does not matter.
    let allocation = allocation.as_deref().unwrap_or_default();
    let is_inside = || allocation.iter().any(|h| is_this(&h) || hosts::is_here(&h.name));
    let is_outside = !allocation.is_empty() && !launchers::slurm::is_on_node() && !is_inside();
    let first = || named.iter().find(|h| allocation.iter().any(|node| hosts::is_same(&node.name, &h.name)));
    let host = if is_allocation { here() } else { full() };
    let host = host.or_else(|| first().filter(|_| is_outside));
    let host = host.map_or(this_host.as_str(), |h| h.name.as_str());
    // Each rank of an MPI application has its own devices.
    let sets = if spawns { placement.ranks } else { 1 };
    let devices = placement.devices.map(|n| n.saturating_mul(sets)).or(counted);
    let (devices, hosts) = hosts::place(&named, devices, placement.devices_per_node)?;
    Ok((vec![(host.to_string(), placement.ranks)], devices, hosts))
}

/// The environment variable that lets the program's libomptarget find the plugin.
fn slot(program: &Program, build: &Build, force: bool) -> Result<Option<(String, OsString)>> {
    let llvm = program.llvm();
    if llvm.is_none() && !program.is_script && !force {
        return Err(Error::new(format!(
            "{} was not built for offloading: it is linked with no libomptarget; compile and link it with \
             clang -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu (if it starts or loads another file that was, \
             name that with --program; --force starts it nevertheless)",
            program.path.display()
        )));
    }
    match library_path(program, build) {
        Ok(path) => Ok(path.map(|path| ("LD_LIBRARY_PATH".into(), path))),
        Err(_) if force => Ok(None),
        Err(e) => Err(e.context(program.path.display())),
    }
}

/// The LD_LIBRARY_PATH with which a program's libomptarget finds the plugin, or is replaced by one
/// that contains the plugin; `None` if the program needs none.
fn library_path(program: &Program, build: &Build) -> Result<Option<OsString>> {
    let (library, path) = program.offload_library().unwrap_or_default();
    // A library of this installation is replaced anyway: it may be the one for another MPI.
    let is_installed_here = path.is_some_and(|path| build.owns(path));
    if program.has_plugin_built_in() && !is_installed_here {
        return Ok(None);
    }
    let Some(folder) = build.slot(program.llvm(), library)? else { return Ok(None) };
    let mut path = folder.into_os_string();
    if path.as_encoded_bytes().iter().any(|b| b":;".contains(b)) {
        return Err(Error::new(format!(
            "omptarget-mpi is installed in {}, which LD_LIBRARY_PATH can't name because of the ':' or ';': \
             install it elsewhere",
            path.display()
        )));
    }
    if let Some(rest) = std::env::var_os("LD_LIBRARY_PATH").filter(|p| !p.is_empty()) {
        path.push(":");
        path.push(rest);
    }
    let replaced = program.with_library_path(&path);
    if program.llvm() >= Some(19) && replaced.is_some_and(|program| !program.has_plugin_built_in()) {
        return Err(Error::new(format!(
            "LD_LIBRARY_PATH does not replace its {library}, because LD_PRELOAD or the program itself (DT_RPATH) says \
             where that is: link it without -rpath, or with -Wl,--enable-new-dtags"
        )));
    }
    Ok(Some(path))
}

/// The launcher that the user requests, or the MPI's own, or srun.
fn launcher(asked: Option<LauncherKind>, build: &Build) -> Result<(LauncherKind, PathBuf)> {
    let own_kind = match build.family {
        Family::OpenMpi => LauncherKind::Mpirun,
        Family::Mpich => LauncherKind::Mpiexec,
    };
    let srun = || programs::tool("srun").map(|path| (LauncherKind::Srun, path));
    let own = || build.family.launcher().map(|path| (own_kind, path));
    let found = match asked {
        Some(LauncherKind::Srun) => srun(),
        Some(kind) if kind != own_kind => {
            return Err(Error::new(format!("--launcher: that is not the launcher of {}", build.family)));
        }
        Some(_) => own(),
        None => own().or_else(srun),
    };
    found.ok_or_else(|| match asked {
        Some(LauncherKind::Srun) => Error::new("--launcher: srun was not found on the PATH"),
        _ => Error::new(format!("no launcher for {} was found: is it on the PATH?", build.family)),
    })
}
