//! Self: the identity of the caller. It is returned and never stored. See
//! `docs/reference/authentication.md#self`.

use crate::prelude::*;
use crate::scope::Scope;

const fn who_am_i(verb: Verb) -> Action {
    let handler = Handler::Registry(RegistryAction::WhoAmI);
    Action::on_own_path(verb, handler, "The identity of the caller.")
}

/// The kind.
pub struct SelfKind;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The access key that the request is about.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SelfSpec")]
pub struct Spec {
    /// The name of another access key to ask about, which the caller may read; empty for the one
    /// that the request was sent with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub access_key: String,
}

/// The identity of the access key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.SelfStatus")]
pub struct Status {
    /// The user, if the key is a user's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<UserInfo>,
    /// The team, if the key is a team's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub team: Option<TeamInfo>,
    /// The name that access decisions and audit records have for the caller.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The uid of the user or team.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// All groups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// The access key's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub access_key: String,
    /// The access key's type.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub access_key_type: String,
    /// The scope of the access key; absent if it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub access_key_scope: Option<Scope>,
    /// The prefix of the namespaces of projects.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project_namespace_prefix: String,
    /// The namespace where shared secrets are by default.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub default_namespace: String,
    /// Namespaces in which the caller may create shared secrets: the default one first if it is among them, then
    /// `default`, then others in the order of their names. At most 100. It is `*` alone for all namespaces.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub secret_namespaces: Vec<String>,
}

/// A user, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.UserInfo")]
pub struct UserInfo {
    /// The User object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
    /// Name for logging in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// E-mail address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// The name that access decisions see, if it is not the object's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subject: String,
    /// The teams that the user is in.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub teams: Vec<TeamInfo>,
}

/// A team, in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.TeamInfo")]
pub struct TeamInfo {
    /// The Team object's name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Name shown to people.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub display_name: String,
}

impl Kind for SelfKind {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "Self",
        plural: "selves",
        singular: "self",
        verbs: &[Verb::Create, Verb::Get],
        actions: &[who_am_i(Verb::Create), who_am_i(Verb::Get)],
        // Confidential: a caller may put a key itself into `spec.accessKey` by mistake.
        description: "Self is the identity of the caller. It is returned and never stored.",
        ..Info::DEFAULT
    };
}
