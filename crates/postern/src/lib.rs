//! The program: the command line, the wiring of the server, and the output of its start. The parts are in their own
//! crates. `main.rs` sets the allocator.
//!
//! It is a library, so that another binary can use it. A binary with additional kinds calls `postern_kinds::add` and
//! then [`main`].

mod agent;
mod client_flags;
mod etcd_flags;
mod health;
mod keyring_flags;
mod migrate;
mod operator;
mod print;
mod progress;
mod settings;
mod settings_file;
mod values;

use std::io::{self, IsTerminal as _};
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{CommandFactory as _, Parser, Subcommand};
use postern_cli::Link;
use postern_server::{AuditLog, Settings, Source, System, Welcome, open};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::agent::Agent;
use crate::print::{print_data, print_message};
use crate::settings::{Observation, Serve};

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
    /// The first start creates the database, the keys and the administrator in the data directory, and prints the
    /// path of the kubeconfig. Every setting can also be an environment variable (shown next to it), or a line of
    /// the YAML file of --config. A flag overrides the environment variable, which overrides the file.
    Serve(Box<Serve>),

    /// Prepare a store that several servers share.
    ///
    /// Creates the at-rest keys, the certificate authority and the administrator in the store of --store and in the key
    /// directory, and prints the path of the kubeconfig. Copy the key directory to all servers, and then start them with
    /// postern serve.
    Init(Box<Serve>),

    /// Run the agent of a connected cluster.
    ///
    /// The agent forwards requests with endpoint tokens to the cluster, also while the central server is
    /// down. Every setting can also be an environment variable (shown next to it).
    Agent(Box<Agent>),

    /// Manage the administrator's key and the signing keys, on the machine of the server.
    #[command(subcommand)]
    Admin(operator::Admin),

    /// Maintain the database: backup, restore, at-rest key rotation, checks.
    #[command(subcommand)]
    Storage(operator::Storage),

    /// Check whether a server or an agent is ready.
    ///
    /// The exit code is 0 if it is ready. Otherwise it is 1, and the checks that fail are printed.
    Health(health::Health),

    #[command(flatten)]
    Client(Box<postern_cli::Command>),
}

/// Runs the command line of this process, and returns the exit code. Invalid arguments end the process.
pub fn main() -> ExitCode {
    let command = postern_cli::parse_or_exit::<Cli>().command;
    if matches!(command, Command::Admin(_) | Command::Storage(_)) {
        operator::print_panics();
    }
    let done = match command {
        Command::Serve(flags) => serve(*flags),
        Command::Init(flags) => init(*flags),
        Command::Agent(flags) => agent(*flags),
        Command::Admin(command) => command.run(),
        Command::Storage(command) => command.run(),
        Command::Health(command) => command.run(),
        Command::Client(command) => return postern_cli::run(*command, Cli::command()),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            print_message(&format!("postern: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn serve(flags: Serve) -> anyhow::Result<ExitCode> {
    let complete = flags.complete()?;
    run_observed(&complete.observation, Box::pin(serve_until_signal(complete.settings)))
}

fn init(flags: Serve) -> anyhow::Result<ExitCode> {
    let complete = flags.complete()?;
    let prepare = async {
        let source: Arc<dyn Source> = Arc::new(System::default());
        let kubeconfig = postern_server::init(complete.settings, source).await?;
        print_data(&format!("{}\n", kubeconfig.display()))?;
        tracing::info!("the store is prepared: copy the keyring to all servers, and start them");
        Ok(())
    };
    run_observed(&complete.observation, Box::pin(prepare))
}

fn agent(flags: Agent) -> anyhow::Result<ExitCode> {
    let observation = flags.observation();
    run_observed(&observation, Box::pin(agent::run_until_signal(flags.settings()?)))
}

/// Runs a service to its end, with a log on the standard error, and with the export of its traces. It is in a box, as in
/// [`progress::block_on`]. In a log of JSON, the error that ends the service is an event as well.
fn run_observed(
    observation: &Observation,
    service: Pin<Box<dyn Future<Output = anyhow::Result<()>>>>,
) -> anyhow::Result<ExitCode> {
    let Observation { service: name, log, log_format, otlp_endpoint } = observation;
    postern_telemetry::start_log(log, (*log_format).into()).map_err(|error| {
        anyhow::anyhow!("invalid --log: use a filter such as info or postern_server=debug: {error}")
    })?;
    log_panics();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let served = runtime.block_on(async {
        let version = env!("CARGO_PKG_VERSION");
        // The export sends the last spans when the service has ended.
        let _export = postern_telemetry::start_export(otlp_endpoint.as_deref(), name, version)
            .map_err(|error| anyhow::anyhow!("--otlp-endpoint: {error}"))?;
        service.await
    });
    // Threads that are blocked by a stalled disk or pipe do not delay the exit further.
    runtime.shutdown_timeout(END_TIMEOUT);
    match served {
        Err(error) if matches!(log_format, settings::LogFormat::Json) => {
            tracing::error!("{error:#}");
            Ok(ExitCode::FAILURE)
        }
        served => served.map(|()| ExitCode::SUCCESS),
    }
}

async fn serve_until_signal(settings: Settings) -> anyhow::Result<()> {
    // Handlers come first, so that a signal during the start also leads to an orderly shutdown.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    // A limit on file sizes (ulimit -f) must cause a write error, and not end the process.
    let _file_size = signal(SignalKind::from_raw(SIGXFSZ))?;
    let source: Arc<dyn Source> = Arc::new(System::default());
    let records_on_stdout = settings.audit.log == AuditLog::Stdout;
    let has_console = settings.console && cfg!(feature = "console");
    let (running, welcome) = open(settings, source).await?;
    let is_terminal =
        if records_on_stdout { io::stderr().is_terminal() } else { io::stdout().is_terminal() };
    let console = if has_console && is_terminal { console_link(&welcome).await } else { None };
    let text = welcome_text(&welcome, console.as_ref());
    match text {
        None => {}
        Some(text) if records_on_stdout => print_message(&text),
        Some(text) => print_data(&format!("{text}\n"))?,
    }
    let (reload, reloads) = watch::channel(());
    let stop = async move {
        loop {
            tokio::select! {
                _ = terminate.recv() => return,
                _ = interrupt.recv() => return,
                _ = hangup.recv() => reload.send_replace(()),
            }
        }
    };
    running.serve(stop, reloads).await
}

/// Logs the location of a panic. The message is omitted, because it may contain a stored value. If a panic is caught
/// (after corruption in the database engine, for example), the caller logs the consequence.
fn log_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let location = panic.location().map(ToString::to_string).unwrap_or_default();
        tracing::error!(
            location,
            "an internal check failed: report this bug, and run postern storage check"
        );
    }));
}

/// How long the exit waits for blocked threads.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The signal for a file that exceeds the process' size limit. It has this number on Linux and macOS.
const SIGXFSZ: i32 = 25;

/// How long the start waits for the login link. The kubeconfig may name a host that this machine does not reach.
const LINK_TIMEOUT: Duration = Duration::from_secs(2);

/// A login link for the administrator, to print on a terminal.
async fn console_link(welcome: &Welcome) -> Option<Link> {
    let kubeconfig = welcome.kubeconfig.as_ref().ok()?;
    let link = postern_cli::console_link(kubeconfig, LINK_TIMEOUT).await;
    link.inspect_err(|error| tracing::debug!("no login link for the console: {error}")).ok()
}

/// The path of the administrator's kubeconfig, and the login link; `None` without a kubeconfig.
fn welcome_text(welcome: &Welcome, console: Option<&Link>) -> Option<String> {
    tracing::info!("listening on https://{}", welcome.address);
    let path = match &welcome.kubeconfig {
        Ok(path) => path,
        Err(problem) if welcome.shares_store => {
            tracing::info!(
                "the administrator's kubeconfig is where postern init has run; here, {problem}"
            );
            return None;
        }
        Err(problem) => {
            tracing::warn!(
                "cannot use the administrator's kubeconfig: {problem}; run postern admin \
                 reset-key to create a new one"
            );
            return None;
        }
    };
    let login = postern_cli::login_command(path);
    let path = path.display();
    let mut lines = vec![path.to_string()];
    if welcome.first {
        let program = std::env::current_exe().unwrap_or_else(|_| "postern".into());
        let program = program.display();
        lines.push(format!(
            "\nThe file above contains the administrator's access key: keep it safe. Try:\n\n  \
             export KUBECONFIG={path}\n  \
             printf hunter2 | {program} set secret db.password\n  \
             kubectl get sharedsecrets\n  \
             {program} console\n  \
             {program} create user NAME --invite\n"
        ));
        if let Ok(login) = login {
            lines.push(format!("Other users log in with:\n\n  {login}\n"));
        }
    }
    if let Some(Link { console, login, user }) = console {
        lines.push(format!(
            "The web console: {console}\nLog in as {user}, within 60 seconds: {login}\n"
        ));
    }
    Some(lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The flags in the tables of one section of the reference of settings.
    fn flags_of_section<'a>(page: &'a str, heading: &str) -> BTreeSet<&'a str> {
        let section = page.split("\n## ").find(|section| section.starts_with(heading)).unwrap();
        let rows = section.lines().filter(|line| line.starts_with("| `--"));
        let cells = rows.map(|row| row.split(" | ").next().unwrap_or_default());
        let words = cells.flat_map(|cell| cell.split('`')).filter(|word| word.starts_with("--"));
        words.map(|word| word.split(['[', '=']).next().unwrap_or(word)).collect()
    }

    #[test]
    fn the_reference_lists_every_setting_and_no_other() {
        let page = include_str!("../../../docs/reference/settings.md");
        let cli = Cli::command();
        for (command, heading) in [("serve", "Server"), ("agent", "Agent")] {
            let command = cli.find_subcommand(command).unwrap();
            let visible = command.get_arguments().filter(|argument| !argument.is_hide_set());
            let flags: BTreeSet<String> =
                visible.filter_map(|one| one.get_long()).map(|long| format!("--{long}")).collect();
            let listed = flags_of_section(page, heading);
            let listed: BTreeSet<String> = listed.into_iter().map(str::to_owned).collect();
            // The first table of the page describes these flags.
            let explained = BTreeSet::from(["--config".to_owned(), "--help".to_owned()]);
            let missing: Vec<_> = flags.difference(&listed).collect();
            let missing: Vec<_> =
                missing.into_iter().filter(|one| !explained.contains(*one)).collect();
            assert!(missing.is_empty(), "settings.md, {heading}: add {missing:?}");
            let unknown: Vec<_> = listed.difference(&flags).collect();
            assert!(unknown.is_empty(), "settings.md, {heading}: there is no {unknown:?}");
        }
    }
}
