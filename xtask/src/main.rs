//! The project's own tasks, run as `cargo xtask <task>`. They are the layout check, the fetching of
//! the tests' tools, the one command that runs all checks and tests, the playground, the
//! benchmarks, and instruction counts. Other tasks build the artefacts of a release.
//!
//! It has nothing that the product needs at run time. Only the tests and the developers of the
//! project run it.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::disallowed_methods,
    reason = "a developer's command line: it reads source files and prints what it finds"
)]

mod artefacts;
mod attacks;
mod bench;
mod build;
mod clients;
mod cluster;
mod console;
mod deb;
mod dist;
mod fetch;
mod image;
mod instructions;
mod layout;
mod playground;
mod shell;
mod suite;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

/// The project's own tasks.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Checks the direction of dependencies between crates and modules, unused dependencies, the
    /// length of files, the header of each file, and the words in it.
    CheckLayout,
    /// Fetches the tools of the tests: kubectl into .cache/, and Debian packages where they are
    /// missing and may be installed.
    Fetch {
        /// Also fetches the tools that only `test --all` runs: clients of every age, nginx,
        /// Prometheus, and a kube-apiserver with its etcd.
        #[arg(long)]
        all: bool,
    },
    /// Fetches all tools, then checks and tests everything.
    Test {
        /// Leaves out the slow tests (crashes, restarts), the documentation and the licences.
        #[arg(long)]
        quick: bool,
        /// Also runs the clients of every age: kubectl of three releases between the oldest and the
        /// newest, the oldest helm, the client for Node.js, schemathesis, and informers. The
        /// informers follow 100,000 changes. Also runs every way to a cluster: through nginx, with
        /// kubectls of other ages, and to a real kube-apiserver. The first run builds
        /// kube-apiserver from Debian's source, which takes a quarter of an hour.
        #[arg(long, conflicts_with = "quick")]
        all: bool,
        /// Only attacks the server, in full and with a release build, and checks the figures that
        /// must hold meanwhile. Takes some minutes of a machine that does nothing else.
        #[arg(long, conflicts_with_all = ["quick", "all"])]
        attacks: bool,
    },
    /// Builds the web console and the server, and runs the server with it, until Ctrl-C.
    ///
    /// The console takes Node.js: the machine's own, or else a Python package brings one into
    /// .cache/.
    Serve(console::Options),
    /// Builds the web console into console/dist, unless it is up to date.
    Console,
    /// Starts a small platform on this machine, with a kubeconfig for each way in, and runs it
    /// until Ctrl-C. The platform is a central server, two connected clusters with an agent each,
    /// and a virtual cluster, on loopback.
    Playground(playground::Options),
    /// Measures the server and its peers and writes docs/benchmarks.md.
    Bench(bench::Options),
    /// Makes the Debian package from the program of a release.
    Deb {
        /// A binary that is built already [default: the one that dist builds]
        #[arg(long, value_name = "FILE")]
        binary: Option<PathBuf>,
    },
    /// Counts the instructions of fixed scenarios under valgrind, and compares them with benches/instructions.md.
    Instructions(instructions::Options),
    /// Builds the archive of a release, target/dist/postern-VERSION-TARGET.tar.gz, and SHA256SUMS: the program, manual
    /// pages, completions, units, licences, and a software bill of materials. Two builds of one commit are equal.
    Dist(dist::Options),
    /// Builds an OCI image as an archive, target/dist/postern-VERSION-oci.tar, without a builder or a daemon.
    Image(dist::Options),
}

fn main() -> ExitCode {
    match run(&Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<()> {
    let root = shell::workspace_root()?;
    match task {
        Task::CheckLayout => layout::check(&root),
        Task::Fetch { all } => {
            suite::fetch_what_is_needed(&root, *all).map(|tools| println!("{tools}"))
        }
        Task::Test { attacks: true, .. } => attacks::run(&root),
        Task::Test { quick, all, .. } => suite::run(&root, *quick, *all),
        Task::Serve(options) => console::serve(&root, options),
        Task::Console => console::build(&root),
        Task::Playground(options) => playground::run(&root, options),
        Task::Bench(options) => bench::run(&root, options),
        Task::Deb { binary } => {
            let binary = binary.clone().map_or_else(|| dist::program(&root), Ok)?;
            deb::make(&root, &binary).map(|package| println!("{}", package.display()))
        }
        Task::Instructions(options) => instructions::run(&root, options),
        Task::Dist(options) => dist::run(&root, options),
        Task::Image(options) => image::run(&root, options),
    }
}
