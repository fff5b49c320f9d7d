//! Native Secrets as API servers send them: their metadata in lists and watches, and one whole Secret before it is
//! written. No type here has a `Debug`: values can also be in annotations, where `kubectl apply` keeps them.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hash as _, Hasher as _};

use postern_kinds::SecretText;
use postern_meta::names::{dns1123_label, dns1123_subdomain};
use serde::{Deserialize, Deserializer};

use super::location::{Place, SecretId};

/// The selector of lists and watches: both labels exist.
pub(super) const SELECTOR: &str = "platform.sh%2Fproject%2Cplatform.sh%2Fproject-secret-name";

/// The annotation with the version of the data. The agent fills a Secret that has it, and removes the data of no other.
pub(super) const SYNCED_VERSION: &str = "platform.sh/synced-version";

/// The annotation with the time of the last write.
pub(super) const SYNCED_AT: &str = "platform.sh/synced-at";

/// The annotation that says what happens to the data at the end of the offer.
pub(super) const ON_END: &str = "platform.sh/on-end";

/// The value of `platform.sh/disable-sync` by which the writer of a Secret ends its sync.
const DISABLED: &str = "true";

/// The data of a Secret, in base64.
pub(super) type Data = BTreeMap<String, SecretText>;

/// The metadata of a Secret, as far as the agent needs it.
#[derive(Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Metadata {
    #[serde(deserialize_with = "short")]
    pub(super) name: String,
    #[serde(deserialize_with = "short")]
    pub(super) namespace: String,
    #[serde(deserialize_with = "short")]
    pub(super) uid: String,
    #[serde(deserialize_with = "short")]
    pub(super) resource_version: String,
    /// In RFC 3339, so that the texts are in the order of the times.
    #[serde(deserialize_with = "short")]
    pub(super) creation_timestamp: String,
    #[serde(deserialize_with = "short")]
    deletion_timestamp: String,
    labels: Labels,
    annotations: Annotations,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Labels {
    #[serde(rename = "platform.sh/project", deserialize_with = "short")]
    project: String,
    #[serde(rename = "platform.sh/project-secret-name", deserialize_with = "short")]
    project_secret: String,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "platform.sh/synced-version")]
    synced_version: Option<Short>,
    #[serde(rename = "platform.sh/on-end", deserialize_with = "short")]
    on_end: String,
    #[serde(rename = "platform.sh/disable-sync", deserialize_with = "short")]
    disable_sync: String,
}

/// A text of the metadata. A long one is replaced by an empty one: tenants write annotations, and a tenant can also be the
/// API server of a virtual cluster.
#[derive(Clone, Deserialize)]
struct Short(#[serde(deserialize_with = "short")] String);

/// The longest value of a label.
const MAX_LABEL_BYTES: usize = 63;

/// The longest text: the name of a Secret.
const MAX_TEXT_BYTES: usize = 253;

fn short<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(if text.len() > MAX_TEXT_BYTES { String::new() } else { text })
}

/// The project secret that the labels of a Secret name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Source {
    pub(super) project: String,
    pub(super) project_secret: String,
}

impl Metadata {
    /// The Secret in an API server.
    pub(super) fn id(&self, place: Place) -> SecretId {
        SecretId { place, namespace: self.namespace.clone(), name: self.name.clone() }
    }

    /// The project secret that its labels name; `None` if a label or a name is missing or not valid.
    pub(super) fn source(&self) -> Option<Source> {
        let Labels { project, project_secret } = self.labels.clone();
        let are_labels = [&project, &project_secret].into_iter().all(|label| is_label(label));
        let are_names =
            dns1123_label(&self.namespace).is_ok() && dns1123_subdomain(&self.name).is_ok();
        (are_labels && are_names).then_some(Source { project, project_secret })
    }

    /// Whether it is being deleted.
    pub(super) fn is_ending(&self) -> bool {
        !self.deletion_timestamp.is_empty()
    }

    /// Whether the agent has filled it.
    pub(super) fn is_filled(&self) -> bool {
        self.annotations.synced_version.is_some()
    }

    /// The version that the agent has noted.
    pub(super) fn synced_version(&self) -> Option<&str> {
        self.annotations.synced_version.as_ref().map(|version| version.0.as_str())
    }

    /// What the agent has noted for the end of the offer; empty for nothing.
    pub(super) fn on_end(&self) -> &str {
        &self.annotations.on_end
    }

    /// Whether its writer has ended the sync.
    pub(super) fn is_disabled(&self) -> bool {
        self.annotations.disable_sync == DISABLED
    }
}

/// Whether a text is the value of a label with content.
fn is_label(text: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// A whole Secret.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct NativeSecret {
    pub(super) metadata: Metadata,
    pub(super) r#type: String,
    pub(super) immutable: Option<bool>,
    pub(super) data: Data,
}

/// Metadata alone, as in a list or in an event of a watch.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Partial {
    pub(super) metadata: Metadata,
}

/// A page of a list.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Page {
    pub(super) metadata: PageMetadata,
    pub(super) items: Vec<Partial>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PageMetadata {
    pub(super) resource_version: String,
    pub(super) r#continue: String,
}

/// A keyed checksum of data, to see whether a Secret still has it.
pub(super) fn checksum(key: &impl BuildHasher, data: &Data) -> u64 {
    let mut hasher = key.build_hasher();
    for (name, value) in data {
        (name, value.expose()).hash(&mut hasher);
    }
    data.len().hash(&mut hasher);
    hasher.finish()
}
