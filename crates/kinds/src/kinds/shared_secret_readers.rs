//! `SharedSecretReaders`: the identities that were sent values of a shared secret. It is the response to
//! `sharedsecrets/<s>/readers`, and is never stored. See `docs/reference/shared-secrets.md#readers`.

use crate::prelude::*;

/// The most readers of a secret that are kept.
pub const MAX_READERS: usize = 50;

/// Reads the readers of the secret.
pub(crate) const GET_READERS: Action = Action {
    subresource: "readers",
    verb: Verb::Get,
    right: ActionRight::OnSubresource,
    handler: Handler::Registry(RegistryAction::Readers),
    request: None,
    response: Response::Object(&SharedSecretReaders),
    description: "The identities that were sent values of the secret.",
};

/// The kind.
pub struct SharedSecretReaders;

/// The readers of a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.SharedSecretReadersFields")]
pub struct Spec {
    /// The time since which readers are noted: the creation of the secret, or the first start of a server that notes
    /// readers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Whether readers are missing. The 50 that were sent values last are kept, and a server with too many notes loses some.
    pub truncated: bool,
    /// The readers. The one that was sent values last is the first.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub readers: Vec<SecretReader>,
}

/// A reader of a secret: a caller with one access key, or a copy by secret sync. It has a user, a team or a subject.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SharedSecretReader")]
pub struct SecretReader {
    /// How the values were sent: Request, Sync or Agent. The agent of a connected cluster gets them from a copy that is
    /// offered to an instance.
    pub via: String,
    /// The ProjectSecret that got a copy: its namespace and name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub object: String,
    /// The name of the User. Of a copy, it is the writer of its labels.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user: String,
    /// The name of the Team.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub team: String,
    /// Another subject.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The name of the user or team for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// The name of the access key of the request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub access_key: String,
    /// The name of the access key for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub access_key_display_name: String,
    /// The caller that impersonated the user, team or subject. The access key is that of the caller.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub impersonated_by: String,
    /// The first time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_time: Option<Timestamp>,
    /// The last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_time: Option<Timestamp>,
    /// How many responses, events of watches or copies had the values.
    pub count: u64,
}

impl Kind for SharedSecretReaders {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "SharedSecretReaders",
        plural: "sharedsecretreaders",
        singular: "sharedsecretreaders",
        description: "SharedSecretReaders lists the identities that were sent values of a shared secret.",
        ..Info::RESPONSE
    };
}
