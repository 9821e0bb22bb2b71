// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! `--check`: is all that a job needs there, on every host?

use super::Plan;
use super::command::Job;
use crate::base::{Error, Result};
use crate::wire::check;
use std::ffi::OsString;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long a host may take to answer.
const LIMIT: Duration = Duration::from_secs(30);

/// How long what it printed may come after it has ended.
const REST: Duration = Duration::from_secs(2);

/// Run on each host: any host has a shell, and if the device executable is there it tells
/// the rest.
const SCRIPT: &str = r#"if test -x "$0"; then exec "$0" "$@"; fi; echo "omptarget-mpi-check missing $0""#;

/// Prints a line for each thing that is needed; true if all of it is there.
///
/// # Errors
/// Nothing can be found out.
pub fn run(plan: &Plan) -> Result<bool> {
    let mut all = true;
    let mut tell = |good: bool, what: &str| {
        println!("{} {what}", if good { "ok  " } else { "FAIL" });
        all &= good;
    };
    let mut libraries = Vec::new();
    if let Some(program) = &plan.program {
        let starter = program.starter.as_ref().map(|path| format!(" (started by {})", path.display()));
        let path = format!("{}{}", program.path.display(), starter.unwrap_or_default());
        match program.libraries.iter().find(|(name, _)| name.starts_with("libomptarget")) {
            Some((name, _)) if program.llvm() >= Some(19) && !program.has_plugin_built_in() => tell(
                false,
                &format!("program {path}: {name} was built without the plugin 'mpi'; link with one that has it"),
            ),
            Some((name, _)) => tell(true, &format!("program {path}: offloads through {name}")),
            None if program.is_script => {
                tell(true, &format!("program {path}: what it starts can't be looked at; --program names it"))
            }
            None => tell(
                false,
                &format!(
                    "program {path}: it is linked with no libomptarget; compile and link it with -fopenmp-targets"
                ),
            ),
        }
        for (name, path) in &program.libraries {
            match path {
                Some(path) => libraries.push(format!("{name}={}", path.display())),
                None => {
                    tell(false, &format!("library {name}: not found on this host; install it or set LD_LIBRARY_PATH"))
                }
            }
        }
    }
    tell(true, &format!("plugin {} ({})", plan.build.plugin.display(), plan.build.family));
    tell(true, &format!("launcher {}", plan.job.launcher.display()));

    let local = ask(plan, None, &libraries)?;
    let hosts: Vec<&str> = plan.hosts.iter().map(|(name, _)| name.as_str()).collect();
    let ours = judge(&mut tell, "this host", &local, None);
    for host in hosts {
        let answer = ask(plan, Some(host), &libraries)?;
        judge(&mut tell, &format!("host {host}"), &answer, ours.as_deref());
    }
    Ok(all)
}

/// Tells what a host's answer means; returns its version.
fn judge(tell: &mut impl FnMut(bool, &str), host: &str, answer: &Answer, ours: Option<&str>) -> Option<String> {
    let mut version = None;
    for line in answer.text.lines().filter_map(|l| l.split_once(check::MARK).map(|(_, rest)| rest.trim())) {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            check::MISSING => tell(
                false,
                &format!(
                    "{host}: there is no {rest}; install omptarget-mpi there in the same place, or on a file system that all hosts see"
                ),
            ),
            check::VERSION => {
                version = Some(rest.to_string());
                match ours.filter(|&o| o != rest) {
                    Some(ours) => {
                        tell(false, &format!("{host}: it has {rest}, this host {ours}; install the same build on both"))
                    }
                    None => tell(true, &format!("{host}: {rest}")),
                }
            }
            check::NODE => tell(true, &format!("{host}: {rest}")),
            check::LIBRARY => tell(
                false,
                &format!("{host}: library {rest}; install it there, or put it where that host's loader looks"),
            ),
            _ => {}
        }
    }
    if version.is_none() && !answer.text.contains(check::MARK) {
        let why = answer.text.lines().filter(|l| !l.trim_matches('-').trim().is_empty());
        let why = why.take(6).collect::<Vec<_>>().join("\n         ");
        tell(false, &format!("{host}: nothing could be started there: {}\n         {why}", answer.end));
    }
    version
}

struct Answer {
    text: String,
    end: String,
}

/// Runs the check on one host, by the launcher that will run the job.
fn ask(plan: &Plan, host: Option<&str>, libraries: &[String]) -> Result<Answer> {
    let mut command: Vec<OsString> = vec!["sh".into(), "-c".into(), SCRIPT.into(), plan.build.device.clone().into()];
    command.push("--check".into());
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
    // What a launcher left behind may hold the streams open: not for ever.
    let text: String = std::iter::from_fn(|| texts.recv_timeout(REST).ok()).collect();
    Ok(Answer { text, end })
}

/// Reads a stream to its end, so that its writer never waits.
fn read(stream: Option<impl Read + Send + 'static>, to: mpsc::Sender<String>) {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        // What was read before an error is what there is; nobody may want it any more.
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
            // SAFETY: the child has not been waited for: the number is its own. Launchers end
            // what they started when they are told to terminate.
            unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
            std::thread::sleep(Duration::from_secs(1));
            child.kill()?;
            child.wait()?;
            return Ok(format!("no answer within {} s", LIMIT.as_secs()));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
