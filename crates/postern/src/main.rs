//! The one binary: it reads settings, wires the parts together, and says what people need to
//! hear. What the parts do is in their own crates.

mod operator;
mod settings;

use std::io::{self, IsTerminal as _, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory as _, Parser, Subcommand};
use postern_server::{AuditLog, Settings, Source, System, Welcome, open};
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use crate::settings::Serve;

#[cfg(feature = "mimalloc")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The management API of a multi-tenant Kubernetes platform.
#[derive(Parser)]
#[command(version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run the server.
    ///
    /// The first start makes everything that is needed under the data directory, and prints how
    /// to get in. Every setting can also be an environment variable (shown beside it) or a line
    /// of the YAML file that --config names; a flag wins over the environment, and that over the
    /// file.
    Serve(Box<Serve>),

    /// What only the machine's own administrator may do.
    #[command(subcommand)]
    Admin(operator::Admin),

    /// Look after the database: its seal keys, its health.
    #[command(subcommand)]
    Storage(operator::Storage),

    #[command(flatten)]
    Client(Box<postern_cli::Command>),
}

fn main() -> ExitCode {
    let done = match postern_cli::parse_or_exit::<Cli>().command {
        Command::Serve(flags) => run(*flags).map(|()| ExitCode::SUCCESS),
        Command::Admin(command) => command.run(),
        Command::Storage(command) => command.run(),
        Command::Client(command) => return postern_cli::run(*command, Cli::command()),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            let _ = writeln!(io::stderr(), "postern: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(flags: Serve) -> anyhow::Result<()> {
    let serve = flags.complete()?;
    let filter = EnvFilter::try_new(&serve.log).map_err(|error| {
        anyhow::anyhow!("--log is not a filter such as info or postern_server=debug: {error}")
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .init();
    log_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(run_to_end(serve.settings));
    // What still blocks then, on a disk or a pipe that has stalled, is not waited for.
    runtime.shutdown_timeout(END_TIMEOUT);
    served
}

async fn run_to_end(settings: Settings) -> anyhow::Result<()> {
    // Handlers first: a signal during start must end it in order, too.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    // A limit on file sizes (ulimit -f) must be an error of the disk, not the end.
    let _file_size = signal(SignalKind::from_raw(SIGXFSZ))?;
    let source: Arc<dyn Source> = Arc::new(System::default());
    let records_on_stdout = settings.audit.log == AuditLog::Stdout;
    let (running, welcome) = open(settings, source).await?;
    if records_on_stdout {
        greet(&welcome, &mut io::stderr().lock())?;
    } else {
        greet(&welcome, &mut io::stdout().lock())?;
    }
    running
        .serve(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                _ = hangup.recv() => {}
            }
        })
        .await;
    Ok(())
}

/// A panic is a line of the log like any other, with its place and never with a value: what is
/// caught (a damaged page in the database's engine, say) is told by whoever catches it.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(place, "an internal check has failed: this is a mistake or damage");
    }));
}

/// What blocks at the end is waited for so long.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Sent when a file grows beyond the process' limit; the same number on Linux and macOS.
const SIGXFSZ: i32 = 25;

/// Where the kubeconfig is goes to stdout, for people and scripts alike; unless that is where the
/// audit log goes.
fn greet(welcome: &Welcome, out: &mut impl Write) -> io::Result<()> {
    tracing::info!("listening on https://{}", welcome.address);
    let Some(path) = &welcome.kubeconfig else {
        tracing::warn!("the administrator's kubeconfig is not where the first start wrote it");
        return Ok(());
    };
    let path = path.display();
    writeln!(out, "{path}")?;
    if welcome.first {
        writeln!(
            out,
            "\nThe file above holds the administrator's access key: keep it safe. Try:\n\n  \
             export KUBECONFIG={path}\n  \
             kubectl create -f examples/sharedsecret.yaml\n  \
             kubectl get sharedsecrets\n"
        )?;
    }
    out.flush()
}
