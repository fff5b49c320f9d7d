//! The Secrets of connected clusters that have data of project secrets, as the subscriptions to this server know them.
//! They are in memory alone: a subscription forgets its Secrets when it ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use postern_kinds::project_secret_usage::SecretUse;

use super::Registry;

/// A Secret of a subscription: the number of the subscription, and the index of the Secret.
type UseId = (u64, usize);

/// The Secrets of all subscriptions, and what was sent to them.
#[derive(Default)]
pub struct SecretUses {
    /// By the storage keys of project secrets.
    uses: Mutex<HashMap<Arc<str>, HashMap<UseId, SecretUse>>>,
    last_subscription: AtomicU64,
    open: AtomicU64,
    delivered: AtomicU64,
    refused: AtomicU64,
}

/// The numbers of the subscriptions, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriptionCounts {
    /// The subscriptions that are open.
    pub open: u64,
    /// The Secrets that have data.
    pub secrets: u64,
    /// The deliveries with data.
    pub delivered: u64,
    /// The deliveries without data.
    pub refused: u64,
}

impl SecretUses {
    /// The numbers now.
    pub fn counts(&self) -> SubscriptionCounts {
        let secrets: usize = self.uses.lock().values().map(HashMap::len).sum();
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        SubscriptionCounts {
            open: read(&self.open),
            secrets: u64::try_from(secrets).unwrap_or(u64::MAX),
            delivered: read(&self.delivered),
            refused: read(&self.refused),
        }
    }

    /// The Secrets with data of a project secret, sorted.
    pub(crate) fn of(&self, secret: &str) -> Vec<SecretUse> {
        let found = self.uses.lock().get(secret).map(|uses| uses.values().cloned().collect());
        let mut found: Vec<SecretUse> = found.unwrap_or_default();
        found.sort_unstable();
        found
    }

    /// Begins a subscription.
    pub(crate) fn begin(self: &Arc<Self>) -> SubscriptionUses {
        self.open.fetch_add(1, Ordering::Relaxed);
        let id = self.last_subscription.fetch_add(1, Ordering::Relaxed);
        SubscriptionUses { all: self.clone(), id, keys: HashMap::new() }
    }
}

/// The Secrets of one subscription. They are forgotten on drop.
pub(crate) struct SubscriptionUses {
    all: Arc<SecretUses>,
    id: u64,
    /// The storage key of the project secret of each Secret that has data.
    keys: HashMap<usize, Arc<str>>,
}

impl SubscriptionUses {
    /// Counts a delivery with data.
    pub(crate) fn count_delivered(&self) {
        self.all.delivered.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a delivery without data.
    pub(crate) fn count_refused(&self) {
        self.all.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that a Secret has data of a project secret.
    pub(crate) fn set(&mut self, index: usize, key: &Arc<str>, found: SecretUse) {
        let mut uses = self.all.uses.lock();
        uses.entry(key.clone()).or_default().insert((self.id, index), found);
        self.keys.insert(index, key.clone());
    }

    /// Notes that a Secret gets no data.
    pub(crate) fn remove(&mut self, index: usize) {
        let Some(key) = self.keys.remove(&index) else { return };
        forget(&mut self.all.uses.lock(), &key, (self.id, index));
    }
}

fn forget(uses: &mut HashMap<Arc<str>, HashMap<UseId, SecretUse>>, key: &Arc<str>, id: UseId) {
    if let Some(of_secret) = uses.get_mut(key) {
        of_secret.remove(&id);
        if of_secret.is_empty() {
            uses.remove(key);
        }
    }
}

impl Drop for SubscriptionUses {
    fn drop(&mut self) {
        self.all.open.fetch_sub(1, Ordering::Relaxed);
        let mut uses = self.all.uses.lock();
        for (index, key) in &self.keys {
            forget(&mut uses, key, (self.id, *index));
        }
    }
}

impl Registry {
    /// The Secrets of connected clusters that have data of project secrets.
    pub fn secret_uses(&self) -> &Arc<SecretUses> {
        &self.secret_uses
    }
}
