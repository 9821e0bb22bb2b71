// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The command line of a job for each launcher.

use super::options::{Bind, LauncherKind, Options};
use crate::base::{Error, Result};
use crate::job::hosts;
use crate::sys::launchers::slurm;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// A job for a launcher to start.
#[derive(Clone, Debug)]
pub struct Job {
    pub kind: LauncherKind,
    pub launcher: PathBuf,
    /// The user's arguments for the launcher.
    pub arguments: Vec<OsString>,
    pub bind: Option<Bind>,
    /// How long a device may be silent; 0 means forever.
    pub heartbeat: Duration,
    pub ranks: u32,
    /// The ranks per host, in the order of the ranks; if empty, all are on this host.
    pub hosts: Vec<(String, u32)>,
    pub environment: Vec<(String, OsString)>,
    /// Program and arguments.
    pub command: Vec<OsString>,
}

impl Job {
    /// A job without ranks, with the launcher and its options.
    pub fn empty(kind: LauncherKind, launcher: PathBuf, options: &Options, heartbeat: Duration) -> Job {
        let (arguments, bind) = (options.launcher_arg.clone(), options.placement.bind);
        let (hosts, environment, command) = Default::default();
        Job { kind, launcher, arguments, bind, heartbeat, ranks: 0, hosts, environment, command }
    }

    /// The command that starts the job.
    pub fn command(&self) -> Result<Vec<OsString>> {
        if self.command.iter().any(|word| word == ":") {
            return Err(Error::new("an argument ':' can't be passed on: launchers take it for their own"));
        }
        let mut words = vec![self.launcher.clone().into_os_string()];
        let is_spread = !self.hosts.is_empty();
        let says = |what: &str| self.arguments.iter().any(|word| word.to_string_lossy().contains(what));
        // Within Slurm, mpirun starts no more ranks on a host than Slurm has tasks there, and takes the hosts in
        // Slurm's order, whatever `--host` says; only the sequential mapper takes the list as it is.
        let is_sequence = self.kind == LauncherKind::Mpirun && slurm::nodes().is_some() && !says("map-by");
        // One name for each rank.
        let sequence = || {
            let names = self.hosts.iter().flat_map(|(name, n)| vec![name.as_str(); *n as usize]);
            OsString::from(names.collect::<Vec<_>>().join(","))
        };
        match self.kind {
            LauncherKind::Mpirun => {
                // The user may place more devices on a host than it has cores.
                words.push("--oversubscribe".into());
                if is_spread && !says("map-by") {
                    words.extend(["--map-by", if is_sequence { "seq" } else { "slot" }].map(OsString::from));
                }
                // By default it takes names with the same first label for one host. (4.1 and 5 name this option
                // differently.)
                if hosts::has_namesakes(self.hosts.iter().map(|(name, _)| name.as_str())) {
                    for name in ["orte_keep_fqdn_hostnames", "prte_keep_fqdn_hostnames"] {
                        words.extend(["--mca", name, "1"].map(OsString::from));
                    }
                }
                words.extend(self.bind.iter().flat_map(|b| ["--bind-to", b.words().0]).map(OsString::from));
                if is_spread && !self.heartbeat.is_zero() && !says("oob_tcp_keepalive") {
                    words.extend(self.keep_alive());
                }
            }
            LauncherKind::Mpiexec => {
                words.extend(self.bind.iter().flat_map(|b| ["-bind-to", b.words().0]).map(OsString::from));
            }
            LauncherKind::Srun => {
                // An allocation has no core left for the program, which mostly waits.
                words.extend(["--overlap", "--overcommit"].map(OsString::from));
                words.extend(self.bind.map(|b| OsString::from(b.words().1)));
            }
        }
        words.extend(self.arguments.iter().cloned());
        let number = if self.kind == LauncherKind::Srun { "-n" } else { "-np" };
        words.extend([number.into(), self.ranks.to_string().into()]);
        if is_spread {
            let hosts = list(&self.hosts).into();
            words.extend(match self.kind {
                LauncherKind::Mpirun => vec!["--host".into(), if is_sequence { sequence() } else { hosts }],
                LauncherKind::Mpiexec => vec!["-hosts".into(), hosts],
                LauncherKind::Srun => vec!["-m".into(), "arbitrary".into(), "-w".into(), sequence()],
            });
        }
        words.extend(with_environment(&self.environment, self.command.clone()));
        // Hydra would give ssh the arguments of srun.
        let is_by_srun = match self.kind {
            LauncherKind::Mpirun => true,
            LauncherKind::Mpiexec => !says("-launcher") && !says("-bootstrap"),
            LauncherKind::Srun => false,
        };
        let variables = if is_by_srun { slurm::sharing(self.kind == LauncherKind::Mpirun) } else { Vec::new() };
        Ok(with_environment(&variables, words))
    }

    /// Lets mpirun and its daemons notice a cut connection before the program gives up a device behind
    /// it. By default they wait very long, and can't be terminated meanwhile.
    fn keep_alive(&self) -> impl Iterator<Item = OsString> {
        let seconds = self.heartbeat.as_secs();
        let values = [("time", seconds), ("intvl", (seconds / 5).max(1)), ("probes", (seconds - 1).clamp(1, 4))];
        let words = values.map(|(name, n)| ["--mca".into(), format!("oob_tcp_keepalive_{name}"), n.to_string()]);
        words.into_iter().flatten().map(OsString::from)
    }
}

/// The command with these environment variables. Launchers have different options for them; env(1) is
/// portable.
pub fn with_environment(environment: &[(String, OsString)], command: Vec<OsString>) -> Vec<OsString> {
    if environment.is_empty() {
        return command;
    }
    let mut words = vec!["env".into()];
    words.extend(environment.iter().map(|(name, value)| [OsStr::new(name), value].join(OsStr::new("="))));
    if command.first().is_some_and(|program| program.as_encoded_bytes().contains(&b'=')) {
        // env(1) would take the program for a variable.
        words.extend(["sh", "-c", r#"exec "$0" "$@""#].map(OsString::from));
    }
    words.extend(command);
    words
}

impl Bind {
    /// The unit's name in MPI launchers, and Slurm's option.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Bind::None => ("none", "--cpu-bind=none"),
            Bind::Core => ("core", "--cpu-bind=cores"),
            Bind::Numa => ("numa", "--cpu-bind=ldoms"),
            Bind::Socket => ("socket", "--cpu-bind=sockets"),
        }
    }
}

/// Hosts and their numbers of ranks in the syntax of launchers.
pub fn list(hosts: &[(String, u32)]) -> String {
    hosts.iter().map(|(name, n)| format!("{name}:{n}")).collect::<Vec<_>>().join(",")
}

/// A command as a line for a POSIX shell.
pub fn quoted(words: &[OsString]) -> OsString {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"%+,-./:=@_".contains(&b);
    let quote = |word: &OsStr| {
        let bytes = word.as_encoded_bytes();
        if !bytes.is_empty() && bytes.iter().all(|&b| plain(b)) {
            return bytes.to_vec();
        }
        let inner = bytes.iter().flat_map(|b| if *b == b'\'' { b"'\\''".to_vec() } else { vec![*b] });
        [b"'".to_vec(), inner.collect(), b"'".to_vec()].concat()
    };
    let line = words.iter().map(|w| quote(w)).collect::<Vec<_>>().join(&b' ');
    std::os::unix::ffi::OsStringExt::from_vec(line)
}

#[cfg(test)]
#[path = "../../test/rust/unit/launcher/command.rs"]
mod tests;
