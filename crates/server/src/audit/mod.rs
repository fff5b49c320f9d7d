//! The audit log: the caller, the impersonated user, and the result of each request (`docs/reference/audit.md`).
//!
//! Records have Kubernetes' format `audit.k8s.io/v1`, one line of JSON each. So programs for Kubernetes' audit log can
//! read them. A parsed request has an [`AuditContext`]. `policy.rs` decides how much is recorded, `event.rs` defines
//! the record, `log.rs` and `file.rs` write it to the disk.
//!
//! Three guarantees:
//! - A change is stored only after the record of its request is in the file, whatever the policy omits
//!   ([`Audit::gate`]).
//! - No record contains a credential, or a body of a kind that has secrets.
//! - No record is dropped because the disk is slow or full. The server rejects requests instead.

mod command;
mod context;
mod event;
mod failures;
mod file;
mod line;
mod log;
mod policy;
mod reported;
mod sign_in;

use std::borrow::Cow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Context as _;
use arc_swap::ArcSwap;
use postern_meta::status::ApiError;
use postern_registry::clock::Source;
use tokio::sync::watch;

use self::event::SERVER;
use self::failures::AuthenticationFailures;
use self::file::LogFile;
use self::log::{Log, Unwritten};
use self::policy::Policy;
use self::reported::Reported;
use crate::data_dir::read_if_there;

pub(crate) use self::command::Command;
pub(crate) use self::context::{AuditContext, LastSender};
pub(crate) use self::event::clean;
pub(crate) use self::sign_in::SignIn;

/// The seconds after which a client may retry while the log cannot be written.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The message to clients while the log cannot be written.
const UNWRITTEN: &str = "the audit log cannot be written: requests are rejected until it can";

/// The message to clients when a write may be committed, and its response is not sent without an audit record.
const UNANSWERED: &str = "the audit record of this request was not written in time; the write may \
                        have happened: read the object before you retry";

/// Where records are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditLog {
    /// To stdout.
    Stdout,
    /// To a file, which is created if it does not exist.
    File(PathBuf),
}

/// The operator's settings for the audit log.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// Where records are written.
    pub log: AuditLog,
    /// The file of the policy; `None` for the built-in one.
    pub policy_file: Option<PathBuf>,
    /// The size above which a file is rotated, in bytes.
    pub max_file_bytes: u64,
    /// The most rotated files that are kept.
    pub max_rotated_files: usize,
    /// Whether a response with an object of a confidential kind waits until its record is in the file.
    pub before_answer: bool,
    /// Whether records of exec and attach contain the command.
    pub exec_commands: bool,
}

/// The audit log and its policy.
pub(crate) struct Audit {
    policy: ArcSwap<Policy>,
    /// The file of the policy; `None` for the built-in one.
    policy_file: Option<PathBuf>,
    log: Log,
    /// The log of the agents' records. It has a separate file, so that reports of a cluster cannot rotate away the
    /// records of this server.
    agents_log: Log,
    before_answer: bool,
    exec_commands: bool,
    /// The limit of failed authentications without an access key, or with an unknown one.
    unknown_key_failures: AuthenticationFailures,
    /// The limit of failed authentications with a known key that is not valid any more. It is separate, so that these
    /// are recorded also while a client sends many unknown keys.
    known_key_failures: AuthenticationFailures,
    source: Arc<dyn Source>,
    /// The name of this server, if others share its store.
    server: OnceLock<String>,
    rejected: AtomicU64,
    /// The reports of agents.
    reported: Reported,
}

/// The counts for the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Records that were appended.
    pub(crate) events: u64,
    /// Writes to the log that failed.
    pub(crate) errors: u64,
    /// Requests that were rejected because the log could not be written.
    pub(crate) rejected: u64,
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let wrong = || format!("cannot use the audit policy in {}", path.display());
    let text = read_if_there(path)?.context("the file does not exist");
    text.and_then(|text| Policy::parse(&text)).with_context(wrong)
}

/// Reads the policy again at each change of `reload`, until `reload` is closed.
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
    /// When the policy is invalid, or the log cannot be opened.
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
        let log = Log::start(
            file,
            "cannot write the audit log: requests are rejected until it can be written",
        )?;
        let agents_log = match of_agents {
            Some(settings) => {
                let warning = "cannot write the audit log of agents: agents keep their records until it can be written";
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
            server: OnceLock::new(),
            rejected: AtomicU64::new(0),
            reported: Reported::default(),
        })
    }

    /// Names this server in all records, as one of several on a store. A second name is not taken.
    pub(crate) fn set_server(&self, name: String) {
        let _ = self.server.set(name);
    }

    /// The annotation with the name of this server, if it has one.
    fn server_annotation(&self) -> Option<(&'static str, Cow<'_, str>)> {
        self.server.get().map(|name| (SERVER, Cow::Borrowed(name.as_str())))
    }

    /// Reads the policy file again, if there is one. Requests in progress keep their decisions.
    fn read_policy_again(&self) {
        let Some(path) = &self.policy_file else { return };
        match read_policy(path) {
            Ok(policy) => {
                self.policy.store(Arc::new(policy));
                tracing::info!("the audit policy was reloaded for new requests");
            }
            Err(error) => tracing::error!(
                "cannot reload the audit policy, the current one stays in use: {error:#}"
            ),
        }
    }

    /// Whether the log can be written. While it cannot, requests that need a record are rejected.
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

    /// Writes the rest of the log, for at most a few seconds, and closes it.
    pub(crate) async fn close(&self) {
        tokio::join!(self.log.close(), self.agents_log.close());
    }

    /// A function that writes the log. The store's committer calls it before each commit.
    pub(crate) fn gate(&self) -> impl Fn() -> Result<(), &'static str> + Send + Sync + use<> {
        let log = self.log.clone();
        move || log.flush().map_err(|Unwritten| UNWRITTEN)
    }

    /// Checks that requests can be recorded.
    ///
    /// # Errors
    /// 503 while the log cannot be written.
    fn check(&self) -> Result<(), ApiError> {
        if self.works() { Ok(()) } else { Err(self.reject()) }
    }

    fn reject(&self) -> ApiError {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        ApiError::unavailable(UNWRITTEN, Some(RETRY_AFTER_SECONDS))
    }
}
