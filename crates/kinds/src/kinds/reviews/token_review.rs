//! TokenReview (authentication.k8s.io/v1): the owner of a token.

use super::{AUTHENTICATION_V1, REVIEW, UserInfo, answered_by};
use crate::prelude::*;

/// The kind.
pub struct TokenReview;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The token that is asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.authentication.v1.TokenReviewSpec")]
pub struct Spec {
    /// The token. Required, and never returned.
    #[serde(skip_serializing)]
    #[schemars(with = "String")]
    pub token: SecretText,
    /// The audiences of which the token must be for one.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub audiences: Vec<String>,
}

/// The owner of the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[schemars(rename = "io.k8s.api.authentication.v1.TokenReviewStatus")]
pub struct Status {
    /// Whether the token is valid.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub authenticated: bool,
    /// The identity that the token has.
    pub user: UserInfo,
    /// The audiences of the request that the token is for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub audiences: Vec<String>,
    /// Why the token is not valid.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub error: String,
}

impl Kind for TokenReview {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        version: AUTHENTICATION_V1,
        kind: "TokenReview",
        plural: "tokenreviews",
        singular: "tokenreview",
        actions: &[answered_by(Review::Token, "The owner of a token.")],
        confidential: true,
        description: "TokenReview asks for the owner of a token.",
        ..REVIEW
    };

    fn validate(write: &Write<'_, Fields>, _errors: &mut FieldErrors) -> Result<(), ApiError> {
        if write.spec().token.expose().is_empty() {
            return Err(ApiError::bad_request(
                "token is required for TokenReview in authentication",
            ));
        }
        Ok(())
    }
}
