// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Deciding whether this process offloads over MPI at all, and starting to.

use super::Plugin;
use super::arena::LARGE_PAGE;
use super::device::Device;
use super::engine::{Engine, Port};
use super::queue::Queue;
use super::space::{self, Space};
use super::watch::{Watch, Watching};
use crate::base::settings::Settings;
use crate::base::{Error, Result, elf, log};
use crate::debug;
use crate::link::Link;
use crate::link::idle::Pace;
use crate::link::meet::{Meeting, launcher, meet, speaks_for_all};
use crate::wire::MESSAGE_MAX;
use crate::wire::command::Command;
use crate::wire::hello::{Hello, Job, Role};
use std::sync::Arc;

/// True if the program or one of its libraries, this plugin aside, uses MPI itself.
fn program_uses_mpi() -> bool {
    let uses_mpi = |path: &str| elf::map(path.as_ref()).is_ok_and(|file| elf::uses_mpi(&file));
    if uses_mpi("/proc/self/exe") {
        return true;
    }
    super::image::loaded_libraries().into_iter().any(|(name, path)| {
        let own = name.starts_with("libomptarget.rtl.");
        let mpi = name.starts_with("libmpi") || name.starts_with("libopen-") || name.starts_with("libompitrace");
        !own && !mpi && uses_mpi(&path)
    })
}

/// Why the stock plugin shall serve this process.
fn reason_not_to_start() -> Option<&'static str> {
    let Some((_, size)) = launcher() else { return Some("") };
    if size == Some(1) {
        return Some("the job has one process only");
    }
    if std::env::var("OMPI_NUM_APP_CTX").is_ok_and(|n| n.trim() == "1") {
        return Some("the job runs one program only and no llvm-offload-mpi-device");
    }
    program_uses_mpi().then_some("the program uses MPI itself")
}

/// Starts the plugin, or finds that the stock plugin shall serve this process.
///
/// # Errors
/// A job that can't work.
pub fn start() -> Result<Option<Plugin>> {
    let mandatory = std::env::var("OMP_TARGET_OFFLOAD").is_ok_and(|v| v.eq_ignore_ascii_case("mandatory"));
    let no_devices = |why: &str| {
        debug!("no MPI devices: {}", if why.is_empty() { "not started by an MPI launcher" } else { why });
        if !why.is_empty() && (mandatory || Settings::any_set()) && speaks_for_all() {
            log::warning(format_args!(
                "no MPI devices: {why}; target regions run in this process instead \
                 (use: mpirun -np N llvm-offload-mpi-device : -np 1 PROGRAM)"
            ));
        }
    };
    if let Some(why) = reason_not_to_start() {
        no_devices(why);
        return Ok(None);
    }
    let settings = Settings::from_env()?;
    let Meeting { mut mpi, bells, frames, hellos, job } = meet(Role::Host, &settings)?;
    let Job::Ready { devices: ranks, .. } = job else {
        mpi.finish();
        no_devices("the job has no llvm-offload-mpi-device process");
        return Ok(None);
    };
    let (rank, size) = (mpi.rank, mpi.size);
    let here = hellos.iter().filter(|h| h.node == hellos[rank].node).count();
    let pace = if here > hellos[rank].cores as usize { Pace::CROWDED_HOST } else { Pace::ALONE };
    let link = Link::new(Box::new(mpi), settings.fragment as usize, bells, frames)?;
    let ports = ranks.iter().enumerate().map(|(n, &r)| {
        Port::new(r, format!("device {n} (rank {r} on host {}, pid {})", hellos[r].host, hellos[r].pid))
    });
    let engine = Arc::new(Engine::new(link, rank, size, ports.collect(), pace, Watching::of(&settings)));
    let capacities: Vec<u64> = ranks.iter().map(|&r| capacity(&settings, &hellos, &ranks, r)).collect();
    let (space, controls) = map_arenas(&engine, &capacities, settings.fragment)?;
    let space = Arc::new(space);
    let devices = ranks.iter().zip(controls).enumerate().map(|(n, (&r, control))| {
        debug!("{}: {}, {} cores, {} bytes", engine.ports[n].name, hellos[r].mpi, hellos[r].cores, capacities[n]);
        let at = space.arena(n);
        Device::new(n, hellos[r].clone(), engine.clone(), space.clone(), at..at + capacities[n], control)
    });
    let devices: Vec<Device> = devices.collect();
    let host = &hellos[rank];
    let program = std::env::current_exe().ok().and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    let program = format!("{} (rank {rank} on host {}, pid {})", program.unwrap_or_default(), host.host, host.pid);
    let watch = Watch::begin(&settings, program, &devices)?;
    Ok(Some(Plugin::new(engine.clone(), space.clone(), devices, watch)))
}

/// Bytes that a device may hand out: what the user says, or its share of its node's, in
/// large pages.
fn capacity(settings: &Settings, hellos: &[Hello], devices: &[usize], rank: usize) -> u64 {
    let neighbours = devices.iter().filter(|&&d| hellos[d].node == hellos[rank].node).count() as u64;
    let bytes = settings.memory.unwrap_or((hellos[rank].memory / neighbours.max(1)) & !(LARGE_PAGE - 1));
    (bytes & !0xfff).max(1 << 20)
}

/// Finds addresses for all arenas that are free in every process. The devices hear at the
/// same time what they can load before the first image comes: libomptarget brings libLLVM,
/// which takes longer than all the rest.
fn map_arenas(engine: &Engine, capacities: &[u64], fragment: u64) -> Result<(Space, Vec<Arc<Queue>>)> {
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
        let controls: Vec<_> = (0..capacities.len()).map(|n| Queue::new(0, n)).collect();
        for (n, queue) in controls.iter().enumerate() {
            let (at, len) = (space.arena(n), capacities[n]);
            engine.control(queue, |w| {
                w.push(Command::Start { at, len, fragment });
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
    Err(last.context("no addresses for the devices' memory could be found"))
}
