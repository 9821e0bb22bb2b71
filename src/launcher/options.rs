// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//! The launcher's command line. Its man page is made from this.

use crate::base::settings::Backend;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;

/// Run a program with its OpenMP target devices on this or other machines, over MPI.
///
/// Starts PROGRAM, built by clang with -fopenmp -fopenmp-targets=x86_64-pc-linux-gnu, together
/// with device processes that execute its target regions. Finds out which MPI and which
/// release of LLVM's libomptarget to use, and hands over to that MPI's own launcher: arguments,
/// input, output, signals and the exit status are PROGRAM's as that launcher passes them on.
#[derive(Debug, Parser)]
#[command(name = "llvm-offload-mpirun", version, max_term_width = 100)]
pub struct Options {
    #[command(flatten)]
    pub placement: Placement,

    /// The MPI to use if builds for several are installed; by default the one that PROGRAM is
    /// linked with, else the one of the llvm-offload-mpi-device beside this program
    #[arg(long, value_name = "NAME")]
    pub mpi: Option<String>,

    /// What starts the processes; by default the MPI's mpirun or mpiexec, else srun
    #[arg(long, value_enum, value_name = "KIND")]
    pub launcher: Option<LauncherKind>,

    /// Start PROGRAM itself instead of a job, and let each program that it starts spawn its own devices at its first
    /// use of one. The MPI must be able to spawn (Open MPI is). That is how a script runs on this host, which may start
    /// several programs, unless an option says more of the job (for instance --launcher, --program, --hosts, -r)
    #[arg(long, conflicts_with_all = ["launcher", "launcher_arg", "bind", "ranks", "info"])]
    pub spawn: bool,

    /// What executes target regions; by default what OMPTARGET_MPI_BACKEND says, else 'offload' if PROGRAM has an image
    /// for an accelerator and none for processors, and 'cpu' otherwise
    #[arg(long, value_enum, value_name = "KIND")]
    pub backend: Option<Backend>,

    /// An argument for that launcher itself; may be given several times
    #[arg(short = 'a', long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub launcher_arg: Vec<OsString>,

    /// The file with the target regions, if PROGRAM is another one that starts or loads it: a
    /// script, a tool. By default PROGRAM or, if that was not built for offloading, the first of
    /// its arguments that was
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,

    /// Whether PROGRAM calls MPI itself in this run: then each rank spawns its devices, after its
    /// MPI_Init. By default what OMPTARGET_MPI_PROGRAM_MPI says, else 'yes' if the file with the
    /// target regions is linked with MPI, and 'no' otherwise
    #[arg(long, value_name = "yes|no", value_parser = PossibleValuesParser::new(["yes", "no"]).map(|word| word == "yes"))]
    pub program_mpi: Option<bool>,

    /// Start PROGRAM even if it does not look as if it was built for offloading
    #[arg(long)]
    pub force: bool,

    /// Print the command instead of running it
    #[arg(long)]
    pub dry_run: bool,

    /// Report what is missing on each host, and how to fix it
    #[arg(long, conflicts_with_all = ["dry_run", "info"])]
    pub check: bool,

    /// Start the devices and print what each is; needs no PROGRAM
    #[arg(long)]
    pub info: bool,

    /// Print this manual page in roff.
    #[arg(long, hide = true, exclusive = true)]
    pub man: bool,

    /// Prints the devices of the plugin in this file; runs as a rank for --info.
    #[arg(long, hide = true, value_name = "PLUGIN")]
    pub print_devices: Option<PathBuf>,

    /// The program to run and its arguments, behind a tool that starts it, if you like: env X=1
    /// PROGRAM, gdb --args PROGRAM, sh -c 'PROGRAM | tee log'
    #[arg(
        value_names = ["PROGRAM", "ARGUMENT"],
        trailing_var_arg = true,
        required_unless_present_any = ["check", "info", "man", "print_devices"]
    )]
    pub command: Vec<OsString>,
}

/// How many processes, and where.
#[derive(Debug, Args)]
pub struct Placement {
    /// Number of devices. Default: --devices-per-node on each host, or 1; for a program with images
    /// for accelerators, one for each accelerator
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub devices: Option<u32>,

    /// Processes of PROGRAM; they share the devices, or, if PROGRAM uses MPI itself, each rank
    /// gets as many of its own
    #[arg(short = 'r', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub ranks: u32,

    /// Hosts for the devices, each with its maximum number: a,b:2. By default the hosts of the
    /// Slurm or PBS allocation, or this host
    #[arg(long, value_name = "LIST")]
    pub hosts: Option<String>,

    /// The same, one host per line: "a", "a:2" or "a slots=2"
    #[arg(long, value_name = "FILE", conflicts_with = "hosts")]
    pub hostfile: Option<PathBuf>,

    /// Devices on each host that --hosts and --hostfile give no number for
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub devices_per_node: Option<u32>,

    /// What each process is bound to; by default devices share their node's cores
    #[arg(long, value_enum, value_name = "UNIT")]
    pub bind: Option<Bind>,
}

/// What a process can be bound to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Bind {
    /// Nothing: it may use all cores.
    None,
    /// A core.
    Core,
    /// A NUMA node.
    Numa,
    /// A socket.
    Socket,
}

/// What starts processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LauncherKind {
    /// Open MPI's mpirun.
    Mpirun,
    /// Hydra, the mpiexec of MPICH.
    Mpiexec,
    /// Slurm's srun.
    Srun,
}

#[cfg(test)]
#[path = "../../test/rust/unit/launcher/options.rs"]
mod tests;
