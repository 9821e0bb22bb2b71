// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Describes failures of devices and of the connection, and what is at an invalid address.

use super::port::{Port, Ports};
use crate::base::{Error, Result};
use crate::plugin::addresses::address_map::AddressMap;
use crate::plugin::addresses::host_allocations::Allocations;
use crate::sys::process::Mappings;
use crate::wire::reply::Failure;
use std::time::Duration;

/// How long an error text waits for the arena's lock, which lets it be more precise.
const LOCK_PATIENCE: Duration = Duration::from_millis(100);

/// Describes a device's failure. `may_use` says whether its regions may use the program's memory.
pub(crate) fn failure(
    ports: &Ports,
    port: usize,
    failure: &Failure,
    addresses: Option<&AddressMap>,
    (allocations, may_use): (&Allocations, Result<()>),
) -> Error {
    let name = &ports[port].name;
    let mut text = failure.text.clone();
    if failure.address != 0 {
        text += &place(ports, port, failure.address, addresses)
            .unwrap_or_else(|| place_in_program(failure.address, allocations, may_use));
    }
    if failure.kernel == 0 {
        return Error::new(format!("{name}: {text}"));
    }
    let kernel = ports[port].kernel_name(failure.kernel);
    Error::new(format!("kernel {kernel} failed on {name}: {text}"))
}

/// Describes what is at an address that a kernel of a device could not use, if the address is a device's.
fn place(ports: &Ports, port: usize, address: u64, addresses: Option<&AddressMap>) -> Option<String> {
    // Limited, because this thread may hold the lock already.
    let arena = ports[port].arena.try_lock_for(LOCK_PATIENCE);
    let is_seen = arena.is_some();
    if let Some(place) = arena.and_then(|arena| arena.place(address)) {
        return Some(format!(", {place}"));
    }
    Some(match addresses?.owner(address)? {
        owner if owner == port && !is_seen => String::new(),
        owner if owner == port => ", which is the device's, but nothing is allocated there".into(),
        owner => format!(", which is an address of device {owner}: a device reaches its own memory only"),
    })
}

/// Describes what is at an address that is no device's.
fn place_in_program(address: u64, allocations: &Allocations, may_use: Result<()>) -> String {
    let maps = Mappings::now();
    let Some((_, name)) = maps.at(address).filter(|(is_readable, _)| *is_readable) else {
        return ", where nothing is mapped".into();
    };
    let what = match allocations.around(address, 1) {
        Some(of) => format!("in {} bytes of shared or host memory at {:#x}", of.end - of.start, of.start),
        None => name,
    };
    let remedy = match maps.is_code(address) {
        true => "if it is a function, make that `declare target indirect` (clang 18 or later)",
        false => "map the data",
    };
    let other = match may_use {
        Ok(()) => ", or let regions use the program's memory (OMPTARGET_MPI_UNIFIED=on)".into(),
        Err(why) => format!("; {why}"),
    };
    format!(", which is an address of the host program ({what}): {remedy}{other}")
}

/// The first report that the connection is broken.
pub(crate) fn broken_connection(ports: &Ports, reason: &str) -> Error {
    let awaited = ports.iter().filter(|p| p.in_flight() > 0);
    let awaited = awaited.map(|p| p.name.as_str()).collect::<Vec<_>>().join(", ");
    Error::new(format!(
        "the connection to the devices is broken: {reason}; most likely a device, its node or the network to it \
         is gone (answers were awaited from: {})",
        if awaited.is_empty() { "none" } else { &awaited }
    ))
}

pub(crate) fn ended_device(port: &Port) -> String {
    format!("{} has ended while the program waited for {}; ending the job", port.name, port.awaited())
}

pub(crate) fn silent_device(port: &Port, silent: Duration) -> String {
    format!(
        "{} has not answered for {:.0} s, not even whether it is there, while the program waited for {}: \
         it is stopped, dead or cut off from here, or MPI keeps it waiting for one that is; ending the job (OMPTARGET_MPI_HEARTBEAT sets after how many \
         silent seconds a device is asked, 0 never)",
        port.name,
        silent.as_secs_f64(),
        port.awaited()
    )
}
