//! The audit log: who asked for what, as whom, and what came of it (decision 5).
//!
//! Records are Kubernetes' own, `audit.k8s.io/v1`, one line of JSON each, so that what reads those
//! reads these. A request has a [`AuditContext`] from the moment that it can be read; `policy.rs` says how
//! much is recorded of it, `event.rs` what a record looks like, `log.rs` and `file.rs` how it gets to
//! the disk.
//!
//! What can never happen: that something is stored which the policy wants recorded beforehand and
//! which is not in the file ([`Audit::gate`]); that a record holds a credential, or a body of a kind that keeps
//! secrets; that a record is dropped because the disk is slow or full. The server would rather serve
//! nobody.

mod command;
mod context;
mod event;
mod failures;
mod file;
mod log;
mod policy;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context as _;
use postern_meta::status::ApiError;

use crate::clock::Source;
use crate::data_dir::read_if_there;

use self::failures::Failures;
use self::file::LogFile;
use self::log::{Log, Unwritten};
use self::policy::Policy;

pub(crate) use self::command::Command;
pub(crate) use self::context::{AuditContext, LastSender};
pub(crate) use self::event::clean;

/// Seconds after which a client may try again while the log cannot be written.
const RETRY_AFTER_SECONDS: u32 = 1;

/// What is said while the log cannot be written.
const UNWRITTEN: &str = "the audit log cannot be written, and nothing is done without it";

/// Where records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuditLog {
    /// To the standard output.
    Stdout,
    /// To a file, which is made if it is not there.
    File(PathBuf),
}

/// What the operator decides about the audit log.
#[derive(Clone, Debug)]
pub struct AuditSettings {
    /// Where records go.
    pub log: AuditLog,
    /// The policy, if it is not the built-in one.
    pub policy_file: Option<PathBuf>,
    /// A file with more bytes is put aside.
    pub max_file_bytes: u64,
    /// Files that were put aside and are kept.
    pub max_files_aside: usize,
}

/// The audit log and its policy.
pub(crate) struct Audit {
    policy: Policy,
    log: Log,
    /// Of those who showed no access key that there is.
    strangers: Failures,
    /// Of those who showed one that works no more: that is worth knowing when strangers make noise.
    stopped_keys: Failures,
    source: Arc<dyn Source>,
    rejected: AtomicU64,
}

/// What is counted, for the metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counts {
    /// Records.
    pub(crate) events: u64,
    /// Writes to the log that failed.
    pub(crate) errors: u64,
    /// Requests that were turned away because the log could not be written.
    pub(crate) rejected: u64,
}

impl Audit {
    /// Reads the policy and opens the log.
    ///
    /// # Errors
    /// What is wrong with either: no server starts without them.
    pub(crate) fn open(settings: AuditSettings, source: Arc<dyn Source>) -> anyhow::Result<Self> {
        let policy = match &settings.policy_file {
            None => Policy::by_default()?,
            Some(path) => {
                let wrong = || format!("cannot use the audit policy in {}", path.display());
                let text = read_if_there(path)?.context("there is no such file");
                text.and_then(|text| Policy::parse(&text)).with_context(wrong)?
            }
        };
        let log = Log::start(LogFile::open(settings, source.clone())?)?;
        let failures = || Failures::new(source.now().unix_seconds());
        let (strangers, stopped_keys) = (failures(), failures());
        Ok(Self { policy, log, strangers, stopped_keys, source, rejected: AtomicU64::new(0) })
    }

    /// Can it be written? While it cannot, nothing is served.
    pub(crate) fn works(&self) -> bool {
        self.log.works()
    }

    /// What is counted.
    pub(crate) fn counts(&self) -> Counts {
        let (events, errors) = self.log.counts();
        Counts { events, errors, rejected: self.rejected.load(Ordering::Relaxed) }
    }

    /// Waits for what has been handed in.
    pub(crate) async fn close(&self) {
        self.log.close().await;
    }

    /// What writes the log, for the store's committer: it does so before each commit.
    pub(crate) fn gate(&self) -> impl Fn() -> Result<(), &'static str> + Send + Sync + use<> {
        let log = self.log.clone();
        move || log.flush().map_err(|Unwritten| UNWRITTEN)
    }

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
