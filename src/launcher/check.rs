// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! `--check`: reports whether every host has all that a job needs.

use super::Plan;
use super::command::Job;
use crate::base::{Error, Result};
use crate::wire::check;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a host may take to answer.
const LIMIT: Duration = Duration::from_secs(30);

/// How long its output may come after it has exited.
const REST: Duration = Duration::from_secs(2);

/// What each host runs. Any host has a shell; the device executable, if it is there, reports the rest.
const SCRIPT: &str = r#"if test -x "$0"; then exec "$0" "$@"; fi; echo "omptarget-mpi-check missing $0""#;

/// Prints a line for each requirement; true if all are met.
pub(super) fn run(plan: &Plan) -> Result<bool> {
    let mut all = true;
    let mut report = |good: bool, what: String| {
        println!("{} {what}", if good { "ok  " } else { "FAIL" });
        all &= good;
    };
    let mut libraries = Vec::new();
    if let Some(program) = &plan.program {
        let starter = program.starter.as_ref().map(|path| format!(" (started by {})", path.display()));
        let path = format!("{}{}", program.path.display(), starter.unwrap_or_default());
        let (good, what) = match program.offload_library() {
            Some((name, _)) if program.llvm() >= Some(19) => match super::library_path(program, &plan.build) {
                Ok(None) => (true, format!("offloads through {name}, which has the plugin in it")),
                Ok(Some(_)) => {
                    (true, format!("offloads through {name}, which is replaced by one with the plugin in it"))
                }
                Err(e) => (false, e.to_string()),
            },
            Some((name, _)) => (true, format!("offloads through {name}")),
            None if program.is_script => (true, "what it starts can't be looked at; --program names it".into()),
            None => (false, "it is linked with no libomptarget; compile and link it with -fopenmp-targets".into()),
        };
        report(good, format!("program {path}: {what}"));
        for (name, path) in &program.libraries {
            let missing = "not found on this host; install it or set LD_LIBRARY_PATH";
            match path {
                Some(path) => libraries.push(format!("{name}={}", path.display())),
                None => report(false, format!("library {name}: {missing}")),
            }
        }
    }
    report(true, format!("plugin {} ({})", plan.build.plugin.display(), plan.build.family));
    report(true, format!("launcher {}", plan.job.launcher.display()));

    let ours = report_host(&mut report, "this host", &ask(plan, None, &libraries)?, None);
    for (name, _) in &plan.hosts {
        let answer = ask(plan, Some(name), &libraries)?;
        report_host(&mut report, &format!("host {name}"), &answer, ours.as_deref());
    }
    Ok(all)
}

/// Reports what a host's answer means; returns its version.
fn report_host(
    report: &mut impl FnMut(bool, String),
    host: &str,
    (text, end): &(String, String),
    ours: Option<&str>,
) -> Option<String> {
    let mut version = None;
    for line in text.lines().filter_map(|l| l.split_once(check::MARK).map(|(_, rest)| rest.trim())) {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        let (good, what) = match kind {
            check::MISSING => {
                let place = "in the same place, or on a file system that all hosts see";
                (false, format!("there is no {rest}; install omptarget-mpi there {place}"))
            }
            check::VERSION => {
                version = Some(rest.to_string());
                match ours.filter(|&o| o != rest) {
                    Some(ours) => (false, format!("it has {rest}, this host {ours}; install the same build on both")),
                    None => (true, rest.into()),
                }
            }
            check::NODE => (true, rest.into()),
            check::LIBRARY => {
                (false, format!("library {rest}; install it there, or put it where that host's loader looks"))
            }
            _ => continue,
        };
        report(good, format!("{host}: {what}"));
    }
    if version.is_none() && !text.contains(check::MARK) {
        let why = text.lines().filter(|l| !l.trim_matches('-').trim().is_empty());
        let why = why.take(6).collect::<Vec<_>>().join("\n         ");
        report(false, format!("{host}: nothing could be started there: {end}\n         {why}"));
    }
    version
}

/// Runs the check on one host, with the launcher of the job. Returns the output and how it ended.
fn ask(plan: &Plan, host: Option<&str>, libraries: &[String]) -> Result<(String, String)> {
    let device = plan.build.device.clone().into();
    let mut command: Vec<OsString> = vec!["sh".into(), "-c".into(), SCRIPT.into(), device, "--check".into()];
    command.extend(libraries.iter().map(OsString::from));
    let hosts = host.map(|h| (h.to_string(), 1)).into_iter().collect();
    let job = Job { ranks: 1, hosts, environment: Vec::new(), command, ..plan.job.clone() };
    let words = job.command()?;
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
    let end = wait(&mut child)?;
    // Processes that the launcher left behind may hold the streams open.
    let text = std::iter::from_fn(|| texts.recv_timeout(REST).ok()).collect();
    Ok((text, end))
}

/// Reads a stream to its end, so that its writer never waits.
fn read(stream: Option<impl Read + Send + 'static>, to: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // After an error, what was read before counts. The receiver may be gone.
        let _ = stream.map(|mut s| s.read_to_end(&mut bytes));
        let _ = to.send(String::from_utf8_lossy(&bytes).into_owned());
    });
}

fn wait(child: &mut Child) -> Result<String> {
    let since = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status.to_string());
        }
        if since.elapsed() > LIMIT {
            // On SIGTERM launchers end the processes that they started.
            let _ = kill_process(Pid::from_child(child), Signal::TERM);
            std::thread::sleep(Duration::from_secs(1));
            child.kill()?;
            child.wait()?;
            return Ok(format!("no answer within {} s", LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
