// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! Unit tests of `src/launcher/command.rs`.

use super::*;

fn job(kind: LauncherKind, bind: Option<Bind>, hosts: &[(&str, u32)]) -> String {
    let hosts: Vec<_> = hosts.iter().map(|&(h, n)| (h.to_string(), n)).collect();
    let job = Job {
        kind,
        launcher: "run".into(),
        arguments: vec!["-v".into()],
        bind,
        heartbeat: Duration::from_secs(5),
        ranks: hosts.iter().map(|h| h.1).sum::<u32>().max(3),
        hosts,
        environment: vec![("X".into(), "1".into())],
        command: vec!["/b/device".into(), "./p".into(), "a b".into()],
    };
    quoted(&job.command().unwrap()).into_string().unwrap()
}

#[test]
fn each_launcher_gets_its_own_words() {
    let here = |kind| job(kind, None, &[]);
    let there = |kind| job(kind, Some(Bind::Numa), &[("me", 1), ("a", 2), ("b", 2)]);
    let rest = "env X=1 /b/device ./p 'a b'";
    assert_eq!(here(LauncherKind::Mpirun), format!("run --oversubscribe -v -np 3 {rest}"));
    assert_eq!(
        there(LauncherKind::Mpirun),
        format!(
            "run --oversubscribe --map-by slot --bind-to numa --mca oob_tcp_keepalive_time 5 \
             --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 4 -v -np 5 --host me:1,a:2,b:2 {rest}"
        )
    );
    assert_eq!(here(LauncherKind::Mpiexec), format!("run -v -np 3 {rest}"));
    assert_eq!(there(LauncherKind::Mpiexec), format!("run -bind-to numa -v -np 5 -hosts me:1,a:2,b:2 {rest}"));
    assert_eq!(here(LauncherKind::Srun), format!("run --overlap --overcommit -v -n 3 {rest}"));
    assert_eq!(
        there(LauncherKind::Srun),
        format!("run --overlap --overcommit --cpu-bind=ldoms -v -n 5 -m arbitrary -w me,a,a,b,b {rest}")
    );
}

#[test]
fn open_mpi_tells_hosts_of_one_name_apart() {
    let of = |kind, hosts| {
        job(kind, None, hosts).contains(" --mca orte_keep_fqdn_hostnames 1 --mca prte_keep_fqdn_hostnames 1 ")
    };
    let namesakes = [("me", 1), ("n1.east", 1), ("n1.west", 1)];
    assert!(of(LauncherKind::Mpirun, &namesakes) && !of(LauncherKind::Mpiexec, &namesakes));
    assert!(!of(LauncherKind::Mpirun, &namesakes[..2]));
}

#[test]
fn a_program_with_an_equals_sign_is_no_variable() {
    let words = with_environment(&[("X".into(), "1".into())], vec!["./a=b".into()]);
    assert_eq!(quoted(&words), r#"env X=1 sh -c 'exec "$0" "$@"' ./a=b"#);
}

#[test]
fn any_word_survives_a_shell() {
    let words: Vec<OsString> = ["", "a'b", "$x", "ä", "*", "a=b"].map(OsString::from).to_vec();
    let line = quoted(&[vec!["printf".into(), r"%s\n".into()], words.clone()].concat());
    let out = std::process::Command::new("sh").arg("-c").arg(line).output().unwrap();
    let got = String::from_utf8(out.stdout).unwrap();
    assert_eq!(got.lines().map(OsString::from).collect::<Vec<_>>(), words);
}
