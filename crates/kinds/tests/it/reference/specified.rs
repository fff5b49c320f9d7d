//! The fields of the platform's API that clients know from its documentation. Each is in the
//! reference, which says its effect, or that it has none.

use postern_kinds::AnyKind;
use postern_kinds::project_migrate_virtual_cluster_instance::ProjectMigrateVirtualClusterInstance;
use postern_meta::schema::Schema;
use serde_json::Value;

use crate::reference::fields::fields_of;

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

/// The warnings of a create and the rules of the reference come from the same table, with which the descriptions agree.
#[test]
fn what_has_no_effect_is_said_to_have_none() {
    let mut count = 0;
    for kind in postern_kinds::all() {
        let table = kind.no_effect();
        for entry in table.iter() {
            let text = described(*kind, entry.path);
            let text = text.unwrap_or_else(|| panic!("{}: {}", kind.info().kind, entry.path));
            let names_all = entry.values.iter().all(|value| text.contains(&format!("`{value}`")));
            assert!(text.contains("no effect") && names_all, "{}: {text}", entry.path);
            count += 1;
        }
        for field in fields_of(*kind) {
            let text = description(kind.schema(), field.schema).unwrap_or_default();
            let is_said = text.contains("no effect");
            // The fields of one that has no effect have none either.
            let is_of =
                |path: &str| field.path == path || field.path.starts_with(&format!("{path}."));
            let is_listed = table.iter().any(|entry| is_of(entry.path));
            assert!(is_said <= is_listed, "{}: {}: {text}", kind.info().kind, field.path);
        }
    }
    assert!(count > 8, "{count}");
}
