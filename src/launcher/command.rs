// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! One job in the words of each launcher.

use super::options::{Bind, LauncherKind};
use crate::base::{Error, Result};
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::time::Duration;

/// Processes of one kind.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// How many.
    pub ranks: u32,
    /// How many on which host; if empty, all on this one.
    pub hosts: Vec<(String, u32)>,
    /// What only these processes need in their environment.
    pub environment: Vec<(String, OsString)>,
    /// Program and arguments.
    pub command: Vec<OsString>,
}

/// What a launcher is to start, in the order of the ranks.
#[derive(Clone, Debug)]
pub struct Job {
    /// The kind of launcher, which decides the words.
    pub kind: LauncherKind,
    /// Its executable.
    pub launcher: PathBuf,
    /// The user's own arguments for it.
    pub arguments: Vec<OsString>,
    /// What processes are bound to.
    pub bind: Option<Bind>,
    /// This host's name as other hosts know it.
    pub this_host: String,
    /// How long a device may be silent, 0: for ever.
    pub heartbeat: Duration,
    /// Who is started.
    pub parts: Vec<Part>,
}

impl Job {
    /// The command that starts the job.
    ///
    /// # Errors
    /// The launcher can't place processes so.
    pub fn command(&self) -> Result<Vec<OsString>> {
        let mut words = vec![self.launcher.clone().into_os_string()];
        match self.kind {
            LauncherKind::Mpirun => {
                // How many devices a host has is the user's choice, whatever its cores.
                words.push("--oversubscribe".into());
                words.extend(
                    self.bind.map(|b| [OsString::from("--bind-to"), b.mpi_word().into()]).into_iter().flatten(),
                );
                let is_set = |word: &OsString| word.to_string_lossy().contains("oob_tcp_keepalive");
                if self.is_spread() && !self.heartbeat.is_zero() && !self.arguments.iter().any(is_set) {
                    words.extend(self.keep_alive());
                }
            }
            LauncherKind::Mpiexec => {
                words
                    .extend(self.bind.map(|b| [OsString::from("-bind-to"), b.mpi_word().into()]).into_iter().flatten());
                if self.is_spread() {
                    let hosts = self.parts.iter().flat_map(|p| self.hosts_of(p)).collect::<Vec<_>>();
                    words.extend(["-hosts".into(), list(&hosts).into()]);
                }
            }
            LauncherKind::Srun => words.extend(self.bind.map(|b| OsString::from(b.slurm_word()))),
        }
        words.extend(self.arguments.iter().cloned());
        let mut taken = BTreeMap::new();
        for (i, part) in self.parts.iter().enumerate() {
            if part.command.iter().any(|word| word == ":") {
                return Err(Error::new("an argument ':' can't be passed on: launchers take it for their own"));
            }
            if i > 0 {
                words.push(":".into());
            }
            self.part(part, &mut taken, &mut words)?;
        }
        Ok(words)
    }

    /// Has mpirun and its daemons notice a connection that is cut, which they would wait for
    /// very long, before a program gives up a device there: then they can't be told to end.
    fn keep_alive(&self) -> impl Iterator<Item = OsString> {
        let seconds = self.heartbeat.as_secs();
        let values = [("time", seconds), ("intvl", (seconds / 5).max(1)), ("probes", (seconds - 1).clamp(1, 4))];
        let words = values.map(|(name, n)| ["--mca".into(), format!("oob_tcp_keepalive_{name}"), n.to_string()]);
        words.into_iter().flatten().map(OsString::from)
    }

    fn is_spread(&self) -> bool {
        self.parts.iter().any(|p| !p.hosts.is_empty())
    }

    fn hosts_of(&self, part: &Part) -> Vec<(String, u32)> {
        if part.hosts.is_empty() { vec![(self.this_host.clone(), part.ranks)] } else { part.hosts.clone() }
    }

    fn part(&self, part: &Part, taken: &mut BTreeMap<String, u32>, words: &mut Vec<OsString>) -> Result<()> {
        let n = part.ranks.to_string();
        match self.kind {
            LauncherKind::Mpirun => {
                words.extend(["-np".into(), n.into()]);
                if self.is_spread() {
                    // What Open MPI 4 counts are a host's slots of all parts so far.
                    let mut hosts = self.hosts_of(part);
                    for (name, n) in &mut hosts {
                        let all = taken.entry(name.clone()).or_default();
                        *all += *n;
                        *n = *all;
                    }
                    words.extend(["--host".into(), list(&hosts).into()]);
                }
            }
            LauncherKind::Mpiexec => words.extend(["-np".into(), n.into()]),
            LauncherKind::Srun => {
                words.extend(["-n".into(), n.into(), "--overlap".into()]);
                if let Some((_, each)) = part.hosts.first() {
                    if part.hosts.iter().any(|(_, n)| n != each) {
                        return Err(Error::new("srun puts as many devices on each host: give all hosts one number"));
                    }
                    let names: Vec<&str> = part.hosts.iter().map(|(name, _)| name.as_str()).collect();
                    words.extend(["-w".into(), names.join(",").into()]);
                    words.push(format!("--ntasks-per-node={each}").into());
                }
            }
        }
        if !part.environment.is_empty() {
            // env(1) means the same to every launcher, and reaches these processes only.
            words.push("env".into());
            words.extend(part.environment.iter().map(|(name, value)| {
                let mut word = OsString::from(name);
                word.push("=");
                word.push(value);
                word
            }));
            if part.command.first().is_some_and(|program| program.as_encoded_bytes().contains(&b'=')) {
                // env(1) would take it for one more variable.
                words.extend(["sh", "-c", r#"exec "$0" "$@""#].map(OsString::from));
            }
        }
        words.extend(part.command.iter().cloned());
        Ok(())
    }
}

impl Bind {
    fn mpi_word(self) -> &'static str {
        match self {
            Bind::None => "none",
            Bind::Core => "core",
            Bind::Numa => "numa",
            Bind::Socket => "socket",
        }
    }

    fn slurm_word(self) -> &'static str {
        match self {
            Bind::None => "--cpu-bind=none",
            Bind::Core => "--cpu-bind=cores",
            Bind::Numa => "--cpu-bind=ldoms",
            Bind::Socket => "--cpu-bind=sockets",
        }
    }
}

/// Hosts with their numbers as launchers write them.
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
mod tests {
    use super::*;

    fn job(kind: LauncherKind, bind: Option<Bind>, hosts: &[(&str, u32)]) -> Result<String> {
        let hosts: Vec<_> = hosts.iter().map(|&(h, n)| (h.to_string(), n)).collect();
        let program = Part {
            ranks: 1,
            environment: vec![("LD_LIBRARY_PATH".into(), "/s".into())],
            command: vec!["./p".into(), "a b".into()],
            ..Part::default()
        };
        let ranks = hosts.iter().map(|h| h.1).sum::<u32>().max(2);
        let devices = Part { ranks, hosts, command: vec!["/b/device".into()], ..Part::default() };
        let job = Job {
            kind,
            launcher: "run".into(),
            arguments: vec!["-v".into()],
            bind,
            this_host: "me".into(),
            heartbeat: Duration::from_secs(5),
            parts: vec![program, devices],
        };
        job.command().map(|words| quoted(&words).into_string().unwrap())
    }

    #[test]
    fn each_launcher_gets_its_own_words() {
        let here = |kind| job(kind, None, &[]).unwrap();
        let there = |kind| job(kind, Some(Bind::Numa), &[("a", 2), ("b", 2)]).unwrap();
        let program = "env LD_LIBRARY_PATH=/s ./p 'a b'";
        assert_eq!(here(LauncherKind::Mpirun), format!("run --oversubscribe -v -np 1 {program} : -np 2 /b/device"));
        assert_eq!(
            there(LauncherKind::Mpirun),
            format!(
                "run --oversubscribe --bind-to numa --mca oob_tcp_keepalive_time 5 --mca oob_tcp_keepalive_intvl 1 \
                 --mca oob_tcp_keepalive_probes 4 -v -np 1 --host me:1 {program} \
                 : -np 4 --host a:2,b:2 /b/device"
            )
        );
        assert_eq!(here(LauncherKind::Mpiexec), format!("run -v -np 1 {program} : -np 2 /b/device"));
        assert_eq!(
            there(LauncherKind::Mpiexec),
            format!("run -bind-to numa -hosts me:1,a:2,b:2 -v -np 1 {program} : -np 4 /b/device")
        );
        assert_eq!(
            there(LauncherKind::Srun),
            format!(
                "run --cpu-bind=ldoms -v -n 1 --overlap {program} \
                 : -n 4 --overlap -w a,b --ntasks-per-node=2 /b/device"
            )
        );
        assert!(job(LauncherKind::Srun, None, &[("a", 2), ("b", 1)]).is_err());
        // The program takes one of its own host's places.
        let own = job(LauncherKind::Mpirun, None, &[("me", 1), ("b", 2)]).unwrap();
        assert!(own.contains("--host me:1 env") && own.ends_with("-np 3 --host me:2,b:2 /b/device"), "{own}");
    }

    #[test]
    fn any_word_survives_a_shell() {
        let words: Vec<OsString> = ["", "a'b", "$x", "ä", "*", "a=b"].map(OsString::from).to_vec();
        let line = quoted(&[vec!["printf".into(), r"%s\n".into()], words.clone()].concat());
        let out = std::process::Command::new("sh").arg("-c").arg(line).output().unwrap();
        let got = String::from_utf8(out.stdout).unwrap();
        assert_eq!(got.lines().map(OsString::from).collect::<Vec<_>>(), words);
    }
}
