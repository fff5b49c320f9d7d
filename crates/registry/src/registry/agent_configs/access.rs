//! The right of an agent to its tunnels, from the first one until it is lost.

use std::sync::Arc;
use std::time::Duration;

use postern_kinds::AnyKind;
use postern_kinds::cluster::{Cluster, ENDPOINT, agent_subject};
use postern_meta::status::{ApiError, Reason};
use serde::Deserialize;
use tokio::sync::watch;
use tokio::time::sleep;

use crate::permit::Permit;
use crate::registry::deciding::StoredMetadata;
use crate::registry::visibility::permissions_changed;
use crate::registry::{Registry, not_found};

/// The shortest time between two checks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);

/// The longest time between two checks. They find the end of a key that depends on time alone.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// The fields of a Cluster that the right depends on.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Stored {
    metadata: StoredMetadata,
    spec: StoredSpec,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct StoredSpec {
    connection: String,
}

/// The requests that a permission of an agent is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AgentPurpose {
    /// The tunnels of the Cluster.
    Tunnels,
    /// The subscriptions of the Cluster to project secrets.
    Secrets,
}

/// The permission of an agent to use the tunnels of its own Cluster, or to subscribe to secrets.
pub struct AgentAccess {
    purpose: AgentPurpose,
    registry: Arc<Registry>,
    permit: Permit,
    cluster_uid: String,
    /// The expiry of the key as far as it is known, in seconds since 1970.
    key_ends_at: Option<i64>,
    /// Keys and permissions, and Clusters.
    changes: [watch::Receiver<u64>; 2],
}

impl AgentAccess {
    /// The permission of the caller of a permit. Only the agent of the Cluster has it: the caller's
    /// access key has the agent of this Cluster as its subject. No user or team has it, with any
    /// role, and no caller has it by impersonation.
    ///
    /// # Errors
    /// - 403 for every caller but the agent of this Cluster
    /// - 404 when the Cluster does not exist
    /// - 409 for tunnels when `spec.connection` of the Cluster excludes them
    pub async fn begin(
        registry: &Arc<Registry>,
        permit: &Permit,
        purpose: AgentPurpose,
    ) -> Result<Self, ApiError> {
        let cache = registry.cache();
        cache.wait_until_current().await?;
        let mut access = Self {
            purpose,
            registry: registry.clone(),
            permit: permit.clone(),
            cluster_uid: String::new(),
            key_ends_at: None,
            changes: [cache.subscribe_to_access(), cache.of(Cluster.info()).subscribe()],
        };
        access.check()?;
        Ok(access)
    }

    /// The name of the Cluster.
    pub fn cluster(&self) -> &str {
        self.permit.name()
    }

    /// The uid of the Cluster.
    pub fn cluster_uid(&self) -> &str {
        &self.cluster_uid
    }

    /// The name of the access key.
    pub fn key(&self) -> &str {
        &self.permit.credential().bearer().access_key
    }

    /// Waits until the agent has lost the right. Returns the reason. It can be dropped and called again: no change is
    /// missed in between.
    pub async fn lost(&mut self) -> ApiError {
        loop {
            self.changes.iter_mut().for_each(watch::Receiver::mark_unchanged);
            if let Err(error) = self.check() {
                return error;
            }
            let pause = self.longest_pause();
            let [access, clusters] = &mut self.changes;
            tokio::select! {
                _ = access.changed() => {}
                _ = clusters.changed() => {}
                () = sleep(pause) => {}
            }
            sleep(SHORTEST_PAUSE).await;
        }
    }

    fn longest_pause(&self) -> Duration {
        let now = self.registry.source().now().unix_seconds();
        let left = self.key_ends_at.map_or(i64::MAX, |end| end.saturating_sub(now).max(0));
        Duration::from_secs(left.unsigned_abs()).min(LONGEST_PAUSE)
    }

    /// When the key expires, as far as it is known, in seconds since 1970.
    pub(crate) fn key_ends_at(&self) -> Option<i64> {
        self.key_ends_at
    }

    /// The permit of the agent, as it was checked last.
    pub(crate) fn permit(&self) -> &Permit {
        &self.permit
    }

    /// Checks that the agent has the permission now.
    ///
    /// # Errors
    /// As for [`AgentAccess::begin`]; 401 if the key is no longer valid; 503 while the store does not answer.
    pub(crate) fn check(&mut self) -> Result<(), ApiError> {
        let (cache, now) = (self.registry.cache(), self.registry.source().now());
        let current = self.permit.credential().current(cache, &cache.policy(), now)?;
        if let Some(current) = current {
            if current.is_disabled() {
                return Err(ApiError::unauthorized("Unauthorized"));
            }
            self.key_ends_at = current.key.ends_at();
        }
        match self.permit.renewed(cache, self.registry.source()) {
            Ok(None) => {}
            Ok(Some(renewed)) => self.permit = renewed,
            // An agent that has lost the permission is not told that the Cluster does not exist.
            Err(error) if self.purpose == AgentPurpose::Secrets && error.code() != 401 => {
                return Err(permissions_changed());
            }
            Err(error) => return Err(error),
        }
        self.check_agent()?;
        let name = self.permit.name();
        let stored = self.registry.read_to_decide(&Cluster, None, name)?;
        let stored: Stored = stored.ok_or_else(|| not_found(&Cluster, name))?.part()?;
        if self.cluster_uid.is_empty() {
            self.cluster_uid = stored.metadata.uid;
        } else if self.cluster_uid != stored.metadata.uid {
            return Err(not_found(&Cluster, name));
        }
        if self.purpose == AgentPurpose::Tunnels && stored.spec.connection == ENDPOINT {
            let message = "the cluster is reached at the endpoint of its agent (spec.connection is Endpoint): it \
                           takes no tunnels";
            return Err(ApiError::new(409, Reason::Conflict, message));
        }
        Ok(())
    }

    /// Checks that the caller is the agent of the Cluster.
    fn check_agent(&self) -> Result<(), ApiError> {
        let credential = self.permit.credential();
        let (cluster, bearer) = (self.permit.name(), credential.bearer());
        let subject = agent_subject(cluster);
        let is_principal = bearer.user.is_some() || bearer.team.is_some();
        if bearer.name == subject && !is_principal && !credential.is_acting() {
            return Ok(());
        }
        let what = match self.purpose {
            AgentPurpose::Tunnels => "open a tunnel",
            AgentPurpose::Secrets => "subscribe to secrets",
        };
        let why = format!(
            "only the agent of the cluster can {what}: use an access key with the subject {subject}"
        );
        Err(ApiError::forbidden(Cluster.info().group_resource(), cluster, why))
    }
}
