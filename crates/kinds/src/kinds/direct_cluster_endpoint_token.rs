//! `DirectClusterEndpointToken`: a short-lived token for connected clusters. It is issued in the response to a create,
//! and nothing is stored. See `docs/reference/endpoint-tokens.md`.
//!
//! Only the fields and their validation. The server decides which caller gets which token.

use crate::prelude::*;
use crate::scope::{self, Scope, ScopeRule};

/// The lifetime of a token if its writer gives none, in seconds.
pub const DEFAULT_TTL_SECONDS: i64 = 3600;

/// Issues a token.
const ISSUE: Action = Action::on_own_path(
    Verb::Create,
    Handler::Registry(RegistryAction::IssueEndpointToken),
    "Creates a token for connected clusters.",
);

/// The kind.
pub struct DirectClusterEndpointToken;

/// The fields next to `metadata`.
pub type Fields = crate::Fields<Spec, Status>;

/// The lifetime and the maximum access of the token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.DirectClusterEndpointTokenSpec")]
pub struct Spec {
    /// Time-to-live in seconds, above 0. A token never outlives the access key of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = DEFAULT_TTL_SECONDS))]
    pub ttl: Option<i64>,
    /// The maximum access of the token, within the scope of the access key. If absent, the scope of the access key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// Deprecated: means `scope.rules`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "atomic"))]
    pub rules: Option<Vec<ScopeRule>>,
}

/// The token.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, rename_all = "camelCase")]
#[schemars(rename = "sh.platform.management.v1.DirectClusterEndpointTokenStatus")]
pub struct Status {
    /// The token, in the response that issues it and nowhere else. A dry run issues none.
    #[serde(skip_serializing_if = "is_empty")]
    #[schemars(with = "String")]
    pub token: SecretText,
}

fn is_empty(text: &SecretText) -> bool {
    text.expose().is_empty()
}

impl Kind for DirectClusterEndpointToken {
    type Spec = Spec;
    type Status = Status;

    const INFO: Info = Info {
        kind: "DirectClusterEndpointToken",
        plural: "directclusterendpointtokens",
        singular: "directclusterendpointtoken",
        verbs: &[Verb::Create],
        actions: &[ISSUE],
        on_command_line: false,
        description: "DirectClusterEndpointToken is a short-lived token for connected clusters. It is \
                      returned once and never stored.",
        strict_fields: Some(StrictFields {
            not_null: &["spec", "spec.ttl", "spec.scope", "spec.rules"],
            no_null_below: &["spec.scope", "spec.rules"],
            ..StrictFields::OF_CREDENTIALS
        }),
        ..Info::DEFAULT
    };

    fn prepare(new: &mut Draft<Fields>, _old: Option<&Draft<Fields>>, _ctx: &Context<'_>) {
        let spec = &mut new.fields.spec;
        spec.ttl.get_or_insert(DEFAULT_TTL_SECONDS);
        let has_rules = spec.scope.as_ref().is_some_and(|scope| !scope.rules.is_empty());
        if !has_rules && let Some(rules) = spec.rules.take() {
            spec.scope.get_or_insert_default().rules = rules;
        }
    }

    fn validate(write: &Write<'_, Fields>, errors: &mut FieldErrors) -> Result<(), ApiError> {
        let spec = write.spec();
        if let Some(ttl) = spec.ttl.filter(|ttl| *ttl <= 0) {
            let detail = "must be at least 1 second; the default is one hour";
            errors.push(FieldError::invalid("spec.ttl", ttl, detail));
        }
        if spec.rules.is_some() {
            let detail = "must not be set together with `scope.rules`, its replacement";
            errors.push(FieldError::forbidden("spec.rules", detail));
        }
        if let Some(scope) = &spec.scope {
            scope::validate(scope, "spec.scope", errors);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use postern_meta::object::Object;
    use serde_json::{Value, json};

    use super::*;
    use crate::{AnyKind as _, Caller, NoPrincipals};

    fn prepared(spec: &Value) -> (Value, Vec<String>) {
        let kind = DirectClusterEndpointToken;
        let info = crate::AnyKind::info(&kind);
        let mut object = Object::from_value(json!({
            "apiVersion": info.version.to_string(),
            "kind": info.kind,
            "metadata": {},
            "spec": spec,
            "status": { "token": "mine" },
        }))
        .unwrap();
        let caller = Caller::default();
        let ctx = Context::of(&caller, Timestamp::from_unix_seconds(0), &NoPrincipals);
        let verdict = kind.prepare(&mut object, None, &ctx).unwrap().verdict.unwrap();
        let fields = verdict.into_iter().map(|error| error.to_string());
        assert_eq!(object.fields["status"], json!({}), "no client chooses the token");
        (object.fields["spec"].clone(), fields.collect())
    }

    #[test]
    fn an_hour_is_the_default_and_rules_are_those_of_the_scope() {
        let rule = json!([{ "cluster": "east" }]);
        let scope = json!({ "rules": rule });
        for (sent, meant) in [
            (json!({}), json!({ "ttl": 3600 })),
            (json!({ "ttl": 5 }), json!({ "ttl": 5 })),
            (json!({ "rules": rule }), json!({ "ttl": 3600, "scope": scope })),
            (json!({ "rules": [] }), json!({ "ttl": 3600, "scope": {} })),
            (json!({ "scope": {}, "rules": rule }), json!({ "ttl": 3600, "scope": scope })),
        ] {
            assert_eq!(prepared(&sent), (meant, Vec::new()), "{sent}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (sent, field) in [
            (json!({ "ttl": 0 }), "spec.ttl"),
            (json!({ "ttl": -1 }), "spec.ttl"),
            (json!({ "scope": { "rules": [{}] }, "rules": [{}] }), "spec.rules"),
            (json!({ "scope": { "projects": [{}] } }), "spec.scope.projects[0].project"),
            (
                json!({ "rules": [{ "requestTargets": ["All"] }] }),
                "spec.scope.rules[0].requestTargets[0]",
            ),
        ] {
            let (_, errors) = prepared(&sent);
            assert!(matches!(&errors[..], [one] if one.starts_with(field)), "{sent}: {errors:?}");
        }
    }
}
