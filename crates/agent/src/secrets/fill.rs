//! The rules by which the agent writes a Secret: a delivery and the Secret as it is make a plan. This module uses no
//! clock and no network.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use postern_kinds::SecretText;
use postern_kinds::secret_delivery::{DELETE, Spec as Delivery};
use postern_proxy::SecretBytes;
use serde::Serialize;

use super::native::{Data, NativeSecret, ON_END, SYNCED_AT, SYNCED_VERSION, Source};

/// Types of Secrets that others own: tokens by which a caller authenticates at the cluster, and the releases of helm.
const FOREIGN_TYPES: [&str; 2] =
    ["kubernetes.io/service-account-token", "bootstrap.kubernetes.io/token"];
const HELM_TYPES: &str = "helm.sh/";

/// Types that must have keys, and the values that stand for no data. All others may have no key.
const REQUIRED_KEYS: [RequiredKeys; 4] = [
    RequiredKeys { r#type: "kubernetes.io/tls", keys: &["tls.crt", "tls.key"], empty: "" },
    RequiredKeys { r#type: "kubernetes.io/basic-auth", keys: &["username"], empty: "" },
    RequiredKeys {
        r#type: "kubernetes.io/dockerconfigjson",
        keys: &[".dockerconfigjson"],
        empty: "e30=",
    },
    RequiredKeys { r#type: "kubernetes.io/dockercfg", keys: &[".dockercfg"], empty: "e30=" },
];

/// The keys that a type of Secret must have.
struct RequiredKeys {
    r#type: &'static str,
    keys: &'static [&'static str],
    /// The value without data, in base64: empty, or the empty JSON object.
    empty: &'static str,
}

/// What is done with a Secret after a delivery.
pub(super) enum Plan {
    /// It has the data already.
    Keep,
    /// Its labels name another source, its writer has ended the sync, or it is being deleted.
    Leave,
    /// It is not written, for this reason.
    Refuse(Refusal),
    /// It is written.
    Write(Write),
}

/// Why a Secret is not written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The central server offers nothing.
    NotOffered,
    /// The offer has ended, and the data stays.
    Ended,
    /// It has data of another writer.
    HasData,
    /// Others own Secrets of its type.
    ForeignType,
    /// Its data cannot be changed.
    Immutable,
    /// The delivery is not base64.
    Undecodable,
}

impl Refusal {
    /// The reason of the Event.
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::NotOffered => "SecretNotOffered",
            Self::Ended => "SecretSyncEnded",
            Self::HasData => "SecretHasData",
            Self::ForeignType => "SecretTypeRefused",
            Self::Immutable => "SecretImmutable",
            Self::Undecodable => "SecretSyncFailed",
        }
    }

    /// The message of the Event.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::NotOffered => "not offered here",
            Self::Ended => "not offered here; the data of the last sync stays",
            Self::HasData => {
                "the Secret has data that the agent did not write: remove the data, or use another Secret"
            }
            Self::ForeignType => {
                "the agent does not write Secrets of this type: use the type Opaque, or one of an application"
            }
            Self::Immutable => {
                "the Secret is immutable, so its data cannot be changed: create it again"
            }
            Self::Undecodable => "the data from the central server cannot be read",
        }
    }
}

/// A write of a Secret.
pub(super) struct Write {
    pub(super) change: Change,
    /// A JSON merge patch, with the resourceVersion as its precondition.
    pub(super) patch: SecretBytes,
}

/// What a write does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The Secret gets the data of its source.
    Fill,
    /// The data that the agent wrote is removed.
    Remove,
}

/// The data of a delivery as API servers write it.
///
/// # Errors
/// [`Refusal::Undecodable`] if a value is not base64.
pub(super) fn canonical(data: Data) -> Result<Data, Refusal> {
    let encoded = |value: SecretText| {
        let bytes = STANDARD.decode(value.expose()).map_err(|_| Refusal::Undecodable)?;
        Ok(SecretText::from(STANDARD.encode(SecretBytes::new(bytes).expose())))
    };
    data.into_iter().map(|(key, value)| Ok((key, encoded(value)?))).collect()
}

/// The plan for a Secret. The data of the delivery is [canonical].
pub(super) fn plan(secret: &NativeSecret, delivery: &Delivery, now: &str) -> Plan {
    let source = Source {
        project: delivery.project.clone(),
        project_secret: delivery.project_secret.clone(),
    };
    let metadata = &secret.metadata;
    let is_target = metadata.source().as_ref() == Some(&source);
    if !is_target || metadata.is_disabled() || metadata.is_ending() {
        return Plan::Leave;
    }
    if !delivery.is_offered() {
        return ended(secret, delivery);
    }
    if is_foreign(&secret.r#type) {
        return Plan::Refuse(Refusal::ForeignType);
    }
    if !metadata.is_filled() && !is_empty(secret) {
        return Plan::Refuse(Refusal::HasData);
    }
    let is_noted = metadata.synced_version() == Some(&delivery.version)
        && is_delete(metadata.on_end()) == is_delete(&delivery.on_end);
    if secret.data == delivery.data && is_noted {
        return Plan::Keep;
    }
    if secret.immutable == Some(true) {
        return Plan::Refuse(Refusal::Immutable);
    }
    let on_end = is_delete(&delivery.on_end).then_some(DELETE);
    let annotations = [
        (SYNCED_VERSION, Some(delivery.version.as_str())),
        (SYNCED_AT, Some(now)),
        (ON_END, on_end),
    ];
    Plan::Write(Write {
        change: Change::Fill,
        patch: patch(secret, annotations.into(), &delivery.data),
    })
}

/// The plan for a Secret that is not offered. The last write of an offer can change what happens at its end. A central server
/// that no longer knows the offer does not say it.
fn ended(secret: &NativeSecret, delivery: &Delivery) -> Plan {
    if !secret.metadata.is_filled() {
        return Plan::Refuse(Refusal::NotOffered);
    }
    let is_said = !delivery.on_end.is_empty();
    let on_end = if is_said { delivery.on_end.as_str() } else { secret.metadata.on_end() };
    if !is_delete(on_end) || is_foreign(&secret.r#type) {
        return Plan::Refuse(Refusal::Ended);
    }
    if secret.immutable == Some(true) {
        return Plan::Refuse(Refusal::Immutable);
    }
    let annotations = [(SYNCED_VERSION, None), (SYNCED_AT, None), (ON_END, None)];
    Plan::Write(Write {
        change: Change::Remove,
        patch: patch(secret, annotations.into(), &without_data(&secret.r#type)),
    })
}

fn is_delete(on_end: &str) -> bool {
    on_end == DELETE
}

/// Whether others own Secrets of this type.
fn is_foreign(r#type: &str) -> bool {
    FOREIGN_TYPES.contains(&r#type) || r#type.starts_with(HELM_TYPES)
}

fn required_keys(r#type: &str) -> Option<&'static RequiredKeys> {
    REQUIRED_KEYS.iter().find(|one| one.r#type == r#type)
}

/// Whether a Secret has no data. Required keys count if they have a value.
fn is_empty(secret: &NativeSecret) -> bool {
    let empty = required_keys(&secret.r#type).map_or("", |required| required.empty);
    secret.data.values().all(|value| value.expose().is_empty() || value.expose() == empty)
}

/// The data of a Secret of this type without data: only the keys that it must have.
fn without_data(r#type: &str) -> Data {
    let Some(required) = required_keys(r#type) else { return Data::new() };
    let empty = |key: &&str| ((*key).to_owned(), SecretText::from(required.empty.to_owned()));
    required.keys.iter().map(empty).collect()
}

/// The patch that gives a Secret exactly this data, and these annotations. `None` removes one.
fn patch(
    secret: &NativeSecret,
    annotations: BTreeMap<&'static str, Option<&str>>,
    data: &Data,
) -> SecretBytes {
    #[derive(Serialize)]
    struct Patch<'a> {
        metadata: Metadata<'a>,
        data: BTreeMap<&'a str, Option<&'a SecretText>>,
    }
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata<'a> {
        resource_version: &'a str,
        annotations: BTreeMap<&'static str, Option<&'a str>>,
    }
    let resource_version = secret.metadata.resource_version.as_str();
    let removed = secret.data.keys().map(|key| (key.as_str(), None));
    let set = data.iter().map(|(key, value)| (key.as_str(), Some(value)));
    let patch = Patch {
        metadata: Metadata { resource_version, annotations },
        data: removed.chain(set).collect(),
    };
    // Room for all of it: a buffer that grows leaves copies behind.
    let size: usize = data.iter().map(|(key, value)| key.len() + value.expose().len() + 16).sum();
    let removed: usize = secret.data.keys().map(|key| key.len() + 16).sum();
    let mut bytes = Vec::with_capacity(size + removed + 4096);
    // Writing into memory does not fail, and names and texts can be encoded.
    let _ = serde_json::to_writer(&mut bytes, &patch);
    SecretBytes::new(bytes)
}
