//! `ConsoleLoginCode`: the code of a login link, at `/auth/code` for the caller, and at `users/<u>/logincode` for another user.
//! It begins one session of the console. See `docs/reference/sessions.md#login-links`.
//!
//! It is not in the list of kinds: no path of the API serves objects of it.

use crate::key_origin::is_zero;
use crate::prelude::*;

/// The kind.
pub struct ConsoleLoginCode;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// How long the code is valid.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ConsoleLoginCodeSpec")]
pub struct Spec {
    /// Time-to-live in seconds of a code for another user: 24 hours by default, and at most 72 hours. A code for the caller is
    /// valid for 60 seconds.
    #[serde(skip_serializing_if = "is_zero")]
    pub ttl: i64,
}

/// The code.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ConsoleLoginCodeStatus")]
pub struct Status {
    /// The name of the access key that the session will be.
    pub access_key: String,
    /// The name that access decisions will see.
    pub user_name: String,
    /// The code. It is returned once.
    #[schemars(with = "String")]
    pub code: SecretText,
    /// When the code ends.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
}

impl Kind for ConsoleLoginCode {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "ConsoleLoginCode",
        plural: "consolelogincodes",
        singular: "consolelogincode",
        verbs: &[Verb::Create],
        actions: &[Action::on_own_path(
            Verb::Create,
            Handler::Server(ServerAction::ConsoleLoginCode),
            "Makes a code for a login link.",
        )],
        on_command_line: false,
        description: "ConsoleLoginCode is the code of a login link.",
        ..Info::DEFAULT
    };
}
