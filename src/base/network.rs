// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Whether the network still carries what this process's TCP connections send.
//!
//! MPI opens the connections and says nothing when one is silent; the kernel would wait for a
//! quarter of an hour, or for ever where nothing is to be sent. A peer that is stopped still
//! acknowledges what its kernel receives: only a network or a node that is gone does not.

use super::{Error, Result, proc};
use parking_lot::Mutex;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

/// How often it is looked.
const PULSE: Duration = Duration::from_secs(1);

/// For how long nothing may be acknowledged, and when it was looked.
static WATCHED: Mutex<Option<(Duration, Instant)>> = Mutex::new(None);

/// From now on [`check`] fails if nothing was acknowledged for `limit`; 0: never.
pub fn watch(limit: Duration) {
    *WATCHED.lock() = (!limit.is_zero()).then(|| (limit, Instant::now()));
}

/// Looks at the network, if it is time to and it is watched.
///
/// # Errors
/// It is gone.
pub fn check() -> Result<()> {
    let Some(mut watched) = WATCHED.try_lock() else { return Ok(()) };
    let Some((limit, looked)) = watched.as_mut().filter(|(_, looked)| looked.elapsed() > PULSE) else { return Ok(()) };
    *looked = Instant::now();
    if !is_gone(*limit) {
        return Ok(());
    }
    Err(Error::new(format!(
        "the network to another host of the job is gone: nothing was acknowledged for {} s",
        limit.as_secs()
    )))
}

/// True if nothing was acknowledged for `limit` on a connection that waits for that; asks all
/// those that have been quiet for half of it.
fn is_gone(limit: Duration) -> bool {
    // Those that end meanwhile are no sockets.
    let Ok(folder) = std::fs::read_dir(proc::DESCRIPTORS) else { return false };
    let files = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<RawFd>().ok());
    files.filter(|&fd| ask_when_quiet(fd, limit / 2)).any(|fd| quiet(fd).is_some_and(|quiet| quiet >= limit))
}

/// Has the kernel ask the peer of a TCP connection for a sign when it has been quiet for so
/// long; false if the file is no such connection.
fn ask_when_quiet(fd: RawFd, quiet: Duration) -> bool {
    /// Seconds between questions, and after how many the kernel gives up: later than who asks here.
    const AGAIN: (i32, i32) = (1, 100);
    let idle = quiet.as_secs().clamp(1, 32_767) as i32;
    let set = |level, name, value: i32| {
        let value = &raw const value;
        // SAFETY: the value outlives the call; any number may be no socket, which fails.
        unsafe { libc::setsockopt(fd, level, name, value.cast(), size_of::<i32>() as u32) == 0 }
    };
    set(libc::IPPROTO_TCP, libc::TCP_KEEPIDLE, idle)
        && set(libc::IPPROTO_TCP, libc::TCP_KEEPINTVL, AGAIN.0)
        && set(libc::IPPROTO_TCP, libc::TCP_KEEPCNT, AGAIN.1)
        && set(libc::SOL_SOCKET, libc::SO_KEEPALIVE, 1)
}

/// For how long nothing was acknowledged on a TCP connection, if something should have been.
fn quiet(fd: RawFd) -> Option<Duration> {
    const ESTABLISHED: u8 = 1;
    /// Milliseconds in which an answer comes, and how many questions were in vain.
    const ANSWER: u32 = 1000;
    const VAIN: u8 = 2;
    // SAFETY: the record is plain numbers, and the kernel is told its size.
    let info: libc::tcp_info = unsafe {
        let mut info: libc::tcp_info = std::mem::zeroed();
        let mut len = size_of::<libc::tcp_info>() as u32;
        let rc = libc::getsockopt(fd, libc::IPPROTO_TCP, libc::TCP_INFO, (&raw mut info).cast(), &mut len);
        (rc == 0).then_some(info)?
    };
    // Who has no room for data acknowledges, but only what is sent to him, more and more
    // seldom: then the last thing sent is hardly older than the last answer.
    let (sent, answered) = (info.tcpi_last_data_sent, info.tcpi_last_ack_recv);
    let unanswered = info.tcpi_unacked > 0 && sent > ANSWER && answered.saturating_sub(sent) > ANSWER;
    let waits = unanswered || info.tcpi_probes >= VAIN;
    (info.tcpi_state == ESTABLISHED && waits).then(|| Duration::from_millis(info.tcpi_last_ack_recv.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_peer_that_does_not_read_is_not_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let _far = listener.accept().unwrap();
        assert!(ask_when_quiet(near.as_raw_fd(), Duration::from_secs(1)));
        near.set_nonblocking(true).unwrap();
        while near.write(&[0; 65536]).is_ok() {}
        for _ in 0..30 {
            std::thread::sleep(Duration::from_millis(100));
            assert_eq!(quiet(near.as_raw_fd()), None);
        }
    }

    #[test]
    fn other_files_are_no_connections() {
        let null = std::fs::File::open("/dev/null").unwrap();
        assert!(!ask_when_quiet(null.as_raw_fd(), Duration::from_secs(1)));
        assert_eq!(quiet(null.as_raw_fd()), None);
    }
}
