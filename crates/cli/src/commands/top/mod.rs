//! `postern top`: what a server does now, in a terminal or as one report. All figures are from two scrapes of
//! `/metrics`: `scrape.rs` parses one, `report.rs` and `quantile.rs` compare two, `text.rs` and `json.rs` write a
//! report, `screen.rs` and `terminal.rs` show it.

mod json;
mod quantile;
mod report;
mod scrape;
mod screen;
mod terminal;
mod text;

use std::pin::pin;
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use postern_client::Error;

use self::report::{Reading, Report};
use self::scrape::Scrape;
use self::terminal::{Event, Terminal, window_size};
use crate::duration::{display_duration, parse_positive_duration};
use crate::error::CliError;
use crate::flags::ConnectionFlags;
use crate::output::{self, escape};
use crate::process::Process;
use crate::session::Session;

/// The longest time between two scrapes.
const INTERVAL_MAX: Duration = Duration::from_hours(1);

/// The paths of the metrics.
const METRICS: &str = "/metrics";
const OWNER_METRICS: &str = "/metrics/owners";

/// Show what the server does now: requests, latencies, owners, watches, the store, clusters.
#[derive(Args, Debug)]
pub struct Top {
    /// The time between two readings of the metrics
    #[arg(long, value_name = "DURATION", default_value = "2s", value_parser = interval)]
    interval: Duration,

    /// Print one report and exit. This is the default if the standard output is not a terminal
    #[arg(long)]
    once: bool,

    /// How to print the report; implies --once [default: text]
    #[arg(short, long, value_name = "FORMAT")]
    output: Option<ReportFormat>,

    #[command(flatten)]
    connection: ConnectionFlags,
}

/// How a report is printed.
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum ReportFormat {
    /// The report in JSON.
    Json,
    /// The report in YAML.
    Yaml,
}

fn interval(text: &str) -> Result<Duration, String> {
    parse_positive_duration(text, INTERVAL_MAX)
}

impl Top {
    /// Reads the metrics, and shows them until the user leaves, or once.
    pub(crate) async fn run(self, process: &Process) -> Result<(), CliError> {
        let session = Session::open(&self.connection, process)?;
        let monitor = Monitor { session, started: process.instant(), last: None };
        // The log of requests would be written over the picture.
        let has_log = self.connection.target.credential.debug;
        if self.once || self.output.is_some() || has_log || !process.can_draw() {
            self.print_once(monitor, process).await
        } else {
            self.show(monitor, process).await
        }
    }

    async fn print_once(&self, mut monitor: Monitor, process: &Process) -> Result<(), CliError> {
        monitor.scrape(process).await?;
        tokio::time::sleep(self.interval).await;
        let report = monitor.scrape(process).await?;
        let value = || json::value(&report, &monitor.server());
        let text = match self.output {
            None => screen::whole(&report).into(),
            Some(ReportFormat::Json) => output::json(value()),
            Some(ReportFormat::Yaml) => output::yaml(value()),
        };
        process.print_text(text.as_str())
    }

    /// Shows one report after the other. Only an error of the first one ends the command.
    async fn show(&self, mut monitor: Monitor, process: &Process) -> Result<(), CliError> {
        let (send, warnings) = channel();
        let note = move |text: &str| drop(send.send(escape(text)));
        monitor.session.client.set_warning_handler(Box::new(note));
        let report = monitor.scrape(process).await?;
        let mut view = View {
            title: format!(
                "postern top   {}   every {}   q: leave",
                monitor.server(),
                display_duration(self.interval)
            ),
            report,
            error: None,
            warnings,
            warning: None,
            is_coloured: process.variable("NO_COLOR").is_none(),
        };
        let mut terminal = Terminal::enter(process)?;
        loop {
            view.draw(process)?;
            let pause = tokio::time::sleep(self.interval);
            if view.show_until(&mut terminal, process, pause).await?.is_none() {
                return Ok(());
            }
            let scrape = monitor.scrape(process);
            match view.show_until(&mut terminal, process, scrape).await? {
                None => return Ok(()),
                Some(Ok(report)) => (view.report, view.error) = (report, None),
                Some(Err(error)) => {
                    view.error = Some(format!("error, trying again: {}", error.message));
                }
            }
        }
    }
}

/// A server whose metrics are read again and again.
struct Monitor {
    session: Session,
    started: Instant,
    last: Option<Reading>,
}

impl Monitor {
    fn server(&self) -> String {
        self.session.client.server().to_string()
    }

    /// Reads the metrics, and compares them with those of the last time.
    async fn scrape(&mut self, process: &Process) -> Result<Report, CliError> {
        let server = self.session.client.get_text(METRICS).await;
        let server = server.map_err(|error| self.explain(&error))?;
        let at = process.instant() - self.started;
        let owners = match self.session.client.get_text(OWNER_METRICS).await {
            Ok(text) => Ok(parse(&text)?),
            Err(error) => Err(unreadable_owners(&error).ok_or_else(|| self.explain(&error))?),
        };
        let reading = Reading { at_seconds: at.as_secs_f64(), server: parse(&server)?, owners };
        let report = Report::new(self.last.as_ref(), &reading);
        self.last = Some(reading);
        Ok(report)
    }

    fn explain(&self, error: &Error) -> CliError {
        let is_denied = error.status().is_some_and(|status| status.code == 403);
        self.session.explain(error).hint_if(
            is_denied,
            "`postern top` needs the verb get on the path /metrics: members of system:masters have it, and a \
             ClusterRole can give it with nonResourceURLs",
        )
    }
}

/// Why the owners cannot be read, if the other metrics can be shown without them.
fn unreadable_owners(error: &Error) -> Option<String> {
    match error.status()?.code {
        403 => Some(format!("not shown: this needs the verb get on the path {OWNER_METRICS}")),
        404 => Some("not shown: this server does not report owners".to_owned()),
        _ => None,
    }
}

fn parse(text: &str) -> Result<Scrape, CliError> {
    Scrape::parse(text).map_err(CliError::new)
}

/// What is on the screen.
struct View {
    title: String,
    report: Report,
    /// Why the last scrape failed, as a line of the picture.
    error: Option<String>,
    /// The server's warnings, which are not printed while the screen is drawn.
    warnings: Receiver<String>,
    /// The last warning, as a line of the picture.
    warning: Option<String>,
    is_coloured: bool,
}

impl View {
    fn draw(&mut self, process: &Process) -> Result<(), CliError> {
        if let Some(warning) = self.warnings.try_iter().last() {
            self.warning = Some(format!("warning: {warning}"));
        }
        let notes: Vec<String> = self.error.iter().chain(&self.warning).cloned().collect();
        let title = format!("{}   version {}", self.title, escape(&self.report.version));
        let lines = screen::picture(&self.report, &title, &notes, window_size());
        process.write_stdout(screen::draw(&lines, self.is_coloured).as_bytes())
    }

    /// Draws for each new size of the window, until something is done. `None` if the user leaves before.
    async fn show_until<T>(
        &mut self,
        terminal: &mut Terminal<'_>,
        process: &Process,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, CliError> {
        let mut work = pin!(work);
        loop {
            let event = tokio::select! {
                done = &mut work => return Ok(Some(done)),
                event = terminal.event() => event,
            };
            match event {
                Event::Leave => return Ok(None),
                Event::Resized => self.draw(process)?,
            }
        }
    }
}
