//! The benchmarks: Postern and its peers, in alternation, on this machine.
//!
//! [`groups`] has the measurements; [`load`] runs the load program and waits for quiet; [`server`]
//! starts and ends servers; [`report`] writes `docs/benchmarks.md`. Each group's results are stored
//! under `target/bench`, so that one can be repeated without the others.

mod etcd;
pub(crate) mod groups;
pub(crate) mod load;
mod machine;
mod nginx;
mod openbao;
pub(crate) mod postern;
mod probe;
mod report;
pub(crate) mod server;
pub(crate) mod stop;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::shell;
use stop::Stop;

/// `cargo xtask bench`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Fewer rounds, shorter runs, fewer objects: only a test that everything works
    #[arg(long)]
    quick: bool,
    /// Only these groups, separated by commas: reads, floor, writes, endurance, apply, lists, watch, memory, ready, scale,
    /// overload, fairness, access, gateway, tunnel, etcd
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

/// The programs and options that every group works with.
pub(crate) struct Bench {
    /// Our server, as it is released.
    pub(crate) postern: PathBuf,
    /// The load program.
    pub(crate) load: PathBuf,
    /// The workspace. Its `.cache` holds the downloads.
    pub(crate) root: PathBuf,
    pub(crate) quick: bool,
    pub(crate) stop: Stop,
}

impl Bench {
    /// One of two values: the value of a full run, or that of a quick one.
    pub(crate) fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// Builds, fetches, measures and writes.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    for name in &options.only {
        let known = groups::ALL.iter().any(|group| group.name == name);
        ensure!(known, "there is no group {name}: see `cargo xtask bench --help`");
    }
    std::env::set_current_dir(root).context("cannot go to the workspace's directory")?;
    let target = build()?;
    let bench = Bench {
        postern: target.join("release/postern"),
        load: target.join("release/postern-bench"),
        root: root.to_owned(),
        quick: options.quick,
        stop: Stop::new()?,
    };
    let results = target.join("bench");
    std::fs::create_dir_all(&results)?;
    let wanted = |name: &str| options.only.is_empty() || options.only.iter().any(|one| one == name);
    let groups: Vec<_> = groups::ALL.iter().filter(|group| wanted(group.name)).collect();
    for (index, group) in groups.iter().enumerate() {
        println!("\n[{}/{}] {}: {}", index + 1, groups.len(), group.name, group.title);
        let section = (group.measure)(&bench).with_context(|| format!("{} failed", group.name))?;
        report::store(&results, group.name, &section)?;
        let titles = groups::ALL.iter().map(|group| (group.name, group.title));
        report::write(root, &results, titles)?;
    }
    println!("\nwritten: docs/benchmarks.md");
    Ok(())
}

/// Builds both programs as they are released. Returns the target directory.
fn build() -> Result<PathBuf> {
    shell::run(shell::cargo().args(["build", "--release", "-p", "postern"]))?;
    shell::run(shell::cargo().args(["build", "--release", "-p", "postern-bench"]))?;
    let metadata = cargo_metadata::MetadataCommand::new().no_deps().exec()?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// The first line that a program prints about its version.
pub(crate) fn version(program: &Path, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| [output.stdout, output.stderr].concat()).unwrap_or_default();
    String::from_utf8_lossy(&text).lines().next().unwrap_or("unknown version").to_owned()
}
