//! The spaces of one cluster, by their namespaces in the cluster.

use std::collections::HashMap;
use std::sync::Arc;

use postern_kinds::AnyKind as _;
use postern_kinds::secret_offer::InstanceKind;
use postern_kinds::space_instance::SpaceInstance;

use crate::cache::Cache;
use crate::storage_key;

/// The objects that are read before other tasks get the thread.
const OBJECTS_PER_STEP: usize = 64;

/// The spaces of one cluster. No two instances are at the same place.
pub(super) struct Spaces {
    cluster: String,
    /// The storage key of the space in each namespace of the cluster.
    by_namespace: HashMap<String, Arc<str>>,
    /// The namespace of each space, by storage key.
    namespaces: HashMap<Arc<str>, String>,
}

impl Spaces {
    pub(super) fn new(cluster: &str) -> Self {
        let (by_namespace, namespaces) = (HashMap::new(), HashMap::new());
        Self { cluster: cluster.to_owned(), by_namespace, namespaces }
    }

    /// The storage key of the space in a namespace of the cluster.
    pub(super) fn in_namespace(&self, namespace: &str) -> Option<&Arc<str>> {
        self.by_namespace.get(namespace)
    }

    /// Reads all spaces.
    pub(super) async fn read_all(&mut self, cache: &Cache) {
        (self.by_namespace, self.namespaces) = Default::default();
        for page in cache.of(SpaceInstance.info()).pages(OBJECTS_PER_STEP) {
            for space in page {
                self.read(cache, space.key());
            }
            tokio::task::yield_now().await;
        }
    }

    /// Reads a space that has changed. Returns the namespaces that it left and entered. A corrupt space stays where it was:
    /// the answers for it fail, and its Secrets keep their data.
    pub(super) fn read(&mut self, cache: &Cache, key: &Arc<str>) -> Vec<String> {
        let (namespace, name) = storage_key::name_of(key);
        let namespace = namespace.unwrap_or_default();
        let Ok(location) = cache.location_of_instance(InstanceKind::Space, namespace, name) else {
            return self.namespaces.get(key).cloned().into_iter().collect();
        };
        let left = self.namespaces.remove(key);
        if let Some(left) = &left
            && self.by_namespace.get(left) == Some(key)
        {
            self.by_namespace.remove(left);
        }
        let entered = location.filter(|location| location.cluster == self.cluster);
        let entered = entered.map(|location| location.namespace);
        if let Some(entered) = &entered {
            self.by_namespace.insert(entered.clone(), key.clone());
            self.namespaces.insert(key.clone(), entered.clone());
        }
        left.into_iter().chain(entered).collect()
    }
}
