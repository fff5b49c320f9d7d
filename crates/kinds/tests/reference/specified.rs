//! The fields of the platform's API that clients know from its documentation: each is in the reference, which says what it
//! does, or that it has no effect.

use postern_kinds::AnyKind;
use postern_kinds::project_migrate_virtual_cluster_instance::ProjectMigrateVirtualClusterInstance;
use postern_meta::schema::Schema;
use serde_json::Value;

use crate::fields::fields_of;

/// The fields of each kind, below `spec` unless the path says otherwise.
const SPECIFIED: [(&str, &[&str]); 4] = [
    (
        "SharedSecret",
        &[
            "displayName",
            "description",
            "owner",
            "owner.user",
            "owner.team",
            "data",
            "access",
            "access[].name",
            "access[].verbs",
            "access[].subresources",
            "access[].users",
            "access[].teams",
        ],
    ),
    (
        "OwnedAccessKey",
        &[
            "displayName",
            "description",
            "user",
            "team",
            "subject",
            "groups",
            "key",
            "disabled",
            "ttl",
            "ttlAfterLastActivity",
            "scope",
            "type",
            "identity",
            "identity.userId",
            "identity.username",
            "identity.preferredUsername",
            "identity.email",
            "identity.emailVerified",
            "identity.groups",
            "identity.connector",
            "identity.connectorData",
            "identity.identityRefresh",
            "oidcProvider",
            "oidcProvider.clientId",
            "oidcProvider.nonce",
            "oidcProvider.redirectUri",
            "oidcProvider.scopes",
            "parent",
            "oidcLogin",
            "oidcLogin.idToken",
            "oidcLogin.accessToken",
            "oidcLogin.refreshToken",
            "oidcLogin.lastRefresh",
            "status.lastActivity",
        ],
    ),
    ("DirectClusterEndpointToken", &["ttl", "scope", "rules", "status.token"]),
    (
        "ProjectMigrateVirtualClusterInstance",
        &[
            "sourceVirtualClusterInstance",
            "sourceVirtualClusterInstance.name",
            "sourceVirtualClusterInstance.namespace",
        ],
    ),
];

/// The fields of a scope, of keys and of tokens.
const SCOPE: [&str; 22] = [
    "allowPlatformCli",
    "projects",
    "projects[].project",
    "spaces",
    "spaces[].project",
    "spaces[].space",
    "virtualClusters",
    "virtualClusters[].project",
    "virtualClusters[].virtualCluster",
    "rules",
    "rules[].verbs",
    "rules[].resources",
    "rules[].resources[].group",
    "rules[].resources[].resources",
    "rules[].resources[].resourceNames",
    "rules[].namespaces",
    "rules[].nonResourceURLs",
    "rules[].requestTargets",
    "rules[].cluster",
    "rules[].virtualClusters",
    "rules[].virtualClusters[].name",
    "rules[].virtualClusters[].namespace",
];

/// The fields, values and subresources that the server takes and that do nothing: where the reference says so, and the
/// words that it names them with.
const WITHOUT_EFFECT: [(&str, &str, &str); 9] = [
    ("OwnedAccessKey", "spec.oidcLogin", ""),
    ("OwnedAccessKey", "spec.oidcLogin.idToken", ""),
    ("OwnedAccessKey", "spec.oidcLogin.accessToken", ""),
    ("OwnedAccessKey", "spec.oidcLogin.refreshToken", ""),
    ("OwnedAccessKey", "spec.oidcLogin.lastRefresh", ""),
    ("OwnedAccessKey", "spec.type", "`Other`, `Reset` and `OIDCRefreshToken`"),
    ("SharedSecret", "spec.access[].subresources", "`chartinfo` and `charts`"),
    ("Project", "spec.allowedTemplates", ""),
    ("Project", "spec.members[].group", ""),
];

fn kind_named(name: &str) -> &'static dyn AnyKind {
    let request: &'static dyn AnyKind = &ProjectMigrateVirtualClusterInstance;
    let kinds = postern_kinds::all().iter().copied().chain([request]);
    let found = kinds.into_iter().find(|kind| kind.info().kind == name);
    found.unwrap_or_else(|| panic!("{name} is not served"))
}

/// The description of a field in the reference.
fn described(kind: &'static dyn AnyKind, path: &str) -> Option<String> {
    let found = fields_of(kind).into_iter().find(|field| field.path == path)?;
    description(kind.schema(), found.schema)
}

fn description(schema: &'static Schema, field: &'static Value) -> Option<String> {
    let text =
        [field, schema.resolve(field)].into_iter().find_map(|one| one["description"].as_str());
    text.map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn every_field_that_clients_know_is_described() {
    let scopes = ["OwnedAccessKey", "DirectClusterEndpointToken"].map(|kind| {
        (kind, SCOPE.iter().map(|field| format!("spec.scope.{field}")).collect::<Vec<_>>())
    });
    let others = SPECIFIED.map(|(kind, fields)| {
        let whole = |field: &&str| {
            let is_whole = field.starts_with("status.") || field.starts_with("source");
            if is_whole { (*field).to_owned() } else { format!("spec.{field}") }
        };
        (kind, fields.iter().map(whole).collect())
    });
    for (kind, fields) in scopes.into_iter().chain(others) {
        let kind = kind_named(kind);
        for field in fields {
            let name = kind.info().kind;
            let text = described(kind, &field);
            assert!(text.is_some_and(|text| !text.is_empty()), "{name} does not describe {field}");
        }
    }
}

#[test]
fn what_has_no_effect_is_said_to_have_none() {
    for (kind, field, words) in WITHOUT_EFFECT {
        let text = described(kind_named(kind), field).unwrap();
        assert!(text.contains("no effect") && text.contains(words), "{kind}: {field}: {text}");
    }
    // Every kind with access rules says the same about subresources.
    for kind in postern_kinds::all() {
        for field in fields_of(*kind) {
            if field.path.ends_with("ccess[].subresources") {
                let text = description(kind.schema(), field.schema).unwrap();
                assert!(text.contains("no effect"), "{}: {}", kind.info().kind, field.path);
            }
        }
    }
}
