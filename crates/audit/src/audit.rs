//! `Audit`: the log, its policy, and the limits of records.

use crate::AuditSettings;
use crate::event::{Annotation, SERVER};
use crate::failures::AuthenticationFailures;
use crate::file::LogFile;
use crate::log::{Log, Unwritten};
use crate::policy::Policy;
use crate::report_limits::Reported;
use anyhow::Context as _;
use arc_swap::ArcSwap;
use postern_meta::status::ApiError;
use postern_registry::clock::Source;
use std::borrow::Cow;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::watch;

/// The seconds after which a client may retry while the log cannot be written.
pub(crate) const RETRY_AFTER_SECONDS: u32 = 1;

/// The message to clients while the log cannot be written.
pub(crate) const UNWRITTEN: &str =
    "the audit log cannot be written: requests are rejected until it can";

/// The message to clients when a write may be committed, and its response is not sent without an audit record.
pub(crate) const UNANSWERED: &str = "the audit record of this request was not written in time; the write may \
                        have happened: read the object before you retry";

/// The audit log and its policy.
pub struct Audit {
    pub(crate) policy: ArcSwap<Policy>,
    /// The file of the policy; `None` for the built-in one.
    pub(crate) policy_file: Option<PathBuf>,
    pub(crate) log: Log,
    /// The log of the agents' records. It has a separate file, so that reports of a cluster cannot rotate away the
    /// records of this server.
    pub(crate) agents_log: Log,
    pub(crate) before_answer: bool,
    pub(crate) exec_commands: bool,
    /// The limit of failed authentications without an access key, or with an unknown one.
    pub(crate) unknown_key_failures: AuthenticationFailures,
    /// The limit of failed authentications with a known key that is no longer valid. It is
    /// separate, so that these are recorded also while a client sends many unknown keys.
    pub(crate) known_key_failures: AuthenticationFailures,
    pub(crate) source: Arc<dyn Source>,
    /// The name of this server, if others share its store.
    pub(crate) server: OnceLock<String>,
    pub(crate) rejected: AtomicU64,
    /// The reports of agents.
    pub(crate) reported: Reported,
}

/// The counts for the metrics.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Records that were appended.
    pub events: u64,
    /// Writes to the log that failed.
    pub errors: u64,
    /// Requests that were rejected because the log could not be written.
    pub rejected: u64,
}

fn read_policy(path: &Path) -> anyhow::Result<Policy> {
    let wrong = || format!("cannot use the audit policy in {}", path.display());
    #[expect(clippy::disallowed_methods, reason = "the operator names this file")]
    let text = std::fs::read_to_string(path).map_err(|error| match error.kind() {
        ErrorKind::NotFound => anyhow::anyhow!("the file does not exist"),
        ErrorKind::IsADirectory => anyhow::anyhow!("it is a directory"),
        ErrorKind::InvalidData => {
            anyhow::anyhow!("it is corrupt or another file, because it is not text")
        }
        _ => error.into(),
    });
    text.and_then(|text| Policy::parse(&text)).with_context(wrong)
}

/// Reads the policy again at each change of `reload`, until `reload` is closed.
pub async fn reload_policy(audit: Arc<Audit>, mut reload: watch::Receiver<()>) {
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
    pub fn open(settings: AuditSettings, source: Arc<dyn Source>) -> anyhow::Result<Self> {
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
    pub fn set_server(&self, name: String) {
        let _ = self.server.set(name);
    }

    /// The annotation with the name of this server, if it has one.
    pub(crate) fn server_annotation(&self) -> Option<Annotation<'_>> {
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
    pub fn works(&self) -> bool {
        self.log.works()
    }

    /// The counts for the metrics.
    pub fn counts(&self) -> Counts {
        let logs = [&self.log, &self.agents_log];
        let is_shared = self.log.is(&self.agents_log);
        let counts = logs.into_iter().take(if is_shared { 1 } else { 2 }).map(Log::counts);
        let (events, errors) =
            counts.fold((0, 0), |(events, errors), one| (events + one.0, errors + one.1));
        Counts { events, errors, rejected: self.rejected.load(Ordering::Relaxed) }
    }

    /// Writes the rest of the log, for at most a few seconds, and closes it.
    pub async fn close(&self) {
        tokio::join!(self.log.close(), self.agents_log.close());
    }

    /// A function that writes the log. The store's committer calls it before each commit.
    pub fn gate(&self) -> impl Fn() -> Result<(), &'static str> + Send + Sync + use<> {
        let log = self.log.clone();
        move || log.flush().map_err(|Unwritten| UNWRITTEN)
    }

    /// Checks that requests can be recorded.
    ///
    /// # Errors
    /// 503 while the log cannot be written.
    pub(crate) fn check(&self) -> Result<(), ApiError> {
        if self.works() { Ok(()) } else { Err(self.reject()) }
    }

    pub(crate) fn reject(&self) -> ApiError {
        self.rejected.fetch_add(1, Ordering::Relaxed);
        ApiError::unavailable(UNWRITTEN, Some(RETRY_AFTER_SECONDS))
    }
}
