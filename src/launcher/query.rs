// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Queries hosts through the launcher that will run the job.

use super::command::Job;
use crate::base::{Error, Result};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long the hosts may take to answer.
pub(super) const LIMIT: Duration = Duration::from_secs(30);

/// How long to wait for the hosts' output after the launcher has exited.
const REST: Duration = Duration::from_secs(2);

/// The script that each host runs. Any host has a shell; the device executable, if installed, reports the rest.
const SCRIPT: &str = r#"if test -x "$0"; then exec "$0" "$@"; fi; echo "omptarget-mpi-check missing $0""#;

/// The command that queries the host on which it runs.
pub(super) fn command<'a>(device: &Path, arguments: impl Iterator<Item = &'a str>) -> Vec<OsString> {
    let words = ["sh".into(), "-c".into(), SCRIPT.into(), device.into()];
    words.into_iter().chain(arguments.map(OsString::from)).collect()
}

/// Runs a command once on each host, or on this one if none is named; without a job, runs it directly. Returns the
/// output and how the command ended.
pub(super) fn ask(
    job: Option<&Job>,
    hosts: &[String],
    command: Vec<OsString>,
    limit: Option<Duration>,
) -> Result<(String, String)> {
    let ranks = hosts.len().max(1) as u32;
    let hosts = hosts.iter().map(|host| (host.clone(), 1)).collect();
    let words = match job {
        Some(job) => Job { ranks, hosts, environment: Vec::new(), command, ..job.clone() }.command()?,
        None => command,
    };
    let mut child = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Error::from(e).context(format_args!("can't run {}", words[0].to_string_lossy())))?;
    let (sender, texts) = mpsc::channel();
    read(child.stdout.take(), sender.clone());
    read(child.stderr.take(), sender);
    let end = wait(&mut child, limit)?;
    // Processes that the launcher left behind may hold the streams open.
    let text = std::iter::from_fn(|| texts.recv_timeout(REST).ok()).collect();
    Ok((text, end))
}

/// Reads a stream to its end, so that its writer never waits.
fn read(stream: Option<impl Read + Send + 'static>, to: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // After an error, keep what was read before. The receiver may be gone.
        let _ = stream.map(|mut s| s.read_to_end(&mut bytes));
        let _ = to.send(String::from_utf8_lossy(&bytes).into_owned());
    });
}

fn wait(child: &mut Child, limit: Option<Duration>) -> Result<String> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.to_string());
        }
        if let Some(limit) = limit.filter(|limit| since.elapsed() > *limit) {
            // On SIGTERM launchers end the processes that they started.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            std::thread::sleep(Duration::from_secs(1));
            child.kill()?;
            child.wait()?;
            return Ok(format!("no answer within {} s", limit.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The first lines of the hosts' output, for an error message.
pub(super) fn shortened(text: &str, separator: &str) -> String {
    let lines = text.lines().filter(|l| !l.trim_matches('-').trim().is_empty());
    lines.take(6).collect::<Vec<_>>().join(separator)
}
