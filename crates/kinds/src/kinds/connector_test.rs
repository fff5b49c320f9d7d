//! `ConnectorTest`: whether a connector can be used, as far as the server can see without a person. It is the response to
//! `connectors/<c>/test`, and is never stored. See `docs/reference/single-sign-on.md#test-a-connector`.

use crate::prelude::*;

/// The kind.
pub struct ConnectorTest;

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ConnectorTestFields")]
pub struct Spec {
    /// The redirect URI to register at the identity provider.
    #[serde(rename = "redirectURI")]
    pub redirect_uri: String,
    /// The post-logout redirect URI to register, if the identity provider offers logouts.
    #[serde(rename = "logoutRedirectURI", skip_serializing_if = "String::is_empty")]
    pub logout_redirect_uri: String,
    /// The address of a trial login. It shows the claims and the teams of the person that logs in,
    /// and begins no session.
    #[serde(rename = "trialURL")]
    pub trial_url: String,
    /// The results of the checks.
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub checks: Vec<Check>,
}

/// One check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "sh.platform.management.v1.ConnectorTestCheck")]
pub struct Check {
    /// The name of the check: `Enabled`, `Discovery`, `Keys`, `ClientSecret`, `UserInfo` or
    /// `UserNames`.
    pub name: String,
    /// Whether it is as it must be.
    pub passed: bool,
    /// The finding, or the reason of the failure.
    pub message: String,
}

impl Kind for ConnectorTest {
    type Spec = Spec;
    type Status = NoStatus;

    const INFO: Info = Info {
        kind: "ConnectorTest",
        plural: "connectortests",
        singular: "connectortest",
        confidential: false,
        description: "ConnectorTest is whether a connector can be used.",
        ..Info::RESPONSE
    };
}
