//! How many requests each owner has sent, and which owners have sent most recently. The counts are
//! sorted only when they are read.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The number of owners that are reported.
const OWNERS_MAX: usize = 20;

/// The time between two marks. An owner's rank is by the requests since the mark before the last one.
const MARK_INTERVAL: Duration = Duration::from_secs(10);

/// The requests of one owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OwnerRequests {
    /// The name of the owner.
    pub owner: Arc<str>,
    /// The requests since flow control got to know the owner. An owner without connections is forgotten.
    pub requests: u64,
    /// The open watches, and the requests to clusters that are under way.
    pub watches: usize,
}

/// The count of one owner.
#[derive(Default)]
pub(crate) struct RequestCount {
    requests: AtomicU64,
    /// The count at the last mark, and at the one before. Only [`Ranking`] changes them, under the lock of the accounts.
    marks: [AtomicU64; 2],
}

impl RequestCount {
    /// Counts a request.
    pub(crate) fn add(&self) {
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    fn mark(&self) {
        let [last, before] = &self.marks;
        before.store(last.load(Ordering::Relaxed), Ordering::Relaxed);
        last.store(self.requests.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    fn since_mark(&self) -> u64 {
        let before = self.marks[1].load(Ordering::Relaxed);
        self.requests.load(Ordering::Relaxed).saturating_sub(before)
    }
}

/// An owner to be ranked.
#[derive(Clone, Copy)]
pub(crate) struct Counted<'a> {
    pub(crate) owner: &'a Arc<str>,
    pub(crate) count: &'a RequestCount,
    pub(crate) watches: usize,
}

/// When the counts were marked.
#[derive(Default)]
pub(crate) struct Ranking {
    marked_at: Option<Instant>,
}

impl Ranking {
    /// The owners with most requests in the last 10 to 20 seconds, the busiest first. If nothing was read in that time,
    /// the requests since the reading before the last one decide.
    pub(crate) fn rank<'a>(
        &mut self,
        owners: impl Iterator<Item = Counted<'a>> + Clone,
    ) -> Vec<OwnerRequests> {
        let recent = |one: Counted<'a>| (one.count.since_mark(), one);
        let mut ranked: Vec<(u64, Counted<'a>)> = owners.clone().map(recent).collect();
        ranked.sort_unstable_by(|(one, a), (other, b)| {
            other.cmp(one).then_with(|| a.owner.cmp(b.owner))
        });
        ranked.truncate(OWNERS_MAX);
        let now = Instant::now();
        if self.marked_at.is_none_or(|at| now - at >= MARK_INTERVAL) {
            self.marked_at = Some(now);
            owners.for_each(|one| one.count.mark());
        }
        let requests = |(_, one): (u64, Counted<'a>)| OwnerRequests {
            owner: one.owner.clone(),
            requests: one.count.requests.load(Ordering::Relaxed),
            watches: one.watches,
        };
        ranked.into_iter().map(requests).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Owners with their names.
    fn owners(names: impl Iterator<Item = String>) -> Vec<(Arc<str>, RequestCount)> {
        names.map(|name| (Arc::from(name), RequestCount::default())).collect()
    }

    fn send(owner: &(Arc<str>, RequestCount), requests: usize) {
        (0..requests).for_each(|_| owner.1.add());
    }

    fn names(ranking: &mut Ranking, owners: &[(Arc<str>, RequestCount)]) -> Vec<(String, u64)> {
        let owners = owners.iter().map(|(owner, count)| Counted { owner, count, watches: 0 });
        let ranked = ranking.rank(owners).into_iter();
        ranked.map(|one| (one.owner.to_string(), one.requests)).collect()
    }

    fn ranked(of: &[(&str, u64)]) -> Vec<(String, u64)> {
        of.iter().map(|(name, requests)| ((*name).to_owned(), *requests)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn recent_requests_decide_the_rank() {
        let owners = owners(["a", "b", "c"].map(str::to_owned).into_iter());
        let [a, b, _] = &owners[..] else { unreachable!("three owners") };
        let mut ranking = Ranking::default();
        send(a, 100);
        send(b, 1);
        let first = ranked(&[("a", 100), ("b", 1), ("c", 0)]);
        assert_eq!(names(&mut ranking, &owners), first);
        send(b, 5);
        assert_eq!(names(&mut ranking, &owners)[0].0, "a", "not long ago");
        // Two marks later, the hundred are long ago.
        for _ in 0..2 {
            tokio::time::advance(MARK_INTERVAL).await;
            names(&mut ranking, &owners);
            send(b, 5);
        }
        let later = ranked(&[("b", 16), ("a", 100), ("c", 0)]);
        assert_eq!(names(&mut ranking, &owners), later);
    }

    #[test]
    fn the_number_of_owners_is_bounded() {
        let owners = owners((0..100).map(|number| number.to_string()));
        send(&owners[70], 1);
        let ranked = names(&mut Ranking::default(), &owners);
        assert_eq!((ranked.len(), ranked[0].0.as_str()), (OWNERS_MAX, "70"));
    }
}
