//! The engine's observations of etcd for metrics: which members answer, how full they are, and the
//! restarts and gaps of its watches.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use postern_store::{CommitCounters, Error, MemberFigures, Result};
use tonic::Status;

use crate::proto::StatusResponse;
use crate::{rpc, versions};

/// A database above this part of its quota is nearly full.
const NEARLY_FULL_PERCENT: u64 = 80;

/// The alarms of etcd, as their names are in a member's status.
const FULL: &str = "NOSPACE";
const CORRUPT: &str = "CORRUPT";

/// The engine's observations of etcd.
#[derive(Default)]
pub(crate) struct Observed {
    watch_restarts: AtomicU64,
    watch_gaps: AtomicU64,
    commits: CommitCounters,
    last_look: Mutex<Look>,
    /// The versions of members of which the log has warned.
    warned: Mutex<BTreeMap<String, String>>,
}

/// The result of a look at the members.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) members: Vec<MemberFigures>,
    pub(crate) is_full: bool,
    pub(crate) is_corrupt: bool,
}

/// The answer of a member, with its address.
type Answer<'a> = (&'a str, std::result::Result<StatusResponse, Status>);

impl Observed {
    pub(crate) fn last_look(&self) -> Look {
        self.last_look.lock().clone()
    }

    pub(crate) fn commits(&self) -> &CommitCounters {
        &self.commits
    }

    /// Counts a commit. A transaction that is rejected for its content does not count as failed.
    pub(crate) fn count_commit(&self, took: Duration, result: &Result<u64>) {
        match result {
            Ok(_) => self.commits.count(took),
            Err(Error::Unavailable(_) | Error::Full | Error::Unknown(_) | Error::Gated(_)) => {
                self.commits.count_failed();
            }
            Err(_) => {}
        }
    }

    /// Counts a watch that was lost and is opened again.
    pub(crate) fn count_watch_restart(&self) {
        self.watch_restarts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn watch_restarts(&self) -> u64 {
        self.watch_restarts.load(Ordering::Relaxed)
    }

    /// Counts a transaction that a watch got twice or missed.
    pub(crate) fn count_watch_gap(&self) {
        self.watch_gaps.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn watch_gaps(&self) -> u64 {
        self.watch_gaps.load(Ordering::Relaxed)
    }

    /// Notes what all members have answered.
    pub(crate) fn note(&self, answers: Vec<Answer<'_>>) {
        let outdated = self.newly_outdated(&answers);
        if !outdated.is_empty() {
            tracing::warn!(
                "known faults of etcd in authentication, leases and transactions are fixed in {}: upgrade {}",
                versions::RECOMMENDED,
                outdated.join(", ")
            );
        }
        let look = Look::new(answers, &self.last_look());
        let before = std::mem::replace(&mut *self.last_look.lock(), look.clone());
        for member in look.nearly_full() {
            if !before.nearly_full().any(|other| other.address == member.address) {
                tracing::warn!(
                    member = member.address,
                    size_bytes = member.size_bytes,
                    quota_bytes = member.quota_bytes,
                    "the database of etcd has more than {NEARLY_FULL_PERCENT} % of its quota"
                );
            }
        }
        if look.is_full && !before.is_full {
            tracing::error!("etcd has raised the alarm {FULL}: it takes no more writes");
        }
        if look.is_corrupt && !before.is_corrupt {
            tracing::error!("etcd has raised the alarm {CORRUPT}: its members differ");
        }
    }
}

impl Observed {
    /// The members that have a version with known faults, each with its version, and once.
    fn newly_outdated(&self, answers: &[Answer<'_>]) -> Vec<String> {
        let mut warned = self.warned.lock();
        let mut is_new = |address: &str, version: &str| {
            warned.insert(address.to_owned(), version.to_owned()).is_none_or(|old| old != version)
        };
        let version = |(address, answer): &Answer<'_>| {
            let version = &answer.as_ref().ok()?.version;
            let is_outdated = !versions::RECOMMENDED.includes(version);
            (is_outdated && is_new(address, version)).then(|| format!("{address} ({version})"))
        };
        answers.iter().filter_map(version).collect()
    }
}

impl Look {
    /// A look made of the answers of all members. Without any, the alarms of the look before stay.
    fn new(answers: Vec<Answer<'_>>, before: &Self) -> Self {
        let statuses = || answers.iter().filter_map(|(_, answer)| answer.as_ref().ok());
        let has = |alarm: &str, before: bool| {
            let is_raised =
                |status: &StatusResponse| status.errors.iter().any(|error| error.contains(alarm));
            if statuses().next().is_none() { before } else { statuses().any(is_raised) }
        };
        let (is_full, is_corrupt) = (has(FULL, before.is_full), has(CORRUPT, before.is_corrupt));
        Self { members: answers.into_iter().map(figures).collect(), is_full, is_corrupt }
    }

    /// The members with databases that are nearly as large as their quota.
    fn nearly_full(&self) -> impl Iterator<Item = &MemberFigures> {
        self.members.iter().filter(|member| {
            let quota = member.quota_bytes.unwrap_or(u64::MAX);
            member.size_bytes.is_some_and(|size| size > quota / 100 * NEARLY_FULL_PERCENT)
        })
    }
}

fn figures((address, answer): Answer<'_>) -> MemberFigures {
    // An error of the member itself is an answer, too.
    let answers = !answer.as_ref().is_err_and(rpc::is_ambiguous);
    let status = answer.ok();
    // 0 is what versions answer that do not have the field.
    let bytes = |of: fn(&StatusResponse) -> i64| {
        status.as_ref().and_then(|status| u64::try_from(of(status)).ok()).filter(|bytes| *bytes > 0)
    };
    MemberFigures {
        address: address.to_owned(),
        answers,
        size_bytes: bytes(|status| status.db_size),
        used_bytes: bytes(|status| status.db_size_in_use),
        quota_bytes: bytes(|status| status.db_size_quota),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer<'a>(address: &'a str, size: i64, quota: i64, errors: &[&str]) -> Answer<'a> {
        let errors = errors.iter().map(|error| (*error).to_owned()).collect();
        let status = StatusResponse {
            db_size: size,
            db_size_quota: quota,
            errors,
            ..StatusResponse::default()
        };
        (address, Ok(status))
    }

    fn silent() -> Answer<'static> {
        ("d", Err(Status::unavailable("gone")))
    }

    fn addresses(look: &Look) -> Vec<&str> {
        look.nearly_full().map(|member| &*member.address).collect()
    }

    #[test]
    fn a_member_is_nearly_full_above_80_percent_of_a_known_quota() {
        let answers = vec![
            answer("a", 80, 100, &[]),
            answer("b", 81, 100, &[]),
            // Versions before 3.6 do not say their quota.
            answer("c", i64::MAX, 0, &[]),
            silent(),
            ("e", Err(Status::permission_denied("no"))),
        ];
        let look = Look::new(answers, &Look::default());
        assert_eq!(addresses(&look), ["b"]);
        let known =
            |member: &MemberFigures| (member.answers, member.size_bytes, member.quota_bytes);
        assert_eq!(known(&look.members[1]), (true, Some(81), Some(100)));
        assert_eq!(known(&look.members[2]).2, None);
        assert_eq!(known(&look.members[3]), (false, None, None));
        assert_eq!(known(&look.members[4]), (true, None, None));
    }

    #[test]
    fn alarms_are_those_of_any_member_and_stay_while_no_member_answers() {
        let before = Look::default();
        let full = vec![
            answer("a", 1, 0, &["etcdserver: no leader"]),
            answer("b", 1, 0, &["memberID:42 alarm:NOSPACE "]),
        ];
        let full = Look::new(full, &before);
        assert_eq!((full.is_full, full.is_corrupt), (true, false));
        let cut_off = Look::new(vec![silent()], &full);
        assert!(cut_off.is_full);
        let disarmed = Look::new(vec![answer("a", 1, 0, &[])], &cut_off);
        assert!(!disarmed.is_full);
        let corrupt = Look::new(vec![answer("a", 1, 0, &["memberID:1 alarm:CORRUPT "])], &before);
        assert_eq!((corrupt.is_full, corrupt.is_corrupt), (false, true));
    }

    #[test]
    fn each_member_with_a_faulty_version_is_told_once() {
        let of = |address: &'static str, version: &str| -> Answer<'static> {
            (
                address,
                Ok(StatusResponse { version: version.to_owned(), ..StatusResponse::default() }),
            )
        };
        let observed = Observed::default();
        let look = [of("a:2379", "3.5.27"), of("b:2379", "3.5.28"), silent()];
        assert_eq!(observed.newly_outdated(&look), ["a:2379 (3.5.27)"]);
        let look = [of("a:2379", "3.5.27"), of("b:2379", "3.5.28"), of("d", "3.6.8")];
        assert_eq!(observed.newly_outdated(&look), ["d (3.6.8)"]);
        assert!(observed.newly_outdated(&look).is_empty());
    }

    #[test]
    fn only_what_etcd_or_the_gate_did_not_take_counts_as_failed() {
        let observed = Observed::default();
        let took = Duration::from_millis(1);
        for result in [
            Ok(7),
            Err(Error::Unavailable("etcd".to_owned())),
            Err(Error::Unknown("etcd".to_owned())),
            Err(Error::Conflict { key: "/a".into(), found: None }),
            Err(Error::Invalid("a key".to_owned())),
        ] {
            observed.count_commit(took, &result);
        }
        assert_eq!((observed.commits.times().count(), observed.commits.failed()), (1, 2));
    }
}
