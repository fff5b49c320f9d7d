//! `ConsoleSession`: the session of a browser, at `/auth/session`. It is an OwnedAccessKey with a
//! value that only a cookie has. See `docs/reference/sessions.md`.
//!
//! It is not in the list of kinds: no path of the API serves it.

use crate::prelude::*;

/// The kind.
pub struct ConsoleSession;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<NoSpec, Status>;

/// A session has no desired state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ConsoleSessionSpec")]
pub struct NoSpec {}

/// The session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.ConsoleSessionStatus")]
pub struct Status {
    /// The name of the access key that is the session.
    pub access_key: String,
    /// The name that access decisions see.
    pub user_name: String,
    /// When it ends, unless it is used before. Each use that counts moves this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ends_at: Option<Timestamp>,
    /// When it ends at the latest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// The seconds without a use after which it ends.
    pub idle_seconds: i64,
}

const fn action(verb: Verb, description: &'static str) -> Action {
    Action::on_own_path(verb, Handler::Server(ServerAction::ConsoleSession), description)
}

impl Kind for ConsoleSession {
    type Spec = NoSpec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "ConsoleSession",
        plural: "consolesessions",
        singular: "consolesession",
        verbs: &[Verb::Create, Verb::Get, Verb::Delete],
        actions: &[
            action(Verb::Create, "Begins a session with the access key of the request."),
            action(Verb::Get, "The session of the request."),
            action(Verb::Delete, "Ends the session of the request."),
        ],
        on_command_line: false,
        description: "ConsoleSession is the session of a browser.",
        ..Info::DEFAULT
    };
}
