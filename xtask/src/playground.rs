//! Builds the playground and becomes it. Its parts are in the harness of the black-box tests, which
//! starts servers and agents.

use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result};
use clap::Args;

use crate::build::{Profile, build_server};
use crate::{cluster, fetch, shell};

/// How the playground runs.
#[derive(Args)]
pub(crate) struct Options {
    /// Runs kubectl by each way in, ends everything, and exits with 0 when all of it worked.
    #[arg(long)]
    check: bool,
    /// Starts three servers on one etcd with three members behind nginx, and no clusters.
    #[arg(long, conflicts_with = "with_kubernetes")]
    fleet: bool,
    /// Has a real kube-apiserver as the cluster west. The first time, it is built, for a quarter of an hour.
    #[arg(long)]
    with_kubernetes: bool,
    /// Keeps everything in this directory, which is empty or does not exist yet. Without, it is a
    /// temporary one that is deleted at the end.
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Builds the playground, and replaces this process by it, so that a signal reaches the process
/// that has started the servers.
pub(crate) fn run(root: &Path, options: &Options) -> Result<()> {
    let server = build_server(root, Profile::Debug)?;
    let words = ["build", "--workspace", "--bin", "playground"];
    shell::run(shell::cargo().current_dir(root).args(words))?;
    let program = server.with_file_name("playground");
    let mut command = Command::new(&program);
    command.env("POSTERN_TEST_BIN", &server);
    if options.check {
        command.arg("--check");
    }
    if options.fleet {
        fetch::nginx()?;
        command.env("POSTERN_TEST_ETCD", fetch::etcd(root)?).arg("--fleet");
    }
    if options.with_kubernetes {
        cluster::fetch(root)?;
        command.arg("--with-kubernetes");
    }
    if let Some(directory) = &options.dir {
        command.arg("--dir").arg(std::path::absolute(directory)?);
    }
    let error = command.exec();
    Err(error).with_context(|| format!("cannot start {}", program.display()))
}
