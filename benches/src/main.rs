//! `postern-bench`: puts a bounded load on a server on this machine and prints its cost.
//!
//! Every run is one kind of request. It prints a table to a person and, with `--json` or into a
//! pipe, one line of JSON. `cargo xtask bench` combines runs; this program knows neither their
//! order nor any one server.
#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "a measuring program, not a server: it prints results, reads the files that it \
              is given, and its tasks end with it"
)]

mod bare;
mod bulk;
mod certificate;
mod etcd;
mod histogram;
mod load;
mod object;
mod probe;
mod procs;
mod ready;
mod report;
mod target;
mod tunnels;
mod watchers;
mod wire;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use serde_json::Value;

/// Measures servers on this machine: requests, watches, readiness and memory.
#[derive(Parser)]
#[command(name = "postern-bench")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
    /// Prints one line of JSON, also on a terminal
    #[arg(long, global = true)]
    json: bool,
    /// Copied into the result
    #[arg(long, global = true, default_value = "")]
    label: String,
    /// Threads of this program
    #[arg(long, global = true, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    threads: u8,
}

#[derive(Subcommand)]
enum Task {
    /// Sends one kind of request over many connections
    Load(load::Options),
    /// Opens watches, then writes at a fixed rate, and times how long each event takes to arrive
    Watch(watchers::Options),
    /// Starts a program, times it until it is ready, and ends it
    Ready(ready::Options),
    /// Prints the memory and processor time of processes; sends nothing
    Stat(procs::Options),
    /// Makes a certificate for a peer, of the kind that our own server has
    Certificate(certificate::Options),
    /// Serves only the requests of the watch load, as a server to compare with
    FanoutProbe(probe::Options),
    /// Puts keys straight into an etcd, as something to compare a create with
    EtcdPut(etcd::Options),
    /// Serves one fixed JSON document with hyper, rustls and tokio alone, as something to compare a GET with
    Bare(bare::Options),
    /// Sends or receives one long body
    Bulk(bulk::Options),
    /// Serves long bodies
    BulkServer(bulk::ServerOptions),
    /// Opens tunnels as the agents of clusters do, and measures the server while they wait
    Tunnels(tunnels::Options),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(&arguments) {
        Ok(result) => {
            report::print(&arguments.label, result, arguments.json);
            ExitCode::SUCCESS
        }
        Err(error) => report::failed(&error),
    }
}

fn run(arguments: &Arguments) -> Result<Value> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(arguments.threads.into())
        .enable_all()
        .build()?;
    let result = runtime.block_on(async {
        match &arguments.task {
            Task::Load(options) => load::run(options).await,
            Task::Watch(options) => watchers::run(options).await,
            Task::Ready(options) => ready::run(options).await,
            Task::Stat(options) => Ok(procs::stat(options)),
            Task::Certificate(options) => certificate::run(options),
            Task::FanoutProbe(options) => probe::run(options).await,
            Task::EtcdPut(options) => etcd::run(options).await,
            Task::Bare(options) => bare::run(options).await,
            Task::Bulk(options) => bulk::run(options).await,
            Task::BulkServer(options) => bulk::serve(options).await,
            Task::Tunnels(options) => tunnels::run(options).await,
        }
    });
    runtime.shutdown_background();
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_arguments_agree_with_each_other() {
        use clap::CommandFactory as _;
        Arguments::command().debug_assert();
    }
}
