//! Conditions of the agent in the status of its Cluster, next to those of others.

use postern_client::{Client, Collection, Error, decode_fields};
use postern_kinds::Condition;
use postern_kinds::cluster::{Cluster, Fields};
use serde_json::json;

/// The status code when the object has changed in between.
const CONFLICT: u16 = 409;

/// How often a condition is written when others write at the same time.
const MAX_ATTEMPTS: usize = 5;

/// Writes a condition into the Cluster, unless it is already there. Its time stays if its status is
/// the same.
///
/// # Errors
/// If the central server rejects it.
pub(crate) async fn write(
    client: &mut Client,
    cluster: &str,
    condition: Condition,
) -> anyhow::Result<()> {
    for _ in 1..MAX_ATTEMPTS {
        match attempt(client, cluster, condition.clone()).await {
            Err(Error::Status(status)) if status.code == CONFLICT => {}
            written => return Ok(written?),
        }
    }
    Ok(attempt(client, cluster, condition).await?)
}

async fn attempt(
    client: &mut Client,
    cluster: &str,
    mut condition: Condition,
) -> Result<(), Error> {
    let clusters = Collection::of::<Cluster>(None);
    let stored = client.get(clusters, cluster).await?;
    let fields: Fields = decode_fields::<Cluster>(&stored)?;
    let mut conditions = fields.status.conditions;
    if let Some(old) = conditions.iter().find(|one| one.r#type == condition.r#type) {
        let of = |one: &Condition| (one.status.clone(), one.reason.clone(), one.message.clone());
        if of(old) == of(&condition) {
            return Ok(());
        }
        if old.status == condition.status {
            condition.last_transition_time = old.last_transition_time;
        }
    }
    conditions.retain(|one| one.r#type != condition.r#type);
    conditions.push(condition);
    // The list is written as a whole, so nothing may have changed in between.
    let version = &stored.metadata.resource_version;
    let patch = json!({
        "metadata": { "resourceVersion": version },
        "status": { "conditions": conditions },
    });
    client.merge_patch_status(clusters, cluster, &patch).await?;
    tracing::debug!("a condition of the Cluster is written");
    Ok(())
}
