//! The configurations of the agents, as documents. Each cluster has three: the data that tokens are verified with;
//! the instances on the cluster and their users; and both together. A document is made again only when its content
//! changes.
//!
//! The first document depends only on the token records and the Cluster. So it is available at once, however long the
//! second one takes.

pub mod access;
pub mod cluster_counts;
mod uses;
pub mod watch;

use std::collections::HashMap;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use postern_auth::endpoint_token::{GENERAL_AUDIENCE, Jwk, cluster_audience};
use postern_kinds::AnyKind;
use postern_kinds::agent_config::{AgentConfig, ClusterId, Part, PublicKey, Revocation};
use postern_kinds::cluster::Cluster;
use postern_meta::event::WatchEventType;
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use postern_store::Position;
use serde::Deserialize;

use self::uses::{Lists, Uses, holders, json};
use super::{EncodedObject, Registry, not_found};
use crate::cache::{Cache, CachedObject, stored_head};
use crate::storage_key;

/// The maximum number of clusters with documents in memory.
const MAX_KEPT: usize = 1000;

/// A configuration, or a part of one.
pub struct Document {
    /// The data that it was made from.
    of: Sources,
    /// The fields of its `spec`, without the cluster and the name of the part.
    fields: String,
    /// The whole object, as the event of its change.
    pub(crate) object: Arc<CachedObject>,
    /// The hash of the content, in hex.
    pub hash: String,
}

impl Document {
    /// The whole object, for a response to a caller with permission to read the configuration of
    /// the agent.
    pub fn encoded(&self) -> EncodedObject {
        EncodedObject::of_cached(self.object.clone())
    }
}

/// The data that a document is made from. If it is unchanged, the document is unchanged.
#[derive(PartialEq, Eq)]
struct Sources {
    cluster: ClusterId,
    content: Content,
}

#[derive(PartialEq, Eq)]
enum Content {
    Tokens {
        version: u64,
        /// The names of the servers, in JSON; empty if there is one.
        servers: String,
    },
    Places {
        version: u64,
        /// The holders of `use` on the cluster itself, in JSON.
        holders: String,
    },
    /// The hashes of both parts.
    Whole([String; 2]),
}

impl Content {
    fn part(&self) -> Option<Part> {
        match self {
            Self::Tokens { .. } => Some(Part::Tokens),
            Self::Places { .. } => Some(Part::Places),
            Self::Whole(_) => None,
        }
    }
}

/// The newest documents of a cluster.
#[derive(Clone, Default)]
struct Documents {
    tokens: Option<Arc<Document>>,
    places: Option<Arc<Document>>,
    whole: Option<Arc<Document>>,
}

/// The newest documents of each cluster, and the data of the instances.
#[derive(Default)]
pub(crate) struct AgentConfigs {
    uses: tokio::sync::Mutex<Uses>,
    documents: Mutex<HashMap<String, Documents>>,
}

impl AgentConfigs {
    fn of(&self, cluster: &str) -> Documents {
        self.documents.lock().get(cluster).cloned().unwrap_or_default()
    }

    /// Blocks the documents of instances until the result is dropped.
    #[cfg(test)]
    pub(crate) async fn block_places(&self) -> impl Sized + '_ {
        self.uses.lock().await
    }

    /// How often an instance was checked.
    #[cfg(test)]
    pub(crate) async fn checks(&self) -> u64 {
        self.uses.lock().await.checks
    }

    /// Keeps a document of a cluster.
    fn keep(&self, cluster: &str, document: &Arc<Document>) {
        let mut all = self.documents.lock();
        if all.len() >= MAX_KEPT && !all.contains_key(cluster) {
            all.clear();
        }
        let kept = all.entry(cluster.to_owned()).or_default();
        let place = match document.of.content.part() {
            Some(Part::Tokens) => &mut kept.tokens,
            Some(Part::Places) => &mut kept.places,
            None => &mut kept.whole,
        };
        *place = Some(document.clone());
    }
}

impl Registry {
    /// The configuration of the agent of a cluster, or a part of it, at the revision of the cache.
    ///
    /// # Errors
    /// 404 if the cluster does not exist.
    pub async fn agent_config(
        &self,
        name: &str,
        part: Option<Part>,
    ) -> Result<Arc<Document>, ApiError> {
        let cluster = self.read_to_decide(&Cluster, None, name)?;
        let cluster: Object = cluster.ok_or_else(|| not_found(&Cluster, name))?.part()?;
        let cluster = ClusterId { name: name.to_owned(), uid: cluster.metadata.uid };
        match part {
            Some(Part::Tokens) => Ok(self.tokens_of(&cluster)),
            Some(Part::Places) => Ok(self.places_of(cluster).await),
            None => {
                let places = self.places_of(cluster.clone()).await;
                let tokens = self.tokens_of(&cluster);
                let hashes = [&tokens, &places].map(|part| part.hash.clone());
                let fields = || [tokens.fields.as_str(), &places.fields].join(",");
                let of = Sources { cluster, content: Content::Whole(hashes) };
                Ok(self.document(name, |kept| kept.whole, of, fields))
            }
        }
    }

    fn tokens_of(&self, cluster: &ClusterId) -> Arc<Document> {
        // The version is read first, so the content is at least as new.
        let version = self.cache().tokens_version();
        let servers = self.servers_in_json();
        let fields = || self.tokens_fields(&cluster.uid, &servers);
        let content = Content::Tokens { version, servers: servers.clone() };
        let of = Sources { cluster: cluster.clone(), content };
        self.document(&cluster.name, |kept| kept.tokens, of, fields)
    }

    async fn places_of(&self, cluster: ClusterId) -> Arc<Document> {
        let name = cluster.name.clone();
        let mut uses = self.agent_configs().uses.lock().await;
        uses.apply_changes(self.cache()).await;
        let on_cluster = json(&holders(&self.cache().policy(), Cluster.info().plural, "", &name));
        let content = Content::Places { version: uses.version(&name), holders: on_cluster.clone() };
        let fields = || {
            let Lists { instances, uses } = uses.lists(&name);
            let separator = if uses.is_empty() { "" } else { "," };
            format!(r#""instances":[{instances}],"use":[{on_cluster}{separator}{uses}]"#)
        };
        self.document(&name, |kept| kept.places, Sources { cluster, content }, fields)
    }

    /// The kept document, if it was made from the same data; otherwise a new document with these fields.
    fn document(
        &self,
        cluster: &str,
        kept: impl FnOnce(Documents) -> Option<Arc<Document>>,
        of: Sources,
        fields: impl FnOnce() -> String,
    ) -> Arc<Document> {
        let kept = kept(self.agent_configs().of(cluster));
        if let Some(kept) = kept.filter(|kept| kept.of == of) {
            return kept;
        }
        let document = Arc::new(new_document(self.cache(), of, fields()));
        self.agent_configs().keep(cluster, &document);
        document
    }

    /// The fields with which an agent verifies tokens for a cluster, in JSON.
    fn tokens_fields(&self, cluster_uid: &str, servers: &str) -> String {
        let (cache, policy) = (self.cache(), self.token_policy());
        let mut revocations: Vec<Revocation> = cache
            .revocations()
            .into_iter()
            .map(|(uid, revocation_revision)| Revocation { uid, revocation_revision })
            .collect();
        revocations.sort_by(|one, other| one.uid.cmp(&other.uid));
        let keys: Vec<PublicKey> =
            cache.signing_keys().public().keys.iter().map(public_key).collect();
        let audiences = [GENERAL_AUDIENCE.to_owned(), cluster_audience(cluster_uid)];
        let mut fields = format!(
            r#""issuer":{},"audiences":{},"maxOfflineSeconds":{},"keys":{},"revocations":{}"#,
            json(&policy.issuer),
            json(&audiences),
            policy.max_offline_seconds,
            json(&keys),
            json(&revocations),
        );
        if !policy.forward_groups.is_empty() {
            fields.push_str(",\"forwardGroups\":");
            fields.push_str(&json(&policy.forward_groups));
        }
        if !servers.is_empty() {
            fields.push_str(",\"servers\":");
            fields.push_str(servers);
        }
        fields
    }

    /// The names of the servers that share the store, in JSON; empty if there is one.
    fn servers_in_json(&self) -> String {
        let members = self.servers().members();
        let members = members.map(|members| members.borrow().clone());
        let members = members.iter().flat_map(|members| members.iter());
        let mut names: Vec<&str> = members.map(|member| member.address.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        if names.len() > 1 { json(&names) } else { String::new() }
    }
}

fn public_key(key: &Jwk) -> PublicKey {
    let value = serde_json::to_value(key).unwrap_or_default();
    PublicKey::deserialize(value).unwrap_or_default()
}

fn new_document(cache: &Cache, of: Sources, fields: String) -> Document {
    let (info, name) = (AgentConfig.info(), of.cluster.name.as_str());
    let part = of.content.part().map(|part| format!(r#","part":"{}""#, part.as_str()));
    let (cluster, part) = (json(&of.cluster), part.unwrap_or_default());
    let head = stored_head(info);
    let stored = format!(
        r#"{head}"name":{}}},"spec":{{"cluster":{cluster},{fields}{part}}},"status":{{}}}}"#,
        json(&name)
    );
    let position = Position::end_of(cache.applied());
    let (key, modified) = (storage_key::object(info, None, name), WatchEventType::Modified);
    let cached = CachedObject::from_stored(&head, key, position, modified, stored.as_bytes());
    let Some(object) = cached else { unreachable!("it begins with the head") };
    let hash = hex::encode(digest(&SHA256, &stored.as_bytes()[head.len()..]));
    Document { of, fields, object: Arc::new(object), hash }
}
