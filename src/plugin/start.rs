// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Decides whether this process offloads over MPI, and starts the plugin.

use super::Plugin;
use super::addresses::address_map::{self, AddressMap, Reservation};
use super::addresses::arena::LARGE_PAGE;
use super::devices::device::Device;
use super::devices::queues::Queues;
use super::devices::shared_memory::{Offer, SharedPart};
use super::messages::port::Port;
use super::messages::queue::Queue;
use super::messages::queue_trace::Tracing;
use super::program::libraries;
use super::progress::engine::Engine;
use super::trace::Trace;
use super::unified::Unified;
use crate::base::settings::{self, Backend, Bind, Settings};
use crate::base::target::Executor;
use crate::base::{Error, Result, elf, log};
use crate::debug;
use crate::job::bootstrap::{Bootstrap, Origin, bootstrap};
use crate::job::slot;
use crate::job::topology::{Team, Topology, processes, share_of_cores, sharers};
use crate::link::Link;
use crate::link::backoff::BackoffPolicy;
use crate::mpi::{self, Phase, quirks};
use crate::sys::launchers::processes;
use crate::sys::launchers::{self, is_beside_devices, launcher, speaks_for_all};
use crate::sys::layout;
use crate::sys::node::{self, ranges};
use crate::sys::process::{self, Mappings};
use crate::wire::command::{Command, Obtained, Ranges};
use crate::wire::control::Control;
use crate::wire::hello::{Hello, Role};
use crate::wire::{Bytes, MESSAGE_MAX};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The device executable.
const DEVICE: &str = "llvm-offload-mpi-device";

/// The program's libraries when it started its devices, kept if the devices share its `MPI_COMM_WORLD` and no setting
/// says whether the program uses MPI. None of these libraries but MPI's own uses MPI.
static WITHOUT_MPI: OnceLock<BTreeMap<String, PathBuf>> = OnceLock::new();

/// Why the program counts as one that uses MPI itself, if it does: a setting says so, or it is linked with MPI, or one
/// of its libraries is, except this plugin and MPI's own.
fn own_mpi(settings: &Settings) -> Option<String> {
    match settings.program_mpi {
        Some(true) => Some("OMPTARGET_MPI_PROGRAM_MPI=yes".into()),
        Some(false) => None,
        None if uses_mpi(process::EXECUTABLE.as_ref()) => Some("it is linked with MPI".into()),
        None => library_with_mpi(&BTreeMap::new()),
    }
}

fn uses_mpi(path: &Path) -> bool {
    elf::map(path).is_ok_and(|file| elf::uses_mpi(&file))
}

/// Names a library outside of `known` that is linked with MPI, if there is one.
fn library_with_mpi(known: &BTreeMap<String, PathBuf>) -> Option<String> {
    const EXEMPT: [&str; 5] = ["libomptarget.rtl.", "libmpi", "libopen-", "libompitrace", "mca_"];
    let is_exempt = |name: &str| EXEMPT.iter().any(|prefix| name.starts_with(prefix));
    let mut loaded = libraries::loaded_libraries().into_iter();
    let found = loaded.find(|(name, path)| !known.contains_key(name) && !is_exempt(name) && uses_mpi(path));
    found.map(|(_, path)| format!("its library {} is linked with MPI", path.display()))
}

/// Fails if the program has since loaded a library that uses MPI: the library would find MPI started, and devices among
/// its ranks.
pub(crate) fn check_libraries() -> Result<()> {
    /// The number of loads at the last check. LLVM 15 to 18 show each image again at every registration, so checks are
    /// frequent.
    static CHECKED: AtomicU64 = AtomicU64::new(0);
    let loads = libraries::loads();
    if CHECKED.load(Ordering::Relaxed) == loads {
        return Ok(());
    }
    WITHOUT_MPI.get().and_then(library_with_mpi).map_or(Ok(()), |why| Err(shared_world(&why)))?;
    CHECKED.store(loads, Ordering::Relaxed);
    Ok(())
}

/// The error for a program that uses MPI and has devices in its `MPI_COMM_WORLD`.
fn shared_world(why: &str) -> Error {
    Error::new(format!(
        "the program uses MPI itself ({why}), but the devices of this job are ranks of its MPI_COMM_WORLD. If it calls \
         MPI_Init, its ranks must spawn their devices: {SPAWNING}. Otherwise say so: {NO_MPI}"
    ))
}

/// How to start a program that calls MPI.
const SPAWNING: &str = "llvm-offload-mpirun --program-mpi yes; by hand OMPTARGET_MPI_PROGRAM_MPI=yes \
     OMPTARGET_MPI_DEVICES=N, without llvm-offload-mpi-device";
/// How to start a program that is linked with MPI but does not call it.
const NO_MPI: &str = "llvm-offload-mpirun --program-mpi no; by hand OMPTARGET_MPI_PROGRAM_MPI=no";

/// The error if the program ends MPI but the devices don't, for which MPI would wait.
pub(crate) fn early_end() -> Error {
    Error::new(format!(
        "the program calls MPI_Finalize, but MPI has been started for its devices, as for a program that does not use MPI \
         itself. Its ranks must spawn their devices: {SPAWNING}"
    ))
}

/// The reason why the stock plugin must serve this process, if any.
fn reason_not_to_start(uses_mpi: bool) -> Option<&'static str> {
    let Some((_, size)) = launcher() else { return Some("") };
    if size == Some(1) {
        return Some("the job has one process only");
    }
    if launchers::executables() == Some(1) && !is_beside_devices() {
        return Some("the job runs one program only and no llvm-offload-mpi-device");
    }
    uses_mpi.then_some("the program uses MPI itself")
}

pub(crate) enum Choice {
    /// The stock plugin, in this process.
    Stock,
    /// Devices that were started together with the program.
    Ready(Box<Plugin>),
    /// This number of devices, which [`spawn`] starts when the first is used.
    OnUse(usize, Box<Settings>),
    /// No devices, but the plugin reports as many as another process of this slot of the job has or had: if it reported
    /// none, libomptarget would run the regions in this process. The first use of a device ends the process with this
    /// error.
    Refused(usize, Error),
}

/// Checks how this process was started, and connects to the devices of its job, if any.
pub(crate) fn choose() -> Result<Choice> {
    let mandatory = std::env::var("OMP_TARGET_OFFLOAD").is_ok_and(|v| v.eq_ignore_ascii_case("mandatory"));
    let no_devices = |why: &str, uses_mpi: bool| {
        debug!("no MPI devices: {}", if why.is_empty() { "nobody asks for them" } else { why });
        let expected = mandatory || Settings::any_set() || uses_mpi && processes::launcher_starts(DEVICE);
        if !why.is_empty() && expected && speaks_for_all() {
            log::warning(format_args!(
                "no MPI devices: {why}; target regions run in this process instead (use: {})",
                if uses_mpi {
                    "OMPTARGET_MPI_DEVICES=N, and no devices in its own MPI job; or OMPTARGET_MPI_PROGRAM_MPI=no, if it \
                     does not call MPI_Init"
                } else {
                    "llvm-offload-mpirun -n N PROGRAM; OMPTARGET_MPI_DEVICES spawns devices only for a program that calls \
                     MPI or runs as a single process"
                }
            ));
        }
    };
    // LLVM 18 loads plugins even if offloading is disabled, also in device processes, where an image
    // loads libomptarget. Devices that use libomptarget themselves need its other plugins.
    if settings::is_device_process()
        || settings::offloading_is_disabled()
        || (launcher().is_none() && !Settings::any_set())
    {
        no_devices("", false);
        return Ok(Choice::Stock);
    }
    node::require_proc()?;
    let settings = Settings::from_env()?;
    let own_mpi = own_mpi(&settings);
    let uses_mpi = own_mpi.is_some();
    if !uses_mpi || speaks_for_all() {
        for name in settings::unknown() {
            log::warning(format_args!("{name} is no setting of this version: it has no effect"));
        }
    }
    if settings.hosts.is_some() && settings.devices.is_none() {
        log::warning("OMPTARGET_MPI_HOSTS says where to spawn devices, but OMPTARGET_MPI_DEVICES not how many: none");
    }
    if is_beside_devices() {
        let started = (mpi::phase() != Phase::Before).then(|| "it has called MPI_Init".to_string());
        if let Some(why) = started.or(own_mpi) {
            let claimed = if mpi::phase() == Phase::Before { slot::claim() } else { Ok(()) };
            return claimed.map_or_else(|why| Ok(refused(&settings, why)), |()| Err(shared_world(&why)));
        }
    }
    if let Some(devices) = settings.devices {
        let alone = launcher().is_none_or(|(_, size)| size == Some(1));
        if uses_mpi || alone {
            node::open_standard_streams();
            if uses_mpi && mpi::phase() == Phase::Before && node::is_single_threaded() {
                for (name, value) in quirks::LEVEL_VARIABLES.iter().filter(|(name, _)| std::env::var_os(name).is_none())
                {
                    // SAFETY: the process has only this thread, as checked above.
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
    if let Err(why) = slot::claim() {
        return Ok(refused(&settings, why));
    }
    let mut job = bootstrap(Role::Host, Origin::Started, 0, &settings)?;
    if job.topology == Topology::HostsOnly {
        job.mpi.finish();
        no_devices("the job has no llvm-offload-mpi-device process", uses_mpi);
        return Ok(Choice::Stock);
    }
    let plugin = with(job, &settings)?;
    if settings.program_mpi.is_none() {
        // Includes MPI's own libraries.
        WITHOUT_MPI.get_or_init(libraries::loaded_libraries);
    }
    Ok(Choice::Ready(Box::new(plugin)))
}

/// The choice of a process that can't start MPI.
fn refused(settings: &Settings, why: Error) -> Choice {
    debug!("no MPI devices: {why}");
    Choice::Refused(slot::devices(settings), why)
}

/// Claims this process's slot of the job if the plugin is about to start MPI there, unless the program does or did.
pub(crate) fn claim_slot(settings: &Settings) -> Result<()> {
    if mpi::phase() == Phase::Before && own_mpi(settings).is_none() { slot::claim() } else { Ok(()) }
}

/// Spawns the devices of this process with the settings from its start.
pub(crate) fn spawn(devices: usize, settings: &Settings) -> Result<Plugin> {
    let (own_mpi, phase) = (own_mpi(settings), mpi::phase());
    match own_mpi {
        Some(why) if phase == Phase::Before => {
            return Err(Error::new(format!(
                "the program uses MPI ({why}), but this target region comes before its MPI_Init; its devices \
                 (OMPTARGET_MPI_DEVICES) can be started only after it. If it does not call MPI_Init, say so: {NO_MPI}"
            )));
        }
        _ if settings.program_mpi == Some(false) && phase != Phase::Before => {
            return Err(Error::new(
                "the program has called MPI_Init, against OMPTARGET_MPI_PROGRAM_MPI=no (llvm-offload-mpirun --program-mpi no)",
            ));
        }
        Some(_) => slot::note_started(),
        None => {}
    }
    let executable = device_executable()?;
    let ranks = settings.ranks_of(devices as u32).map_err(|e| e.context("OMPTARGET_MPI_DEVICES"))? as usize;
    let job = bootstrap(Role::Host, Origin::Spawn { executable: &executable, ranks }, 0, settings)?;
    with(job, settings)
}

/// The device executable of this build: beside the plugin, or in its install prefix.
fn device_executable() -> Result<PathBuf> {
    // The plugin's own file; unlike the loader's name for it, this is no symbolic link.
    let plugin = Mappings::now().file_at(device_executable as *const () as usize);
    let plugin = plugin.ok_or_else(|| Error::new("the plugin's own file can't be found in /proc/thread-self/maps"))?;
    let folders = plugin.ancestors().skip(1).take(4);
    let mut places = folders.flat_map(|folder| [folder.join(DEVICE), folder.join("bin").join(DEVICE)]);
    places.find(|path| path.exists()).ok_or_else(|| {
        Error::new(format!("there is no {DEVICE} beside {} nor in its prefix: install it again", plugin.display()))
    })
}

fn with(job: Bootstrap, settings: &Settings) -> Result<Plugin> {
    let Bootstrap { mpi, doorbells, endpoints, hellos, topology } = job;
    let (rank, size) = (mpi.rank, mpi.size);
    let Some(Team { devices: ranks, .. }) = topology.team_of(rank).cloned() else {
        return Err(Error::new("the ranks do not agree on who is a program"));
    };
    // By device: its rank, and its number within the rank.
    let places: Vec<(usize, usize)> =
        ranks.iter().flat_map(|&r| (0..hellos[r].devices as usize).map(move |worker| (r, worker))).collect();
    let policy = if processes(&hellos, rank) > hellos[rank].cores.len() {
        BackoffPolicy::CROWDED_HOST
    } else {
        BackoffPolicy::ALONE
    };
    let capacities: Vec<u64> = places.iter().map(|&(r, _)| capacity(settings, &hellos, r)).collect();
    let share = |(r, worker)| share_of_cores(&hellos, r, worker).filter(|_| settings.bind == Bind::Share);
    let hello = |&place: &(usize, usize)| {
        let hello = hellos[place.0].clone();
        Hello { cores: share(place).map_or(hello.cores, <[u16]>::to_vec), ..hello }
    };
    let of_devices: Vec<Hello> = places.iter().map(hello).collect();
    if settings.backend == Backend::Offload && !of_devices.iter().any(|h| h.backend == Backend::Offload) {
        return Err(Error::new(
            "OMPTARGET_MPI_BACKEND=offload is set for the program, and for none of its devices: set it for all ranks",
        ));
    }
    let link = Link::new(Box::new(mpi), settings.fragment as usize, doorbells, endpoints)?;
    let ports =
        places.iter().zip(&of_devices).enumerate().map(|(n, (&(r, worker), Hello { host, pid, devices, .. }))| {
            let (number, worker) =
                if *devices > 1 { (Some(worker as u8), format!("worker {worker} of ")) } else { (None, String::new()) };
            let is_far = hellos[r].node != hellos[rank].node;
            Port::new(r, number, is_far, format!("device {n} ({worker}rank {r} on host {host}, pid {pid})"))
        });
    let waits = (policy, settings.heartbeat);
    let is_in_window = |device: &Hello| device.outside.is_some();
    let is_unified = settings.unified != settings::Unified::Off && !layout::is_valgrind();
    let reserves = is_unified && of_devices.iter().any(is_in_window);
    let window = if reserves { reserve_window(&of_devices) } else { None };
    let records = (Tracing::of(settings), Unified::new(settings, window.is_some(), &of_devices));
    let leaves_kernels = leaves_kernels(settings, &of_devices);
    let engine = Arc::new(Engine::new(link, (rank, size), ports.collect(), waits, records, leaves_kernels));
    (0..of_devices.len()).try_for_each(|n| engine.connection.unified.check_device(n))?;
    let is_accelerator: Vec<bool> = of_devices.iter().map(|h| h.backend == Backend::Offload).collect();
    let libraries = runtime_libraries();
    let Arenas { mut addresses, controls, shared } = map_arenas(&engine, &capacities, &of_devices, &libraries)?;
    let mut arenas: Vec<Range<u64>> =
        capacities.iter().enumerate().map(|(n, len)| addresses.arena(n)..addresses.arena(n) + len).collect();
    let mut executors: Vec<Executor> = of_devices.iter().map(|h| Executor::of_machine(h.processor.machine)).collect();
    addresses.keep_window(window.unwrap_or_default());
    obtain_arenas(
        &engine,
        &mut addresses,
        (&mut arenas, &mut executors),
        (&is_accelerator, settings.memory.is_some()),
        &libraries,
    )?;
    let addresses = Arc::new(addresses);
    let _ = engine.connection.addresses.set(addresses.clone());
    let parts = of_devices.into_iter().zip(executors).zip(controls).zip(arenas.into_iter().zip(shared));
    let devices = parts.enumerate().map(|(n, (((h, executor), control), (arena, shared)))| {
        let len = arena.end - arena.start;
        debug!("{}: {}, cores {}, {len} bytes", engine.port(n).name, h.mpi, ranges(&h.cores));
        Device::new(n, (h, executor), engine.clone(), addresses.clone(), (arena, shared), control)
    });
    let devices: Vec<Device> = devices.collect();
    let host = &hellos[rank];
    let program = std::fs::read_link(process::EXECUTABLE).ok();
    let program = program.and_then(|p| Some(p.file_name()?.to_string_lossy().into_owned()));
    let program = format!("{} (rank {rank} on host {}, pid {})", program.unwrap_or_default(), host.host, host.pid);
    let trace = Trace::begin(settings, program, &devices)?;
    Ok(Plugin::new(engine.clone(), addresses.clone(), devices, trace))
}

/// Reserves the addresses of the devices' own memory, and of files that devices share with others, where the program
/// has nothing mapped. `None` if that is not possible.
fn reserve_window(devices: &[Hello]) -> Option<Vec<Reservation>> {
    if Mappings::now().private().free_in(layout::WINDOW) != [layout::WINDOW] {
        return None;
    }
    let mut reserved = Vec::new();
    for range in devices.iter().flat_map(|device| &device.shared).chain([&layout::WINDOW]) {
        for free in Mappings::now().free_in(range.clone()) {
            reserved.push(Reservation::at(free.start, free.end - free.start).ok()?);
        }
    }
    Some(reserved)
}

/// True if the user requests that nobody wait for kernels that return nothing, and this is possible. It is not for
/// programs that use the Offload API, which order their own work by waits, and not for accelerators, whose kernels are
/// always awaited.
fn leaves_kernels(settings: &Settings, devices: &[Hello]) -> bool {
    let has_accelerators = || devices.iter().any(|h| h.backend == Backend::Offload);
    let ineffective = match settings.asynchronous {
        false => return false,
        true if has_accelerators() => "accelerators (OMPTARGET_MPI_BACKEND=offload)",
        true if libraries::uses_offload_api() => "a program that uses the Offload API",
        true => return true,
    };
    log::warning(format_args!("OMPTARGET_MPI_ASYNC=1 has no effect on {ineffective}"));
    false
}

/// The size of a device's arena: the user's setting, or the device's share of its node's memory, in
/// large pages.
fn capacity(settings: &Settings, hellos: &[Hello], rank: usize) -> u64 {
    let share = hellos[rank].memory / sharers(hellos, rank) as u64;
    let bytes = settings.memory.unwrap_or(share & !(LARGE_PAGE - 1));
    (bytes & !0xfff).max(1 << 20)
}

/// The names and paths in this process of the libraries that images need on any device.
fn runtime_libraries() -> Vec<u8> {
    let needed = |name: &str| name.starts_with("libomp.so") || name.starts_with("libomptarget.so");
    let mut libraries = libraries::library_list(needed);
    libraries.truncate(MESSAGE_MAX / 2);
    libraries
}

/// The initial arenas, by device.
struct Arenas {
    addresses: AddressMap,
    /// The queues for commands that concern a whole device.
    controls: Vec<Arc<Queue>>,
    /// The part of its arena that a device on this node shares.
    shared: Vec<Option<SharedPart>>,
}

/// Finds addresses for all arenas that are free in every process; accelerators do not map theirs. The message to each
/// device also lists libraries that it can load before the first image arrives.
fn map_arenas(engine: &Engine, capacities: &[u64], devices: &[Hello], libraries: &[u8]) -> Result<Arenas> {
    let stride = capacities.iter().copied().max().unwrap_or(0).next_multiple_of(1 << 30);
    let [input, output, errors] = node::streams();
    let offer = |n: usize| Offer::new(capacities[n]).inspect_err(|e| debug!("no shared memory: {e}")).ok();
    let mut last = Error::new("no addresses");
    for attempt in 0..address_map::ARENAS_TRIES {
        let start = address_map::ARENAS + attempt * address_map::ARENAS_STEP;
        let reserved = AddressMap::at(start, stride, capacities.len()).map_err(|e| last = e);
        let Ok(addresses) = reserved else { continue };
        let controls: Vec<_> = (0..capacities.len()).map(Queue::control).collect();
        let can_share = |n: &usize| engine.can_share_memory(*n, &devices[*n]);
        let offers: Vec<Option<Offer>> =
            (0..devices.len()).map(|n| Some(n).filter(can_share).and_then(offer)).collect();
        // Leaked: if a wait fails, an answer may still be written there.
        let beginnings = Box::leak(vec![[0; 8]; devices.len()].into_boxed_slice());
        for (n, queue) in controls.iter().enumerate().filter(|(n, _)| devices[*n].backend == Backend::Cpu) {
            let (at, len) = (addresses.arena(n), capacities[n]);
            engine.connection.control(queue, |batch| {
                let (beginning, shared) = offers[n].as_ref().map(Offer::to_send).unwrap_or_default();
                batch.control(Control::Start { at, len, beginning, shared });
                batch.control(Control::Number { device: n as u32 });
                batch.control(Control::Streams { input, output, errors });
                batch.control(Control::Preload { libraries: Bytes(libraries) });
                batch.read_into(beginnings[n].as_mut_ptr(), size_of::<u64>());
            })?;
        }
        let mut failure = None;
        for queue in &controls {
            engine.wait(queue)?;
            failure = engine.port(queue.port()).failures.take(queue.id).or(failure);
        }
        let Some(e) = failure else {
            let places = (0..devices.len()).map(|n| (addresses.arena(n), u64::from_ne_bytes(beginnings[n])));
            let shared = offers.into_iter().zip(places).map(|(offer, (at, first))| offer?.accepted(at, first));
            let shared = shared.collect();
            return Ok(Arenas { addresses, controls, shared });
        };
        last = e;
    }
    Err(last
        .context("no addresses for the devices' memory could be found (ulimit -v and OMPTARGET_MPI_MEMORY limit them)"))
}

/// Makes the accelerators allocate their arenas, one after the other: each must avoid the addresses of all others and
/// of the program. The answers also tell what the accelerators execute.
fn obtain_arenas(
    engine: &Arc<Engine>,
    addresses: &mut AddressMap,
    (arenas, executors): (&mut [Range<u64>], &mut [Executor]),
    (is_accelerator, exact): (&[bool], bool),
    libraries: &[u8],
) -> Result<()> {
    /// How often a device is asked for another arena.
    const TRIES: usize = 4;
    if !is_accelerator.contains(&true) {
        return Ok(());
    }
    // A driver with its process's address space might place the arena where this process has its libraries. Only
    // private mappings: those of a driver here are shared, and the device's own driver needs the same addresses.
    let mut taken = Mappings::now().private().accessible();
    taken.extend(addresses.window().chain([addresses.arenas()]));
    for n in (0..arenas.len()).filter(|&n| is_accelerator[n]) {
        let len = arenas[n].end - arenas[n].start;
        let queues = Queues::new(engine.clone(), n);
        let queue = queues.queue();
        let mut tries = 1..TRIES;
        arenas[n] = loop {
            // If a message does not hold all ranges, the last ones: the program checks the result.
            let from = taken.len().saturating_sub(MESSAGE_MAX / 4 / size_of::<Range<u64>>());
            let (encoded, mut answer) = (Ranges::encode(&taken[from..]), [0; Obtained::LEN]);
            let command = Command::Obtain { len, exact, libraries: Bytes(libraries), taken: Ranges::of(&encoded) };
            queues.ask(&queue, command, &mut answer)?;
            let Obtained { arena: range, target, description, large } = Obtained::decode(&answer);
            executors[n] = Executor { target, description, large };
            taken.push(range.clone());
            match addresses.add_arena(n, range.clone()) {
                Ok(()) => break range,
                Err(e) if tries.next().is_none() => return Err(clash(engine, addresses, n, &range, e)),
                Err(_) => {}
            }
        };
    }
    Ok(())
}

/// Why the program can't use the addresses of an arena.
fn clash(engine: &Engine, addresses: &AddressMap, device: usize, range: &Range<u64>, e: Error) -> Error {
    let other = addresses.overlapping(range).map_or_else(
        || format!("the program has something else ({e})"),
        |other| format!("{} has its memory", engine.port(other).name),
    );
    let (name, Range { start, end }) = (&engine.port(device).name, range);
    Error::new(format!(
        "{name} has its memory at {start:#x} to {end:#x}, where {other}, and its driver gives it no other"
    ))
}
