//! The origin of an access key: a login through a connector, a session, or a workload. Only the
//! server writes it (`docs/reference/access-keys.md#fields-of-the-server`).

use postern_meta::object::OwnerReference;
use postern_meta::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::names::MANAGEMENT_V1;
use crate::principal::KeyUse;
use crate::secret_text::SecretText;

/// Data of a single sign-on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessKeyIdentity")]
pub struct Identity {
    /// The user's subject at the identity provider.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_id: String,
    /// The name of the user at the identity provider.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub username: String,
    /// The name that the user prefers.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub preferred_username: String,
    /// The e-mail address of the user.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub email: String,
    /// Whether the address was verified.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub email_verified: bool,
    /// The groups of the user at the identity provider.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub groups: Vec<String>,
    /// The connector through which the user logged in.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub connector: String,
    /// Data that the connector needs later. Write-only: it is never returned.
    #[serde(skip_serializing)]
    #[schemars(with = "String")]
    pub connector_data: SecretText,
    /// When the identity was refreshed last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity_refresh: Option<Timestamp>,
}

/// The single sign-on for which a refresh token was made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessKeyOIDCProvider")]
pub struct OidcProvider {
    /// The client that the token was made for.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client_id: String,
    /// The nonce of the request.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nonce: String,
    /// Where the client was sent back to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub redirect_uri: String,
    /// The requested scopes.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scopes: String,
}

/// Deprecated: the tokens of a login.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessKeyOIDCLogin")]
pub struct OidcLogin {
    /// The ID token. It has no effect. Write-only: it is never returned.
    #[serde(skip_serializing)]
    #[schemars(with = "String")]
    pub id_token: SecretText,
    /// The access token. It has no effect. Write-only: it is never returned.
    #[serde(skip_serializing)]
    #[schemars(with = "String")]
    pub access_token: SecretText,
    /// The refresh token. It has no effect. Write-only: it is never returned.
    #[serde(skip_serializing)]
    #[schemars(with = "String")]
    pub refresh_token: SecretText,
    /// When the ID token was refreshed last. It has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_refresh: Option<Timestamp>,
}

/// The workload identity that made a key. The key ends with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.AccessKeyWorkload")]
pub struct Workload {
    /// The name of the WorkloadIdentity.
    pub identity: String,
    /// The uid of the WorkloadIdentity.
    pub uid: String,
}

impl Workload {
    pub(crate) fn reference(&self) -> OwnerReference {
        OwnerReference {
            api_version: MANAGEMENT_V1.to_string(),
            kind: "WorkloadIdentity".to_owned(),
            name: self.identity.clone(),
            uid: self.uid.clone(),
            ..OwnerReference::default()
        }
    }
}

/// The login that made a key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessKeyLogin")]
pub struct Login {
    /// The name of the Connector. The key ends with it.
    pub connector: String,
    /// The uid of the Connector.
    pub connector_uid: String,
    /// The issuer of the identity with which the user logged in. The key works only while the User is linked with this
    /// identity.
    pub issuer: String,
    /// The subject of this identity.
    pub subject: String,
    /// The SHA-256 of the id of the session at the provider, if it has one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub session: String,
    /// Whether the provider gave a refresh token, so that the groups of the user can be asked for again.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub refreshes: bool,
}

/// The facts about a session of the console.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessKeySession")]
pub struct Session {
    /// The address that the login came from.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// The `User-Agent` of the browser, at most 256 characters.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub user_agent: String,
    /// The seconds without a use after which the session ends, even before its `ttl`.
    pub idle_seconds: i64,
    /// When a session began that was the code of a login link before. Its lifetime counts from then, and not from the
    /// creation of the code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub begun: Option<Timestamp>,
    /// Whether the key is the code of a login link: it can do nothing but begin the session.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub login_code: bool,
    /// How often the user had been disabled when an administrator made the code. The code is invalid after the next time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_disabled_count: Option<i64>,
    /// Set for a login of the command line. Its key is sent in a header, and is never in a cookie.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_line: Option<CommandLine>,
}

impl Session {
    /// The use of a key with this session.
    pub(crate) fn key_use(&self) -> KeyUse {
        match (self.login_code, self.command_line.is_some()) {
            (false, false) => KeyUse::Session,
            (true, false) => KeyUse::LoginCode,
            (false, true) => KeyUse::CommandLine,
            (true, true) => KeyUse::CommandLineCode,
        }
    }
}

/// The facts about a login of the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.AccessKeyCommandLine")]
pub struct CommandLine {
    /// The name of the machine, as the command line said it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// The requested lifetime in seconds; 0 for as long as the session that consented.
    #[serde(skip_serializing_if = "is_zero")]
    pub ttl_seconds: i64,
}

/// Whether a number is left out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
pub(crate) fn is_zero(number: &i64) -> bool {
    *number == 0
}
