// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Detects that the network no longer carries the data of this process's TCP connections.
//!
//! MPI opens the connections and does not report a silent one. The kernel would wait for a quarter
//! of an hour, or forever if there is nothing to send. The kernel of a stopped peer still
//! acknowledges data: only a lost network or node does not.

use super::process;
use crate::base::sync::Mutex;
use crate::base::{Error, Result};
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

const INTERVAL: Duration = Duration::from_secs(1);

/// How long acknowledgements may be missing, and when they were last checked.
static WATCHED: Mutex<Option<(Duration, Instant)>> = Mutex::new(None);

/// From now on [`check`] fails if nothing was acknowledged for `limit`. 0 disables the check.
pub(crate) fn watch(limit: Duration) {
    *WATCHED.lock() = (!limit.is_zero()).then(|| (limit, Instant::now()));
}

/// Fails if the network is gone. Checks at most once per `INTERVAL`.
pub(crate) fn check() -> Result<()> {
    let Some(mut watched) = WATCHED.try_lock() else { return Ok(()) };
    let Some((limit, last)) = watched.as_mut().filter(|(_, last)| last.elapsed() > INTERVAL) else { return Ok(()) };
    *last = Instant::now();
    if !is_gone(*limit) {
        return Ok(());
    }
    Err(Error::new(format!(
        "the network to another host of the job is gone: nothing was acknowledged for {} s",
        limit.as_secs()
    )))
}

/// True if a connection has waited for an acknowledgement for `limit`. Also makes the kernel probe
/// connections that are silent for half of that time.
fn is_gone(limit: Duration) -> bool {
    // A descriptor that is closed meanwhile is not a socket.
    let Ok(folder) = std::fs::read_dir(process::DESCRIPTORS) else { return false };
    let files = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    files.filter(|&fd| ask_when_quiet(fd, limit / 2)).any(|fd| quiet(fd).is_some_and(|quiet| quiet >= limit))
}

/// Makes the kernel probe a TCP connection after this much silence. False if the descriptor is no TCP connection.
fn ask_when_quiet(fd: RawFd, quiet: Duration) -> bool {
    /// Seconds between probes, and the number of unanswered probes that end the connection, which is later than
    /// `limit`.
    const AGAIN: (i32, i32) = (1, 100);
    let idle = quiet.as_secs().clamp(1, 32_767) as i32;
    let set = |level, name, value: i32| {
        let value = &raw const value;
        // SAFETY: the value outlives the call. On a number that is not a socket the call fails.
        unsafe { libc::setsockopt(fd, level, name, value.cast(), size_of::<i32>() as u32) == 0 }
    };
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, idle)
        && set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, AGAIN.0)
        && set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, AGAIN.1)
        && set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)
}

/// How long acknowledgements of a TCP connection have been missing, if they are.
fn quiet(fd: RawFd) -> Option<Duration> {
    const ESTABLISHED: u8 = 1;
    /// Milliseconds within which an answer should arrive, and the number of unanswered probes that count as missing.
    const ANSWER: u32 = 1000;
    const VAIN: u8 = 2;
    // SAFETY: the record is plain numbers, and the kernel gets its size.
    let info: libc::tcp_info = unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut len = size_of::<libc::tcp_info>() as u32;
        let rc = libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut len);
        (rc == 0).then_some(info)?
    };
    // A peer without room for data still acknowledges sends, which become rarer and rarer:
    // the last send is then hardly older than the last answer.
    let (sent, answered) = (info.tcpi_last_data_sent, info.tcpi_last_ack_recv);
    let unanswered = info.tcpi_unacked > 0 && sent > ANSWER && answered.saturating_sub(sent) > ANSWER;
    let waits = unanswered || info.tcpi_probes >= VAIN;
    (info.tcpi_state == ESTABLISHED && waits).then(|| Duration::from_millis(info.tcpi_last_ack_recv.into()))
}

#[cfg(test)]
#[path = "../../test/rust/unit/sys/tcp_liveness.rs"]
mod tests;
