//! A document of an identity provider: fetched when it is needed, and kept.
//!
//! One fetch is under way at a time. After a failure, the provider is not asked for a while. The
//! last valid document is used for a day, unless the present one is needed.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The seconds after which a document is fetched again.
const FRESH_SECONDS: i64 = 3600;

/// The seconds for which a document counts if it cannot be fetched again.
const USABLE_SECONDS: i64 = 24 * 3600;

/// The least seconds between two fetches of a document.
const PAUSE_SECONDS: i64 = 10;

/// A document of a provider.
pub(super) struct Document<T> {
    kept: Arc<Mutex<CachedDocument<T>>>,
    /// The fetch that is under way. It does not end with the request that began it. Otherwise, if
    /// that client disconnects, the other requests have no document until the pause is over.
    fetch: Mutex<JoinSet<()>>,
}

impl<T> Default for Document<T> {
    fn default() -> Self {
        Self { kept: Arc::default(), fetch: Mutex::default() }
    }
}

struct CachedDocument<T> {
    /// The last good one, and when it was fetched, in seconds since 1970.
    good: Option<(Arc<T>, i64)>,
    /// When it was last asked for, in seconds since 1970.
    asked: Option<i64>,
    /// When it was last asked for because something in it was missing, in seconds since 1970.
    asked_newest: Option<i64>,
    /// Why the last fetch failed.
    failure: Option<String>,
    /// Closed when the last fetch has ended.
    under_way: Option<watch::Receiver<()>>,
}

impl<T> Default for CachedDocument<T> {
    fn default() -> Self {
        Self { good: None, asked: None, asked_newest: None, failure: None, under_way: None }
    }
}

impl<T> CachedDocument<T> {
    /// The document, if it counts at a time.
    fn usable(&self, now: i64, seconds: i64) -> Option<Arc<T>> {
        let (good, fetched) = self.good.as_ref()?;
        // A clock that was set back makes it old.
        (0..seconds).contains(&now.saturating_sub(*fetched)).then(|| good.clone())
    }

    /// Whether it was asked for so recently that it is not fetched again.
    fn is_paused(&self, now: i64, wanted: Wanted) -> bool {
        let asked = match wanted {
            Wanted::Recent => self.asked,
            Wanted::Newest => self.asked_newest,
        };
        // A clock that was set back ends the pause.
        asked.is_some_and(|asked| (0..PAUSE_SECONDS).contains(&now.saturating_sub(asked)))
    }

    /// The next step for a request.
    fn next(&self, now: i64, wanted: Wanted) -> Next<T> {
        if wanted == Wanted::Recent
            && let Some(recent) = self.usable(now, FRESH_SECONDS)
        {
            return Next::Done(Ok(recent));
        }
        match &self.under_way {
            Some(fetch) if fetch.has_changed().is_ok() => {
                // Only the request that began the fetch waits, if the stored document is recent enough for the others.
                let known = self.usable(now, USABLE_SECONDS).filter(|_| wanted == Wanted::Recent);
                known.map_or_else(|| Next::Wait(fetch.clone()), |known| Next::Done(Ok(known)))
            }
            _ if self.is_paused(now, wanted) => {
                let known = self.usable(now, USABLE_SECONDS);
                match (&self.failure, wanted) {
                    // The present one is not known, and the one that is kept lacks something.
                    (Some(failure), Wanted::Newest) => Next::Done(Err(failure.clone())),
                    (failure, _) => Next::Done(known.ok_or_else(|| {
                        failure.clone().unwrap_or_else(|| "the provider was not reached".to_owned())
                    })),
                }
            }
            _ => Next::Fetch,
        }
    }
}

enum Next<T> {
    Done(Result<Arc<T>, String>),
    /// Wait for the fetch that is under way, and then look again.
    Wait(watch::Receiver<()>),
    Fetch,
}

/// Which document is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// One that was fetched within the hour.
    Recent,
    /// The present one, because something is missing in the one that is kept.
    Newest,
}

impl<T: Send + Sync + 'static> Document<T> {
    /// The document, fetched if it must be. `now` says the time in seconds since 1970.
    ///
    /// # Errors
    /// The failure of the last fetch.
    pub(super) async fn get<F>(
        &self,
        wanted: Wanted,
        now: impl Fn() -> i64 + Send,
        fetch: impl Fn() -> F + Send,
    ) -> Result<Arc<T>, String>
    where
        F: Future<Output = Result<T, String>> + Send + 'static,
    {
        loop {
            let mut under_way = {
                let mut kept = self.kept.lock();
                match kept.next(now(), wanted) {
                    Next::Done(known) => return known,
                    Next::Wait(under_way) => under_way,
                    Next::Fetch => self.begin(&mut kept, wanted, now(), fetch()),
                }
            };
            // Nothing is sent: the end of the fetch closes it.
            let _ = under_way.changed().await;
        }
    }

    /// Begins a fetch.
    fn begin(
        &self,
        kept: &mut CachedDocument<T>,
        wanted: Wanted,
        now: i64,
        fetch: impl Future<Output = Result<T, String>> + Send + 'static,
    ) -> watch::Receiver<()> {
        let (ended, under_way) = watch::channel(());
        kept.asked = Some(now);
        if wanted == Wanted::Newest {
            kept.asked_newest = Some(now);
        }
        kept.under_way = Some(under_way.clone());
        let result = Arc::clone(&self.kept);
        let mut running = self.fetch.lock();
        // The one before has ended.
        while running.try_join_next().is_some() {}
        running.spawn(async move {
            let fetched = fetch.await;
            let mut kept = result.lock();
            match fetched {
                Ok(good) => (kept.good, kept.failure) = (Some((Arc::new(good), now)), None),
                Err(failure) => kept.failure = Some(failure),
            }
            drop(kept);
            drop(ended);
        });
        under_way
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};

    use futures_util::FutureExt as _;

    use super::*;

    /// The keys of a provider, as the numbers of those that are published, and a clock.
    #[derive(Default)]
    struct Scene {
        keys: Document<Vec<usize>>,
        published: Arc<Mutex<Vec<usize>>>,
        fetches: Arc<AtomicUsize>,
        is_down: Arc<AtomicBool>,
        now: AtomicI64,
    }

    impl Scene {
        async fn try_get(&self, wanted: Wanted) -> Result<Vec<usize>, String> {
            let fetch = || {
                let (published, fetches) = (self.published.clone(), self.fetches.clone());
                let is_down = self.is_down.clone();
                async move {
                    fetches.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                    if is_down.load(Ordering::SeqCst) {
                        return Err("it is down".to_owned());
                    }
                    Ok(published.lock().clone())
                }
            };
            let now = || self.now.load(Ordering::SeqCst);
            self.keys.get(wanted, now, fetch).await.map(|keys| keys.to_vec())
        }

        async fn get(&self, wanted: Wanted) -> Vec<usize> {
            self.try_get(wanted).await.unwrap()
        }

        /// Whether a token with this key is accepted, as a login verifies it.
        async fn accepts(&self, key: usize) -> bool {
            self.get(Wanted::Recent).await.contains(&key)
                || self.get(Wanted::Newest).await.contains(&key)
        }
    }

    #[tokio::test]
    async fn no_login_is_refused_while_keys_are_rotated() {
        let scene = Arc::new(Scene::default());
        for key in 0..100 {
            *scene.published.lock() = vec![key];
            let mut logins = JoinSet::new();
            for _ in 0..20 {
                let scene = scene.clone();
                logins.spawn(async move { scene.accepts(key).await });
            }
            assert!(logins.join_all().await.into_iter().all(|accepted| accepted), "{key}");
            scene.now.fetch_add(PAUSE_SECONDS, Ordering::SeqCst);
        }
        assert_eq!(scene.fetches.load(Ordering::SeqCst), 100, "one for each key");
    }

    #[tokio::test]
    async fn unknown_keys_are_looked_for_once_in_a_pause() {
        let scene = Scene::default();
        *scene.published.lock() = vec![1];
        assert!(scene.accepts(1).await);
        for unknown in 2..10_002 {
            assert!(!scene.accepts(unknown).await);
            // A hundred in a second.
            scene.now.fetch_add(i64::from(unknown % 100 == 0), Ordering::SeqCst);
        }
        // One for the known key, one for the first that is unknown, and one each 10 s of 100.
        assert_eq!(scene.fetches.load(Ordering::SeqCst), 1 + 1 + 10);
    }

    #[tokio::test]
    async fn what_is_kept_counts_during_an_outage_but_is_not_the_present_one() {
        let scene = Scene::default();
        *scene.published.lock() = vec![1];
        assert_eq!(scene.get(Wanted::Newest).await, [1]);
        scene.is_down.store(true, Ordering::SeqCst);
        scene.now.store(PAUSE_SECONDS, Ordering::SeqCst);
        for _ in 0..2 {
            assert_eq!(scene.try_get(Wanted::Newest).await.unwrap_err(), "it is down");
            assert_eq!(scene.get(Wanted::Recent).await, [1]);
        }
        assert_eq!(scene.fetches.load(Ordering::SeqCst), 2);
        scene.is_down.store(false, Ordering::SeqCst);
        scene.now.store(2 * PAUSE_SECONDS, Ordering::SeqCst);
        assert_eq!(scene.get(Wanted::Newest).await, [1]);
    }

    #[tokio::test]
    async fn a_request_that_ends_early_leaves_the_fetch_to_the_others() {
        let scene = Scene::default();
        *scene.published.lock() = vec![1];
        // It is polled once: it begins the fetch, and then it is gone.
        assert!(scene.get(Wanted::Recent).now_or_never().is_none());
        assert!(scene.accepts(1).await);
        assert_eq!(scene.fetches.load(Ordering::SeqCst), 1);
    }
}
