//! Offers: a project secret names the instances of its project whose native Secrets may take its data. See
//! `docs/reference/shared-secrets.md#offers`.
//!
//! An offer is for the instances that its writer saw. The server keeps their uids and locations in `status.offers`. If one
//! of them changes, the offer is paused for this instance. A caller that may change the offer confirms it.

use std::collections::HashSet;

use postern_meta::names::dns1123_subdomain;

pub use crate::instance_location::{InstanceKind, InstanceLocation};
use crate::prelude::*;

/// The annotation that confirms an offer: each new value binds the offer to the instances that have its names now.
pub const OFFER_CONFIRMED: &str = "platform.sh/offer-confirmed";

/// The condition that says whether the offer counts for all instances that it names.
pub const OFFERED: &str = "Offered";

/// The values of `onEnd`: the agent keeps the data of the Secret, or removes it.
pub const ON_END: &[&str] = &[KEEP, DELETE];

/// The agent keeps the data of a Secret that is no longer offered. This is the default.
pub const KEEP: &str = "Keep";

/// The agent removes the data of a Secret that is no longer offered.
pub const DELETE: &str = "Delete";

/// The reason of the condition for an offer that is paused for an instance.
const PAUSED: &str = "Paused";

/// The most instances of a kind in an offer.
const MAX_INSTANCES: usize = 100;

/// The field.
const PATH: &str = "spec.offer";

/// The instances that may take the data of a project secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SecretOffer")]
pub struct Offer {
    /// Names of the project's `SpaceInstance` objects. At most 100. No pattern: a new instance gets nothing by its name alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub spaces: Vec<String>,
    /// Names of the project's `VirtualClusterInstance` objects. At most 100.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "set"))]
    pub virtual_clusters: Vec<String>,
    /// What agents do with the data in Secrets when the offer ends for them: `Keep` (the default) or `Delete`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub on_end: String,
}

impl Offer {
    /// The names of the instances of a kind.
    pub fn names(&self, kind: InstanceKind) -> &[String] {
        match kind {
            InstanceKind::Space => &self.spaces,
            InstanceKind::VirtualCluster => &self.virtual_clusters,
        }
    }

    /// Whether it names an instance.
    pub fn has(&self, kind: InstanceKind, name: &str) -> bool {
        self.names(kind).iter().any(|one| one == name)
    }

    fn instances(&self) -> impl Iterator<Item = (InstanceKind, &str)> {
        let of = |kind| self.names(kind).iter().map(move |name| (kind, name.as_str()));
        InstanceKind::ALL.into_iter().flat_map(of)
    }
}

/// An instance that a secret is offered to, as it was when the offer was written or confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.OfferedInstance")]
pub struct OfferedInstance {
    /// `SpaceInstance` or `VirtualClusterInstance`.
    pub kind: String,
    /// The name of the instance.
    pub name: String,
    /// The instance and its location.
    pub location: InstanceLocation,
    /// The uid of the namespace in the connected cluster, as the agent reported it first.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace_uid: String,
    /// Another uid of the namespace that the agent reported later: the namespace was created again. The offer is paused.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub replaced_by_namespace_uid: String,
}

impl OfferedInstance {
    /// Whether it is for an instance of this kind and name.
    pub fn is(&self, kind: InstanceKind, name: &str) -> bool {
        self.kind == kind.kind() && self.name == name
    }

    /// Whether the offer counts for an instance with this location.
    pub fn is_at(&self, location: &InstanceLocation) -> bool {
        self.location == *location && self.replaced_by_namespace_uid.is_empty()
    }
}

/// The status of a project secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ProjectSecretStatus")]
pub struct Status {
    /// The conditions of the object.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub conditions: Vec<Condition>,
    /// The instances that the secret is offered to. The server keeps it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub offers: Vec<OfferedInstance>,
}

impl Status {
    /// The status of a condition; empty when it is not known.
    pub fn status_of(&self, kind: &str) -> String {
        let found = self.conditions.iter().find(|condition| condition.r#type == kind);
        found.map(|condition| condition.status.clone()).unwrap_or_default()
    }
}

/// A state of an object with an offer.
#[derive(Clone, Copy)]
pub(crate) struct State<'a> {
    /// The metadata of the object.
    pub(crate) metadata: &'a ObjectMeta,
    /// The offer.
    pub(crate) offer: Option<&'a Offer>,
    /// The status.
    pub(crate) status: &'a Status,
}

impl State<'_> {
    fn has(&self, kind: InstanceKind, name: &str) -> bool {
        self.offer.is_some_and(|offer| offer.has(kind, name))
    }
}

/// Whether a write confirms the offer.
fn is_confirmed(new: State<'_>, old: Option<State<'_>>) -> bool {
    let value = |state: State<'_>| state.metadata.annotations.get(OFFER_CONFIRMED).cloned();
    value(new).is_some_and(|new| !new.is_empty() && old.and_then(value) != Some(new))
}

/// The instances that a write binds the offer to: new ones, and all of an offer that it confirms.
fn bound_anew<'a>(
    new: State<'a>,
    old: Option<State<'a>>,
) -> impl Iterator<Item = (InstanceKind, &'a str)> {
    let is_confirmed = is_confirmed(new, old);
    let is_new = move |kind, name: &str| !old.is_some_and(|old| old.has(kind, name));
    let instances = new.offer.into_iter().flat_map(Offer::instances);
    instances.filter(move |(kind, name)| is_confirmed || is_new(*kind, name))
}

/// The status after a write: the instances that the offer is bound to, and the condition.
pub(crate) fn prepared(new: State<'_>, old: Option<State<'_>>, ctx: &Context<'_>) -> Status {
    // A client cannot bind an offer through the status.
    let known = if ctx.is_server() { Some(new.status) } else { old.map(|old| old.status) };
    let known = known.map(|status| status.offers.as_slice()).unwrap_or_default();
    let bind_anew: HashSet<_> = bound_anew(new, old).collect();
    let mut offers = Vec::new();
    let mut paused = Vec::new();
    for (kind, name) in new.offer.into_iter().flat_map(Offer::instances) {
        let location = (ctx.instance)(kind, name).unwrap_or_default();
        let one = known.iter().find(|one| one.is(kind, name)).cloned();
        let one = one.filter(|_| !bind_anew.contains(&(kind, name))).unwrap_or_else(|| {
            // A write that does not name the instance does not bind the offer to it.
            let is_bound = bind_anew.contains(&(kind, name));
            let location = if is_bound { location.clone() } else { InstanceLocation::default() };
            let (kind, name) = (kind.kind().to_owned(), name.to_owned());
            OfferedInstance { kind, name, location, ..OfferedInstance::default() }
        });
        if location.uid.is_empty() || !one.is_at(&location) {
            paused.push(format!("{} \"{name}\"", kind.kind()));
        }
        offers.push(one);
    }
    let mut conditions = new.status.conditions.clone();
    set_condition(&mut conditions, offers.len(), &paused, ctx.now);
    Status { conditions, offers }
}

fn set_condition(conditions: &mut Vec<Condition>, count: usize, paused: &[String], now: Timestamp) {
    let before = conditions.iter().position(|one| one.r#type == OFFERED);
    if count == 0 {
        before.map(|index| conditions.remove(index));
        return;
    }
    let (status, reason, message) = if paused.is_empty() {
        ("True", OFFERED, String::new())
    } else {
        let message = format!(
            "the offer is paused, because these are gone, have moved or were created again: {}. To confirm the offer, \
             set the annotation {OFFER_CONFIRMED} to a new value",
            paused.join(", ")
        );
        ("False", PAUSED, message)
    };
    let old = before.and_then(|index| conditions.get(index));
    let since = old.filter(|old| old.status == status).and_then(|old| old.last_transition_time);
    let new = Condition {
        r#type: OFFERED.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: since.or(Some(now)),
        ..Condition::default()
    };
    match before.and_then(|index| conditions.get_mut(index)) {
        Some(old) => *old = new,
        None => conditions.push(new),
    }
}

/// The rights that a write of an offer requires. The instances get all data of the secret. So the writer must be able to
/// read and to change the secret, and to see each instance that the write binds the offer to.
pub(crate) fn required_rights(new: State<'_>, old: Option<State<'_>>) -> Vec<RequiredRight> {
    let namespace = new.metadata.namespace.as_str();
    let on = |verb, resource, name: &str| Right {
        namespace: namespace.to_owned(),
        ..Right::cluster(verb, MANAGEMENT_V1.group, resource, name)
    };
    let is_changed = old.is_some_and(|old| old.offer != new.offer || is_confirmed(new, Some(old)));
    let on_secret = ["get", "update"].into_iter().filter(|_| is_changed).map(|verb| {
        RequiredRight::from(on(verb, "projectsecrets", &new.metadata.name)).because(format!(
            "{PATH} gives the data of the secret to instances: a change requires the verbs get and update"
        ))
    });
    let on_instances = bound_anew(new, old).take(2 * MAX_INSTANCES).map(|(kind, name)| {
        RequiredRight::from(on("get", kind.plural(), name)).because(format!(
            "to offer the secret to the {} \"{name}\" requires the verb get on it",
            kind.kind()
        ))
    });
    on_secret.chain(on_instances).collect()
}

/// Adds an error for each part of an offer that is invalid, and for each instance that a write binds the offer to and
/// that is missing or on no connected cluster.
pub(crate) fn validate(
    new: State<'_>,
    old: Option<State<'_>>,
    ctx: &Context<'_>,
    errors: &mut FieldErrors,
) {
    let Some(offer) = new.offer else { return };
    if ctx.project_of_namespace.is_none() && old.is_none_or(|old| old.offer != new.offer) {
        let detail = "offers are allowed only in the namespace of a project";
        errors.push(FieldError::forbidden(PATH, detail));
        return;
    }
    if !offer.on_end.is_empty() {
        errors.check_supported(&format!("{PATH}.onEnd"), &offer.on_end, ON_END);
    }
    let bind_anew: HashSet<_> = bound_anew(new, old).collect();
    for kind in InstanceKind::ALL {
        let names = offer.names(kind);
        let path = format!("{PATH}.{}", kind.field());
        if !errors.check_count(&path, names.len(), MAX_INSTANCES) {
            continue;
        }
        let mut seen = HashSet::new();
        for (index, name) in names.iter().enumerate() {
            let path = format!("{path}[{index}]");
            if !seen.insert(name) {
                errors.push(FieldError::duplicate(path, name));
            } else if let Err(detail) = dns1123_subdomain(name) {
                let detail = format!("must be the name of an instance: {detail}");
                errors.push(FieldError::invalid(path, name, detail));
            } else if bind_anew.contains(&(kind, name.as_str())) && !ctx.is_server() {
                match (ctx.instance)(kind, name) {
                    None => errors.push(FieldError::not_found(path, name)),
                    Some(location) if location.cluster_uid.is_empty() => {
                        let detail = "must be on a connected cluster";
                        errors.push(FieldError::invalid(path, name, detail));
                    }
                    Some(_) => {}
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::Caller;
    use crate::principal::NoPrincipals;

    fn offer(spaces: &[&str]) -> Offer {
        let spaces = spaces.iter().map(|name| (*name).to_owned()).collect();
        Offer { spaces, ..Offer::default() }
    }

    fn location(uid: &str) -> InstanceLocation {
        let [uid, cluster, cluster_uid, namespace] =
            [uid, "east", "east-1", "web"].map(str::to_owned);
        InstanceLocation { uid, cluster, cluster_uid, namespace, ..InstanceLocation::default() }
    }

    /// The status after a write, when the space `web` has this uid.
    fn after(new: State<'_>, old: Option<State<'_>>, uid: &str, writer: WriterKind) -> Status {
        let instance = |kind, name: &str| {
            (kind == InstanceKind::Space && name == "web" && !uid.is_empty()).then(|| location(uid))
        };
        let (caller, now) = (Caller::default(), Timestamp::from_unix_seconds(1));
        let ctx =
            Context { writer, instance: &instance, ..Context::of(&caller, now, &NoPrincipals) };
        prepared(new, old, &ctx)
    }

    #[test]
    fn an_offer_stays_bound_to_the_instance_that_its_writer_saw() {
        let client = WriterKind::Client;
        let (plain, web) = (ObjectMeta::default(), offer(&["web"]));
        let none = Status::default();
        let new = State { metadata: &plain, offer: Some(&web), status: &none };
        let first = after(new, None, "one", client);
        assert_eq!((first.offers.len(), first.status_of(OFFERED)), (1, "True".to_owned()));
        assert_eq!(first.offers[0].location, location("one"));

        // Another space with the same name: any write leaves the offer as it is, and paused.
        let old = State { status: &first, ..new };
        for writer in [client, WriterKind::Master, WriterKind::Server] {
            let later = after(old, Some(old), "two", writer);
            assert_eq!(later.offers, first.offers, "{writer:?}");
            assert_eq!(later.status_of(OFFERED), "False", "{writer:?}");
            assert!(later.conditions[0].message.contains("SpaceInstance \"web\""));
        }
        // The space is gone.
        assert_eq!(after(old, Some(old), "", client).status_of(OFFERED), "False");
        // It is back as it was.
        assert_eq!(after(old, Some(old), "one", client).status_of(OFFERED), "True");

        // The same write with a new value of the annotation confirms the offer.
        let annotations = [(OFFER_CONFIRMED.to_owned(), "1".to_owned())].into();
        let confirming = ObjectMeta { annotations, ..ObjectMeta::default() };
        let new = State { metadata: &confirming, ..old };
        let confirmed = after(new, Some(old), "two", client);
        assert_eq!(confirmed.offers[0].location, location("two"));
        let old = State { status: &confirmed, ..new };
        assert_eq!(after(old, Some(old), "three", client).offers, confirmed.offers, "only once");
    }

    #[test]
    fn a_client_binds_nothing_through_the_status() {
        let (metadata, web) = (ObjectMeta::default(), offer(&["web"]));
        let none = Status::default();
        let bound = after(
            State { metadata: &metadata, offer: Some(&web), status: &none },
            None,
            "one",
            WriterKind::Client,
        );
        let old = State { metadata: &metadata, offer: Some(&web), status: &bound };
        let mut forged = bound.clone();
        forged.offers[0].location = location("two");
        forged.offers[0].namespace_uid = "n".to_owned();
        let new = State { status: &forged, ..old };
        assert_eq!(after(new, Some(old), "two", WriterKind::Client).offers, bound.offers);
        assert_eq!(after(new, Some(old), "two", WriterKind::Server).offers, forged.offers);
        // An offer without its record, as in an object of another store, is paused.
        let unbound = State { status: &none, ..old };
        let later = after(unbound, Some(unbound), "one", WriterKind::Client);
        assert_eq!(later.offers[0].location, InstanceLocation::default());
        assert_eq!(later.status_of(OFFERED), "False");
    }

    #[test]
    fn a_namespace_that_was_created_again_pauses_the_offer_until_it_is_confirmed() {
        let (metadata, web) = (ObjectMeta::default(), offer(&["web"]));
        let none = Status::default();
        let new = State { metadata: &metadata, offer: Some(&web), status: &none };
        let mut status = after(new, None, "one", WriterKind::Client);
        status.offers[0].namespace_uid = "n1".to_owned();
        status.offers[0].replaced_by_namespace_uid = "n2".to_owned();
        let old = State { status: &status, ..new };
        assert_eq!(after(old, Some(old), "one", WriterKind::Server).status_of(OFFERED), "False");
        let annotations = [(OFFER_CONFIRMED.to_owned(), "1".to_owned())].into();
        let metadata = ObjectMeta { annotations, ..ObjectMeta::default() };
        let confirmed =
            after(State { metadata: &metadata, ..old }, Some(old), "one", WriterKind::Client);
        assert_eq!(confirmed.status_of(OFFERED), "True");
        assert_eq!(confirmed.offers[0].namespace_uid, "", "the next report counts");
        // Withdrawn and offered again, it is a new offer.
        let withdrawn = State { offer: None, ..old };
        let gone = after(withdrawn, Some(old), "one", WriterKind::Client);
        assert_eq!((gone.offers.len(), gone.conditions.len()), (0, 0));
    }

    #[test]
    fn an_offer_takes_the_rights_on_the_secret_and_on_each_instance_that_it_is_bound_to() {
        let rights = |new: State<'_>, old: Option<State<'_>>| {
            let text = |right: &RequiredRight| {
                let right = right.first();
                format!("{} {} {}", right.verb, right.resource, right.name)
            };
            required_rights(new, old).iter().map(text).collect::<Vec<_>>()
        };
        let metadata = ObjectMeta { name: "db".to_owned(), ..ObjectMeta::default() };
        let (web, both, status) = (offer(&["web"]), offer(&["web", "api"]), Status::default());
        let with = |offer| State { metadata: &metadata, offer, status: &status };
        let secret = ["get projectsecrets db", "update projectsecrets db"];
        let (see_web, see_api) = ("get spaceinstances web", "get spaceinstances api");
        assert_eq!(rights(with(Some(&web)), None), [see_web]);
        assert_eq!(rights(with(None), Some(with(Some(&web)))), secret);
        assert_eq!(rights(with(Some(&web)), Some(with(Some(&web)))), [""; 0]);
        let added = [&secret[..], &[see_api]].concat();
        assert_eq!(rights(with(Some(&both)), Some(with(Some(&web)))), added);
        let annotations = [(OFFER_CONFIRMED.to_owned(), "1".to_owned())].into();
        let confirming = ObjectMeta { annotations, ..metadata.clone() };
        let new = State { metadata: &confirming, ..with(Some(&both)) };
        let all = [&secret[..], &[see_web, see_api]].concat();
        assert_eq!(rights(new, Some(with(Some(&both)))), all);
    }

    #[test]
    fn only_names_of_instances_on_a_connected_cluster_are_offered_to() {
        let metadata = ObjectMeta::default();
        let status = Status::default();
        let check = |offer: &Offer, old: Option<&Offer>| {
            let instance = |_, name: &str| match name {
                "web" => Some(location("one")),
                "lost" => Some(InstanceLocation::default()),
                _ => None,
            };
            let (caller, now) = (Caller::default(), Timestamp::from_unix_seconds(1));
            let ctx = Context {
                instance: &instance,
                project_of_namespace: Some("p"),
                ..Context::of(&caller, now, &NoPrincipals)
            };
            let mut errors = FieldErrors::new();
            let with = |offer| State { metadata: &metadata, offer: Some(offer), status: &status };
            validate(with(offer), old.map(with), &ctx, &mut errors);
            errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
        };
        assert_eq!(check(&offer(&["web"]), None), "");
        assert_eq!(check(&offer(&["web", "gone"]), Some(&offer(&["gone"]))), "");
        for (bad, expected) in [
            (offer(&["*"]), "spec.offer.spaces[0]: Invalid value: \"*\": must be the name of"),
            (offer(&["gone"]), "spec.offer.spaces[0]: Not found: \"gone\""),
            (offer(&["lost"]), "spec.offer.spaces[0]: Invalid value: \"lost\": must be on a"),
            (offer(&["web", "web"]), "spec.offer.spaces[1]: Duplicate value: \"web\""),
            (offer(&["web"; 101]), "spec.offer.spaces: Too many: 101"),
            (
                Offer { on_end: "Purge".to_owned(), ..Offer::default() },
                "spec.offer.onEnd: Unsupported value: \"Purge\"",
            ),
        ] {
            let found = check(&bad, None);
            assert!(found.starts_with(expected), "{found}");
        }
    }
}
