//! The configuration of the agent of a connected cluster: keys, revocations, what is on the cluster, and who
//! may use it (decision 6). From it the agent decides as this server does, also while this one is down.

use std::collections::BTreeSet;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use bytes::Bytes;
use postern_auth::attributes::Attributes;
use postern_auth::endpoint_token::{GENERAL_AUDIENCE, Jwk, cluster_audience};
use postern_auth::policy::WhoCan;
use postern_auth::principal_index::PrincipalIndex;
use postern_kinds::agent_config::{
    AgentConfig, ClusterId, Fields, Instance, PlaceInCluster, PublicKey, Revocation, Spec, Use,
    UseSubject,
};
use postern_kinds::cluster::Cluster;
use postern_kinds::rbac::BoundSubject;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::virtual_cluster_instance::VirtualClusterInstance;
use postern_kinds::{AnyKind, MANAGEMENT_V1, NoStatus, Principal, Principals as _};
use postern_meta::object::{Object, ObjectMeta};
use postern_meta::status::ApiError;
use serde::Deserialize;

use crate::cache::PolicyAt;
use crate::registry::agent_configs::{Made, Places, PlacesState};
use crate::registry::{EncodedObject, Registry, not_found};
use crate::stages::authorize::Permit;
use crate::storage_key;

/// Objects that are looked at before others get their turn.
const OBJECTS_AT_ONCE: usize = 64;

/// The one part of an instance that counts here.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct InstanceSpec {
    cluster_ref: ClusterRef,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ClusterRef {
    cluster: String,
    namespace: String,
    virtual_cluster: String,
}

const INSTANCES: [&dyn AnyKind; 2] = [&VirtualClusterInstance, &SpaceInstance];

/// Returns the configuration of the agent of a cluster, and its hash. It is the one of last time, unless something in
/// it has changed since.
///
/// # Errors
/// 404 when there is no such cluster.
pub(super) async fn config(
    registry: &Registry,
    permit: &Permit,
) -> Result<(EncodedObject, String), ApiError> {
    registry.cache().wait_until_current().await?;
    let name = permit.name();
    let cache = registry.cache();
    let key = storage_key::object(Cluster.info(), None, name);
    let cluster = cache.of(Cluster.info()).get(&key)?.ok_or_else(|| not_found(&Cluster, name))?;
    let metadata = cluster.decode()?.metadata;
    let last = registry.agent_configs().get(name);
    let places = places(registry, name, last.as_deref()).await?;
    let tokens = registry.token_policy();
    let revocations = cache.revocations().into_iter();
    let mut revocations: Vec<Revocation> =
        revocations.map(|(uid, generation)| Revocation { uid, generation }).collect();
    revocations.sort_by(|one, other| one.uid.cmp(&other.uid));
    let rest = Spec {
        audiences: vec![GENERAL_AUDIENCE.to_owned(), cluster_audience(&metadata.uid)],
        cluster: ClusterId { name: name.to_owned(), uid: metadata.uid },
        issuer: tokens.issuer.clone(),
        max_offline_seconds: tokens.max_offline_seconds,
        keys: cache.signing_keys().public().keys.iter().map(public_key).collect(),
        revocations,
        forward_groups: tokens.forward_groups.clone(),
        ..Spec::default()
    };
    let is_same = |last: &Arc<Made>| Arc::ptr_eq(&last.places, &places) && last.rest == rest;
    let made = if let Some(last) = last.filter(is_same) {
        last
    } else {
        let made = Arc::new(made(name, rest, places)?);
        registry.agent_configs().keep(name, made.clone());
        made
    };
    Ok((EncodedObject { json: made.json.clone() }, made.hash.clone()))
}

fn public_key(key: &Jwk) -> PublicKey {
    let value = serde_json::to_value(key).unwrap_or_default();
    PublicKey::deserialize(value).unwrap_or_default()
}

/// Makes a configuration of the places, and of the rest of it.
fn made(name: &str, rest: Spec, places: Arc<Places>) -> Result<Made, ApiError> {
    let spec =
        Spec { instances: places.instances.clone(), uses: places.uses.clone(), ..rest.clone() };
    let fields = serde_json::to_value(Fields { spec, status: NoStatus::default() });
    let Ok(serde_json::Value::Object(fields)) = fields else {
        return Err(ApiError::internal("the response could not be encoded", "AgentConfig"));
    };
    let info = AgentConfig.info();
    let object = Object {
        api_version: info.version.to_string(),
        kind: info.kind.to_owned(),
        metadata: ObjectMeta { name: name.to_owned(), ..ObjectMeta::default() },
        fields,
    };
    let json = Bytes::from(object.to_json_bytes());
    let hash = hex::encode(digest(&SHA256, &json));
    Ok(Made { places, rest, json, hash })
}

/// Returns the places of a cluster: those of last time, unless something has changed since.
async fn places(
    registry: &Registry,
    cluster: &str,
    last: Option<&Made>,
) -> Result<Arc<Places>, ApiError> {
    let state = state_of(registry);
    match last {
        Some(last) if last.places.state == state => Ok(last.places.clone()),
        _ => make(registry, cluster, state).await.map(Arc::new),
    }
}

/// Returns the state of what decides. It is read before the places are made: then they are at least as new.
fn state_of(registry: &Registry) -> PlacesState {
    let cache = registry.cache();
    let kinds = INSTANCES.map(|kind| *cache.of(kind.info()).subscribe().borrow());
    PlacesState { access: cache.access_version(), kinds }
}

async fn make(registry: &Registry, cluster: &str, state: PlacesState) -> Result<Places, ApiError> {
    let policy = registry.cache().policy();
    let mut instances = Vec::new();
    let mut uses = vec![uses_of(registry, &policy, Cluster.info().plural, "", cluster)];
    for kind in INSTANCES {
        let objects = registry.cache().of(kind.info());
        // What is corrupt is left out: nobody gets to it, and to all others as before.
        let all = objects.list_intact(objects.prefix(), None, 0).objects;
        for (index, object) in all.into_iter().enumerate() {
            if index % OBJECTS_AT_ONCE == OBJECTS_AT_ONCE - 1 {
                tokio::task::yield_now().await;
            }
            let (Some(namespace), name) = storage_key::name_of(object.key()) else { continue };
            let Some(project) = policy.projects().of(namespace) else { continue };
            let Ok(decoded) = object.decode() else { continue };
            let spec = decoded.fields.get("spec").cloned().unwrap_or_default();
            let at = InstanceSpec::deserialize(spec).unwrap_or_default().cluster_ref;
            if at.cluster != cluster {
                continue;
            }
            uses.push(uses_of(registry, &policy, kind.info().plural, namespace, name));
            instances.push(Instance {
                kind: kind.info().kind.to_owned(),
                project: project.to_owned(),
                namespace: namespace.to_owned(),
                name: name.to_owned(),
                uid: decoded.metadata.uid,
                cluster_ref: PlaceInCluster {
                    namespace: at.namespace,
                    virtual_cluster: at.virtual_cluster,
                },
            });
        }
    }
    Ok(Places { state, instances, uses })
}

/// Returns who holds `use` on an object.
fn uses_of(
    registry: &Registry,
    policy: &PolicyAt,
    resource: &str,
    namespace: &str,
    name: &str,
) -> Use {
    let (verb, group, subresource) = ("use", MANAGEMENT_V1.group, "");
    let attributes = Attributes::Resource { verb, group, resource, subresource, namespace, name };
    let principals = registry.cache().principals();
    let who = policy.who_can(&attributes).into_iter();
    let subjects: BTreeSet<UseSubject> =
        who.filter_map(|grantee| subject(&principals, grantee.who)).collect();
    Use {
        resource: resource.to_owned(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        subjects: subjects.into_iter().collect(),
    }
}

/// Returns who is meant; `None` for somebody who is not there.
fn subject(principals: &PrincipalIndex, who: WhoCan) -> Option<UseSubject> {
    let of = |principal: Principal<'_>| {
        let uid = principals.uid(principal)?;
        Some(UseSubject { group: principal.group(), uid, ..UseSubject::default() })
    };
    match who {
        WhoCan::Subject(BoundSubject::User(user)) => {
            Some(UseSubject { user, ..UseSubject::default() })
        }
        WhoCan::Subject(BoundSubject::Group(group)) => {
            Some(UseSubject { group, ..UseSubject::default() })
        }
        WhoCan::Subject(BoundSubject::Principal { group, uid }) => {
            Some(UseSubject { group, uid, ..UseSubject::default() })
        }
        WhoCan::Owner { uid } => Some(UseSubject { uid, ..UseSubject::default() }),
        WhoCan::User(name) => of(Principal::User(&name)),
        // The group of a team has its members, and nobody gets `use` as the team's keys alone.
        WhoCan::Members(name) => of(Principal::Team(&name)),
        WhoCan::Team(_) => None,
    }
}
