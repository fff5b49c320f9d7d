//! The figures of an engine: free space, size, and the times of its commits. Metrics report them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the times of commits, in microseconds. One more bucket has no bound.
const BOUNDS: [u64; 14] = [
    250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000,
];

/// The figures of a store at one moment. A field is `None` if the engine has no such thing, or does not know it now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Bytes of the disk that are free.
    pub free_bytes: Option<u64>,
    /// Writes fail when fewer bytes than these are free.
    pub reserve_bytes: Option<u64>,
    /// Bytes of the database and of its write-ahead log.
    pub size_bytes: Option<u64>,
    /// The newest revision that the database has. Later ones are in the write-ahead log.
    pub applied_revision: Option<u64>,
    /// How long commits took.
    pub commits: CommitTimes,
    /// Groups of transactions that were not committed: the disk was full or failed, or the gate rejected them.
    pub failed_commits: u64,
    /// The figures of a store on other machines.
    pub remote: Option<RemoteFigures>,
}

/// The figures of a store on other machines, which several servers share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RemoteFigures {
    /// The servers that share the store, this one included. They are those of a few seconds ago, or of the last time
    /// that the store answered.
    pub servers: usize,
    /// The time since the store answered last.
    pub answer_age: Duration,
    /// The number of the epoch, which rises when the store was restored.
    pub epoch: u32,
    /// How often a watch of the store was lost and opened again.
    pub watch_restarts: u64,
    /// How often a watch of the store got a transaction twice, or missed one.
    pub watch_gaps: u64,
    /// The members of the store, as of the last look at them. It is empty before the first one.
    pub members: Vec<MemberFigures>,
    /// Whether the store has raised an alarm because it is full. It then takes no writes.
    pub is_full: bool,
    /// Whether the store has raised an alarm because its members differ.
    pub is_corrupt: bool,
}

/// The figures of one member of a remote store. A size is `None` if the member does not tell it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberFigures {
    /// Host and port.
    pub address: String,
    /// Whether it answers.
    pub answers: bool,
    /// Bytes of its database.
    pub size_bytes: Option<u64>,
    /// Bytes of its database that are in use. The others are free after a defragmentation.
    pub used_bytes: Option<u64>,
    /// The most bytes that its database may have.
    pub quota_bytes: Option<u64>,
}

/// How long commits took, as a histogram. One commit is for all transactions that waited together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommitTimes {
    /// The commits in each bucket: those above the bound of the previous bucket.
    counts: [u64; BOUNDS.len() + 1],
    /// The total time of all commits.
    microseconds: u64,
}

impl CommitTimes {
    /// The upper bounds in microseconds, each with the number of commits that took at most so long.
    pub fn at_most(&self) -> impl Iterator<Item = (u64, u64)> {
        let sums = self.counts.iter().scan(0, |sum, count| {
            *sum += count;
            Some(*sum)
        });
        BOUNDS.into_iter().zip(sums)
    }

    /// The number of commits.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all times, in microseconds.
    pub fn microseconds(&self) -> u64 {
        self.microseconds
    }
}

/// The counts of commits. Only the committer changes them.
#[derive(Debug, Default)]
pub struct CommitCounters {
    counts: [AtomicU64; BOUNDS.len() + 1],
    microseconds: AtomicU64,
    failed: AtomicU64,
}

impl CommitCounters {
    /// Counts a commit.
    pub fn count(&self, took: Duration) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < took);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.microseconds.fetch_add(took, Ordering::Relaxed);
    }

    /// Counts a commit that failed.
    pub fn count_failed(&self) {
        self.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The times of all commits.
    pub fn times(&self) -> CommitTimes {
        CommitTimes {
            counts: std::array::from_fn(|bucket| self.counts[bucket].load(Ordering::Relaxed)),
            microseconds: self.microseconds.load(Ordering::Relaxed),
        }
    }

    /// How many failed.
    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_is_in_all_buckets_from_its_own_on() {
        let counters = CommitCounters::default();
        for microseconds in [250, 251, 9_000_000] {
            counters.count(Duration::from_micros(microseconds));
        }
        counters.count_failed();
        let times = counters.times();
        let at_most: Vec<_> = times.at_most().map(|(_, count)| count).collect();
        assert_eq!((at_most[0], at_most[1], at_most[13]), (1, 2, 2));
        assert_eq!((times.count(), times.microseconds()), (3, 9_000_501));
        assert_eq!(counters.failed(), 1);
    }
}
