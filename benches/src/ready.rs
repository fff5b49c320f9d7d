//! From starting a program to its first 200 on a path.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use crate::procs::usage;
use crate::target::{self, Target};
use crate::wire::Client;

/// Between two looks.
const INTERVAL: Duration = Duration::from_millis(1);

/// `postern-bench ready`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: target::Options,
    /// What answers 200 once the server is ready
    #[arg(long, default_value = "/readyz")]
    path: String,
    /// Give up after so many seconds; the program is then ended
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Where the program's output goes
    #[arg(long)]
    output: PathBuf,
    /// The program and its arguments
    #[arg(last = true, required = true)]
    command: Vec<String>,
}

/// Starts the program and waits for it.
pub(crate) async fn run(options: &Options) -> Result<Value> {
    let (program, arguments) = options.command.split_first().context("which program?")?;
    let output = std::fs::File::create(&options.output).context("cannot make the output file")?;
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let deadline = started + Duration::from_secs(options.seconds);
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("{program} ended: {status}; see {}", options.output.display());
        }
        if is_ready(options).await {
            break;
        }
        if Instant::now() >= deadline {
            child.kill()?;
            child.wait()?;
            bail!("{program} was not ready within {} s", options.seconds);
        }
        tokio::time::sleep(INTERVAL).await;
    }
    let milliseconds = started.elapsed().as_secs_f64() * 1000.0;
    let used = usage(child.id());
    Ok(json!({
        "op": "ready",
        "ready_milliseconds": crate::procs::round(milliseconds),
        "pid": child.id(),
        "rss_kib": used.rss_kib,
        "server_cpu_seconds": used.cpu_seconds,
    }))
}

/// Everything is looked up anew: at its first start a server has yet to write who it is.
async fn is_ready(options: &Options) -> bool {
    let Ok(target) = Target::new(&options.target) else { return false };
    let Ok(mut client) = Client::connect(&Arc::new(target)).await else { return false };
    let answer = client.exchange(Method::GET, &options.path, Bytes::new(), false).await;
    answer.is_ok_and(|answer| answer.status == 200)
}
