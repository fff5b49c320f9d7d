//! Keeps the list of connected agents in the status of Clusters. Each server writes the agents that
//! have tunnels to it, and removes those of servers that no longer run.

use std::sync::Arc;

use postern_kinds::cluster::{Cluster, ConnectedAgent};
use postern_kinds::{AnyKind, Verb};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::admit::{Part, Writing};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The most agents of one cluster in its status.
const MAX_AGENTS: usize = 100;

/// The agents in the status of a Cluster.
pub fn of_cluster(registry: &Registry, name: &str) -> Vec<ConnectedAgent> {
    let key = storage_key::object(Cluster.info(), None, name);
    let found = registry.cache().of(Cluster.info()).get(&key).ok().flatten();
    found.and_then(|found| found.decode().ok()).map(|object| listed(&object)).unwrap_or_default()
}

/// The names of the Clusters with agents in their status.
pub fn clusters_with_agents(registry: &Registry) -> Vec<String> {
    let clusters = registry.cache().of(Cluster.info()).page(None, usize::MAX);
    let listed = clusters
        .into_iter()
        .filter(|cluster| cluster.decode().is_ok_and(|object| !listed(&object).is_empty()));
    listed.map(|cluster| storage_key::name_of(cluster.key()).1.to_owned()).collect()
}

/// Writes the agents that have tunnels to this server into the status of a Cluster. Agents of other servers stay if
/// `is_live` says that the server runs. Writes nothing if the list is as it should be.
///
/// # Errors
/// The errors of the store. A Cluster that is gone, or has another uid, is skipped.
pub async fn write(
    registry: &Arc<Registry>,
    name: &str,
    uid: Option<&str>,
    server: &str,
    agents: &[ConnectedAgent],
    is_live: impl Fn(&str) -> bool + Send + Sync,
) -> Result<(), ApiError> {
    let should_be = |object: &Object| {
        let mut all: Vec<_> = listed(object)
            .into_iter()
            .filter(|agent| agent.server != server && is_live(&agent.server))
            .chain(agents.iter().cloned())
            .collect();
        all.sort_by(|one, other| (&one.name, &one.server).cmp(&(&other.name, &other.server)));
        all.truncate(MAX_AGENTS);
        all
    };
    let key = storage_key::object(Cluster.info(), None, name);
    let found = registry.cache().of(Cluster.info()).get(&key)?;
    let Some(Ok(object)) = found.map(|found| found.decode()) else { return Ok(()) };
    if uid.is_some_and(|uid| uid != object.metadata.uid) || listed(&object) == should_be(&object) {
        return Ok(());
    }
    let permit = Permit::for_server(&Cluster, Verb::Update, None, name);
    let writing = Writing { part: Part::Status, ..Writing::by_server() };
    let written = operations::update(registry, &permit, &writing, |now| {
        let (mut new, agents) = (now.clone(), should_be(now));
        let status = new.fields.entry("status").or_insert_with(|| Value::Object(Map::new()));
        if let Some(status) = status.as_object_mut() {
            status.insert("agents".to_owned(), json!(agents));
        }
        Ok(new)
    });
    match written.await {
        Err(error) if error.code() >= 500 => Err(error),
        _ => Ok(()),
    }
}

fn listed(object: &Object) -> Vec<ConnectedAgent> {
    let agents = object.fields.get("status").and_then(|status| status.get("agents"));
    agents.and_then(|agents| Vec::deserialize(agents).ok()).unwrap_or_default()
}
