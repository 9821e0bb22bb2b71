// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The entry points of workers: the device executable starts workers here, and serves their rank.

use super::packet::{PACKET_MAX, Packet};
use super::rank::{self, Birth, Spares, Started, WorkerRank};
use super::worker::{self, Worker};
use crate::base::settings::{Bind, Settings};
use crate::base::{Error, Result, log};
use crate::device_main::backend::cpu::Cpu;
use crate::device_main::crash::exit::die_with_parent;
use crate::device_main::{Place, Rank, Workers, execute, set_up};
use crate::link::Link;
use crate::link::backoff::BackoffPolicy;
use crate::link::doorbell::{Doorbell, Doorbells};
use crate::sys::node;
use std::convert::Infallible;

/// Lets the device executable serve several devices behind a rank.
pub const WORKERS: Workers = Workers(start);

struct RankOfWorkers(Vec<Started>, Spares);

/// Starts the workers of this rank if the settings request any.
fn start(settings: &Settings) -> Result<Option<Box<dyn Rank>>> {
    if !settings.has_workers() {
        return Ok(None);
    }
    die_with_parent();
    let workers = rank::start(settings.devices_per_rank, |birth| {
        let board = birth.board;
        if let Err(Error::Text(text)) = work(birth, settings) {
            log::error(format_args!("{}: {text}", board.device()));
        }
    })?;
    let spares = Spares { count: settings.spares, replay_log: settings.journal };
    Ok(Some(Box::new(RankOfWorkers(workers, spares))))
}

impl Rank for RankOfWorkers {
    fn serve(self: Box<Self>, mut place: Place) -> Result<Infallible> {
        let RankOfWorkers(workers, spares) = *self;
        let count = workers.len();
        let (host, threads, crowded) = (place.host.0 as u32, place.threads() as u32, place.is_crowded());
        let (fragment, doorbell) = (place.fragment(), place.me().doorbell);
        let name = format!("rank {} on host {}", place.mpi.rank, place.me().host);
        let bytes = |worker| place.cores(worker).iter().flat_map(|core| core.to_le_bytes()).collect();
        let cores: Vec<Vec<u8>> = (0..count).map(bytes).collect();
        workers.iter().enumerate().for_each(|(i, worker)| worker.board.introduce(place.number(i), place.mpi.rank));
        place.doorbells.expect(count);
        // The workers cut bulk data into pieces, so that the rank's link need not.
        let link = Link::new(Box::new(place.mpi), usize::MAX, place.doorbells, place.endpoints)?;
        let mut rank = WorkerRank::new(link, place.host, policy(crowded), name, workers, spares, fragment);
        for (worker, cores) in cores.iter().enumerate() {
            rank.begin(worker, &Packet::Begin { host, threads, crowded, fragment, doorbell, cores })?;
        }
        rank.run()
    }
}

/// Runs a worker process, one device of its rank. The rank's first packet configures it.
fn work(birth: Birth, settings: &Settings) -> Result<Infallible> {
    let Birth { socket, wake, doorbell, board } = birth;
    die_with_parent();
    let mut packet = vec![0; PACKET_MAX];
    let len = worker::receive(&socket, &mut packet, true)?.unwrap_or(0);
    let (_, Packet::Begin { host, threads, crowded, fragment, doorbell: (descriptor, nonce), cores }) =
        Packet::parse(&packet[..len])?
    else {
        return Err(Error::new("its rank does not say what it is for"));
    };
    if settings.bind != Bind::Inherit {
        node::undo_binding();
    }
    let cores: Vec<u16> = cores.chunks_exact(2).map(|core| u16::from_le_bytes([core[0], core[1]])).collect();
    let rank = Doorbell::of(std::os::unix::process::parent_id(), descriptor, nonce).ok();
    let worker = Worker::new(socket, wake, rank);
    let channel = Box::new(worker::Channel::new(worker.clone(), host as usize));
    let link = Link::new(channel, fragment as usize, Doorbells::new(Some(doorbell), Vec::new(), 0), Vec::new())?;
    set_up(threads as usize, &cores, settings);
    execute(link, (host as usize, None), policy(crowded), Some(worker), (board, Cpu::new(board)), settings)
}

/// How workers and their ranks wait.
fn policy(crowded: bool) -> BackoffPolicy {
    if crowded { BackoffPolicy::CROWDED_WORKER } else { BackoffPolicy::ALONE }
}
