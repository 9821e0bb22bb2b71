// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! `--check`: reports whether every host has everything that a job needs.

use super::command::with_environment;
use super::{Plan, query};
use crate::base::target::Target;
use crate::base::{Result, elf};
use crate::wire::check;

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
    report(
        true,
        match plan.is_job {
            true => format!("launcher {}", plan.job.launcher.display()),
            false => "no launcher: each program that the command starts spawns its own devices".into(),
        },
    );

    let arguments = ["--check"].into_iter().chain(libraries.iter().map(String::as_str));
    let question = with_environment(&plan.regions.variables, query::command(&plan.build.device, arguments));
    let ask = |hosts: &[String]| query::ask(Some(&plan.job), hosts, question.clone(), Some(query::LIMIT));
    // Devices run on the named hosts, if there are any, and not on this one.
    let images = if plan.hosts.is_empty() { plan.regions.images.as_slice() } else { &[] };
    let ours = report_host(&mut report, "this host", &ask(&[])?, (None, images));
    for (name, _) in &plan.hosts {
        let answer = ask(std::slice::from_ref(name))?;
        report_host(&mut report, &format!("host {name}"), &answer, (ours.as_deref(), &plan.regions.images));
    }
    Ok(all)
}

/// Reports a host's answer; returns its version. Each host needs this host's version and, if there are images,
/// accelerators that execute one of them.
fn report_host(
    report: &mut impl FnMut(bool, String),
    host: &str,
    (text, end): &(String, String),
    (ours, images): (Option<&str>, &[Target]),
) -> Option<String> {
    let mut version = None;
    let mut accelerators = 0;
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
            check::ACCELERATOR => {
                accelerators += 1;
                let (good, what) = result_of_accelerator(rest, images);
                (good, format!("accelerator {}: {what}", accelerators - 1))
            }
            check::LIBRARY => {
                (false, format!("library {rest}; install it there, or put it where that host's loader looks"))
            }
            _ => continue,
        };
        report(good, format!("{host}: {what}"));
    }
    if version.is_some() && accelerators == 0 && !images.is_empty() {
        let is_for_amd = |image: &Target| image.machine == elf::AMDGPU;
        // `Regions::of` hides NVIDIA's accelerators from a program that has images only for AMD's.
        let drivers = match images.iter().all(is_for_amd) {
            true => "libhsa-runtime64.so shows none",
            false => "neither libcuda.so nor libhsa-runtime64.so shows one",
        };
        report(false, format!("{host}: there is no accelerator, which the program needs: {drivers}"));
    }
    if version.is_none() && !text.contains(check::MARK) {
        let why = query::shortened(text, "\n         ");
        report(false, format!("{host}: nothing could be started there: {end}\n         {why}"));
    }
    version
}

/// Whether an accelerator executes one of the images, if there are any, and its description. If its architecture is
/// unknown, only libomptarget itself can tell, and this says yes.
fn result_of_accelerator(answer: &str, images: &[Target]) -> (bool, String) {
    let (number, text) = answer.split_once(' ').unwrap_or((answer, ""));
    let target = Target::of_number(number.parse().unwrap_or(0));
    if images.is_empty() || images.iter().any(|&image| target.check(image).is_ok()) {
        return (true, text.into());
    }
    let built: Vec<String> = images.iter().map(Target::to_string).collect();
    (false, format!("{text}: the program has no image for it, only for {}", built.join(", ")))
}
