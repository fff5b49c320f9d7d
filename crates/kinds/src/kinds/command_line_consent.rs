//! `CommandLineConsent`: the answer of a person to a login of the command line, at `/auth/authorize`. See
//! `docs/reference/single-sign-on.md#the-command-line`.
//!
//! It is not in the list of kinds: no path of the API serves it.

use crate::prelude::*;

/// The kind.
pub struct CommandLineConsent;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The value of [`Spec::decision`] that makes a code.
pub const ALLOW: &str = "Allow";
/// The value of [`Spec::decision`] that makes none.
pub const DENY: &str = "Deny";

/// The request of the command line, and the decision of the person.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.CommandLineConsentSpec")]
pub struct Spec {
    /// Where the browser brings the code.
    #[serde(rename = "redirectURI")]
    pub redirect_uri: String,
    /// Comes back with the code.
    pub state: String,
    /// The challenge of the verifier, with S256.
    pub code_challenge: String,
    /// The name of the machine, as the command line says it.
    pub host: String,
    /// The requested lifetime in seconds; 0 for as long as the session.
    pub ttl_seconds: i64,
    /// The encrypted request of a command line on another machine. It replaces all fields above.
    #[schemars(with = "String")]
    pub device_code: SecretText,
    /// The characters that the terminal shows.
    #[schemars(with = "String")]
    pub user_code: SecretText,
    /// Allow or Deny. Without a decision, the request is checked and described.
    pub decision: String,
}

/// The request that the person decides about, and the next step.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.CommandLineConsentStatus")]
pub struct Status {
    /// The name that access decisions will see.
    pub user_name: String,
    /// The name of the machine, as the command line says it.
    pub host: String,
    /// The address that the request came from.
    pub address: String,
    /// When the key ends at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Whether the session has a scope. The key has the same one.
    pub is_scoped: bool,
    /// Where the browser goes next. It has the code.
    #[schemars(with = "String")]
    pub redirect_to: SecretText,
}

impl Kind for CommandLineConsent {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "CommandLineConsent",
        plural: "commandlineconsents",
        singular: "commandlineconsent",
        verbs: &[Verb::Create],
        actions: &[Action::on_own_path(
            Verb::Create,
            Handler::Server(ServerAction::CommandLineConsent),
            "Describes a login of the command line, and allows or denies it.",
        )],
        on_command_line: false,
        description: "CommandLineConsent is the answer of a person to a login of the command line.",
        ..Info::DEFAULT
    };
}
