//! From starting a program to its first 200 on a path. It is ended afterwards.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bytes::Bytes;
use http::Method;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use crate::procs::{round, usage};
use crate::target::{self, Target};
use crate::wire::Client;

/// The time between two attempts. They are made over one connection: a handshake for each would take processor time
/// from the program that starts.
const INTERVAL: Duration = Duration::from_millis(1);

/// A program that gets SIGTERM has so long to end.
const END_TIMEOUT: Duration = Duration::from_secs(20);

/// `postern-bench ready`.
#[derive(clap::Args)]
pub(crate) struct Options {
    #[command(flatten)]
    target: target::Options,
    /// The path with status 200 once the server is ready
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
    let (program, arguments) = options.command.split_first().context("no program to start")?;
    let output = std::fs::File::create(&options.output).context("cannot make the output file")?;
    let started = Instant::now();
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {program}"))?;
    let became_ready = tokio::select! {
        ready = wait(options, &mut child, started) => ready,
        () = interrupted() => Err(anyhow!("interrupted")),
    };
    let used = usage(child.id());
    end(&mut child).await?;
    Ok(json!({
        "op": "ready",
        "ready_milliseconds": round(became_ready?.as_secs_f64() * 1000.0),
        "rss_kib": used.rss_kib,
        "server_cpu_seconds": used.cpu_seconds,
    }))
}

async fn wait(options: &Options, child: &mut Child, started: Instant) -> Result<Duration> {
    let deadline = started + Duration::from_secs(options.seconds);
    let mut client = None;
    loop {
        if let Some(status) = child.try_wait()? {
            bail!("the program ended: {status}; see {}", options.output.display());
        }
        if is_ready(options, &mut client).await {
            return Ok(started.elapsed());
        }
        ensure!(Instant::now() < deadline, "not ready within {} s", options.seconds);
        tokio::time::sleep(INTERVAL).await;
    }
}

/// Waits for a signal to this process, which is meant for the program too.
async fn interrupted() {
    match signal(SignalKind::terminate()) {
        Ok(mut terminate) => tokio::select! {
            _ = terminate.recv() => {}
            _ = tokio::signal::ctrl_c() => {}
        },
        Err(_) => std::future::pending().await,
    }
}

/// Sends SIGTERM to the program, and kills it if it does not end in time.
async fn end(child: &mut Child) -> Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    rustix::process::kill_process(pid.context("a process has an id")?, Signal::TERM).ok();
    let deadline = Instant::now() + END_TIMEOUT;
    while child.try_wait()?.is_none() {
        if Instant::now() >= deadline {
            child.kill()?;
        }
        tokio::time::sleep(INTERVAL).await;
    }
    Ok(())
}

/// Asks once, over the connection of the attempt before if there is one. The kubeconfig is read for each new one: at its
/// first start the server has not written it yet.
async fn is_ready(options: &Options, open: &mut Option<Client>) -> bool {
    let connected = match open.take() {
        Some(client) => Some(client),
        None => connect(options).await,
    };
    let Some(mut client) = connected else { return false };
    let response = client.exchange(Method::GET, &options.path, Bytes::new(), false).await;
    let Ok(response) = response else { return false };
    *open = Some(client);
    response.status == 200
}

async fn connect(options: &Options) -> Option<Client> {
    let target = Target::new(&options.target).ok()?;
    Client::connect(&Arc::new(target)).await.ok()
}
