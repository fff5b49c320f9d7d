//! The rates of the reports of agents, and the records that were reported already.

use parking_lot::Mutex;
use postern_meta::status::ApiError;
use postern_meta::time::MicroTimestamp;
use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::RandomState;

/// The seconds after which an agent may retry while its last report is being written.
const RETRY_AFTER_SECONDS: u32 = 1;

/// The bytes that one cluster may report in a second, and at once, which is more than the longest list. Without the
/// limit, one agent's key could rotate away the records of all other agents.
const BYTES_PER_SECOND: u64 = 256 * 1024;

const MAX_BYTES_AT_ONCE: u64 = 4 * 1024 * 1024;

/// The number of remembered records. A repeated record that is remembered is not written again. It is more than many
/// agents send in one list each.
const REMEMBERED: usize = 50_000;

/// The state of the agents' reports: the hashes of the last records, which clients cannot predict, and the rates.
#[derive(Default)]
pub(super) struct Reported {
    pub(crate) state: RandomState,
    seen: Mutex<Seen>,
    clusters: Mutex<HashMap<String, OfCluster>>,
    /// Locked while lines are appended. So all agents together cannot fill the buffer of unwritten lines.
    pub(crate) appending: tokio::sync::Mutex<()>,
}

/// The reports of one cluster.
#[derive(Clone, Copy, Default)]
struct OfCluster {
    is_reporting: bool,
    /// The reported bytes that still count at the time `at`.
    bytes: u64,
    /// In microseconds since 1970.
    at: i64,
}

impl OfCluster {
    fn forget_until(&mut self, now: MicroTimestamp) {
        let now = now.unix_microseconds();
        let passed = now.saturating_sub(self.at).max(0).unsigned_abs();
        let forgotten = u128::from(passed) * u128::from(BYTES_PER_SECOND) / 1_000_000;
        self.bytes = self.bytes.saturating_sub(u64::try_from(forgotten).unwrap_or(u64::MAX));
        self.at = now;
    }
}

/// The only report of a cluster in progress.
pub struct Reporting<'a> {
    reported: &'a Reported,
    cluster: &'a str,
}

impl Drop for Reporting<'_> {
    fn drop(&mut self) {
        if let Some(of_cluster) = self.reported.clusters.lock().get_mut(self.cluster) {
            of_cluster.is_reporting = false;
        }
    }
}

#[derive(Default)]
struct Seen {
    hashes: HashSet<u64>,
    order: VecDeque<u64>,
}

impl Reported {
    /// Begins the report of a cluster.
    ///
    /// # Errors
    /// 429 while another report is in progress.
    pub(crate) fn begin<'a>(
        &'a self,
        cluster: &'a str,
        now: MicroTimestamp,
    ) -> Result<Reporting<'a>, ApiError> {
        let mut clusters = self.clusters.lock();
        if !clusters.contains_key(cluster) {
            // Clusters without any reported bytes are removed.
            clusters.retain(|_, one| {
                one.forget_until(now);
                one.is_reporting || one.bytes > 0
            });
        }
        let of_cluster = clusters
            .entry(cluster.to_owned())
            .or_insert_with(|| OfCluster { at: now.unix_microseconds(), ..OfCluster::default() });
        if std::mem::replace(&mut of_cluster.is_reporting, true) {
            drop(clusters);
            let message =
                "another report of this cluster is being written: send one report at a time";
            return Err(ApiError::too_many_requests(message, RETRY_AFTER_SECONDS));
        }
        drop(clusters);
        Ok(Reporting { reported: self, cluster })
    }

    /// Remembers a record. Returns whether it is new.
    pub(crate) fn note(&self, hash: u64) -> bool {
        let mut seen = self.seen.lock();
        if !seen.hashes.insert(hash) {
            return false;
        }
        seen.order.push_back(hash);
        if seen.order.len() > REMEMBERED
            && let Some(oldest) = seen.order.pop_front()
        {
            seen.hashes.remove(&oldest);
        }
        true
    }
}

impl Reporting<'_> {
    /// Counts the bytes that will be written.
    ///
    /// # Errors
    /// 429 when the cluster exceeds its rate limit.
    pub(crate) fn count(&self, bytes: u64, now: MicroTimestamp) -> Result<(), ApiError> {
        let mut clusters = self.reported.clusters.lock();
        let of_cluster = clusters.entry(self.cluster.to_owned()).or_default();
        of_cluster.forget_until(now);
        // A list that is longer than the limit is accepted if the whole limit is free.
        let left = MAX_BYTES_AT_ONCE.saturating_sub(of_cluster.bytes);
        let missing = bytes.min(MAX_BYTES_AT_ONCE).saturating_sub(left);
        if missing == 0 {
            of_cluster.bytes += bytes;
            return Ok(());
        }
        drop(clusters);
        let seconds = missing.div_ceil(BYTES_PER_SECOND);
        Err(ApiError::too_many_requests(
            format!(
                "the cluster exceeds the limit of {BYTES_PER_SECOND} bytes of audit records per second: retry later"
            ),
            u32::try_from(seconds).unwrap_or(RETRY_AFTER_SECONDS),
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(milliseconds: i64) -> MicroTimestamp {
        MicroTimestamp::from_unix_microseconds(milliseconds * 1000)
    }

    #[test]
    fn a_cluster_reports_one_after_the_other_and_so_many_bytes() {
        let reported = Reported::default();
        let east = reported.begin("east", at(0)).ok().unwrap();
        assert_eq!(reported.begin("east", at(0)).err().unwrap().code(), 429);
        let west = reported.begin("west", at(0)).ok().unwrap();
        assert!(east.count(MAX_BYTES_AT_ONCE, at(0)).is_ok());
        let refused = east.count(2 * BYTES_PER_SECOND, at(500)).unwrap_err();
        assert_eq!((refused.code(), refused.retry_after_seconds()), (429, Some(2)));
        assert!(west.count(1, at(500)).is_ok(), "another cluster");
        drop(east);
        let east = reported.begin("east", at(1000)).ok().unwrap();
        let refused = east.count(BYTES_PER_SECOND, at(0));
        assert!(refused.is_err(), "a clock that moves back forgets nothing");
        assert!(east.count(2 * BYTES_PER_SECOND, at(2000)).is_ok());
        drop((east, west));
        let _north = reported.begin("north", at(60_000)).ok().unwrap();
        assert_eq!(reported.clusters.lock().len(), 1, "the others are forgotten");
    }

    #[test]
    fn a_repeated_record_is_known_and_the_memory_is_bounded() {
        let reported = Reported::default();
        assert!(reported.note(0) && !reported.note(0));
        for hash in 1..=REMEMBERED as u64 {
            assert!(reported.note(hash));
        }
        assert!(reported.note(0), "the oldest was forgotten");
        assert_eq!(reported.seen.lock().hashes.len(), REMEMBERED);
    }
}
