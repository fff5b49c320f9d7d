//! Decides whether a Secret of a connected cluster gets the data of the project secret that its labels name.
//!
//! All of these must hold, and the answer is the same whichever fails:
//!
//! - The project secret exists and is not being deleted. It is in the namespace of the project that the label names.
//! - It offers its data to the instance by name.
//! - The instance, its location and its Cluster are those for which the offer was written or confirmed.
//! - The instance is on the Cluster of the agent.
//! - The namespace in the cluster has the uid that it had first.

use std::sync::Arc;

use postern_auth::policy::Policy;
use postern_kinds::project::namespace_of;
use postern_kinds::project_secret::ProjectSecret;
use postern_kinds::secret_offer::{InstanceKind, InstanceLocation, OfferedInstance, Status};
use postern_kinds::secret_subscription::SubscribedSecret;
use postern_kinds::space_instance::SpaceInstance;
use postern_kinds::{AnyKind as _, Verb};
use postern_meta::names::{dns1123_label, dns1123_subdomain};
use postern_meta::object::Object;
use postern_meta::status::ApiError;
use serde::{Deserialize, Serialize as _};

use super::spaces::Spaces;
use crate::admit::{Part, Writing};
use crate::cache::locations::StoredOffer;
use crate::cache::{Cache, CachedObject};
use crate::operations;
use crate::permit::Permit;
use crate::registry::Registry;
use crate::storage_key;

/// The state that decisions are based on.
pub(super) struct View<'a> {
    pub(super) cache: &'a Cache,
    pub(super) policy: &'a Policy,
    /// The Cluster of the agent.
    pub(super) cluster: &'a str,
    /// Its uid.
    pub(super) cluster_uid: &'a str,
    pub(super) spaces: &'a Spaces,
}

/// The answer for a Secret.
pub(super) enum Answer {
    /// It gets the data.
    Offered(Offered),
    /// It gets no data. If the project secret still exists, this has what its offer says about the end.
    NotOffered(Option<String>),
    /// The uid of the namespace must be recorded first.
    Unrecorded(Report),
}

/// A project secret that is offered to a Secret.
pub(super) struct Offered {
    pub(super) secret: Arc<CachedObject>,
    /// The version of its data: its uid and its resourceVersion.
    pub(super) version: String,
    /// What the agent does at the end of the offer.
    pub(super) on_end: String,
}

/// The uid of a namespace, as an agent reported it for an instance that a project secret is offered to.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct Report {
    namespace: String,
    secret: String,
    instance: (InstanceKind, String),
    uid: String,
    namespace_uid: String,
}

/// The storage key of the project secret that the labels of a Secret name; `None` if it cannot exist.
pub(super) fn key_of(wanted: &SubscribedSecret) -> Option<Arc<str>> {
    let namespace = namespace_of(&wanted.project);
    let are_names = dns1123_label(&namespace).is_ok()
        && dns1123_label(&wanted.project).is_ok()
        && dns1123_subdomain(&wanted.project_secret).is_ok();
    are_names.then(|| {
        storage_key::object(ProjectSecret.info(), Some(&namespace), &wanted.project_secret)
    })
}

/// The answer for a Secret that names the project secret with a storage key.
///
/// # Errors
/// 500 if the project secret or the instance is corrupt. Then nothing is known, and the Secret keeps its data.
pub(super) fn answer(
    view: &View<'_>,
    wanted: &SubscribedSecret,
    key: &str,
) -> Result<Answer, ApiError> {
    let none = Ok(Answer::NotOffered(None));
    let (Some(namespace), name) = storage_key::name_of(key) else { return none };
    if view.policy.projects().of(namespace) != Some(&wanted.project) {
        return none;
    }
    let found = view.cache.of(ProjectSecret.info()).get(key)?;
    let Some(secret) = found.filter(|secret| !secret.is_deleting()) else { return none };
    let stored = StoredOffer::of(&secret)?;
    let Some(offer) = stored.offer() else { return none };
    let ended = || Ok(Answer::NotOffered(Some(offer.on_end.clone())));
    let Some((kind, instance)) = instance_of(view, wanted, namespace) else {
        // A corrupt space may be the one with the namespace of the Secret.
        let spaces = view.cache.of(SpaceInstance.info());
        for name in offer.names(InstanceKind::Space) {
            spaces.get(&storage_key::object(SpaceInstance.info(), Some(namespace), name))?;
        }
        return ended();
    };
    if !offer.has(kind, &instance) {
        return ended();
    }
    let location = view.cache.location_of_instance(kind, namespace, &instance)?;
    let Some(location) = location.filter(|location| is_here(view, wanted, kind, location)) else {
        return ended();
    };
    let bound = stored.status.offers.iter().find(|one| one.is(kind, &instance));
    let Some(bound) = bound.filter(|bound| bound.is_at(&location)) else { return ended() };
    if bound.namespace_uid != wanted.namespace_uid {
        return Ok(Answer::Unrecorded(Report {
            namespace: namespace.to_owned(),
            secret: name.to_owned(),
            instance: (kind, instance),
            uid: location.uid,
            namespace_uid: wanted.namespace_uid.clone(),
        }));
    }
    let version = format!("{}.{}", stored.uid(), secret.position().packed());
    Ok(Answer::Offered(Offered { secret, version, on_end: offer.on_end.clone() }))
}

/// The instance that has a Secret, if it is an instance of the project with this namespace.
fn instance_of(
    view: &View<'_>,
    wanted: &SubscribedSecret,
    namespace: &str,
) -> Option<(InstanceKind, String)> {
    if let Some(instance) = &wanted.virtual_cluster {
        let is_of_project = instance.namespace == namespace;
        return is_of_project.then(|| (InstanceKind::VirtualCluster, instance.name.clone()));
    }
    let (of, name) = storage_key::name_of(view.spaces.in_namespace(&wanted.namespace)?);
    (of == Some(namespace)).then(|| (InstanceKind::Space, name.to_owned()))
}

/// Whether an instance is on the Cluster of the agent, and has the namespace of the Secret.
fn is_here(
    view: &View<'_>,
    wanted: &SubscribedSecret,
    kind: InstanceKind,
    location: &InstanceLocation,
) -> bool {
    let has_namespace = match kind {
        InstanceKind::Space => location.namespace == wanted.namespace,
        InstanceKind::VirtualCluster => !location.namespace.is_empty(),
    };
    has_namespace
        && location.cluster == view.cluster
        && location.cluster_uid == view.cluster_uid
        && !location.cluster_uid.is_empty()
}

/// Records the uid of a namespace: the first one, or another one that pauses the offer.
///
/// # Errors
/// The errors of an update of the project secret.
pub(super) async fn record(registry: &Registry, report: &Report) -> Result<(), ApiError> {
    let Report { namespace, secret, .. } = report;
    let permit = Permit::for_server(&ProjectSecret, Verb::Update, Some(namespace), secret);
    let writing = Writing { part: Part::Status, ..Writing::by_server() };
    let change =
        |current: &Object| Ok(recorded(current, report).unwrap_or_else(|| current.clone()));
    operations::update(registry, &permit, &writing, change).await.map(|_| ())
}

/// The project secret with a recorded uid; `None` if the offer is no longer bound to the instance of the report.
fn recorded(current: &Object, report: &Report) -> Option<Object> {
    let (kind, instance) = &report.instance;
    let mut object = current.clone();
    let mut status = Status::deserialize(object.fields.get("status")?).ok()?;
    let is_bound =
        |one: &&mut OfferedInstance| one.is(*kind, instance) && one.location.uid == report.uid;
    let bound = status.offers.iter_mut().find(is_bound)?;
    if bound.namespace_uid.is_empty() {
        bound.namespace_uid.clone_from(&report.namespace_uid);
    } else if bound.namespace_uid != report.namespace_uid {
        bound.replaced_by_namespace_uid.clone_from(&report.namespace_uid);
    }
    let status = status.serialize(serde_json::value::Serializer).ok()?;
    object.fields.insert("status".to_owned(), status);
    Some(object)
}
