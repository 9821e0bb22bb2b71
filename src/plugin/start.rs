// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Deciding whether this process offloads over MPI at all, and starting to.

use super::Plugin;
use super::arena::LARGE_PAGE;
use super::device::Device;
use super::engine::{Engine, Port};
use super::queue::Queue;
use super::space::{self, Space};
use super::watch::{Watch, Watching};
use crate::base::node::{self, ranges};
use crate::base::settings::{self, Bind, Settings};
use crate::base::{Error, Result, elf, log, proc};
use crate::debug;
use crate::link::Link;
use crate::link::idle::Pace;
use crate::link::meet::{Meeting, Origin, launcher, meet, speaks_for_all};
use crate::mpi::{self, Phase};
use crate::wire::MESSAGE_MAX;
use crate::wire::command::Command;
use crate::wire::hello::{Hello, Job, Role, Team, processes, share_of_cores, sharers};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// True if the program or one of its libraries, this plugin aside, uses MPI itself.
fn program_uses_mpi() -> bool {
    let uses_mpi = |path: &Path| elf::map(path).is_ok_and(|file| elf::uses_mpi(&file));
    if uses_mpi(proc::EXECUTABLE.as_ref()) {
        return true;
    }
    super::image::loaded_libraries().into_iter().any(|(name, path)| {
        let own = name.starts_with("libomptarget.rtl.");
        let mpi = name.starts_with("libmpi") || name.starts_with("libopen-") || name.starts_with("libompitrace");
        !own && !mpi && uses_mpi(&path)
    })
}

/// Why the stock plugin shall serve this process.
fn reason_not_to_start(uses_mpi: bool) -> Option<&'static str> {
    let Some((_, size)) = launcher() else { return Some("") };
    if size == Some(1) {
        return Some("the job has one process only");
    }
    let runs_one_program = std::env::var("OMPI_NUM_APP_CTX").is_ok_and(|n| n.trim() == "1");
    if runs_one_program && std::env::var_os(settings::WITH_DEVICES).is_none() {
        return Some("the job runs one program only and no llvm-offload-mpi-device");
    }
    uses_mpi.then_some("the program uses MPI itself")
}

/// Who serves the program's target regions.
pub enum Choice {
    /// The stock plugin, in this process.
    Stock,
    /// Devices that were started together with the program.
    Ready(Box<Plugin>),
    /// As many devices as this, which [`spawn`] starts when the first is used.
    OnUse(usize, Box<Settings>),
}

/// Looks at how this process was started, and meets the devices of its job, if it has any.
///
/// # Errors
/// A job that can't work.
pub fn choose() -> Result<Choice> {
    let mandatory = std::env::var("OMP_TARGET_OFFLOAD").is_ok_and(|v| v.eq_ignore_ascii_case("mandatory"));
    let no_devices = |why: &str, uses_mpi: bool| {
        debug!("no MPI devices: {}", if why.is_empty() { "nobody asks for them" } else { why });
        if !why.is_empty() && (mandatory || Settings::any_set()) && speaks_for_all() {
            log::warning(format_args!(
                "no MPI devices: {why}; target regions run in this process instead (use: {})",
                if uses_mpi {
                    "OMPTARGET_MPI_DEVICES=N, and no devices in its own MPI job"
                } else {
                    "llvm-offload-mpirun -n N PROGRAM"
                }
            ));
        }
    };
    // LLVM 18 loads plugins although offloading is disabled, in the device processes too, into
    // which an image brings libomptarget.
    let disabled = std::env::var("OMP_TARGET_OFFLOAD").is_ok_and(|v| v.trim().eq_ignore_ascii_case("disabled"));
    if disabled || (launcher().is_none() && !Settings::any_set()) {
        no_devices("", false);
        return Ok(Choice::Stock);
    }
    node::require_proc()?;
    let settings = Settings::from_env()?;
    let uses_mpi = program_uses_mpi();
    if !uses_mpi || speaks_for_all() {
        for name in settings::unknown() {
            log::warning(format_args!("{name} is no setting of this version: it has no effect"));
        }
    }
    if settings.hosts.is_some() && settings.devices.is_none() {
        log::warning("OMPTARGET_MPI_HOSTS says where to spawn devices, but OMPTARGET_MPI_DEVICES not how many: none");
    }
    if let Some(devices) = settings.devices {
        let alone = launcher().is_none_or(|(_, size)| size == Some(1));
        if uses_mpi || alone {
            node::open_standard_streams();
            if uses_mpi && mpi::phase() == Phase::Before && node::is_single_threaded() {
                for (name, value) in mpi::LEVEL_VARIABLES.iter().filter(|(name, _)| std::env::var_os(name).is_none()) {
                    // SAFETY: no other thread reads the environment, as was just looked.
                    unsafe { std::env::set_var(name, value) };
                }
            }
            return Ok(Choice::OnUse(devices, Box::new(settings)));
        }
    }
    if let Some(why) = reason_not_to_start(uses_mpi) {
        no_devices(why, uses_mpi);
        return Ok(Choice::Stock);
    }
    node::open_standard_streams();
    let mut meeting = meet(Role::Host, Origin::Started, &settings)?;
    if meeting.job == Job::HostsOnly {
        meeting.mpi.finish();
        no_devices("the job has no llvm-offload-mpi-device process", uses_mpi);
        return Ok(Choice::Stock);
    }
    Ok(Choice::Ready(Box::new(with(meeting, &settings)?)))
}

/// Spawns the devices of this process with the settings of its start; `on_mpi_end` is called
/// when the program ends MPI, if that is the program's.
///
/// # Errors
/// The device executable is not there, or MPI can't be used for that.
pub fn spawn(devices: usize, settings: &Settings, on_mpi_end: extern "C" fn()) -> Result<Plugin> {
    if program_uses_mpi() && mpi::phase() == Phase::Before {
        return Err(Error::new(
            "the program uses MPI, but this target region comes before its MPI_Init; its devices \
             (OMPTARGET_MPI_DEVICES) can be started only after it",
        ));
    }
    let executable = device_executable()?;
    if mpi::phase() == Phase::Running {
        mpi::at_end(on_mpi_end)?;
    }
    let ranks = settings.ranks_of(devices as u32).map_err(|e| e.context("OMPTARGET_MPI_DEVICES"))? as usize;
    let meeting = meet(Role::Host, Origin::Spawn { executable: &executable, ranks }, settings)?;
    with(meeting, settings)
}

/// The device executable of this build: beside the plugin, or where an install prefix has it.
fn device_executable() -> Result<PathBuf> {
    const NAME: &str = "llvm-offload-mpi-device";
    let plugin = super::image::own_path()
        .ok_or_else(|| Error::new("the plugin's own file can't be found in /proc/thread-self/maps"))?;
    let folders = plugin.ancestors().skip(1).take(4);
    let mut places = folders.flat_map(|folder| [folder.join(NAME), folder.join("bin").join(NAME)]);
    places.find(|path| path.exists()).ok_or_else(|| {
        Error::new(format!("there is no {NAME} beside {} nor in its prefix: install it again", plugin.display()))
    })
}

/// The plugin with the devices that this process has met.
fn with(meeting: Meeting, settings: &Settings) -> Result<Plugin> {
    let Meeting { mpi, bells, frames, hellos, job } = meeting;
    let (rank, size) = (mpi.rank, mpi.size);
    let Some(Team { devices: ranks, .. }) = job.team_of(rank).cloned() else {
        return Err(Error::new("the ranks do not agree on who is a program"));
    };
    // Device by device: its rank, and which one of that it is.
    let places: Vec<(usize, usize)> =
        ranks.iter().flat_map(|&r| (0..hellos[r].devices as usize).map(move |worker| (r, worker))).collect();
    let pace = if processes(&hellos, rank) > hellos[rank].cores.len() { Pace::CROWDED_HOST } else { Pace::ALONE };
    let capacities: Vec<u64> = places.iter().map(|&(r, _)| capacity(settings, &hellos, r)).collect();
    let share = |(r, worker)| share_of_cores(&hellos, r, worker).filter(|_| settings.bind == Bind::Share);
    let hello = |&place: &(usize, usize)| {
        let hello = hellos[place.0].clone();
        Hello { cores: share(place).map_or(hello.cores, <[u16]>::to_vec), ..hello }
    };
    let of_devices: Vec<Hello> = places.iter().map(hello).collect();
    let link = Link::new(Box::new(mpi), settings.fragment as usize, bells, frames)?;
    let ports =
        places.iter().zip(&of_devices).enumerate().map(|(n, (&(r, worker), Hello { host, pid, devices, .. }))| {
            if *devices > 1 {
                Port::new(
                    r,
                    Some(worker as u8),
                    format!("device {n} (worker {worker} of rank {r} on host {host}, pid {pid})"),
                )
            } else {
                Port::new(r, None, format!("device {n} (rank {r} on host {host}, pid {pid})"))
            }
        });
    let engine =
        Arc::new(Engine::new(link, (rank, size), ports.collect(), (pace, settings.heartbeat), Watching::of(settings)));
    let (space, controls) = map_arenas(&engine, &capacities)?;
    let space = Arc::new(space);
    let _ = engine.space.set(space.clone());
    let devices = of_devices.into_iter().zip(controls).enumerate().map(|(n, (h, control))| {
        debug!("{}: {}, cores {}, {} bytes", engine.ports[n].name, h.mpi, ranges(&h.cores), capacities[n]);
        let at = space.arena(n);
        Device::new(n, h, engine.clone(), space.clone(), at..at + capacities[n], control)
    });
    let devices: Vec<Device> = devices.collect();
    let host = &hellos[rank];
    let program = std::fs::read_link(proc::EXECUTABLE).ok();
    let program = program.and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    let program = format!("{} (rank {rank} on host {}, pid {})", program.unwrap_or_default(), host.host, host.pid);
    let watch = Watch::begin(settings, program, &devices)?;
    Ok(Plugin::new(engine.clone(), space.clone(), devices, watch))
}

/// Bytes that a device may hand out: what the user says, or its share of its node's, in
/// large pages.
fn capacity(settings: &Settings, hellos: &[Hello], rank: usize) -> u64 {
    let share = hellos[rank].memory / sharers(hellos, rank) as u64;
    let bytes = settings.memory.unwrap_or(share & !(LARGE_PAGE - 1));
    (bytes & !0xfff).max(1 << 20)
}

/// Finds addresses for all arenas that are free in every process. The devices hear at the
/// same time what they can load before the first image comes: libomptarget brings libLLVM,
/// which takes longer than all the rest.
fn map_arenas(engine: &Engine, capacities: &[u64]) -> Result<(Space, Vec<Arc<Queue>>)> {
    let stride = capacities.iter().copied().max().unwrap_or(0).next_multiple_of(1 << 30);
    let mut last = Error::new("no addresses");
    let needed = |name: &str| name.starts_with("libomp.so") || name.starts_with("libomptarget.so");
    let mut libraries = super::image::library_list(needed);
    libraries.truncate(MESSAGE_MAX / 2);
    for attempt in 0..space::ARENAS_TRIES {
        let start = space::ARENAS + attempt * space::ARENAS_STEP;
        let space = match Space::at(start, stride, capacities.len()) {
            Ok(space) => space,
            Err(e) => {
                last = e;
                continue;
            }
        };
        let controls: Vec<_> = (0..capacities.len()).map(Queue::control).collect();
        for (n, queue) in controls.iter().enumerate() {
            let (at, len) = (space.arena(n), capacities[n]);
            engine.control(queue, |w| {
                w.push(Command::Start { at, len });
                w.push(Command::Preload { libraries: &libraries });
            })?;
        }
        let mut failure = None;
        for queue in &controls {
            engine.wait(queue)?;
            failure = queue.take_failure().or(failure);
        }
        match failure {
            None => return Ok((space, controls)),
            Some(e) => last = e,
        }
    }
    Err(last.context(
        "no addresses for the devices' memory could be found (ulimit -v and OMPTARGET_MPI_MEMORY say how many there are)",
    ))
}
