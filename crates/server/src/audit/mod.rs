//! The audit log: who requested what, as whom, and with what result (`docs/reference/audit.md`).
//!
//! Records are Kubernetes' own, `audit.k8s.io/v1`, one line of JSON each, so that programs that
//! read Kubernetes' audit log can read this one. A request has an [`AuditContext`] from the moment
//! that it is parsed; `policy.rs` says how much is recorded of it, `event.rs` what a record looks
//! like, `log.rs` and `file.rs` how it gets to the disk.
//!
//! Three things never happen. Nothing is stored before there is a record of its request in the file, whatever
//! the policy omits ([`Audit::gate`]). No record contains a credential, or a body of a kind that has secrets.
//! No record is dropped because the disk is slow or full: the server rejects requests instead.

mod command;
mod context;
mod event;
mod failures;
mod file;
mod line;
mod log;
mod policy;
mod reported;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use postern_meta::status::ApiError;
use postern_registry::clock::Source;
use tokio::sync::watch;

use self::failures::AuthenticationFailures;
use self::file::LogFile;
use self::log::{Log, Unwritten};
use self::policy::Policy;
use self::reported::Reported;
use crate::data_dir::read_if_there;

pub(crate) use self::command::Command;
pub(crate) use self::context::{AuditContext, LastSender};
pub(crate) use self::event::clean;

/// Seconds after which a client may try again while the log cannot be written.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The message to clients while the log cannot be written.
const UNWRITTEN: &str = "the audit log cannot be written, and nothing is done without it";

/// The message to clients when a request that may have changed something has no answer for that.
const UNANSWERED: &str = "the audit log cannot be written, and there is no answer without it; the \
                        write may have happened: read the object before you try again";

/// Where records are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditLog {
    /// To the standard output.
    Stdout,
    /// To a file, which is created if it does not exist.
    File(PathBuf),
}

/// The operator's settings for the audit log.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// Where records are written.
    pub log: AuditLog,
    /// The policy, if it is not the built-in one.
    pub policy_file: Option<PathBuf>,
    /// A file with more bytes is rotated.
    pub max_file_bytes: u64,
    /// How many rotated files are kept.
    pub max_files_aside: usize,
    /// Whether an answer with an object of a confidential kind waits until its record is in the
    /// file.
    pub before_answer: bool,
    /// Whether records of exec and attach have the command.
    pub exec_commands: bool,
}

/// The audit log and its policy.
pub(crate) struct Audit {
    policy: ArcSwap<Policy>,
    /// Where the policy was read, if it is not the built-in one.
    policy_file: Option<PathBuf>,
    log: Log,
    /// The log of the agents' records. With a file of its own, no cluster can have this server's own records rotated
    /// away.
    agents_log: Log,
    before_answer: bool,
    exec_commands: bool,
    /// Failures without an access key, or with one that does not exist.
    unknown_key_failures: AuthenticationFailures,
    /// Failures with an access key that does not work any more. They have a limit of their own, so
    /// that they are recorded also while a client sends many unknown keys.
    known_key_failures: AuthenticationFailures,
    source: Arc<dyn Source>,
    rejected: AtomicU64,
    /// The reports of agents.
    reported: Reported,
}

/// The counts for the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Records.
    pub(crate) events: u64,
    /// Writes to the log that failed.
    pub(crate) errors: u64,
    /// Requests that were rejected because the log could not be written.
    pub(crate) rejected: u64,
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let wrong = || format!("cannot use the audit policy in {}", path.display());
    let text = read_if_there(path)?.context("there is no such file");
    text.and_then(|text| Policy::parse(&text)).with_context(wrong)
}

/// Reads the policy again with each change of `reload`, until it is dropped.
pub(crate) async fn reload_policy(audit: Arc<Audit>, mut reload: watch::Receiver<()>) {
    while reload.changed().await.is_ok() {
        let audit = audit.clone();
        let read = tokio::task::spawn_blocking(move || audit.read_policy_again());
        // An error means that the runtime is shutting down.
        drop(read.await);
    }
}

impl Audit {
    /// Reads the policy and opens the log.
    ///
    /// # Errors
    /// An error in the policy or the log: no server starts without them.
    pub(crate) fn open(settings: AuditSettings, source: Arc<dyn Source>) -> anyhow::Result<Self> {
        let policy_file = settings.policy_file.clone();
        let policy = match &policy_file {
            None => Policy::by_default()?,
            Some(path) => read_policy(path)?,
        };
        let (before_answer, exec_commands) = (settings.before_answer, settings.exec_commands);
        let file = LogFile::open(settings, source.clone())?;
        file.warn_of_shortage();
        let of_agents = file.of_agents();
        let log = Log::start(file, "the audit log cannot be written, so nothing is served")?;
        let agents_log = match of_agents {
            Some(settings) => {
                let warning = "what agents report cannot be written, so they keep it";
                Log::start(LogFile::open(settings, source.clone())?, warning)?
            }
            None => log.clone(),
        };
        let failures = || AuthenticationFailures::new(source.now().unix_seconds());
        Ok(Self {
            policy: ArcSwap::from_pointee(policy),
            policy_file,
            log,
            agents_log,
            before_answer,
            exec_commands,
            unknown_key_failures: failures(),
            known_key_failures: failures(),
            source,
            rejected: AtomicU64::new(0),
            reported: Reported::default(),
        })
    }

    /// Reads the policy's file again, if there is one. Requests that are under way keep what was
    /// decided for them.
    fn read_policy_again(&self) {
        let Some(path) = &self.policy_file else { return };
        match read_policy(path) {
            Ok(policy) => {
                self.policy.store(Arc::new(policy));
                tracing::info!("the audit policy was read again, for new requests");
            }
            Err(error) => tracing::error!("the audit policy in use stays: {error:#}"),
        }
    }

    /// Whether the log can be written. While it cannot, requests that would be recorded are
    /// rejected.
    pub(crate) fn works(&self) -> bool {
        self.log.works()
    }

    /// The counts for the metrics.
    pub(crate) fn counts(&self) -> Counts {
        let logs = [&self.log, &self.agents_log];
        let is_shared = self.log.is(&self.agents_log);
        let counts = logs.into_iter().take(if is_shared { 1 } else { 2 }).map(Log::counts);
        let (events, errors) =
            counts.fold((0, 0), |(events, errors), one| (events + one.0, errors + one.1));
        Counts { events, errors, rejected: self.rejected.load(Ordering::Relaxed) }
    }

    /// Waits until the log is written, for a few seconds at most, and closes it.
    pub(crate) async fn close(&self) {
        tokio::join!(self.log.close(), self.agents_log.close());
    }

    /// A function that writes the log, which the store's committer calls before each
    /// commit.
    pub(crate) fn gate(&self) -> impl Fn() -> Result<(), &'static str> + Send + Sync + use<> {
        let log = self.log.clone();
        move || log.flush().map_err(|Unwritten| UNWRITTEN)
    }

    /// Checks that requests can be recorded.
    ///
    /// # Errors
    /// 503 while nothing can be recorded.
    fn check(&self) -> Result<(), ApiError> {
        if self.works() { Ok(()) } else { Err(self.reject()) }
    }

    fn reject(&self) -> ApiError {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        ApiError::unavailable(UNWRITTEN, Some(RETRY_AFTER_SECONDS))
    }
}
